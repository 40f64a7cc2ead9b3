package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"logboom/bench/meter"
)

// receiveBuffer is what every receiver asks for its socket.
const receiveBuffer = 4 << 20

// An address is where a receiver takes datagrams.
type address struct {
	network string // "udp", "unixgram" or "fifo"
	port    int    // of 127.0.0.1, for udp
	path    string // for the others
	queue   int    // datagrams that a unix socket holds, where we may say
}

// newAddress is a free port, or a path below dir.
func newAddress(network, dir string) (address, error) {
	if network != "udp" {
		return address{network: network, path: filepath.Join(dir, "log.in")}, nil
	}
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return address{}, err
	}
	defer conn.Close()
	return address{network: network, port: conn.LocalAddr().(*net.UDPAddr).Port}, nil
}

// String is the address as a socket wants it.
func (a address) String() string {
	if a.network != "udp" {
		return a.path
	}
	return fmt.Sprintf("127.0.0.1:%d", a.port)
}

// bound says whether somebody listens there.
func (a address) bound() bool {
	if a.network != "udp" {
		_, err := os.Stat(a.path)
		return err == nil
	}
	_, bound := meter.UDPQueue(a.port)
	return bound
}

// A receiver is a program that takes syslog datagrams and writes gzip files.
type receiver struct {
	name    string
	ours    bool
	output  string // glob below the folder of its trial; "": it keeps nothing
	command func(ctx context.Context, dir string, at address) (*exec.Cmd, error)
}

// logboomWhole writes each datagram as it is, as rsyslog here and the floors
// do; plain logboom takes the header off, as its users will have it.
const (
	logboomName  = "logboom"
	logboomWhole = "logboom, header kept"
)

// receivers are those of this machine, and the names of those that it lacks.
func (b *bench) receivers() (all []receiver, missing []string) {
	all = append(all,
		b.logboomReceiver(logboomName, `format = "auto"`, "out.log.gz", ""),
		b.logboomReceiver(logboomWhole, `format = "raw"`, "out.log.gz", ""))
	if program, err := findProgram("rsyslogd"); err == nil {
		all = append(all, rsyslogReceiver(program))
	} else {
		missing = append(missing, rsyslogName+" (Debian: rsyslog)")
	}
	for _, floor := range b.floors {
		all = append(all, floor.receiver())
	}
	return all, missing
}

// findProgram looks where daemons are, too, which is not in everyone's PATH.
func findProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// logboomReceiver is logboom with a line of config for its source, the path of
// its file below the trial's folder, and a line for the file.
func (b *bench) logboomReceiver(name, sourceLine, path, sinkLine string) receiver {
	return receiver{name: name, ours: true, output: path, command: func(ctx context.Context, dir string, at address) (*exec.Cmd, error) {
		listen := "udp://" + at.String()
		if at.network == "unixgram" {
			listen = "unixgram://" + at.path
		}
		return b.logboomRun(ctx, dir, fmt.Sprintf(`
[source.in]
type = "syslog"
listen = %q
receive_buffer = "%d"
%s
sinks = ["out"]

[sink.out]
type = "file"
path = %q
%s
`, listen, receiveBuffer, sourceLine, filepath.Join(dir, path), sinkLine))
	}}
}

// logboomRun is the daemon with a config whose sources and sinks are given.
func (b *bench) logboomRun(ctx context.Context, dir, config string) (*exec.Cmd, error) {
	file, err := writeConfig(dir, config)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, b.logboom, "run", "-c", file)
	cmd.Env = b.environment(dir)
	return cmd, nil
}

// writeConfig writes a config of logboom's, given its sources and sinks.
func writeConfig(dir, config string) (file string, err error) {
	file = filepath.Join(dir, "conf.toml")
	return file, os.WriteFile(file, []byte("[http]\naddress = \"\"\n"+config), 0o644)
}

// environment has a logboom keep its memory and its state in the trial's own
// folders.
func (b *bench) environment(dir string) []string {
	return append(os.Environ(), "RUNTIME_DIRECTORY="+b.runtimeDir(dir), "STATE_DIRECTORY="+filepath.Join(dir, "state"))
}

// rsyslogName is the row that receivers are compared with.
const rsyslogName = "rsyslog, cheapest"

// rsyslogReceiver is the cheapest configuration of rsyslog that was found:
// many datagrams a system call, no queue between input and output, gzip level
// 1 by the output's own thread, the datagram written as it is.
func rsyslogReceiver(program string) receiver {
	return receiver{name: rsyslogName, output: "out.gz", command: func(ctx context.Context, dir string, at address) (*exec.Cmd, error) {
		input := fmt.Sprintf(`module(load="imudp" batchSize="512" timeRequery="16")
input(type="imudp" address="127.0.0.1" port="%d" rcvbufSize="%d")`, at.port, receiveBuffer)
		if at.network == "unixgram" {
			input = fmt.Sprintf(`module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="%s" CreatePath="off" RateLimit.Interval="0" UsePIDFromSystem="off" UseSysTimeStamp="off")`, at.path)
		}
		config := fmt.Sprintf(`global(workDirectory="%[1]s" net.enableDNS="off" maxMessageSize="8k" parser.escapeControlCharactersOnReceive="off")
main_queue(queue.type="Direct")
%[2]s
template(name="raw" type="string" string="%%rawmsg%%\n")
action(type="omfile" file="%[1]s/out.gz" template="raw" zipLevel="1" veryRobustZip="off"
       asyncWriting="on" flushOnTXEnd="off" ioBufferSize="256k" flushInterval="1")
`, dir, input)
		file := filepath.Join(dir, "rsyslog.conf")
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, program, "-n", "-f", file, "-i", filepath.Join(dir, "pid")), nil
	}}
}

func (f floor) receiver() receiver {
	return receiver{name: f.name, output: "out.gz", command: func(ctx context.Context, dir string, at address) (*exec.Cmd, error) {
		return f.start(ctx, at, filepath.Join(dir, "out.gz")), nil
	}}
}

// start starts a receiver and waits until it listens and has settled. The
// caller stops it.
func (b *bench) start(ctx context.Context, r receiver, dir string, at address) (*meter.Process, error) {
	cmd, err := r.command(ctx, dir, at)
	if err != nil {
		return nil, err
	}
	if at.network == "unixgram" && b.netns {
		limitQueue(cmd, at.queue)
	}
	process, err := meter.Start(cmd, filepath.Join(dir, "receiver.log"))
	if err != nil {
		return nil, err
	}
	if err := await(ctx, process, r.name+" listens", at.bound); err != nil {
		return nil, err
	}
	settle(process)
	return process, nil
}

// await waits until a started program is ready; if it is not to be, it is
// stopped.
func await(ctx context.Context, process *meter.Process, what string, ready func() bool) error {
	deadline := time.Now().Add(10 * time.Second)
	for !ready() {
		select {
		case <-process.Ended():
			return fmt.Errorf("before %s: ended: %w", what, process.Stop())
		case <-ctx.Done():
			_ = process.Stop()
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = process.Stop()
			return fmt.Errorf("%s: not within 10 s", what)
		}
	}
	return nil
}

// settle waits, a second at most, until a program has stopped working.
func settle(process *meter.Process) {
	const step = 50 * time.Millisecond
	before := meter.Of(process.Pid()).CPU
	for range 20 {
		time.Sleep(step)
		now := meter.Of(process.Pid()).CPU
		if now-before < step/20 {
			return
		}
		before = now
	}
}

// How many datagrams a unix socket holds: as we advise, and as systems are
// installed.
const (
	queueLength        = 4096
	defaultQueueLength = 10
)

// limitQueue has a command run in a network namespace of its own, where the
// system's limit on queues of unix datagram sockets, fixed when a socket is
// made, is this. Paths of sockets are the same in every namespace.
func limitQueue(cmd *exec.Cmd, datagrams int) {
	script := fmt.Sprintf(`echo %d > /proc/sys/net/unix/max_dgram_qlen && exec "$0" "$@"`, datagrams)
	cmd.Args = append([]string{"sh", "-c", script, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
}

// canUnshare says whether limitQueue works here: for root, mostly.
func canUnshare(ctx context.Context) bool {
	cmd := exec.CommandContext(ctx, "true")
	limitQueue(cmd, queueLength)
	return cmd.Run() == nil
}
