// Package proc reads lines from pipes (a FIFO, standard input, the output of
// programs) and supervises the programs.
package proc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/drain"
)

// The streams of a program, as Output is told them.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Config is one supervised process. Names and meaning of its fields are
// supervisord's where it has them.
type Config struct {
	Name           string   // of the process, for the log
	Command        []string // what to run: a name is looked up in PATH
	Directory      string   // "" is ours
	Environment    []string // KEY=VALUE, added to ours
	RedirectStderr bool     // both streams on one pipe, as "stdout"
	Stdin          *os.File // nil: /dev/null
	Umask          int      // of the child; -1: ours
	Nice           int      // added to ours (nice(1))
	Limits         []Limit  // of the child; what they do not name is ours
	// User is who the child runs as; nil: who we are. New refuses what we are
	// not permitted to become.
	User *syscall.Credential

	Autostart    bool
	Autorestart  Restart
	ExitCodes    []int         // expected ones
	StartWait    time.Duration // a program that lives so long has started (startsecs)
	StartRetries int           // quick failures in a row that are tried again; -1: all
	Backoff      Backoff

	StopSignal  unix.Signal
	StopWait    time.Duration // then KILL (stopwaitsecs)
	StopAsGroup bool          // StopSignal goes to the group, and so does KILL
	KillAsGroup bool          // KILL goes to the group

	Family *Family // that the child is started by
	Poller *drain.Poller
	Log    zerolog.Logger
	Lines  LineConfig // of each stream
	// Output is asked once for each pipe of a child, before it is read, for
	// what takes its blocks. That borrows each block for its call; its calls
	// follow each other, those for two pipes may come at the same time. While
	// it blocks, the program's pipe fills.
	Output func(pid int, stream string) func(Block)

	// Window is asked likewise for where the pipe is read into, see LineConfig;
	// nil: memory that ends with the process.
	Window func(pid int, stream string) func(n int) Window
}

// Program is one supervised process: at most one child at a time.
type Program struct {
	cfg Config
	log zerolog.Logger

	restarts   restarts       // belongs to Run
	abandon    chan struct{}  // closed at the end: readers take what is there and return
	goroutines sync.WaitGroup // all that start made
	kick       chan struct{}  // holds one: want or again has changed
	ended      chan struct{}  // closed when Run returns

	mu      sync.Mutex // guards the fields below
	want    bool       // it shall run
	again   bool       // it shall stop first
	status  Status
	starts  int           // attempts, and so the number of the last one
	up      int           // the last one that lived for StartWait
	down    int           // the last one that has ended
	child   *child        // nil while none runs
	changed chan struct{} // closed, and replaced, when any of these changes
}

// New validates cfg. It starts nothing.
func New(cfg Config) (*Program, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, errors.New("command is empty")
	}
	if cfg.Directory != "" {
		info, err := os.Stat(cfg.Directory)
		if err != nil {
			return nil, fmt.Errorf("directory %q: %w", cfg.Directory, cause(err))
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("directory %q: %w", cfg.Directory, unix.ENOTDIR)
		}
	}
	if _, err := lookPath(cfg.Command[0], cfg.Directory); err != nil {
		return nil, err
	}
	for _, v := range cfg.Environment {
		if strings.IndexByte(v, '=') < 1 {
			return nil, fmt.Errorf("environment %q is not KEY=VALUE", v)
		}
	}
	if cfg.Backoff.Min <= 0 || cfg.Backoff.Max < cfg.Backoff.Min {
		return nil, fmt.Errorf("backoff from %v to %v is no range", cfg.Backoff.Min, cfg.Backoff.Max)
	}
	if err := mayBecome(cfg.User); err != nil {
		return nil, err
	}
	if cfg.StopSignal == 0 {
		cfg.StopSignal = unix.SIGTERM
	}
	return &Program{
		cfg: cfg,
		log: cfg.Log.With().Str("program", cfg.Name).Logger(),
		restarts: restarts{
			rule: cfg.Autorestart, codes: cfg.ExitCodes, retries: cfg.StartRetries, backoff: cfg.Backoff,
		},
		abandon: make(chan struct{}),
		kick:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
		changed: make(chan struct{}),
		want:    cfg.Autostart,
	}, nil
}

// lookPath finds the file to run. A path with a slash is relative to the
// directory that the program runs in, as for a shell that went there.
func lookPath(name, dir string) (string, error) {
	file := name
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		file = cmp.Or(dir, ".") + "/" + name
	}
	file, err := exec.LookPath(file)
	if err == nil {
		// os/exec would take a relative path from the directory of the child.
		file, err = filepath.Abs(file)
	}
	if err != nil {
		return "", fmt.Errorf("command %q: %w", name, cause(err))
	}
	return file, nil
}

// cause takes the names that an error repeats off it: its reader is told the
// value as the user gave it.
func cause(err error) error {
	for {
		switch e := err.(type) {
		case *exec.Error:
			err = e.Err
		case *fs.PathError:
			err = e.Err
		default:
			return err
		}
	}
}

// Run starts the program, if Autostart or Start says so, and again by its
// rules. Once stop is closed it stops the child, reads its pipes to their end
// (but for 2 s at most after the exit, if a grandchild holds them) and
// returns. A Program runs once, by Run or by Exec.
func (p *Program) Run(stop <-chan struct{}) {
	for !closed(stop) {
		if p.begin() {
			p.cycle(stop)
			continue
		}
		select {
		case <-p.kick:
		case <-stop:
		}
	}
	p.end()
}

// Exec runs the command once, without any restart, until it has ended and its
// pipes are read (the same 2 s apply). The status is what a shell would show:
// its exit code, or 128 and the number of the signal that killed it.
func (p *Program) Exec() (status int, err error) {
	defer p.end()
	p.Start()
	p.begin()
	c, err := p.start()
	if err != nil {
		return 0, err
	}
	p.enter(c)
	<-c.exited
	c.settle()
	p.leave(c.cmd.ProcessState.String(), Exited)
	if ws := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return c.cmd.ProcessState.ExitCode(), nil
}

// end makes the readers that grandchildren keep alive take what is there and
// return, and waits for every goroutine.
func (p *Program) end() {
	close(p.abandon)
	p.goroutines.Wait()
	close(p.ended)
}

// cycle is one run of the program and the delay after it.
func (p *Program) cycle(stop <-chan struct{}) {
	var end ending
	c, err := p.start()
	if err != nil {
		end.code = -1
	} else {
		p.enter(c)
		p.log.Info().Int("pid", c.pid).Msg("started")
		up, ordered := p.watch(c, stop)
		if ordered {
			p.setState(Stopping)
			c.halt(&p.cfg)
		}
		end = ending{up: up, code: c.cmd.ProcessState.ExitCode(), ran: time.Since(c.started)}
		c.settle()
		if ordered {
			p.stopped(c, end)
			return
		}
	}
	p.pause(p.crashed(c, err, end), stop)
}

// watch waits for the child to exit (up says whether it lived for StartWait)
// or for an order to stop it.
func (p *Program) watch(c *child, stop <-chan struct{}) (up, ordered bool) {
	timer := time.NewTimer(p.cfg.StartWait)
	defer timer.Stop()
	if up = p.cfg.StartWait <= 0; up {
		p.setState(Running)
	}
	for {
		select {
		case <-c.exited:
			return up, false
		case <-timer.C:
			up = true
			p.setState(Running)
		case <-stop:
			return up, true
		case <-p.kick:
			if want, again := p.wanted(); !want || again {
				return up, true
			}
		}
	}
}

// stopped is the end of a run that was ordered.
func (p *Program) stopped(c *child, end ending) {
	exit := c.cmd.ProcessState.String()
	p.log.Info().Int("pid", c.pid).Str("exit", exit).Stringer("ran", round(end.ran)).Msg("stopped")
	p.restarts.forget()
	p.leave(exit, Stopped)
}

// crashed is the end of a run that was not ordered, or of an attempt that failed
// with err: one line in the log, and the delay before the next start.
func (p *Program) crashed(c *child, err error, end ending) time.Duration {
	next, delay := p.restarts.after(end)
	level, msg := zerolog.WarnLevel, "ended"
	exit := ""
	if err != nil {
		exit, msg = err.Error(), "cannot be started"
	} else {
		exit = c.cmd.ProcessState.String()
	}
	if next == Fatal {
		level, msg = zerolog.ErrorLevel, msg+" too often: gave up"
	} else if p.restarts.expected(end) {
		level = zerolog.InfoLevel
	}
	line := p.log.WithLevel(level).Str("exit", exit).Stringer("ran", round(end.ran))
	if c != nil {
		line.Int("pid", c.pid)
	}
	if next == Backingoff {
		line.Stringer("restart_in", round(delay))
	} else {
		p.restarts.forget() // the next start is an order's
	}
	line.Msg(msg)
	p.leave(exit, next)
	return delay
}

// round makes a time readable.
func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// pause waits for the next start, unless an order comes first.
func (p *Program) pause(delay time.Duration, stop <-chan struct{}) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-stop:
			return
		case <-p.kick:
			if want, again := p.wanted(); !want || again {
				p.setState(Stopped)
				p.restarts.forget()
				return
			}
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
