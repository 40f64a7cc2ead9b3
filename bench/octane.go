package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"logboom/bench/meter"
	"logboom/bench/report"
)

//go:embed octane.php
var octaneScript []byte

const (
	monolog    = "/usr/share/php/Monolog/autoload.php" // as octane.php has it
	octaneFile = "log to a file"                       // the row that others are compared with
)

// A logging is a way to keep what PHP's server logs.
type logging struct {
	name   string
	ours   bool
	file   string      // below the trial's folder: PHP logs there, not to standard error
	reader *pipeReader // of the server's output; nil if there is none
	// wrap is what to start, given the server's command; nil if the server itself.
	wrap   func(dir string, server []string) ([]string, error)
	output string // below the trial's folder; "" if nothing is kept
}

func (b *bench) octaneSuite() []*plan {
	p := &plan{table: &report.Table{
		Title:     "PHP, two workers, a 10,000-byte line a request",
		Note:      "PHP's own server with Monolog on php://stderr, as Octane's workers log, under wrk -c 2.",
		Reference: octaneFile,
		Columns: []report.Column{
			{Key: "rate", Name: "requests/s", High: true},
			{Key: "torn", Name: "lines torn", Fault: true},
			{Key: "lost", Name: "lines lost", Fault: true},
		},
	}}
	_, phpErr := exec.LookPath("php")
	_, wrkErr := exec.LookPath("wrk")
	_, monologErr := os.Stat(monolog)
	if err := errors.Join(phpErr, wrkErr, monologErr); err != nil {
		p.missing("PHP (Debian: php-cli, php-monolog, wrk): %v", err)
		return []*plan{p}
	}
	if _, err := exec.LookPath("supervisord"); err != nil {
		p.missing("supervisord: %v", err)
	}
	for _, way := range b.loggings() {
		p.add(way.name, way.ours, func(ctx context.Context, dir string) (report.Sample, error) {
			return b.octane(ctx, way, dir)
		})
	}
	return []*plan{p}
}

// loggings are the ways that there are here.
func (b *bench) loggings() []logging {
	const packed = "out.gz"
	ways := []logging{{name: octaneFile, file: "app.log", output: "app.log"}}
	for _, reader := range b.pipeReaders() {
		if reader.name == catName || reader.ours {
			ways = append(ways, logging{name: reader.name, ours: reader.ours, reader: &reader, output: reader.output})
		}
	}
	ways = append(ways,
		logging{name: "logboom exec", ours: true, output: packed, wrap: func(dir string, server []string) ([]string, error) {
			return append([]string{b.logboom, "exec", "--to", filepath.Join(dir, packed), "--"}, server...), nil
		}},
		logging{name: "logboom run, [program]", ours: true, output: packed, wrap: func(dir string, server []string) ([]string, error) {
			file, err := writeConfig(dir, fmt.Sprintf(`
[program.app]
command = ["%s"]
sinks = ["out"]

[sink.out]
type = "file"
path = %q
`, strings.Join(server, `", "`), filepath.Join(dir, packed)))
			return []string{b.logboom, "run", "-c", file}, err
		}})
	if _, err := exec.LookPath("supervisord"); err == nil {
		ways = append(ways, logging{name: "supervisord, plain", output: "app.log", wrap: supervised})
	}
	return ways
}

// supervised is the server under supervisord.
func supervised(dir string, server []string) ([]string, error) {
	config := fmt.Sprintf(`[supervisord]
nodaemon=true
logfile=%[1]s/supervisord.log
pidfile=%[1]s/supervisord.pid
childlogdir=%[1]s
[program:app]
command=%[2]s
redirect_stderr=true
stdout_logfile=%[1]s/app.log
stdout_logfile_maxbytes=0
stopasgroup=true
killasgroup=true
`, dir, strings.Join(server, " "))
	file := filepath.Join(dir, "supervisord.conf")
	return []string{"supervisord", "-n", "-c", file}, os.WriteFile(file, []byte(config), 0o644)
}

// octane measures one way to log once.
func (b *bench) octane(ctx context.Context, way logging, dir string) (report.Sample, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	server, reader, err := b.startOctane(ctx, way, dir, port)
	if reader != nil {
		defer reader.Stop() // does nothing unless we fail before it ends by itself
	}
	if err != nil {
		return nil, err
	}
	defer server.Stop()

	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	if body, err := get(ctx, url); err != nil || body != "hello" {
		return nil, errors.Join(fmt.Errorf("PHP answered %.200q", body), err)
	}
	answered, err := wrk(2).load(ctx, b.length, url)
	if err != nil {
		return nil, err
	}
	settle(server) // the last requests are answered to nobody, but logged
	if err := server.Stop(); err != nil {
		return nil, err
	}
	if reader != nil {
		if err := reader.Wait(30 * time.Second); err != nil {
			return nil, err
		}
	}
	sample := report.Sample{"rate": answered.perSecond}
	if way.output != "" {
		whole, torn := 0, 0
		if _, err := readOutput(filepath.Join(dir, way.output), countRecords(&whole, &torn)); err != nil {
			return nil, err
		}
		sample["torn"] = float64(torn)
		sample["lost"] = float64(max(0, answered.requests-whole-torn))
	}
	return sample, nil
}

// startOctane starts PHP's server, and the reader of its output if there is
// one, and waits until it listens. The reader ends when the server has.
func (b *bench) startOctane(ctx context.Context, way logging, dir string, port int) (server, reader *meter.Process, err error) {
	script := filepath.Join(dir, "octane.php")
	if err := os.WriteFile(script, octaneScript, 0o644); err != nil {
		return nil, nil, err
	}
	command := []string{"php", "-S", fmt.Sprintf("127.0.0.1:%d", port), script}
	if way.wrap != nil {
		if command, err = way.wrap(dir, command); err != nil {
			return nil, nil, err
		}
	}
	stream := "php://stderr"
	if way.file != "" {
		stream = filepath.Join(dir, way.file)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(b.environment(dir), "LOG_TO="+stream, "PHP_CLI_SERVER_WORKERS=2")
	if way.reader != nil {
		in, out, err := plainPipe()
		if err != nil {
			return nil, nil, err
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
		reader, err = b.startReader(ctx, *way.reader, dir, in)
		in.Close()
		if err != nil {
			return nil, nil, err
		}
	}
	server, err = meter.Start(cmd, filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, reader, err
	}
	return server, reader, await(ctx, server, "PHP listens", func() bool { return listening(port) })
}

// wholeRecord is a line of Monolog's as octane.php has it written, its line
// feed included. The server's own lines lie between these.
var wholeRecord = regexp.MustCompile(`^\[[^\]]+\] octane\.INFO: (x+) \[\] \[\]\n$`)

// countRecords counts lines that are a record, and lines that hold a part of
// one and are none.
func countRecords(whole, torn *int) func(io.Reader) error {
	return func(r io.Reader) error {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadBytes('\n')
			found := wholeRecord.FindSubmatch(line)
			switch {
			case found != nil && len(found[1]) == 10_000:
				*whole++
			case bytes.Contains(line, []byte("xxxx")) || bytes.Contains(line, []byte("octane.INFO")):
				*torn++
			}
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}
