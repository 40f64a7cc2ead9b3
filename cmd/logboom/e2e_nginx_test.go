package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const requests = 20000

// nginxConfig makes nginx write each line twice: into a plain file, and to the
// daemon. Arguments: workers, folder, the second access_log, port.
const nginxConfig = `daemon off;
worker_processes %d;
user root;
pid %[2]s/nginx.pid;
error_log %[2]s/error.log warn;
events { worker_connections 256; }
http {
  client_body_temp_path %[2]s/body;
  proxy_temp_path %[2]s/proxy;
  fastcgi_temp_path %[2]s/fastcgi;
  uwsgi_temp_path %[2]s/uwsgi;
  scgi_temp_path %[2]s/scgi;
  keepalive_requests 1000000;
  log_format main escape=none '$request_id $connection/$connection_requests "$request" $status "$http_odd"';
  access_log %[2]s/plain.log main;
  access_log %[3]s;
  server { listen 127.0.0.1:%[4]d; location / { return 200 "ok\n"; } }
}
`

// odd is a header value that a log line must carry as it is: TAB, 8-bit bytes,
// broken and right UTF-8, and what begins a syslog header.
const odd = "a\tb \xff\xc3( \xc3\xa9 <34>1 [x] nginx: #012"

// startNginx runs nginx, and returns it and its port.
func startNginx(t *testing.T, dir string, workers int, accessLog string) (*process, int) {
	t.Helper()
	need(t, "nginx", "ab")
	needRoot(t, "the config names nginx's user")
	port := freePort(t, "tcp")
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConfig, workers, dir, accessLog, port), 0o600); err != nil {
		t.Fatal(err)
	}
	p := spawn(t, exec.Command("nginx", "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", conf))
	eventually(t, 10*time.Second, "nginx listens", func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return p, port
}

// bench sends requests with ab and returns after the last answer.
func bench(t *testing.T, port, n int, flags ...string) {
	t.Helper()
	flags = append(flags, "-q", "-n", fmt.Sprint(n), "-H", "Odd: "+odd, fmt.Sprintf("http://127.0.0.1:%d/a%%20b?x=%%0A", port))
	ab := exec.Command("ab", flags...)
	if out, err := ab.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(fmt.Sprintf("Complete requests:      %d", n))) {
		t.Fatalf("ab: %v\n%s", err, out)
	}
}

// quit lets nginx's workers write what they hold, and waits for their end.
func quit(t *testing.T, nginx *process) {
	t.Helper()
	nginx.signal(unix.SIGQUIT)
	if code := nginx.wait(10 * time.Second); code != 0 {
		t.Fatalf("nginx: exit code %d\n%s", code, nginx.stderr.String())
	}
}

// Flags of ab. A unix socket of nginx's holds some 170 lines, whatever the
// queue does: that is a moment's worth only where requests are many.
var (
	many = []string{"-k", "-c", "8"}
	some = []string{"-c", "2"}
)

const nginxSink = `
sinks = ["access"]
[sink.access]
type = "file"
path = "log/$host.gz"
flush = "200ms"
`

func TestNginxToFile(t *testing.T) {
	host := localHost()
	tests := []struct {
		name    string
		source  string
		log     string // access_log of nginx
		host    string // what $host is
		workers int
		flags   []string // of ab
		wrapper []string
	}{
		{
			"UDP", "type = 'syslog'\nlisten = 'udp://127.0.0.1:PORT'",
			"syslog:server=127.0.0.1:PORT,tag=web main", host, 2, many, nil,
		},
		{ // P02
			"UDP without host", "type = 'syslog'\nlisten = 'udp://127.0.0.1:PORT'",
			"syslog:server=127.0.0.1:PORT,nohostname,tag=web main", "127.0.0.1", 1, many, nil,
		},
		{ // P03, U10
			"unix", "type = 'syslog'\nlisten = 'DIR/nginx.sock'",
			"syslog:server=unix:DIR/nginx.sock main", host, 2, some, longQueue(4096),
		},
		{
			"unix without host", "type = 'syslog'\nlisten = 'unixgram://nginx.sock'",
			"syslog:server=unix:DIR/nginx.sock,nohostname main", host, 1, some, longQueue(4096),
		},
		{
			"FIFO", "type = 'fifo'\npath = 'access.fifo'",
			"DIR/access.fifo main buffer=64k flush=1s", host, 1, many, nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.wrapper != nil {
				need(t, "unshare")
				needRoot(t, "a network namespace of its own")
			}
			dir := t.TempDir()
			port := freePort(t, "udp")
			configure(t, dir, prelude+"[source.nginx]\n"+fill(tt.source, "DIR", dir, "PORT", port)+nginxSink)
			d := runDaemon(t, dir, behind(tt.wrapper...))
			nginx, web := startNginx(t, dir, tt.workers, fill(tt.log, "DIR", dir, "PORT", port))
			path := d.path("log", tt.host+".gz")
			stopReading := readAllTheTime(t, path)
			bench(t, web, requests, tt.flags...)
			quit(t, nginx)
			got := d.stop()
			if n := stopReading(); n == 0 {
				t.Error("the file was never read while it grew")
			}
			want := readFile(t, d.path("plain.log"))
			if got.kernelDropped != 0 {
				t.Fatalf("the kernel dropped %d datagrams", got.kernelDropped)
			}
			text := readGzip(t, path)
			if failed := unsent(t, dir); failed > 0 && failed < requests/2 {
				// A worker's socket holds some 170 lines, however long the
				// queue is: some 20 ms, for which the daemon may get no
				// processor where others want them all.
				t.Logf("nginx could not send %d of %d lines", failed, requests)
				want = withoutUnsent(t, text, want, failed)
			}
			wantSums(t, got, bytes.Count(want, []byte("\n")))
			wantSameLines(t, text, want)
			if tt.workers == 1 && !bytes.Equal(text, want) {
				t.Error("the lines are not in the order in which nginx wrote them")
			}
			if !bytes.Contains(text, []byte(odd)) {
				t.Errorf("no %q in %q", odd, text[:200])
			}
		})
	}
}

// unsent is how many lines nginx says that it could not send.
func unsent(t *testing.T, dir string) int {
	t.Helper()
	return bytes.Count(readFile(t, filepath.Join(dir, "error.log")), []byte("send() to syslog failed"))
}

// withoutUnsent takes n lines that are not in text out of what nginx wrote.
func withoutUnsent(t *testing.T, text, wrote []byte, n int) (sent []byte) {
	t.Helper()
	arrived := make(map[string]bool)
	for line := range bytes.Lines(text) {
		arrived[string(line)] = true
	}
	missing := 0
	for line := range bytes.Lines(wrote) {
		if arrived[string(line)] {
			sent = append(sent, line...)
		} else {
			missing++
		}
	}
	if missing != n {
		t.Errorf("%d lines are missing, and nginx could not send %d", missing, n)
	}
	return sent
}

// longQueue runs a command where new unix datagram sockets queue n messages:
// in a network namespace of its own, as the setting belongs to that.
func longQueue(n int) []string {
	return []string{"unshare", "-n", "sh", "-c", fmt.Sprintf(`echo %d >/proc/sys/net/unix/max_dgram_qlen && exec "$@"`, n), "sh"}
}

// What nginx cannot send, since the queue is full, no receiver can see: nginx
// says so, and everything else arrives.
func TestNginxOnAShortQueue(t *testing.T) { // U05
	need(t, "unshare")
	needRoot(t, "a network namespace of its own")
	d := startDaemon(t, prelude+"[source.nginx]\ntype = \"syslog\"\nlisten = \"unixgram://nginx.sock\""+nginxSink, behind(longQueue(10)...))
	if len(d.entries("net.unix.max_dgram_qlen=")) != 1 {
		t.Errorf("no warning of the short queue\n%s", d.stderr.String())
	}
	nginx, port := startNginx(t, d.dir, 2, "syslog:server=unix:"+d.path("nginx.sock")+",nohostname main")
	bench(t, port, requests, many...)
	quit(t, nginx)
	got := d.stop()
	text := readGzip(t, d.path("log", localHost()+".gz"))
	want := withoutUnsent(t, text, readFile(t, d.path("plain.log")), unsent(t, d.dir))
	wantSameLines(t, text, want)
	wantSums(t, got, bytes.Count(want, []byte("\n")))
}
