package proc

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drainGrace is how long an exit waits for the end of its pipes: a grandchild
// that inherited them may hold them for as long as it lives.
const drainGrace = 2 * time.Second

// groupPoll is how often a process group is looked at after its leader has
// ended. Nothing tells when the last process of a group goes.
const groupPoll = 10 * time.Millisecond

// child is one run of a program.
type child struct {
	cmd     *exec.Cmd
	pid     int // and process group
	started time.Time
	exited  chan struct{} // closed once it is reaped: then cmd.ProcessState is set
	drained chan struct{} // closed once its pipes are read to the end
	ready   *readiness    // nil: it has only to live for StartWait
}

// start runs the command with its own pipes and process group.
//
// The write ends are files, so os/exec copies nothing and its Wait closes
// nothing that is still being read; our copies of them are closed as soon as
// the child has its own, so that the pipes end when its last holder does.
func (p *Program) start() (*child, error) {
	cmd, err := p.command(p.cfg.Command)
	if err != nil {
		return nil, err
	}
	if p.cfg.Stdin != nil {
		cmd.Stdin = p.cfg.Stdin
	}
	c := &child{cmd: cmd, exited: make(chan struct{}), drained: make(chan struct{})}
	if p.cfg.Ready != nil {
		if c.ready, err = p.newReadiness(cmd); err != nil {
			return nil, err
		}
	}
	pipes, err := p.launch(c)
	if err != nil {
		if c.ready != nil {
			c.ready.close()
		}
		return nil, err
	}
	c.pid = c.cmd.Process.Pid
	if c.ready != nil {
		c.ready.watch(p, c)
	}
	p.goroutines.Go(func() { // ends with the child
		c.cmd.Wait() // what it says is in ProcessState
		p.cfg.Family.reaped(c.pid)
		close(c.exited)
	})
	p.read(c, pipes)
	return c, nil
}

// launch starts the child and returns the pipes to read from.
func (p *Program) launch(c *child) ([]*Pipe, error) {
	pipes, writers, err := p.openPipes()
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout, c.cmd.Stderr = writers[0], writers[len(writers)-1]
	c.started = time.Now()
	err = p.cfg.Family.start(c.cmd, &p.cfg)
	closeAll(writers)
	if err != nil {
		closeAll(pipes)
		return nil, err
	}
	return pipes, nil
}

// command prepares a command to be run as the program is: its directory,
// environment and user. The child is killed if we are.
func (p *Program) command(words []string) (*exec.Cmd, error) {
	if err := findDirectory(p.cfg.Directory); err != nil {
		return nil, err
	}
	path, err := lookPath(words[0], p.cfg.Directory)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{
		Path: path,
		Args: words,
		Dir:  p.cfg.Directory,
		Env:  append(environment(), p.cfg.Environment...),
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid: true, Pdeathsig: unix.SIGKILL, Credential: p.cfg.User,
		},
	}, nil
}

// environment is ours, without what systemd told the daemon alone: a program
// that speaks sd_notify(3) would speak for it.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "NOTIFY_SOCKET" || name == "WATCHDOG_USEC" || name == "WATCHDOG_PID"
	})
}

// openPipes makes the pipe for stdout and, unless it is redirected, the one
// for stderr.
func (p *Program) openPipes() (pipes []*Pipe, writers []*os.File, err error) {
	streams := []string{Stdout, Stderr}
	if p.cfg.RedirectStderr {
		streams = streams[:1]
	}
	for _, stream := range streams {
		r, w, err := childPipe(stream)
		if err != nil {
			closeAll(pipes)
			closeAll(writers)
			return nil, nil, err
		}
		pipes, writers = append(pipes, r), append(writers, w)
	}
	return pipes, writers, nil
}

func closeAll[T io.Closer](files []T) {
	for _, f := range files {
		f.Close() // of a pipe: there is nothing to fail
	}
}

// read starts a reader for each of the child's pipes. It outlives the child
// while a grandchild writes; the program's end is the end of them all.
func (p *Program) read(c *child, pipes []*Pipe) {
	var readers sync.WaitGroup
	for _, pipe := range pipes {
		lines, handler := p.cfg.Lines, p.cfg.Output(c.pid, pipe.name)
		if p.cfg.Window != nil {
			lines.Window = p.cfg.Window(c.pid, pipe.name)
		}
		if c.ready != nil && p.cfg.Ready.Line != nil {
			handler = c.ready.in(p.cfg.Ready.Line, handler)
		}
		r := NewReader(pipe, p.cfg.Poller, lines, handler)
		readers.Go(func() { // ends with the pipe, or with abandon
			err := r.Run(p.abandon)
			pipe.Close() // even after an error: a full pipe without a reader would hang the child
			if err != nil {
				p.log.Error().Err(err).Int("pid", c.pid).Msg("output cannot be read, its pipe is closed")
			}
		})
	}
	p.goroutines.Go(func() { // ends with the readers
		readers.Wait()
		close(c.drained)
	})
}

// settle waits, after the exit, until all that the child wrote is handed out.
func (c *child) settle() {
	timer := time.NewTimer(drainGrace)
	defer timer.Stop()
	select {
	case <-c.drained:
	case <-timer.C:
	}
}

// signal sends sig to the child or to its whole group. An error means that
// there is nobody left to receive it.
func (c *child) signal(sig unix.Signal, group bool) error {
	if group {
		return os.NewSyscallError("kill", unix.Kill(-c.pid, sig))
	}
	return c.cmd.Process.Signal(sig)
}

// halt ends the child: the stop signal, StopWait for it to go (and, where the
// group would be killed, for those that it leaves behind: its workers may be
// at their last requests), then KILL. Its pipes are read all the time.
func (c *child) halt(cfg *Config) {
	deadline := time.NewTimer(cfg.StopWait)
	defer deadline.Stop()
	c.signal(cfg.StopSignal, cfg.StopAsGroup) // fails if it has just ended
	group := cfg.KillAsGroup || cfg.StopAsGroup

	select {
	case <-c.exited:
		if !group || c.groupEnds(deadline.C) {
			return
		}
	case <-deadline.C:
	}
	c.signal(unix.SIGKILL, group)
	<-c.exited
	if group {
		c.groupEnds(time.After(drainGrace)) // a killed process frees its port when it is gone
	}
}

// groupEnds waits until no process of the group is alive, or until timeout. The
// child must have been reaped.
func (c *child) groupEnds(timeout <-chan time.Time) bool {
	tick := time.NewTicker(groupPoll)
	defer tick.Stop()
	for {
		// As process 1, or as a subreaper, we inherit what the child leaves
		// behind, and a zombie is a member of its group.
		for {
			if pid, _ := unix.Wait4(-c.pid, nil, unix.WNOHANG, nil); pid <= 0 {
				break
			}
		}
		if unix.Kill(-c.pid, 0) == unix.ESRCH {
			return true
		}
		// Zombies are gone for all but process 1, which in a container may
		// never reap them. Without a /proc, kill(2) has to be believed.
		if members, known := groupMembers(c.pid); known && len(members) == 0 {
			return true
		}
		select {
		case <-tick.C:
		case <-timeout:
			return false
		}
	}
}
