package proc

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// notifyEnv makes this test binary send a note to its NOTIFY_SOCKET.
const notifyEnv = "PROC_TEST_NOTE"

// note is sd_notify(3), with a descriptor as BARRIER=1 has it.
func note() {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err == nil {
		to := &unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")}
		err = unix.Sendmsg(fd, []byte(os.Getenv(notifyEnv)), unix.UnixRights(1), to, 0)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// sayReady is a script's call of this binary to send a note.
func sayReady(text string) string {
	return fmt.Sprintf("%s=notify %s='%s' %s\n", helperEnv, notifyEnv, text, os.Args[0])
}

// until waits in a script for a file that the test makes.
const until = "while [ ! -e %s ]; do sleep 0.01; done\n"

// A program is RUNNING when it says that it is ready, in each way to say it.
func TestReady(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	for name, tt := range map[string]struct {
		ready Ready
		say   string
		do    func()
	}{
		"line":           {Ready{Line: regexp.MustCompile(`^listening on \d+$`)}, "echo not listening on 80; echo listening on 80\n", nil},
		"line of stderr": {Ready{Line: regexp.MustCompile(`up`)}, "echo u; echo up >&2\n", nil},
		"notify":         {Ready{Notify: true}, sayReady("STATUS=loading\nREADY=1"), nil},
		"tcp": {Ready{TCP: address}, "", func() {
			if listener, err = net.Listen("tcp", address); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "go")
			cfg := config("echo begun\n" + fmt.Sprintf(until, mark) + tt.say + "exec sleep 300")
			tt.ready.Timeout = patience
			cfg.Ready = &tt.ready
			r := launch(t, cfg)
			eventually(t, "its first line", func() bool { return r.out.len() > 0 })
			if s := r.Status(); s.State != Starting { // startsecs, 0, has no say
				t.Errorf("%v before it is ready", s.State)
			}
			if err := os.WriteFile(mark, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.do != nil {
				tt.do()
				defer listener.Close()
			}
			r.reaches(t, Running)
			if !r.Up(nil) || len(r.logged(t, "ready")) != 1 {
				t.Error("it is not up")
			}
		})
	}
}

// Notes of another kind, and of other users, do not make a program ready.
func TestReadyNotes(t *testing.T) {
	cfg := config(sayReady("READY=0\nSTATUS=READY=1") + "echo said; exec sleep 300")
	cfg.Ready = &Ready{Notify: true, Timeout: patience}
	r := launch(t, cfg)
	eventually(t, "it has spoken", func() bool { return r.out.len() > 0 })
	if s := r.Status(); s.State != Starting {
		t.Errorf("%v", s.State)
	}
	ready := &readiness{sender: func(uid uint32) bool { return uid == 5 }}
	if uid, ok := senderOf(nil); ok || ready.sender(uid) {
		t.Error("a note without a sender counts")
	}
}

// Only the program's own user, and root, may say that it is ready.
func TestReadyUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two more users")
	}
	const user, stranger = 65534, 65533
	for name, sender := range map[string]uint32{"its user": user, "root": 0} {
		t.Run(name, func(t *testing.T) {
			cfg := config("echo $NOTIFY_SOCKET; exec sleep 300")
			cfg.User = &syscall.Credential{Uid: user, Gid: user}
			cfg.Ready = &Ready{Notify: true, Timeout: patience}
			r := launch(t, cfg)
			eventually(t, "its socket", func() bool { return r.out.len() > 0 })
			r.out.mu.Lock()
			socket := strings.TrimSpace(r.out.all[0])
			r.out.mu.Unlock()
			// Once the second has been read, the first has had its effect.
			for range 2 {
				sayReadyAs(t, stranger, socket)
			}
			if s := r.Status(); s.State != Starting {
				t.Errorf("%v by a stranger's word", s.State)
			}
			sayReadyAs(t, sender, socket)
			r.reaches(t, Running)
		})
	}
}

// sayReadyAs sends READY=1 as a user, and returns once it has been read.
func sayReadyAs(t *testing.T, uid uint32, socket string) {
	t.Helper()
	send := func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			return errno
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, []byte("READY=1"), 0, &unix.SockaddrUnix{Name: socket}); err != nil {
			return err
		}
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if unread, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err != nil || unread == 0 {
				return err
			}
			if time.Now().After(deadline) {
				return os.ErrDeadlineExceeded
			}
		}
	}
	sent := make(chan error, 1)
	go onOwnThread(func() { sent <- send() }) // ends by itself
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// onOwnThread runs a job on a thread that ends with it, whatever it does to it.
func onOwnThread(job func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		job()
		return
	}
	// The main thread does not end; while it is held here, the job gets another.
	done := make(chan struct{})
	go func() {
		defer close(done)
		onOwnThread(job)
	}()
	<-done
	runtime.UnlockOSThread()
}

// What is not ready in time is stopped, and tried again as after any failure.
func TestReadyTooLate(t *testing.T) {
	cfg := config(`trap 'echo told; exit 0' TERM; echo begun; while :; do sleep 0.01; done`)
	cfg.StartRetries = 1
	cfg.Ready = &Ready{Line: regexp.MustCompile("never"), Timeout: 200 * time.Millisecond}
	r := launch(t, cfg)
	order := r.Start()
	r.reaches(t, Fatal)
	r.halted(t)
	if s := r.Status(); s.Restarts != 1 || s.Exit != "not ready within 200ms: exit status 0" {
		t.Errorf("%+v", s)
	}
	if err := order.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "not ready within") {
		t.Errorf("the order: %v", err)
	}
	r.out.expect(t, "begun\n", "told\n", "begun\n", "told\n")
}

// A program that says that it is ready and ends has been up.
func TestReadyAndGone(t *testing.T) {
	cfg := config("echo ready")
	cfg.Ready = &Ready{Line: regexp.MustCompile("ready"), Timeout: patience}
	cfg.Autorestart = Unexpected
	r := launch(t, cfg)
	if !r.Up(nil) {
		t.Error("it was not up")
	}
	r.reaches(t, Exited)
}

// A program waits for its gate, but not for longer than an operator does.
func TestGate(t *testing.T) {
	for name, open := range map[string]func(r *run, gate chan struct{}){
		"opened":  func(_ *run, gate chan struct{}) { close(gate) },
		"ordered": func(r *run, _ chan struct{}) { r.Start() },
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			cfg := config("exec sleep 300")
			cfg.Gate = gate
			r := launch(t, cfg)
			r.Begun(t.Context()) // others need not wait for it
			eventually(t, "it waits", func() bool { return len(r.logged(t, "waits for what it depends on")) == 1 })
			if s := r.Status(); s.State != Stopped || s.PID != 0 {
				t.Errorf("%+v", s)
			}
			open(r, gate)
			r.reaches(t, Running)
		})
	}
}

// A program that was stopped while it waited does not start when its gate opens.
func TestGateStopped(t *testing.T) {
	gate := make(chan struct{})
	cfg := config("exec sleep 300")
	cfg.Gate = gate
	r := launch(t, cfg)
	eventually(t, "it waits", func() bool { return len(r.logged(t, "waits for what it depends on")) == 1 })
	if err := r.Stop().Wait(t.Context()); err != nil {
		t.Error(err)
	}
	close(gate)
	if r.Up(timeout(50 * time.Millisecond)) {
		t.Error("it runs")
	}
	r.Start()
	r.reaches(t, Running)
	r.halted(t)
	r.Stop()
	if r.Up(nil) {
		t.Error("up after its end")
	}
}

// timeout is closed after a while.
func timeout(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}
