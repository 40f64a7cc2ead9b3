package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"logboom/proc"
)

// Rlimits are resource limits of a program by the words of prlimit(1). Those
// that are not set are the daemon's.
type Rlimits struct {
	NoFile  Rlimit `toml:"nofile,omitempty,id"`  // descriptors
	NProc   Rlimit `toml:"nproc,omitempty,id"`   // processes and threads of its user
	Core    Rlimit `toml:"core,omitempty,id"`    // bytes, as what follows
	MemLock Rlimit `toml:"memlock,omitempty,id"` // locked memory
	AS      Rlimit `toml:"as,omitempty,id"`      // address space
	Data    Rlimit `toml:"data,omitempty,id"`
	Stack   Rlimit `toml:"stack,omitempty,id"`
	FSize   Rlimit `toml:"fsize,omitempty,id"` // of a file that it writes
	CPU     Rlimit `toml:"cpu,omitempty,id"`   // seconds
}

// resources are the kernel's numbers of the limits.
var resources = map[string]int{
	"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "core": unix.RLIMIT_CORE,
	"memlock": unix.RLIMIT_MEMLOCK, "as": unix.RLIMIT_AS, "data": unix.RLIMIT_DATA,
	"stack": unix.RLIMIT_STACK, "fsize": unix.RLIMIT_FSIZE, "cpu": unix.RLIMIT_CPU,
}

// list is the limits that are set, as package proc wants them.
func (r Rlimits) list() []proc.Limit {
	var list []proc.Limit
	known, _ := fields(reflect.ValueOf(r))
	for _, f := range known {
		if l := f.value.Interface().(Rlimit); l.Set {
			list = append(list, proc.Limit{Name: f.name, Resource: resources[f.name], Soft: l.Soft, Hard: l.Hard})
		}
	}
	return list
}

// Rlimit is one limit; the zero value is that of the daemon.
type Rlimit struct {
	Set        bool
	Soft, Hard uint64 // unix.RLIM_INFINITY: none
}

// UnmarshalText reads a number, a size or "unlimited"; two of them with a colon
// between are a soft limit and the hard one that it can be raised to.
func (r *Rlimit) UnmarshalText(text []byte) error {
	soft, hard, two := strings.Cut(string(text), ":")
	if !two {
		hard = soft
	}
	l := Rlimit{Set: true}
	var err error
	if l.Soft, err = parseLimit(soft); err == nil {
		l.Hard, err = parseLimit(hard)
	}
	switch {
	case err != nil:
		return fmt.Errorf(`%q is no limit: want a number, a size as "64MiB", "unlimited", or two of them as "1024:65536"`, text)
	case l.Soft > l.Hard:
		return fmt.Errorf("%q: the soft limit is over the hard one", text)
	}
	*r = l
	return nil
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return unix.RLIM_INFINITY, nil
	}
	var n Size
	err := n.UnmarshalText([]byte(s))
	return uint64(n), err
}

// MarshalText writes what UnmarshalText reads.
func (r Rlimit) MarshalText() ([]byte, error) {
	text := showLimit(r.Soft)
	if r.Hard != r.Soft {
		text += ":" + showLimit(r.Hard)
	}
	return []byte(text), nil
}

func showLimit(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}
