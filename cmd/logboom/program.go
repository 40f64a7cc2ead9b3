package main

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"logboom/buffer"
	"logboom/proc"
	"logboom/sink"
)

// child is one process of a program.
type child struct {
	*proc.Program
	name          string // as the operator knows it
	reloadCommand []string
}

var restartRules = map[string]proc.Restart{"true": proc.Always, "false": proc.Never, "unexpected": proc.Unexpected}

// openProgram makes the processes of a program. None runs yet.
func (d *daemon) openProgram(f *feed, s Program) error {
	instances := []instanceOf{{name: s.Name, command: s.Command}}
	var err error
	if !d.plain { // the words of exec's command line mean themselves
		if instances, err = s.instances(); err != nil {
			return err
		}
	}
	var prefix *linePrefix
	if s.Prefix != "" {
		if prefix, err = parsePrefix(s.Prefix); err != nil {
			return err
		}
	}
	var gate chan struct{}
	if len(s.DependsOn) > 0 {
		gate = make(chan struct{})
		f.runs = append(f.runs, func(stop <-chan struct{}) error {
			d.openGate(f, gate, stop)
			return nil
		})
	}
	for _, i := range instances {
		cfg := d.processConfig(f, &s, i, prefix)
		cfg.Gate = gate
		p, err := proc.New(cfg)
		if err != nil {
			return err
		}
		f.children = append(f.children, &child{p, i.name, i.reload})
		f.runs = append(f.runs, func(stop <-chan struct{}) error {
			p.Run(stop)
			return nil
		})
	}
	return nil
}

func (d *daemon) processConfig(f *feed, s *Program, i instanceOf, prefix *linePrefix) proc.Config {
	severity := map[string]LineSeverity{proc.Stdout: s.Severity.Stdout, proc.Stderr: s.Severity.Stderr}
	origin := func(pid int, stream string, severity Severity) *sink.Origin {
		return &sink.Origin{
			Source: f.name, Stream: stream, LocalHost: d.host, Zone: time.Local,
			Priority: userFacility | uint8(severity), Program: []byte(f.name), PID: []byte(strconv.Itoa(pid)),
		}
	}
	output := func(l lineLabel) func(proc.Block) {
		return severity[l.stream].of(func(severity Severity) func(proc.Block) {
			o := origin(l.pid, l.stream, severity)
			take := func(b proc.Block) { f.block(o, b) }
			if prefix == nil {
				return take
			}
			return prefix.of(o, l.process).before(take)
		})
	}
	f.takeUpLines = func(w *buffer.Window, label lineLabel) error {
		return takeUpText(w, d.lineConfig(s.Lines), output(label))
	}
	return proc.Config{
		Name: i.name, Command: i.command, Directory: i.directory, Environment: i.environment,
		User: s.User.credential(), Umask: s.Umask.mask(), Nice: s.Nice, Limits: s.Rlimits.list(),
		RedirectStderr: s.RedirectStderr, Stdin: d.stdin, Autostart: s.Autostart, Autorestart: restartRules[s.Autorestart],
		ExitCodes: s.ExitCodes, StartWait: s.StartWait, Ready: s.Ready.forProcess(i.readyTCP), StartRetries: s.StartRetries,
		Backoff:    proc.Backoff{Min: s.Backoff.Min, Max: s.Backoff.Max, Reset: s.Backoff.Reset},
		StopSignal: unix.Signal(s.StopSignal), StopWait: s.StopWait, StopAsGroup: s.StopAsGroup, KillAsGroup: s.KillAsGroup,
		Family: d.family, Poller: d.poller, Log: d.log, Lines: d.lineConfig(s.Lines),
		Output: func(pid int, stream string) func(proc.Block) {
			return output(lineLabel{stream, pid, i.name})
		},
		Window: func(pid int, stream string) func(int) proc.Window {
			return d.lineWindow(f.name, lineLabel{stream, pid, i.name})
		},
	}
}

// groupsPath is where process groups are recorded for the next start; "" for
// pipe and exec, which have no runtime directory.
func (d *daemon) groupsPath() string {
	if d.plain {
		return ""
	}
	return filepath.Join(d.conf.RuntimeDir, "groups.json")
}

// startPrograms starts programs, each priority after the one before has made
// its first attempts. It does not wait for them to be up: what depends on that
// waits by itself.
func (d *daemon) startPrograms(programs []*feed) {
	for _, equals := range inOrder(programs) {
		each(equals, func(f *feed) {
			f.start(d.ended)
			f.begun()
		})
	}
}

// begun waits until all processes of a program have made their first attempts.
func (f *feed) begun() {
	for _, p := range f.children {
		p.Begun(context.Background())
	}
}

// endPrograms stops the programs in the reverse order of their start, what
// depends on others before them.
func (d *daemon) endPrograms() {
	d.mu.Lock()
	feeds := slices.Collect(maps.Values(d.feeds))
	d.mu.Unlock()
	for _, equals := range slices.Backward(inOrder(feeds)) {
		d.endFeeds(func(f *feed) bool { return slices.Contains(equals, f) })
	}
	d.family.Close()
}

// credential is nil for the user that the daemon runs as: as supervisord does,
// it then changes neither groups nor anything else.
func (a *Account) credential() *syscall.Credential {
	if a.Name == "" || a.UID == unix.Geteuid() {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}
	for _, g := range a.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}
