package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heldSocket makes a bound datagram socket as systemd does for a socket unit:
// it lives for as long as the test, whoever reads from it.
func heldSocket(t *testing.T, family int, address unix.Sockaddr) *os.File {
	t.Helper()
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { f.Close() })
	if err := unix.Bind(fd, address); err != nil {
		t.Fatal(err)
	}
	return f
}

// activated gives the daemon sockets as systemd would (sd_listen_fds(3)).
func activated(sockets ...*os.File) setting {
	return func(cmd *exec.Cmd) {
		cmd.ExtraFiles = sockets
		cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", len(sockets)))
		behind("sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh")(cmd)
	}
}

const activatedConf = prelude + `
[source.udp]
type = "syslog"
listen = "udp://127.0.0.1:PORT"
sinks = ["file"]
[source.unixgram]
type = "syslog"
listen = "unixgram://held.sock"
sinks = ["file"]
` + trafficSink

// heldSockets makes a UDP and a unix socket, and a folder with a config for a
// daemon that is to get them.
func heldSockets(t *testing.T) (dir string, port int, sockets setting) {
	t.Helper()
	dir = t.TempDir()
	udp := heldSocket(t, unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	gram := heldSocket(t, unix.AF_UNIX, &unix.SockaddrUnix{Name: dir + "/held.sock"})
	name, err := unix.Getsockname(int(udp.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	port = name.(*unix.SockaddrInet4).Port
	configure(t, dir, fill(activatedConf, "PORT", port))
	return dir, port, activated(udp, gram)
}

// While systemd holds the sockets, a restart under load loses nothing but what
// overflows the queue, and that is counted exactly, once.
func TestRestartWithHeldSockets(t *testing.T) { // U08
	dir, port, sockets := heldSockets(t)
	write := toDatagrams(t, "udp", fmt.Sprintf("127.0.0.1:%d", port))
	// More than a new socket's queue holds: dropped before the first start.
	const early = 2000
	for n := range early {
		if err := write(numbered(nil, "early", n)); err != nil {
			t.Fatal(err)
		}
	}
	udp := send("udp", 5000, write)
	gram := send("unixgram", 2000, toDatagrams(t, "unixgram", dir+"/held.sock"))
	var all sums
	const times = 4
	for i := range times {
		d := runDaemon(t, dir, sockets)
		d.received(1000)
		if i == times-1 {
			udp.halt()
			gram.halt()
			if udp.err != nil || gram.err != nil {
				t.Errorf("sending failed: %v, %v", udp.err, gram.err)
			}
		}
		got := d.stop()
		if i == 0 && got.kernelDropped < early/2 {
			t.Errorf("%+v: before the first start the kernel dropped most of %d", got, early)
		}
		all.received += got.received
		all.delivered += got.delivered
		all.kernelDropped += got.kernelDropped
		if _, err := os.Stat(dir + "/held.sock"); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			// While nobody reads, more than the queue holds.
			for n := range 20000 {
				if err := write(numbered(nil, "late", n)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	text := readGzip(t, dir+"/log/udp.gz")
	lines := wantInOrder(t, text, "early") + wantInOrder(t, text, "udp") + wantInOrder(t, text, "late")
	sent := early + udp.sent + 20000
	if lines+all.kernelDropped != sent {
		t.Errorf("%d lines and %d dropped by the kernel, of %d sent", lines, all.kernelDropped, sent)
	}
	wantAll(t, readGzip(t, dir+"/log/unixgram.gz"), "unixgram", gram.sent)
	if n := lines + gram.sent; all.received != n || all.delivered != n {
		t.Errorf("%+v, want %d received and delivered", all, n)
	}
}

// halt stops all threads of the process, so that it takes nothing more.
func (p *process) halt() {
	p.t.Helper()
	p.signal(unix.SIGSTOP)
	eventually(p.t, 5*time.Second, "all threads have stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid()))
		if err != nil || len(threads) == 0 {
			p.t.Fatal(err, threads)
		}
		return !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(stat, []byte(") T "))
		})
	})
}

// What is in the queue when the daemon is killed is there for the next.
func TestKillWithHeldSockets(t *testing.T) {
	dir, port, sockets := heldSockets(t)
	udp := toDatagrams(t, "udp", fmt.Sprintf("127.0.0.1:%d", port))
	gram := toDatagrams(t, "unixgram", dir+"/held.sock")
	d := runDaemon(t, dir, sockets)
	burst := func(from, n int) {
		for i := from; i < from+n; i++ {
			if err := udp(numbered(nil, "udp", i)); err != nil {
				t.Fatal(err)
			}
			if err := gram(numbered(nil, "unixgram", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const perBurst = 8 // a unix socket's queue may be as short as 10
	burst(0, perBurst)
	eventually(t, 5*time.Second, "all is in the files", func() bool { return d.status().Sinks["file"].Delivered == 2*perBurst })
	d.halt()
	burst(perBurst, perBurst)
	d.signal(unix.SIGKILL)
	if code := d.wait(5 * time.Second); code != -1 {
		t.Fatalf("exit code %d of a daemon that was killed", code)
	}
	d = runDaemon(t, dir, sockets)
	d.received(perBurst)
	wantSums(t, d.stop(), 2*perBurst)
	wantAll(t, readGzip(t, dir+"/log/udp.gz"), "udp", 2*perBurst)
	wantAll(t, readGzip(t, dir+"/log/unixgram.gz"), "unixgram", 2*perBurst)
}
