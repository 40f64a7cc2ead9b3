package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
)

// controlSocket is where the daemon answers other logboom commands: HTTP on a
// unix socket that only its owner may use.
func controlSocket(runtimeDir string) string { return filepath.Join(runtimeDir, "control.sock") }

// servers are the control socket and the HTTP address for metrics.
type servers struct {
	listeners []net.Listener
	all       []*http.Server
	lock      *os.File
}

// openServers binds both. A second daemon on the same runtime_dir is refused.
func openServers(conf *Config) (*servers, error) {
	s := &servers{}
	if err := os.MkdirAll(conf.RuntimeDir, 0o755); err != nil {
		return nil, fmt.Errorf("runtime_dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(conf.RuntimeDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("runtime_dir: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("runtime_dir %s: another logboom runs there", conf.RuntimeDir)
	}
	s.lock = lock
	path := controlSocket(conf.RuntimeDir)
	os.Remove(path) // of a daemon that was killed: the lock is ours
	control, err := listenPrivately(path)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s.listeners = append(s.listeners, control)
	if conf.HTTP.Address != "" {
		metrics, err := net.Listen("tcp", conf.HTTP.Address)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("http.address: %w", err)
		}
		s.listeners = append(s.listeners, metrics)
	}
	return s, nil
}

// listenPrivately makes a unix socket of mode 0600, at no moment open to
// others: the umask is not changed, since it is the whole process's.
func listenPrivately(path string) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return err
	}}
	return config.Listen(context.Background(), "unix", path)
}

// serve answers from now on.
func (s *servers) serve(d *daemon) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{d})
	open := http.NewServeMux()
	open.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	open.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !d.ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, "not ready\n")
			return
		}
		io.WriteString(w, "ready\n")
	})
	control := http.NewServeMux()
	control.Handle("/", open)
	control.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.Encode(d.status())
	})
	d.serveOrders(control)
	httpLog := stdlog.New(d.log.With().Str("level", "error").Logger(), "", 0)
	for i, l := range s.listeners {
		server := &http.Server{Handler: open, ReadHeaderTimeout: 5 * time.Second, ErrorLog: httpLog}
		if i == 0 {
			server.Handler = control
		}
		s.all = append(s.all, server)
		go func() { // ends with close
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				d.log.Error().Err(err).Msg("http")
			}
		}()
	}
}

func (s *servers) close() {
	for _, server := range s.all {
		server.Close()
	}
	for _, l := range s.listeners {
		l.Close()
	}
	s.lock.Close()
}

// controlClient is a client of the daemon's control socket.
func controlClient(runtimeDir string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", controlSocket(runtimeDir))
		},
	}}
}

// noDaemon says that no daemon could be asked. Of the client's error it takes
// the cause.
func noDaemon(runtimeDir string, err error) error {
	return fmt.Errorf("no daemon answers on %s: %w", controlSocket(runtimeDir), errors.Unwrap(err))
}

// askDaemon gets a path from the control socket of a running daemon.
func askDaemon(runtimeDir, path string) ([]byte, error) {
	client := controlClient(runtimeDir)
	client.Timeout = 10 * time.Second
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://logboom" + path)
	if err != nil {
		return nil, noDaemon(runtimeDir, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return body, err
}
