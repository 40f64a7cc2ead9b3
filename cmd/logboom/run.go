package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"logboom/drain"
	"logboom/sink"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground",
		Args:  cobra.NoArgs,
	}
	path := configFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error { return run(*path) }
	return cmd
}

// run is the daemon from its start to its exit.
func run(path string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2)
	conf, err := Load(path)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	log, own := newLogger(conf.Log)
	// A log or standard output that nobody reads any more must not end the
	// daemon. The signal is caught, not ignored, since children would inherit
	// that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGXFSZ)
	raiseFileLimit(log)
	shortenSlices()
	tuneRuntime(conf)

	servers, err := openServers(conf)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	defer servers.close()
	d := &daemon{
		log: log, own: own,
		inherited: inheritSockets(log), baselines: loadBaselines(conf.RuntimeDir, log),
	}
	if err := d.open(conf); err != nil {
		return &exitError{exitFailed, err}
	}
	servers.serve(d)
	d.start()
	d.ready.Store(true)
	d.notify(sd.SdNotifyReady)
	log.Info().Str("config", path).Str("version", version()).Int("pid", os.Getpid()).Msg("started")
	stopWatchdog := d.watchdog()
	defer stopWatchdog()
	d.handleSignals(signals, path)
	return d.shutDown(signals)
}

// handleSignals returns when the daemon is to stop.
func (d *daemon) handleSignals(signals <-chan os.Signal, path string) {
	for {
		select {
		case <-d.idle:
			d.log.Info().Msg("all sources have ended")
			return
		case result := <-d.reloads:
			result <- d.reloadFrom(path)
		case s := <-signals:
			switch s {
			case unix.SIGHUP:
				d.reloadFrom(path)
			case unix.SIGUSR1:
				d.log.Info().Msg("reopening files")
				d.reopen()
			case unix.SIGUSR2:
				d.log.Info().Interface("status", d.status()).Msg("status")
			default:
				d.log.Info().Str("signal", s.String()).Msg("stopping")
				return
			}
		}
	}
}

// reloadFrom reads the config again. A bad one is refused, and the running one
// kept.
func (d *daemon) reloadFrom(path string) error {
	d.notify(sd.SdNotifyReloading + "\n" + monotonic())
	defer d.notify(sd.SdNotifyReady)
	conf, err := Load(path)
	if err == nil {
		err = d.reload(conf)
	}
	if err != nil {
		d.log.Error().Err(err).Msg("reload refused: the running config stays")
		return err
	}
	d.log.Info().Str("config", path).Msg("reloaded")
	return nil
}

// shutDown stops everything in order. A second signal ends it at once.
func (d *daemon) shutDown(signals <-chan os.Signal) error {
	d.notify(sd.SdNotifyStopping)
	stopped := make(chan uint64, 1)
	go func() { stopped <- d.stop() }() // ends at stop_timeout at the latest after the programs
	// Programs may take long to stop, each within its own time: systemd is
	// told to wait.
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	d.notify("EXTEND_TIMEOUT_USEC=30000000")
	for {
		select {
		case n := <-stopped:
			return d.exit(n)
		case <-tick.C:
			d.notify("EXTEND_TIMEOUT_USEC=30000000")
		case s := <-signals:
			if s == unix.SIGTERM || s == unix.SIGINT {
				d.log.Warn().Str("signal", s.String()).Msg("second signal: exiting at once")
				return d.exit(d.buffered())
			}
		}
	}
}

// buffered is how many messages no sink has delivered.
func (d *daemon) buffered() (n uint64) {
	for _, o := range d.current() {
		n += o.Status().Buffered
	}
	return n
}

func (d *daemon) exit(undelivered uint64) error {
	d.logStopped(undelivered)
	s := d.status()
	undelivered += s.dropped(sink.Stopped)
	if undelivered > 0 {
		return &exitError{exitUndelivered, fmt.Errorf("stopped with %d messages undelivered", undelivered)}
	}
	return nil
}

// notify tells systemd a state (sd_notify(3)); without it nothing happens.
func (d *daemon) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		d.log.Warn().Err(err).Msg("systemd cannot be notified")
	}
}

// monotonic is the time stamp that systemd wants with RELOADING=1.
func monotonic() string {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return ""
	}
	return fmt.Sprintf("MONOTONIC_USEC=%d", t.Nano()/1000)
}

// watchdog pets systemd's watchdog, if the unit has one, for as long as the
// daemon can take a snapshot of itself.
func (d *daemon) watchdog() (stop func()) {
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return func() {}
	}
	done := make(chan struct{})
	go func() { // ends with stop
		tick := time.NewTicker(every / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.status()
				d.notify(sd.SdNotifyWatchdog)
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// tuneRuntime keeps the heap small: it holds next to nothing but read buffers
// and compressors, since messages live in the arena. And it lets no reader wait
// for a compressor.
func tuneRuntime(conf *Config) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	drain.SetProcessors(sink.Processors(len(conf.Files)))
}
