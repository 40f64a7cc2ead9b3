package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stretch is what one connection, or one run of a program, has written. The
// kernel's queue goes with the daemon, so what is in it does not come again.
type stretch struct {
	text  []byte
	taken int  // bytes that had left the kernel's queue; below 0: nobody knows
	maybe bool // the line behind those may have come too
}

// held are descriptors of a daemon that the test has too, so that what a killed
// daemon had not read of them can still be read.
type held struct {
	conns map[string]int // by the address of the peer
	pipes map[string]int // by the name that /proc has for them
}

// hold takes them with pidfd_getfd(2); none where that is not allowed.
func hold(d *instance) held {
	h := held{make(map[string]int), make(map[string]int)}
	pidfd, err := unix.PidfdOpen(d.pid(), 0)
	if err != nil {
		return h
	}
	defer unix.Close(pidfd)
	dir := fmt.Sprintf("/proc/%d/fd/", d.pid())
	entries, _ := os.ReadDir(dir) // none: it has ended
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		link, _ := os.Readlink(dir + e.Name())
		if !strings.HasPrefix(link, "socket:") && !strings.HasPrefix(link, "pipe:") {
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if err != nil {
			continue
		}
		flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		switch peer, err := unix.Getpeername(fd); {
		case err == nil && peerName(peer) != "":
			h.conns[peerName(peer)] = fd
		case strings.HasPrefix(link, "pipe:") && flags&unix.O_ACCMODE == unix.O_RDONLY:
			h.pipes[link] = fd
		default:
			unix.Close(fd)
		}
	}
	return h
}

func peerName(a unix.Sockaddr) string {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return fmt.Sprintf("127.0.0.1:%d", a.Port)
	case *unix.SockaddrUnix:
		return a.Name
	}
	return ""
}

func (h held) close() {
	for _, fd := range h.conns {
		unix.Close(fd)
	}
	for _, fd := range h.pipes {
		unix.Close(fd)
	}
}

// unread is what nobody has read of a descriptor, to its end.
func unread(t *testing.T, fd int) []byte {
	t.Helper()
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for buf := make([]byte, 64<<10); ; {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, buf[:n]...)
	}
}

// connections is the peer of a stream source: it connects anew when a daemon has
// been killed, and knows what each connection has written.
type connections struct {
	t    *testing.T
	dial func() (net.Conn, error)

	mu   sync.Mutex // guards all, and is held while a line is written
	all  []*stretch
	open sync.Mutex // guards conn
	conn net.Conn   // nil: there is none
}

func (c *connections) current() net.Conn {
	c.open.Lock()
	defer c.open.Unlock()
	return c.conn
}

func (c *connections) set(conn net.Conn) {
	c.open.Lock()
	defer c.open.Unlock()
	c.conn = conn
}

// write sends a line; what nobody listens to is nowhere.
func (c *connections) write(line []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.current()
	if conn == nil {
		var err error
		if conn, err = c.dial(); err != nil {
			return nil
		}
		c.set(conn)
		c.all = append(c.all, &stretch{taken: -1})
	}
	n, err := conn.Write(line)
	last := c.all[len(c.all)-1]
	last.text = append(last.text, line[:n]...)
	if err != nil {
		conn.Close()
		c.set(nil)
	}
	return nil
}

// cut ends the connection of a daemon that has been killed, and finds out what
// that had read of it.
func (c *connections) cut(h held) {
	conn := c.current()
	if conn == nil {
		return
	}
	conn.SetWriteDeadline(time.Unix(1, 0)) // wakes write; fails if it has closed it
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.Close()
	c.set(nil)
	if fd, ok := h.conns[conn.LocalAddr().String()]; ok {
		last := c.all[len(c.all)-1]
		last.taken = len(last.text) - len(unread(c.t, fd))
	}
}

// end ends the connection of a daemon that goes on, which takes all of it.
func (c *connections) end() {
	c.t.Helper()
	conn := c.current()
	if conn == nil {
		return
	}
	conn.(interface{ CloseWrite() error }).CloseWrite()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || os.IsTimeout(err) {
		c.t.Errorf("the daemon does not end a connection: %d bytes, %v", n, err)
	}
	last := c.all[len(c.all)-1]
	last.taken = len(last.text)
	conn.Close()
}

// A program whose daemon is killed is this test binary with a variable set: the
// folder where it leaves a file for each of its processes, with the number of
// its first line and how many it has written.
const countingFolder = "LOGBOOM_TEST_COUNTING"

func init() {
	if dir := os.Getenv(countingFolder); dir != "" {
		os.Exit(countingProgram(dir))
	}
}

// countingProgram writes 5,000 numbered lines a second for as long as it lives.
func countingProgram(dir string) int {
	first := int(time.Now().UnixNano() / 10_000) // no process comes to the first of the next
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("run-%d-%d", first, os.Getpid())), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil || f.Truncate(8) != nil {
		return 1
	}
	count, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 1
	}
	n := 0
	s := send("prog", 5000, func(line []byte) error {
		line = numbered(line[:0], "prog", first+n)
		_, err := os.Stdout.Write(line)
		n++
		*(*uint64)(unsafe.Pointer(&count[0])) = uint64(n)
		return err
	})
	<-s.done
	return 1
}

// programRuns are the processes of that program.
type programRuns struct {
	t     *testing.T
	dir   string
	known map[string]*stretch // by the name of the file
}

// cut finds out what a daemon that has been killed had read of its program.
func (p *programRuns) cut(h held, links map[string]string) {
	for name, s := range p.fresh() {
		fd, ok := h.pipes[links[name]]
		if !ok {
			continue // it was just being started
		}
		s.settle(unread(p.t, fd))
	}
}

// links are the names of the pipes that processes write to.
func (p *programRuns) links() map[string]string {
	links := make(map[string]string)
	files, _ := filepath.Glob(p.dir + "/run-*")
	for _, file := range files {
		_, pid, _ := strings.Cut(strings.TrimPrefix(filepath.Base(file), "run-"), "-")
		if link, err := os.Readlink("/proc/" + pid + "/fd/1"); err == nil {
			links[file] = link
		}
	}
	return links
}

// count is how many processes there were.
func (p *programRuns) count() int {
	files, _ := filepath.Glob(p.dir + "/run-*")
	return len(files)
}

// fresh are the processes that were not known yet; all have ended.
func (p *programRuns) fresh() map[string]*stretch {
	fresh := make(map[string]*stretch)
	files, _ := filepath.Glob(p.dir + "/run-*")
	for _, file := range files {
		if p.known[file] == nil {
			fresh[file] = &stretch{text: p.lines(file), taken: -1}
			p.known[file] = fresh[file]
		}
	}
	return fresh
}

// lines are those that a process says it has written, and the next: it may have
// been killed before it could count it.
func (p *programRuns) lines(file string) (text []byte) {
	p.t.Helper()
	count, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	var first, pid int
	fmt.Sscanf(filepath.Base(file), "run-%d-%d", &first, &pid)
	n := 0
	if len(count) == 8 {
		n = int(*(*uint64)(unsafe.Pointer(&count[0])))
	}
	for i := range n + 1 {
		text = numbered(text, "prog", first+i)
	}
	return text
}

// settle says what of a process's text was not read.
func (s *stretch) settle(unread []byte) {
	counted := bytes.LastIndexByte(s.text[:len(s.text)-1], '\n') + 1
	switch {
	case len(unread) == 0:
		s.taken, s.maybe = counted, true
	case bytes.HasSuffix(s.text, unread):
		s.taken = len(s.text) - len(unread)
	default:
		s.taken = counted - len(unread)
	}
}

// end says that all that the last process has written was read.
func (p *programRuns) end() {
	p.fresh()
	all := p.stretches()
	all[len(all)-1].settle(nil)
}

// stretches are those of all processes, in their order.
func (p *programRuns) stretches() (all []*stretch) {
	names := make([]string, 0, len(p.known))
	for name := range p.known {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all = append(all, p.known[name])
	}
	return all
}

// wantStretches checks that a text has the lines of all stretches that left the
// kernel's queue, each once and in order; of one that was cut off within a line,
// that too. It returns how many there are.
func wantStretches(t *testing.T, name string, text []byte, all []*stretch) int {
	t.Helper()
	got := slices.Collect(bytes.Lines(text))
	exact, at := 0, 0
	next := func(line []byte) bool {
		if at < len(got) && bytes.Equal(bytes.TrimSuffix(got[at], []byte("\n")), bytes.TrimSuffix(line, []byte("\n"))) {
			at++
			return true
		}
		return false
	}
	for i, s := range all {
		if s.taken < 0 {
			for line := range bytes.Lines(s.text) {
				if next(line) {
					continue
				}
				if at < len(got) && len(got[at]) > 1 && bytes.HasPrefix(line, bytes.TrimSuffix(got[at], []byte("\n"))) {
					at++
				}
				break
			}
			continue
		}
		exact++
		for line := range bytes.Lines(s.text[:s.taken]) {
			if !next(line) {
				found := []byte("no more")
				if at < len(got) {
					found = got[at]
				}
				t.Errorf("%s: line %d, of stretch %d of %d: %q, want %q", name, at, i, len(all), found, line)
				return at
			}
		}
		if s.maybe {
			line, _, _ := bytes.Cut(s.text[s.taken:], []byte("\n"))
			next(line)
		}
	}
	if at != len(got) {
		t.Errorf("%s: %d lines, want %d: %q is too many", name, len(got), at, got[at])
	}
	t.Logf("%s: %d lines of %d connections or processes, of %d of which it is known what had been read", name, len(got), len(all), exact)
	return at
}
