package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// toFile are the flags of pipe and exec: one file, and when a batch of it
// ends.
type toFile struct {
	path     string
	gzip     int
	messages int
	buffer   Size
	memory   Size
	flush    Duration
	mode     string
}

func (t *toFile) add(flags *pflag.FlagSet) {
	t.buffer, t.memory, t.flush = 256<<10, 16<<20, Duration(time.Second)
	flags.StringVar(&t.path, "to", "", "file to append to; may hold strftime marks such as %Y-%m-%d")
	flags.IntVar(&t.gzip, "gzip", 1, "compression level, 1 to 9; 0: none (default 1 for names that end in .gz, else 0)")
	flags.IntVar(&t.messages, "messages", 10000, "a batch ends at this many messages,")
	flags.Var(textValue{&t.buffer, "size"}, "buffer", "at this many bytes,")
	flags.Var(textValue{&t.flush, "time"}, "flush", "or so long after its first message")
	flags.Var(textValue{&t.memory, "size"}, "memory", "memory of all batches together")
	flags.StringVar(&t.mode, "mode", "0640", "mode of a file that is made")
}

// config is what a config file with this one sink would say.
func (t *toFile) config(flags *pflag.FlagSet) (*Config, error) {
	if t.path == "" {
		return nil, fmt.Errorf("--to is needed: the file to append to")
	}
	path, err := filepath.Abs(t.path)
	if err != nil {
		return nil, fmt.Errorf("--to %q: %w", t.path, err)
	}
	if t.path == "/dev/stdout" || t.path == "/dev/stderr" {
		path = t.path
	}
	if t.gzip < 0 || t.gzip > 9 {
		return nil, fmt.Errorf("--gzip %d is not from 0 to 9", t.gzip)
	}
	compress := "none"
	if t.gzip > 0 && (flags.Changed("gzip") || strings.HasSuffix(path, ".gz")) {
		compress = "gzip"
	} else if !flags.Changed("gzip") && compressionOf(path) == "zstd" {
		compress = "zstd"
	}
	mode, err := parseMode(t.mode)
	if err != nil {
		return nil, fmt.Errorf("--mode: %w", err)
	}
	if !flags.Changed("memory") {
		t.memory = max(t.memory, 4*t.buffer)
	}
	if t.messages < 1 || t.buffer < 4<<10 || t.memory < 4*t.buffer || t.memory < 4<<20 || t.flush <= 0 {
		return nil, fmt.Errorf("--messages must be 1 or more, --buffer 4KiB or more, --memory 4MiB and four times --buffer or more, --flush over 0")
	}
	return plainConfig(int(t.memory), FileSink{
		Output: Output{
			Batch: Batch{Messages: t.messages, Buffer: int(t.buffer), Flush: time.Duration(t.flush)},
		},
		Path: path, Compress: compress, Level: max(t.gzip, 1), Mode: mode,
	}), nil
}

// plainConfig is the config of a daemon with one sink, of which only what
// differs is set.
func plainConfig(memory int, file FileSink) *Config {
	file.Name, file.Type, file.Memory, file.Match = "file", "file", memory, everything
	file.Text, file.Owner, file.DirMode, file.MaxOpen = Text{Format: "raw", Escape: "none"}, Owner{-1, -1}, 0o750, 16
	conf := &Config{
		StopTimeout: 30 * time.Second,
		Log:         Log{Level: "warn", Format: "auto"},
		Memory:      Memory{Cap: memory},
		Files:       []FileSink{file},
	}
	conf.RuntimeDir, conf.StateDir = plainDirs()
	return conf
}

var everything = Match{Severity: SeverityRange{0, 7}}

// lines of pipe and exec: whole ones whatever comes.
var plainLines = Lines{MaxLine: 1 << 20, PartialTimeout: 5 * time.Second}

func pipeCommand() *cobra.Command {
	var to toFile
	cmd := &cobra.Command{
		Use:   "pipe --to PATH",
		Short: "Lines from standard input to a file, no config needed",
		Args:  cobra.NoArgs,
	}
	to.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		conf, err := to.config(cmd.Flags())
		if err != nil {
			return &exitError{exitUsage, err}
		}
		conf.Stdin = []StdinSource{{
			Input: Input{Name: "stdin", Type: "stdin", WhenFull: WhenFull{Mode: Block}, Sinks: []string{"file"}},
			Lines: plainLines, Severity: info,
		}}
		signals := make(chan os.Signal, 16)
		for _, s := range []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1} {
			if !signal.Ignored(s) { // as nohup(1) has it
				signal.Notify(signals, s)
			}
		}
		d, err := newPlainDaemon(conf, nil)
		if err != nil {
			return err
		}
		d.start()
		var closed <-chan struct{}
		if p := conf.Files[0].Path; p == "/dev/stdout" || p == "/dev/stderr" {
			closed = d.outlets["file"].Refusals()
		}
		for {
			select {
			case <-d.idle:
				return d.flush(signals)
			case <-closed:
				return d.flush(signals)
			case s := <-signals:
				if s != unix.SIGUSR1 {
					return d.flush(signals)
				}
				d.reopen()
			}
		}
	}
	return cmd
}

// newPlainDaemon is a daemon without a config file, control socket or systemd.
func newPlainDaemon(conf *Config, stdin *os.File) (*daemon, error) {
	log, own := newLogger(conf.Log)
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGXFSZ)
	shortenSlices()
	tuneRuntime(conf)
	d := &daemon{log: log, own: own, plain: true, stdin: stdin}
	return d, d.open(conf)
}

// flush stops a plain daemon. What it had to give up is a failure too: nobody
// reads its numbers.
func (d *daemon) flush(signals <-chan os.Signal) error {
	err := d.shutDown(signals)
	var lost uint64
	for _, o := range d.current() {
		lost += sum(o.Status().Lost)
	}
	if err == nil && lost > 0 {
		err = &exitError{exitUndelivered, fmt.Errorf("%d messages were lost", lost)}
	}
	return err
}

// textValue makes a flag of a value that reads text.
type textValue struct {
	value interface {
		UnmarshalText([]byte) error
		MarshalText() ([]byte, error)
	}
	kind string
}

func (v textValue) Set(s string) error { return v.value.UnmarshalText([]byte(s)) }
func (v textValue) String() string {
	if v.value == nil {
		return ""
	}
	return text(v.value)
}
func (v textValue) Type() string { return v.kind }

func parseMode(s string) (os.FileMode, error) {
	m, err := scalars[reflect.TypeFor[os.FileMode]()].parse(s)
	if err != nil {
		return 0, err
	}
	return m.(os.FileMode), nil
}
