package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"logboom/bench/load"
	"logboom/bench/meter"
	"logboom/bench/report"
)

// catName is the reader that the others are compared with.
const catName = "cat > /dev/null"

// A pipeReader is a program that reads lines from its standard input.
type pipeReader struct {
	name    string
	ours    bool
	command []string // {dir} stands for the trial's folder
	stdout  string   // file below that folder, or an absolute path; "" if it opens its own
	output  string   // glob below the folder; "" if it keeps nothing
}

// pipeReaders are all, here or not. Of svlogd's folder, @4… and current are
// logs.
func (b *bench) pipeReaders() []pipeReader {
	return []pipeReader{
		{name: catName, command: []string{"cat"}, stdout: os.DevNull},
		{name: "gzip -1", command: []string{"gzip", "-1"}, stdout: "out.gz", output: "out.gz"},
		{name: "pigz -1 -p 2", command: []string{"pigz", "-1", "-p", "2"}, stdout: "out.gz", output: "out.gz"},
		{name: "svlogd, plain", command: []string{"svlogd", "-l", "16384", "-b", "65536", "{dir}/logs"}, output: "logs/[@c][4u]*"},
		{name: "logboom pipe", ours: true, command: []string{b.logboom, "pipe", "--to", "{dir}/out.gz"}, output: "out.gz"},
	}
}

// svlogdConfig keeps all that svlogd writes: files of 16 MB, a thousand of them.
const svlogdConfig = "s16777215\nn1000\n"

// A pipeCase is what a program writes.
type pipeCase struct {
	title string
	size  int // bytes of a line
	rate  int // lines a second; 0: as fast as they are taken
	first report.Column
}

func (b *bench) pipeSuite() []*plan {
	speed := report.Column{Key: "speed", Name: "MB/s", Digits: 1, High: true}
	wait := report.Column{Key: "p999", Name: "write(2) µs, p99.9", Digits: 1}
	var plans []*plan
	for _, c := range []pipeCase{
		{"Pipe, 120-byte lines as fast as they are taken", 120, 0, speed},
		{"Pipe, 10,000-byte lines as fast as they are taken", 10_000, 0, speed},
		{"Pipe, 10,000 lines of 120 bytes a second", 120, 10_000, wait},
	} {
		columns := []report.Column{c.first}
		for _, column := range []report.Column{
			speed,
			{Key: "cpu", Name: "reader CPU µs/line", Digits: 2},
			{Key: "p50", Name: "write(2) µs, p50", Digits: 2},
			wait,
			{Key: "longest", Name: "longest write ms", Digits: 2, Worst: true},
			{Key: "lost", Name: "lines lost or damaged", Fault: true},
		} {
			if column.Key != c.first.Key {
				columns = append(columns, column)
			}
		}
		p := &plan{table: &report.Table{
			Title:     c.title,
			Note:      "A program writes each line with one write(2) into the reader's standard input.",
			Reference: catName,
			Columns:   columns,
		}}
		b.addPipeReaders(p, c)
		plans = append(plans, p)
	}
	return plans
}

// addPipeReaders adds the readers that are there.
func (b *bench) addPipeReaders(p *plan, c pipeCase) {
	set := load.NewLines(c.size - 1)
	for _, r := range b.pipeReaders() {
		if _, err := exec.LookPath(r.command[0]); err != nil {
			p.missing("%s: %v", r.name, err)
			continue
		}
		p.add(r.name, r.ours, func(ctx context.Context, dir string) (report.Sample, error) {
			return b.pipe(ctx, r, c, set, dir)
		})
	}
}

// start starts a reader whose standard input is in.
func (b *bench) startReader(ctx context.Context, r pipeReader, dir string, in *os.File) (*meter.Process, error) {
	logs := filepath.Join(dir, "logs")
	if err := os.Mkdir(logs, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(logs, "config"), []byte(svlogdConfig), 0o644); err != nil {
		return nil, err
	}
	arguments := make([]string, len(r.command))
	for i, argument := range r.command {
		arguments[i] = strings.ReplaceAll(argument, "{dir}", dir)
	}
	cmd := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	cmd.Env = b.environment(dir)
	cmd.Stdin = in
	if r.stdout != "" {
		path := r.stdout
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		file, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		cmd.Stdout = file
	}
	process, err := meter.Start(cmd, filepath.Join(dir, "reader.log"))
	if err == nil {
		settle(process)
	}
	return process, err
}

// pipe measures a reader once.
func (b *bench) pipe(ctx context.Context, r pipeReader, c pipeCase, set *load.Set, dir string) (report.Sample, error) {
	in, out, err := plainPipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	reader, err := b.startReader(ctx, r, dir, in)
	in.Close()
	if err != nil {
		return nil, err
	}
	defer reader.Stop() // does nothing unless we fail first
	before := meter.Of(reader.Pid()).CPU
	written, err := b.runWriter(ctx, c, out)
	out.Close() // the reader's end of file
	if err != nil {
		return nil, err
	}
	if err := reader.Wait(30 * time.Second); err != nil {
		return nil, err
	}
	sample := report.Sample{
		"speed":   float64(written.Lines) * float64(c.size) / 1e6 / written.Took.Seconds(),
		"cpu":     micros(reader.CPU()-before) / float64(written.Lines),
		"p50":     micros(written.P50),
		"p999":    micros(written.P999),
		"longest": micros(written.Longest) / 1000,
	}
	if r.output != "" {
		check := load.NewCheck(set, written.Lines)
		if _, err := readOutput(filepath.Join(dir, r.output), check.Read); err != nil {
			return nil, err
		}
		sample["lost"] = float64(max(written.Lines-check.Unique, check.Lines-check.Unique))
	}
	return sample, nil
}

// plainPipe is a pipe such as a shell makes. [os.Pipe] puts it into Go's network
// poller, and a pipe that was polled once is slower for its writer from then on.
func plainPipe() (in, out *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// runWriter has a process of its own write lines, and returns what it saw.
func (b *bench) runWriter(ctx context.Context, c pipeCase, out *os.File) (load.Written, error) {
	var written load.Written
	ctx, cancel := context.WithTimeout(ctx, b.length+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.self, writeCommand, strconv.Itoa(c.size), strconv.Itoa(c.rate), b.length.String())
	cmd.Stdout = out
	// Go's signals to long-running goroutines would cut its writes short, and
	// its scheduler would have another thread go on with it, which has to wait
	// for a CPU.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
	var report bytes.Buffer
	cmd.Stderr = &report
	if err := cmd.Run(); err != nil {
		return written, fmt.Errorf("writer: %w: %s", err, report.Bytes())
	}
	return written, json.Unmarshal(report.Bytes(), &written)
}

// writeCommand, as the first argument, makes this program a line writer.
const writeCommand = "write"

// writeLines writes lines to standard output, and what it saw as JSON to
// standard error. Its arguments are the size of a line, the rate and the time.
func writeLines(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: bench %s BYTES LINES-A-SECOND TIME", writeCommand)
	}
	size, sizeErr := strconv.Atoi(arguments[0])
	rate, rateErr := strconv.Atoi(arguments[1])
	length, lengthErr := time.ParseDuration(arguments[2])
	if err := errors.Join(sizeErr, rateErr, lengthErr); err != nil {
		return err
	}
	written, err := load.Write(int(os.Stdout.Fd()), size, rate, length)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stderr).Encode(written)
}
