package main

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Account is who a program runs as; the zero value is who the daemon runs as.
type Account struct {
	Name   string // or number, as given
	UID    int
	GID    int
	Groups []int // the supplementary ones
}

// UnmarshalText looks a user up, by name or number. Its groups are those of
// the system's files (a static binary asks no other directory).
func (a *Account) UnmarshalText(text []byte) error {
	name := string(text)
	u, err := user.Lookup(name)
	if _, numberErr := strconv.ParseUint(name, 10, 31); err != nil && numberErr == nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return fmt.Errorf("no user %q on this system", name)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("user %q: %w", name, err)
	}
	b := Account{Name: name}
	var errs [2]error
	b.UID, errs[0] = strconv.Atoi(u.Uid)
	b.GID, errs[1] = strconv.Atoi(u.Gid)
	for _, g := range groups {
		n, err := strconv.Atoi(g)
		if err != nil {
			return fmt.Errorf("user %q: group %w", name, err)
		}
		b.Groups = append(b.Groups, n)
	}
	*a = b
	return errors.Join(errs[:]...)
}

// MarshalText writes the user as given.
func (a Account) MarshalText() ([]byte, error) { return []byte(a.Name), nil }

// Umask is the umask of a program; the zero value is that of the daemon.
type Umask struct {
	Set  bool
	Bits int
}

// UnmarshalText reads octal digits.
func (u *Umask) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf(`%q is no umask: want octal digits up to "777"`, text)
	}
	*u = Umask{true, int(n)}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (u Umask) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%03o", u.Bits), nil }

// mask is the umask as package proc wants it: -1 leaves it.
func (u Umask) mask() int {
	if !u.Set {
		return -1
	}
	return u.Bits
}

// Signal is a signal that need not be set: the zero value is none.
type Signal syscall.Signal

// UnmarshalText reads a name, or "" for none.
func (s *Signal) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*s = 0
		return nil
	}
	sig, err := parseSignal(string(text))
	*s = Signal(sig)
	return err
}

// MarshalText writes what UnmarshalText reads.
func (s Signal) MarshalText() ([]byte, error) {
	return []byte(strings.TrimPrefix(unix.SignalName(unix.Signal(s)), "SIG")), nil
}

// parseSignal reads the name of a signal, with or without SIG before it, or
// its number, which supervisord takes too.
func parseSignal(s string) (syscall.Signal, error) {
	name := strings.ToUpper(s)
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")); sig != 0 {
		return sig, nil
	}
	if n, err := strconv.ParseUint(s, 10, 7); err == nil && unix.SignalName(unix.Signal(n)) != "" {
		return unix.Signal(n), nil
	}
	return 0, fmt.Errorf(`%q is no signal: want a name such as "TERM"`, s)
}

// program reads a program. The defaults are supervisord's, but for
// killasgroup, which there leaves workers behind, and for the name of one
// process among many, which there has to be told.
func (d *decoder) program(s section) Program {
	p := Program{
		Name: s.name, NumProcs: 1, Priority: 999,
		Autostart: true, Autorestart: "unexpected", ExitCodes: []int{0},
		StartWait: time.Second, StartRetries: 3,
		Backoff:    Backoff{Min: time.Second, Max: time.Minute, Reset: time.Minute},
		StopSignal: syscall.SIGTERM, StopWait: 10 * time.Second, KillAsGroup: true,
		Lines: defaultLines(), Severity: StreamSeverity{info, info}, WhenFull: WhenFull{Wait, time.Second},
	}
	before := len(d.errs)
	d.table(s.at, s.t, &p)
	if p.ProcessName == "" {
		p.ProcessName = "%(program_name)s"
		if p.NumProcs > 1 {
			p.ProcessName += "_%(process_num)02d"
		}
	}
	d.ordered(join(s.at, "backoff"), p.Backoff.Min, p.Backoff.Max)
	p.Lines.complete()
	d.ready(s, &p)
	d.programSinks(s, &p)
	d.programPlaces(&p)
	if p.StopAsGroup && !p.KillAsGroup {
		d.errorf(join(s.at, "stopasgroup"), "needs killasgroup, which is false")
	}
	if p.ReloadSignal != 0 && len(p.ReloadCommand) > 0 {
		d.errorf(join(s.at, "reload_signal"), "excludes reload_command: set one of them")
	}
	if p.Prefix != "" {
		if _, err := parsePrefix(p.Prefix); err != nil {
			d.errorf(join(s.at, "prefix"), "%v", err)
		}
	}
	if len(d.errs) == before {
		d.programInstances(s, &p)
	}
	return p
}

// programPlaces resolves what depends on where the config is. A directory
// that begins with a name of its own is made absolute by that.
func (d *decoder) programPlaces(p *Program) {
	here := func(list []string) {
		for i := range list {
			list[i] = expandHere(list[i], d.base)
		}
	}
	here(p.Command)
	here(p.ReloadCommand)
	for name, value := range p.Environment {
		p.Environment[name] = expandHere(value, d.base)
	}
	p.ProcessName = expandHere(p.ProcessName, d.base)
	if p.Directory = expandHere(p.Directory, d.base); !strings.HasPrefix(p.Directory, "%(") {
		p.Directory = d.abs(p.Directory)
	}
}

// programInstances checks what is known once all names are expanded: among
// it, that the names of processes are unique, since an operator uses them.
func (d *decoder) programInstances(s section, p *Program) {
	instances, err := p.instances()
	var ke *keyError
	if errors.As(err, &ke) {
		d.errorf(s.at+"."+ke.key, "%v", ke.err)
	}
	for _, i := range instances {
		if other, ok := d.processes[i.name]; ok {
			d.errorf(join(s.at, "process_name"), "the name %q is that of a process of program.%s already", i.name, other)
		}
		if d.processes == nil {
			d.processes = make(map[string]string)
		}
		d.processes[i.name] = s.name
	}
}

// processNames checks that no process has the name of another program: start
// NAME would mean both.
func (d *decoder) processNames(programs []section) {
	for _, s := range programs {
		other, ok := d.processes[s.name]
		if ok && other != s.name {
			d.errorf(join(join("program", other), "process_name"), "%q is the name of a program", s.name)
		}
	}
}
