package main

import (
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"logboom/buffer"
	"logboom/gzipwriter"
	"logboom/sink"
)

// outlet is a sink that runs.
type outlet struct {
	*sink.Sink
	conf  sink.Config
	full  *WhenFull // a sink's own policy, which wins over its sources'
	write prometheus.Histogram
	done  chan struct{} // closed when the runner has returned
}

// kind tells sinks apart that cannot be changed into each other.
func kind(conf sink.Config) string {
	if conf.Forward != nil {
		return "syslog"
	}
	return "file"
}

// openOutlet makes a sink and runs it.
func (d *daemon) openOutlet(conf sink.Config, full *WhenFull) *outlet {
	o := &outlet{
		Sink: sink.New(conf, d.arena, d.log), conf: conf, full: full, done: make(chan struct{}),
		write: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "logboom_write_seconds", Help: "How long the delivery of a batch took.",
			ConstLabels: prometheus.Labels{"sink": conf.Name},
			Buckets:     prometheus.ExponentialBuckets(0.0001, 4, 9),
		}),
	}
	o.OnWrite(func(t time.Duration) { o.write.Observe(t.Seconds()) })
	go func() { // ends when the sink is closed and empty, or at giveUp
		defer close(o.done)
		o.Run(d.giveUp)
	}()
	return o
}

// outletConfigs is what the config says of all sinks.
func outletConfigs(c *Config) (confs []sink.Config, full map[string]*WhenFull, err error) {
	full = make(map[string]*WhenFull)
	sinks := len(c.Files) + len(c.Forwards) + len(c.Streams)
	for _, s := range c.Files {
		conf, err := fileConfig(s, shareOf(s.Output, c, sinks))
		if err != nil {
			return nil, nil, err
		}
		confs = append(confs, conf)
	}
	for _, s := range c.Streams {
		conf, err := baseConfig(s.Output, shareOf(s.Output, c, sinks)), error(nil)
		if err = setText(&conf, s.Text); err != nil {
			return nil, nil, err
		}
		conf.File = sink.File{Descriptor: os.Stdout, UID: -1, GID: -1}
		if s.Type == "stderr" {
			conf.File.Descriptor = os.Stderr
		}
		confs = append(confs, conf)
	}
	for _, s := range c.Forwards {
		conf, err := forwardConfig(s, shareOf(s.Output, c, sinks))
		if err != nil {
			return nil, nil, err
		}
		confs = append(confs, conf)
		full[s.Name] = &s.WhenFull
	}
	return confs, full, nil
}

// shareOf is a sink's guaranteed part of memory.cap: by default half of the
// cap is divided among the sinks, and the other half is borrowed by whoever
// needs it.
func shareOf(s Output, c *Config, sinks int) int {
	if s.Memory != Auto {
		return s.Memory
	}
	return c.Memory.Cap / 2 / sinks
}

// fileRetry is how a file that cannot be written is tried again.
var fileRetry = sink.Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second}

func baseConfig(s Output, memory int) sink.Config {
	return sink.Config{
		Name:   s.Name,
		Limits: buffer.Limits{Messages: s.Messages, Bytes: s.Buffer, Flush: s.Flush},
		Memory: memory,
		Match:  matchOf(s.Match),
		Retry:  fileRetry,
	}
}

func matchOf(m Match) sink.Match {
	match := sink.Match{Programs: m.Program, Message: m.Message}
	for severity := m.Severity.Min; severity <= m.Severity.Max; severity++ {
		match.Severities |= 1 << severity
	}
	if match.Severities == 0xff {
		match.Severities = 0
	}
	return match
}

func setText(conf *sink.Config, t Text) (err error) {
	conf.Format, conf.Escape, conf.Notices = sink.Formats[t.Format], sink.Escapes[t.Escape], t.GapNotice
	if t.Template != "" {
		conf.Format = sink.Templated
		conf.Template, err = sink.ParseTemplate(t.Template)
	}
	return err
}

var compressions = map[string]gzipwriter.Format{"none": gzipwriter.Plain, "gzip": gzipwriter.Gzip, "zstd": gzipwriter.Zstd}

func fileConfig(s FileSink, memory int) (conf sink.Config, err error) {
	conf = baseConfig(s.Output, memory)
	if err = setText(&conf, s.Text); err != nil {
		return conf, err
	}
	conf.File = sink.File{
		Compress: compressions[s.Compress], Level: s.Level, Mode: s.Mode, DirMode: s.DirMode,
		UID: s.UID, GID: s.GID, MaxOpen: s.MaxOpen,
		Sync:   sink.Sync(s.Sync),
		Rotate: sink.Rotate{Size: int64(s.Rotate.Size), Every: s.Rotate.Every},
		Keep:   sink.Keep{Files: s.Keep.Files, Bytes: int64(s.Keep.Bytes), Age: s.Keep.Age}, Symlink: s.Symlink,
	}
	switch s.Path {
	case "/dev/stdout":
		conf.File.Descriptor = os.Stdout
	case "/dev/stderr":
		conf.File.Descriptor = os.Stderr
	default:
		conf.Path, err = sink.ParsePath(s.Path)
	}
	conf.MaxNewFiles = s.MaxNewFiles
	return conf, err
}

func forwardConfig(s SyslogSink, memory int) (conf sink.Config, err error) {
	conf = baseConfig(s.Output, memory)
	conf.Format, conf.Notices = sink.Formats[s.Format], s.Format != "raw"
	conf.Retry = sink.Backoff{Min: s.Retry.Min, Max: s.Retry.Max}
	conf.Forward = &sink.Forward{
		ConnectTimeout: s.ConnectTimeout, WriteTimeout: s.WriteTimeout, ResolveEvery: s.ResolveEvery,
		ResendWindow: s.ResendWindow,
	}
	// Datagrams carry one message each, whatever is in it. So does a counted
	// frame, and a batch for datagrams alone is kept in that form.
	conf.Framing, conf.Escape = sink.Octets, sink.EscapeNone
	for _, target := range s.Targets {
		t, err := sink.ParseTarget(target.String())
		if err != nil {
			return conf, err
		}
		if t.Network == "tcp" && s.Framing == "lf" {
			conf.Framing, conf.Escape = sink.Lines, sink.Escapes[s.Escape]
		}
		conf.Forward.Targets = append(conf.Forward.Targets, t)
	}
	return conf, nil
}

// localHost is this machine's name up to the first dot, as syslog has it.
func localHost() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}
