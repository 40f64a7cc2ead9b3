package main

import (
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/sink"
)

// raiseFileLimit lets the daemon open as many files as it may. Children get
// the limit that it had (package os/exec sees to that).
func raiseFileLimit(log zerolog.Logger) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			log.Warn().Err(err).Msg("cannot raise the limit of open files")
		}
	}
}

// What is open beside the files of sinks.
const (
	ownDescriptors     = 64 // the log, the arena, sockets, control and metrics, what belongs to Go
	processDescriptors = 8  // of a program's process: pipes, its start, readiness
	leastOpen          = 16 // max_open is not lowered below
)

// fitOpenFiles lowers max_open where all that may be open is more than the
// limit allows: as long as there are descriptors left, a program can be started
// and a connection taken.
func (d *daemon) fitOpenFiles(c *Config, confs []sink.Config) {
	var limit unix.Rlimit
	if d.plain || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return
	}
	others := ownDescriptors
	for _, s := range c.Syslog {
		if s.Listen.Network == "tcp" || s.Listen.Network == "unix" {
			others += s.MaxConnections
		}
	}
	for _, p := range c.Programs {
		others += p.NumProcs * processDescriptors
	}
	files := 0
	for i := range confs {
		files += mayOpen(&confs[i])
	}
	if uint64(others+files) <= limit.Cur {
		return
	}
	left := max(int(limit.Cur)-others, 0)
	for i := range confs {
		if conf := &confs[i]; mayOpen(conf) > 1 {
			conf.File.MaxOpen = min(conf.File.MaxOpen, max(left*conf.File.MaxOpen/files, leastOpen))
			d.log.Warn().Str("sink", conf.Name).Int("max_open", conf.File.MaxOpen).Uint64("limit", limit.Cur).Int("others", others).
				Msg("max_open is lowered: it and all else that may be open exceed the limit of open files (LimitNOFILE=, ulimit -n)")
		}
	}
}

// mayOpen is how many files a sink has open at most.
func mayOpen(conf *sink.Config) int {
	switch {
	case conf.Path == nil:
		return 1 // a connection, or a descriptor
	case conf.Path.Varies():
		return conf.File.MaxOpen
	}
	return 1
}
