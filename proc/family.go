package proc

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// keepUmask as a umask: the child has ours.
const keepUmask = -1

// errClosed is returned for a start after Close.
var errClosed = errors.New("no program is started any more")

// Family is the children of this process. One thread of its own starts them
// all and lives until Close: the kernel kills a child whose parent ends, and
// the parent that it watches is the thread which forked (PR_SET_PDEATHSIG,
// prctl(2)), which Go would otherwise end when it likes.
//
// The thread is also the only one that reaps orphans, so that between a fork
// and our knowing its pid nothing can be taken for an orphan.
type Family struct {
	log     zerolog.Logger
	jobs    chan func() // run on the thread, one after the other
	closing chan struct{}
	closed  chan struct{} // the thread has ended

	// What follows belongs to the thread.
	own      map[int]bool // children that are not reaped yet
	record   *record      // nil: groups are not recorded
	unshared bool         // the thread has a umask of its own
}

// NewFamily starts the thread. If this process adopts orphans, as process 1 of
// a container does, it reaps them from now on: no other code of the process
// may have children then.
//
// With a path, the process groups of children are recorded there, and those
// that a process which was killed recorded and left behind are ended first,
// which takes some seconds at most. Only one process may use the path.
func NewFamily(path string, log zerolog.Logger) *Family {
	f := &Family{
		log:     log,
		jobs:    make(chan func()),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
		own:     make(map[int]bool),
	}
	if path != "" {
		endLeftovers(path, log)
		f.record = newRecord(path)
	}
	var ended chan os.Signal // nil: never
	if adoptsOrphans() {
		ended = make(chan os.Signal, 1)
		signal.Notify(ended, unix.SIGCHLD)
	}
	go f.run(ended) // ends with Close
	return f
}

// Close ends the thread, and with it, by KILL, every child that still runs.
// The programs should have ended.
func (f *Family) Close() {
	close(f.closing)
	<-f.closed
}

// run is the thread.
func (f *Family) run(ended chan os.Signal) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread would outlive its goroutine. As long as it is held
		// here, another goroutine gets another thread.
		go f.run(ended) // ends with Close
		<-f.closed
		runtime.UnlockOSThread()
		return
	}
	// Never unlocked: the thread ends with the goroutine, since its umask and
	// its slice may be others than those of the others.
	defer close(f.closed)
	defer signal.Stop(ended)
	ordinarySlice()
	var retry <-chan time.Time
	for {
		select {
		case job := <-f.jobs:
			job()
		case <-ended:
			retry = f.reapOrphans()
		case <-retry:
			retry = f.reapOrphans()
		case <-f.closing:
			if f.record != nil {
				f.record.remove()
			}
			return
		}
	}
}

// do runs a job on the thread and waits for it. It reports whether it ran.
func (f *Family) do(job func()) bool {
	done := make(chan struct{})
	select {
	case f.jobs <- func() { job(); close(done) }:
		<-done
		return true
	case <-f.closed:
		return false
	}
}

// start starts cmd in a process group of its own, with what cfg says of its
// umask, limits and nice value. Once it has been waited for, reaped must be
// called.
func (f *Family) start(cmd *exec.Cmd, cfg *Config) (err error) {
	ran := f.do(func() {
		if err = f.fork(cmd, cfg); err != nil {
			return
		}
		pid := cmd.Process.Pid
		f.own[pid] = true
		if f.record != nil {
			f.record.add(pid, cfg.Name)
			f.save()
		}
	})
	if !ran {
		return errClosed
	}
	return err
}

// fork starts cmd, and lets it go if it was held.
func (f *Family) fork(cmd *exec.Cmd, cfg *Config) error {
	if !cfg.held() {
		return f.forkMasked(cmd, cfg.Umask)
	}
	cmd.SysProcAttr.Ptrace = true
	if err := f.forkMasked(cmd, cfg.Umask); err != nil {
		return err
	}
	err := release(cmd, cfg)
	if err != nil {
		cmd.Wait() // that it was killed
	}
	return err
}

// forkMasked starts cmd. A umask belongs to all threads of a process that share
// their fs_struct, as Go's do, and a child has that of the thread that forked.
// So this thread is given one of its own (unshare(2), CLONE_FS). A container's
// seccomp filter may refuse that: then our own is changed for the moment of
// the fork, which nothing depends on, since the modes of files and sockets
// that the daemon makes are set whatever the umask.
func (f *Family) forkMasked(cmd *exec.Cmd, umask int) error {
	if umask == keepUmask {
		return cmd.Start()
	}
	if !f.unshared {
		f.unshared = unix.Unshare(unix.CLONE_FS) == nil
	}
	defer unix.Umask(unix.Umask(umask))
	return cmd.Start()
}

// ordinarySlice gives this thread, and so the children it forks, the slice that
// the system's threads have (sched_setattr(2)), whatever that of ours is.
func ordinarySlice() {
	if attr, err := unix.SchedGetAttr(0, 0); err == nil && attr.Policy == unix.SCHED_NORMAL {
		attr.Runtime = 0
		unix.SchedSetAttr(0, attr, 0)
	}
}

// reaped tells that a child has been waited for: its pid may be another's now.
func (f *Family) reaped(pid int) {
	f.do(func() {
		delete(f.own, pid)
		if f.record != nil {
			f.record.ended(pid) // in the file the next start will tell
		}
	})
}

// save writes the record. An error is told once.
func (f *Family) save() {
	if err := f.record.save(); err != nil {
		f.log.Error().Err(err).Msg("process groups cannot be recorded: if the daemon is killed, programs may outlive it")
		f.record = nil
	}
}
