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
	Gate         <-chan struct{} // closed when what it depends on is up; until then Autostart waits; nil: nothing
	Autorestart  Restart
	ExitCodes    []int         // expected ones
	StartWait    time.Duration // a program that lives so long has started (startsecs)
	Ready        *Ready        // it has started when this says so, instead; nil: StartWait
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
	waiting bool       // for Gate
	status  Status
	starts  int           // attempts, and so the number of the last one
	up      int           // the last one that lived for StartWait
	down    int           // the last one that has ended
	halted  int           // the last one that an order has ended
	child   *child        // nil while none runs
	changed chan struct{} // closed, and replaced, when any of these changes
}

// New validates cfg. It starts nothing. Whether there is a command, and a
// directory, each start sees for itself: they may come with the next release
// of the program, and are no reason for others not to run.
func New(cfg Config) (*Program, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, errors.New("command is empty")
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
		waiting: cfg.Gate != nil,
	}, nil
}

// findDirectory looks whether there is a directory to run in. The failed start
// of a child would not tell it from a missing command.
func findDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = unix.ENOTDIR
	}
	if err != nil {
		return fmt.Errorf("directory %q: %w", dir, cause(err))
	}
	return nil
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
	p.await(stop)
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
// its exit code, or 128 and the number of the signal that killed it. It closes
// started when Signal reaches the command, and never if that cannot be started.
func (p *Program) Exec(started chan<- struct{}) (status int, err error) {
	defer p.end()
	p.Start()
	p.begin()
	c, err := p.start()
	if err != nil {
		return 0, err
	}
	p.enter(c)
	close(started)
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

// verdict is why a run is over.
type verdict int

const (
	itEnded verdict = iota
	ordered
	late // it was not ready in time
)

// cycle is one run of the program and the delay after it.
func (p *Program) cycle(stop <-chan struct{}) {
	c, err := p.start()
	if err != nil {
		p.pause(p.crashed("cannot be started", 0, err.Error(), ending{code: -1}), stop)
		return
	}
	p.enter(c)
	p.log.Info().Int("pid", c.pid).Msg("started")
	up, why := p.watch(c, stop)
	if why != itEnded {
		p.setState(Stopping)
		c.halt(&p.cfg)
	}
	end := ending{up: up, code: c.cmd.ProcessState.ExitCode(), ran: time.Since(c.started)}
	c.settle()
	if why == itEnded && !end.up && c.ready.isTold() { // its last lines said so
		end.up = true
		p.setState(Running)
	}
	exit := c.cmd.ProcessState.String()
	switch why {
	case ordered:
		p.stopped(c.pid, exit, end)
		return
	case late:
		end.code = -1 // however it took the stop signal
		exit = fmt.Sprintf("not ready within %v: %s", p.cfg.Ready.Timeout, exit)
	}
	p.pause(p.crashed("ended", c.pid, exit, end), stop)
}

// watch waits for the child to exit, for an order to stop it, or for the end
// of the time that it has to get ready. up says whether it has started: it was
// ready, or has lived for StartWait.
func (p *Program) watch(c *child, stop <-chan struct{}) (up bool, why verdict) {
	wait := p.cfg.StartWait
	var ready <-chan struct{} // nil: never
	if c.ready != nil {
		wait, ready = p.cfg.Ready.Timeout, c.ready.told
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	started := func() {
		up, ready = true, nil
		p.setState(Running)
	}
	if c.ready == nil && wait <= 0 {
		started()
	}
	for {
		select {
		case <-c.exited:
			return up, itEnded
		case <-ready:
			p.log.Info().Int("pid", c.pid).Stringer("after", round(time.Since(c.started))).Msg("ready")
			started()
		case <-timer.C:
			switch {
			case c.ready == nil:
				started()
			case !up:
				return false, late
			}
		case <-stop:
			return up, ordered
		case <-p.kick:
			if want, again := p.wanted(); !want || again {
				return up, ordered
			}
		}
	}
}

// stopped is the end of a run that was ordered.
func (p *Program) stopped(pid int, exit string, end ending) {
	p.log.Info().Int("pid", pid).Str("exit", exit).Stringer("ran", round(end.ran)).Msg("stopped")
	p.restarts.forget()
	p.leave(exit, Stopped)
}

// crashed is the end of a run that was not ordered, or of an attempt that led
// to none (pid is 0): one line in the log, and the delay before the next start.
func (p *Program) crashed(msg string, pid int, exit string, end ending) time.Duration {
	next, delay := p.restarts.after(end)
	level := zerolog.WarnLevel
	if next == Fatal {
		level, msg = zerolog.ErrorLevel, msg+" too often: gave up"
	} else if p.restarts.expected(end) {
		level = zerolog.InfoLevel
	}
	line := p.log.WithLevel(level).Str("exit", exit).Stringer("ran", round(end.ran))
	if pid != 0 {
		line.Int("pid", pid)
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
