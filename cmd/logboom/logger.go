package main

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// ownLog is where the daemon's own log goes. A log that nobody reads any more
// must not end the daemon: what cannot be written is counted.
type ownLog struct {
	to   io.Writer
	lost atomic.Uint64
}

// Write hands a line on. It never fails.
func (l *ownLog) Write(p []byte) (int, error) {
	if _, err := l.to.Write(p); err != nil {
		l.lost.Add(1)
	}
	return len(p), nil
}

// newLogger makes the daemon's own log on standard error: JSON, or for a
// person on a terminal.
func newLogger(conf Log) (zerolog.Logger, *ownLog) {
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	zerolog.DurationFieldUnit = time.Second
	own := &ownLog{to: os.Stderr}
	if conf.Format == "console" || conf.Format == "auto" && isTerminal(os.Stderr) {
		own.to = zerolog.ConsoleWriter{Out: os.Stderr, NoColor: !isTerminal(os.Stderr), TimeFormat: "15:04:05.000"}
	}
	level, err := zerolog.ParseLevel(conf.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(own).Level(level).With().Timestamp().Logger(), own
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
