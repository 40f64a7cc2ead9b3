package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"logboom/bench/meter"
	"logboom/bench/report"
)

// gzipName is the row that nginx's other ways to log are compared with.
const gzipName = "gzip flush=5m"

// An accessLog is a way in which nginx logs its requests.
type accessLog struct {
	name      string
	ours      bool
	directive string    // of nginx; {dir} and {address} stand for the trial's own
	output    string    // below the trial's folder; "" if there is none
	receiver  *receiver // that takes it; nil if nginx writes the file itself
	network   string    // of the receiver: "udp" or "fifo"
}

func (b *bench) nginxSuite() []*plan {
	nginx, nginxErr := findProgram("nginx")
	var plans []*plan
	for _, loader := range []loader{wrk(100), ab(1000)} {
		p := &plan{table: &report.Table{
			Title:     "What logging costs nginx, " + loader.name,
			Note:      "Two workers answer each request with five bytes and log it in the combined format.",
			Reference: gzipName,
			Columns: []report.Column{
				{Key: "rate", Name: "requests/s", High: true},
				{Key: "nginx", Name: "nginx CPU µs/request", Digits: 1},
				{Key: "receiver", Name: "receiver CPU µs/request", Digits: 2},
				{Key: "lost", Name: "lost %", Digits: 3, Fault: true},
			},
		}}
		plans = append(plans, p)
		_, loaderErr := exec.LookPath(loader.command(0, "")[0])
		if nginxErr != nil || loaderErr != nil {
			p.missing("nginx under %s (Debian: nginx, wrk, apache2-utils): %v", loader.name, errors.Join(nginxErr, loaderErr))
			continue
		}
		for _, way := range b.accessLogs() {
			p.add(way.name, way.ours, func(ctx context.Context, dir string) (report.Sample, error) {
				return b.serve(ctx, nginx, way, loader, dir)
			})
		}
	}
	return plans
}

// accessLogs are the ways to compare.
func (b *bench) accessLogs() []accessLog {
	ways := []accessLog{
		{name: "off", directive: "access_log off;"},
		{name: gzipName, directive: "access_log {dir}/access.log.gz combined gzip flush=5m;", output: "access.log.gz"},
	}
	receivers, _ := b.receivers()
	for _, r := range receivers {
		if r.name == logboomWhole {
			continue // costs nginx the same as logboom
		}
		ways = append(ways, accessLog{
			name: "syslog UDP to " + r.name, ours: r.ours, receiver: &r, network: "udp", output: r.output,
			directive: "access_log syslog:server={address},tag=nginx combined;",
		})
	}
	fifo := b.fifoReceiver()
	return append(ways, accessLog{
		name: "FIFO buffer=64k to logboom", ours: true, receiver: &fifo, network: "fifo", output: fifo.output,
		directive: "access_log {address} combined buffer=64k flush=1s;",
	})
}

// fifoReceiver is logboom reading a FIFO.
func (b *bench) fifoReceiver() receiver {
	return receiver{name: "logboom", ours: true, output: "out.log.gz", command: func(ctx context.Context, dir string, at address) (*exec.Cmd, error) {
		return b.logboomRun(ctx, dir, fmt.Sprintf(`
[source.in]
type = "fifo"
path = %q
sinks = ["out"]

[sink.out]
type = "file"
path = %q
`, at.path, filepath.Join(dir, "out.log.gz")))
	}}
}

// serve measures one way to log once.
func (b *bench) serve(ctx context.Context, nginx string, way accessLog, loader loader, dir string) (report.Sample, error) {
	var at address
	var receiver *meter.Process
	if way.receiver != nil {
		var err error
		if at, err = newAddress(way.network, dir); err != nil {
			return nil, err
		}
		if receiver, err = b.start(ctx, *way.receiver, dir, at); err != nil {
			return nil, err
		}
		defer receiver.Stop() // does nothing unless we fail before our own
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	server, err := startNginx(ctx, nginx, dir, port, way.with(dir, at))
	if err != nil {
		return nil, err
	}
	defer server.Stop()

	sample, requests, err := b.measureNginx(ctx, server, receiver, at, loader, port)
	if err != nil {
		return nil, err
	}
	if err := server.Stop(); err != nil {
		return nil, err
	}
	if receiver != nil {
		if err := receiver.Stop(); err != nil {
			return nil, err
		}
	}
	if way.output != "" {
		lines := 0
		if _, err := readOutput(filepath.Join(dir, way.output), countLines(&lines)); err != nil {
			return nil, err
		}
		sample["lost"] = 100 * float64(requests-lines) / float64(requests)
	}
	return sample, nil
}

// measureNginx puts load on a server and returns what it took, and how many
// requests there were.
func (b *bench) measureNginx(ctx context.Context, server, receiver *meter.Process, at address, loader loader, port int) (report.Sample, int, error) {
	base := fmt.Sprintf("http://127.0.0.1:%d/", port)
	before := meter.Of(server.Pid())
	var receiverBefore meter.Usage
	if receiver != nil {
		receiverBefore = meter.Of(receiver.Pid())
	}
	answered, err := loader.load(ctx, b.length, base)
	if err != nil {
		return nil, 0, err
	}
	status, err := get(ctx, base+"status")
	if err != nil {
		return nil, 0, err
	}
	requests, err := handledRequests(status)
	if err != nil {
		return nil, 0, err
	}
	sample := report.Sample{
		"rate":  answered.perSecond,
		"nginx": micros(meter.Of(server.Pid()).Sub(before).CPU) / float64(requests),
	}
	if receiver != nil {
		if err := awaitIdle(ctx, receiver, at); err != nil {
			return nil, 0, err
		}
		sample["receiver"] = micros(meter.Of(receiver.Pid()).Sub(receiverBefore).CPU) / float64(requests)
	}
	return sample, requests, nil
}

// countLines counts line feeds.
func countLines(lines *int) func(io.Reader) error {
	return func(r io.Reader) error {
		buf := make([]byte, 256<<10)
		for {
			n, err := r.Read(buf)
			for _, c := range buf[:n] {
				if c == '\n' {
					*lines++
				}
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

// with is the directive for a trial.
func (w accessLog) with(dir string, at address) string {
	return strings.NewReplacer("{dir}", dir, "{address}", at.String()).Replace(w.directive)
}

// startNginx starts nginx with one server, which logs as the directive says.
func startNginx(ctx context.Context, program, dir string, port int, directive string) (*meter.Process, error) {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;" // its workers must reach the trial's folder
	}
	config := fmt.Sprintf(`%[1]s
worker_processes 2; worker_rlimit_nofile 16384;
daemon off; pid %[2]s/nginx.pid; error_log %[2]s/error.log warn;
events { worker_connections 4096; }
http {
	client_body_temp_path %[2]s/t1; proxy_temp_path %[2]s/t2; fastcgi_temp_path %[2]s/t3;
	uwsgi_temp_path %[2]s/t4; scgi_temp_path %[2]s/t5;
	keepalive_requests 10000000; access_log off;
	server {
		listen 127.0.0.1:%[3]d backlog=4096;
		location / { %[4]s return 200 "hello"; }
		location = /status { stub_status; }
	}
}
`, user, dir, port, directive)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-c", file, "-p", dir, "-e", filepath.Join(dir, "error.log"))
	process, err := meter.Start(cmd, filepath.Join(dir, "nginx.log"))
	if err != nil {
		return nil, err
	}
	return process, await(ctx, process, "nginx listens", func() bool { return listening(port) })
}

// statusCounts finds the third number of stub_status: requests so far.
var statusCounts = regexp.MustCompile(`(?m)^ *\d+ +\d+ +(\d+) *$`)

// handledRequests is how many requests nginx had before that for its status
// page. It is the server's own count: a client that ends in the middle of a
// request has not counted it, but nginx has logged it.
func handledRequests(page string) (int, error) {
	found := statusCounts.FindStringSubmatch(page)
	if found == nil {
		return 0, fmt.Errorf("nginx's status page has no counts: %.200q", page)
	}
	n, err := strconv.Atoi(found[1])
	if err == nil && n < 2 {
		err = errors.New("nginx was sent no request")
	}
	return n - 1, err
}
