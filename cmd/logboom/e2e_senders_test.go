package main

import (
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sender writes numbered lines at a rate until it is halted, or cannot go on.
type sender struct {
	name string
	sent int // lines that the system took; to be read after halt
	err  error
	stop chan struct{}
	done chan struct{}
}

// send starts a sender. write is given one line at a time, with its LF; its
// error ends the sender, and that line does not count.
func send(name string, perSecond int, write func(line []byte) error) *sender {
	s := &sender{name: name, stop: make(chan struct{}), done: make(chan struct{})}
	go func() { // ends with stop, or an error
		defer close(s.done)
		s.run(perSecond, write)
	}()
	return s
}

func (s *sender) run(perSecond int, write func(line []byte) error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var line []byte
	for start := time.Now(); ; {
		for due := int(time.Since(start).Seconds() * float64(perSecond)); s.sent < due; s.sent++ {
			line = numbered(line[:0], s.name, s.sent)
			if s.err = write(line); s.err != nil {
				return
			}
			if s.sent%64 == 0 && s.halted() {
				s.sent++
				return
			}
		}
		if s.halted() {
			return
		}
		<-tick.C
	}
}

func (s *sender) halted() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// halt ends the sender and returns how many lines it has sent.
func (s *sender) halt() int {
	close(s.stop)
	<-s.done
	return s.sent
}

// toDatagrams sends to a UDP address or to the path of a unix socket, and
// waits where the system makes it wait.
func toDatagrams(t *testing.T, network, address string) func([]byte) error {
	t.Helper()
	c := dial(t, network, address)
	return func(line []byte) error {
		_, err := c.Write(line[:len(line)-1])
		return err
	}
}

// toStream sends lines to a TCP address, a unix stream socket or a FIFO.
func toStream(c io.Writer) func([]byte) error {
	return func(line []byte) error {
		_, err := c.Write(line)
		return err
	}
}

func dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// openFIFO opens a FIFO that someone reads, for writing.
func openFIFO(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A program for the daemon to run is this test binary with a variable set: the
// folder where it leaves, in the file "count", how many lines it has written.
const programFolder = "LOGBOOM_TEST_PROGRAM"

// lastLines is how many lines the program writes while it is being stopped.
const lastLines = 100

func init() {
	if dir := os.Getenv(programFolder); dir != "" {
		os.Exit(program(dir))
	}
}

// program writes 10,000 numbered lines a second to standard output until it
// is told to stop by TERM, and then takes its time for the last ones.
func program(dir string) (code int) {
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, unix.SIGTERM)
	s := send("program", 10000, toStream(os.Stdout))
	<-terminate
	n := s.halt()
	var line []byte
	for end := n + lastLines; n < end; n++ {
		if n%20 == 0 {
			time.Sleep(50 * time.Millisecond)
		}
		line = numbered(line[:0], "program", n)
		if _, err := os.Stdout.Write(line); err != nil {
			return 1
		}
	}
	if os.WriteFile(filepath.Join(dir, "count"), []byte(strconv.Itoa(n)), 0o600) != nil {
		return 1
	}
	return 0
}
