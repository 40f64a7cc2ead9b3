package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"logboom/bench/load"
	"logboom/bench/meter"
	"logboom/bench/report"
)

// ingestColumns are those of tables of receivers.
func ingestColumns() []report.Column {
	return []report.Column{
		{Key: "cpu", Name: "CPU µs/message", Digits: 2},
		{Key: "lost", Name: "lost %", Digits: 3, Fault: true},
		{Key: "duplicates", Name: "duplicates", Fault: true},
		{Key: "disorder", Name: "out of order", Fault: true},
		{Key: "damaged", Name: "damaged", Fault: true},
		{Key: "packing", Name: "text : gzip", Digits: 2, High: true},
		{Key: "writes", Name: "write(2) per 1,000", Digits: 2},
		{Key: "offered", Name: "offered/s"},
	}
}

func (b *bench) udpSuite() []*plan {
	note := "nginx's lines, about 250 bytes with their header, from one sender over UDP into a gzip file."
	return b.ingestPlans("udp", "UDP", note)
}

func (b *bench) unixSuite() []*plan {
	note := fmt.Sprintf("The same over a unix datagram socket whose queue holds %s.", report.Thousands(queueLength))
	if !b.netns {
		note = "The same over a unix datagram socket, with the system's queue (net.unix.max_dgram_qlen), since only root may try a longer one: every receiver loses."
	}
	return b.ingestPlans("unixgram", "unix datagrams", note)
}

// queueSuite compares what receivers lose where the queue is as systems have it.
func (b *bench) queueSuite() []*plan {
	set := load.NewMessages(1)
	var plans []*plan
	for _, rate := range []int{20_000, 50_000} {
		p := &plan{table: &report.Table{
			Title:     fmt.Sprintf("Unix datagrams, a queue of %d, %s messages/s", defaultQueueLength, report.Thousands(rate)),
			Note:      "One sender, which sends what is due each millisecond, one by one, and does not wait.",
			Reference: discardName,
			Columns: []report.Column{
				{Key: "lost", Name: "lost %", Digits: 1},
				{Key: "cpu", Name: "CPU µs/message", Digits: 2},
				{Key: "damaged", Name: "damaged", Fault: true},
				{Key: "disorder", Name: "out of order", Fault: true},
				{Key: "offered", Name: "offered/s"},
			},
		}}
		receivers, missing := b.receivers()
		receivers = slices.DeleteFunc(receivers, func(r receiver) bool { return r.name != logboomName && r.name != rsyslogName })
		receivers = append(receivers, b.discard...)
		if len(b.discard) == 0 {
			missing = append(missing, discardName+" (Debian: gcc libc6-dev zlib1g-dev)")
		}
		if !b.netns {
			receivers, missing = nil, append(missing, "all: only root may make a network namespace")
		}
		for _, r := range receivers {
			p.add(r.name, r.ours, func(ctx context.Context, dir string) (report.Sample, error) {
				return b.ingest(ctx, r, dir, work{network: "unixgram", queue: defaultQueueLength, batch: 1, set: set, senders: 1, rate: rate})
			})
		}
		for _, name := range missing {
			p.missing("%s", name)
		}
		plans = append(plans, p)
	}
	return plans
}

// ingestPlans compares all receivers at each rate.
func (b *bench) ingestPlans(network, name, note string) []*plan {
	set := load.NewMessages(1)
	var plans []*plan
	for _, rate := range b.rates {
		p := &plan{table: &report.Table{
			Title:     fmt.Sprintf("%s to gzip, %s messages/s", name, report.Thousands(rate)),
			Note:      note,
			Reference: rsyslogName,
			Columns:   ingestColumns(),
		}}
		receivers, missing := b.receivers()
		for _, r := range receivers {
			p.add(r.name, r.ours, func(ctx context.Context, dir string) (report.Sample, error) {
				return b.ingest(ctx, r, dir, work{network: network, queue: queueLength, batch: load.SendBatch, set: set, senders: 1, rate: rate})
			})
		}
		for _, name := range missing {
			p.missing("%s", name)
		}
		plans = append(plans, p)
	}
	return plans
}

const (
	pathCount = 1000 // files that the suite paths compares with one
	onePath   = "logboom, one path"
)

func (b *bench) pathsSuite() []*plan {
	const rate = 100_000
	set := load.NewMessages(pathCount)
	p := &plan{table: &report.Table{
		Title:     fmt.Sprintf("%s open files against one, %s messages/s", report.Thousands(pathCount), report.Thousands(rate)),
		Note:      "The same messages, of as many hosts in turn; into one file, or one for each host, which is open: each host has sent one before. Over UDP, flush = \"1s\".",
		Reference: onePath,
		Columns:   ingestColumns(),
	}}
	one := b.logboomReceiver(onePath, "", "out.log.gz", "")
	// So many new names in a minute are more than it would take of strangers.
	many := b.logboomReceiver(fmt.Sprintf("logboom, %s paths", report.Thousands(pathCount)), "", "$host.log.gz", fmt.Sprintf("max_new_files = %d", 2*pathCount))
	many.output = "web-*.log.gz"
	for _, r := range []receiver{one, many} {
		p.add(r.name, r.ours, func(ctx context.Context, dir string) (report.Sample, error) {
			return b.ingest(ctx, r, dir, work{network: "udp", batch: load.SendBatch, set: set, senders: 1, warmUp: pathCount, rate: rate})
		})
	}
	return []*plan{p}
}

func (b *bench) readersSuite() []*plan {
	const senders, rate = 4, 300_000
	set := load.NewMessages(senders)
	p := &plan{table: &report.Table{
		Title:     fmt.Sprintf("%d senders, %s messages/s in all, into readers of one port", senders, report.Thousands(rate)),
		Note:      "Each sender has a file: what is out of order there came so from one reader, or was mixed by two.",
		Reference: "logboom, readers = 1",
		Columns:   ingestColumns(),
	}}
	for readers := 1; readers <= senders; readers *= 2 {
		setting := fmt.Sprintf("readers = %d", readers)
		r := b.logboomReceiver("logboom, "+setting, setting, "$host.log.gz", "")
		r.output = "web-*.log.gz"
		p.add(r.name, r.ours, func(ctx context.Context, dir string) (report.Sample, error) {
			return b.ingest(ctx, r, dir, work{network: "udp", batch: load.SendBatch, set: set, senders: senders, warmUp: senders, rate: rate})
		})
	}
	return []*plan{p}
}

// work is what a receiver of datagrams is measured with.
type work struct {
	network string
	queue   int // datagrams that a unix socket holds
	batch   int // datagrams a system call of a sender
	set     *load.Set
	senders int // sockets; they take turns
	warmUp  int // messages that come before
	rate    int // messages a second, of all
}

// ingest measures a receiver once: CPU and writes from the first message
// until it has been idle for a while, then what it wrote. A warm-up is over
// before.
func (b *bench) ingest(ctx context.Context, r receiver, dir string, w work) (report.Sample, error) {
	at, err := newAddress(w.network, dir)
	if err != nil {
		return nil, err
	}
	at.queue = w.queue
	process, err := b.start(ctx, r, dir, at)
	if err != nil {
		return nil, err
	}
	send := func(part load.Part, rate int) (load.Sent, error) {
		sent, err := sendAll(ctx, at, w, part, rate)
		if err == nil {
			err = awaitIdle(ctx, process, at)
		}
		return sent, err
	}
	if w.warmUp > 0 {
		if _, err := send(load.Part{First: 0, Step: 1, Messages: w.warmUp}, warmUpRate); err != nil {
			return nil, errors.Join(err, process.Stop())
		}
	}
	before := meter.Of(process.Pid())
	sent, err := send(load.Part{First: w.warmUp, Step: 1, Messages: int(float64(w.rate) * b.length.Seconds())}, w.rate)
	used := meter.Of(process.Pid()).Sub(before)
	if err := errors.Join(err, process.Stop()); err != nil {
		return nil, err
	}
	sample := report.Sample{"offered": float64(sent.Messages) / sent.Took.Seconds()}
	if r.output == "" {
		sample["lost"] = 100 * float64(sent.Refused) / float64(sent.Messages)
		sample["cpu"] = micros(used.CPU) / float64(sent.Messages-sent.Refused)
		return sample, nil
	}
	messages := w.warmUp + sent.Messages
	check := load.NewCheck(w.set, messages)
	packed, err := readOutput(filepath.Join(dir, r.output), check.Read)
	if err != nil {
		return nil, err
	}
	if check.Unique <= w.warmUp {
		return nil, fmt.Errorf("none of %d messages was written; %d lines of others", messages, check.Lines)
	}
	received := float64(check.Unique - w.warmUp)
	sample["cpu"] = micros(used.CPU) / received
	sample["lost"] = 100 * float64(messages-check.Unique) / float64(messages)
	sample["duplicates"] = float64(check.Duplicates)
	sample["disorder"] = float64(check.Disorder)
	sample["damaged"] = float64(check.Damaged)
	sample["packing"] = float64(check.Bytes) / float64(packed)
	sample["writes"] = 1000 * float64(used.Writes) / received
	return sample, nil
}

// sendAll has senders send a part at once, each its share.
func sendAll(ctx context.Context, to address, w work, part load.Part, rate int) (load.Sent, error) {
	var (
		all    load.Sent
		failed error
		mu     sync.Mutex // guards both
		wait   sync.WaitGroup
	)
	for k := range w.senders {
		wait.Go(func() {
			sent, err := load.Send(ctx, to.network, to.String(), w.set, part.Share(k, w.senders), rate/w.senders, w.batch)
			mu.Lock()
			defer mu.Unlock()
			all.Messages += sent.Messages
			all.Refused += sent.Refused
			all.Took = max(all.Took, sent.Took)
			failed = errors.Join(failed, err)
		})
	}
	wait.Wait()
	return all, failed
}

// warmUpRate is messages a second: nothing is lost in a warm-up.
const warmUpRate = 5000

// micros is a duration in microseconds.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// awaitIdle returns when a receiver has taken what was sent and written it:
// its flush time of a second is over, its queue is empty, and for half a
// second it has used next to no CPU. Every receiver is given the same time.
func awaitIdle(ctx context.Context, process *meter.Process, at address) error {
	const least, most, step = 1500 * time.Millisecond, 25 * time.Second, 50 * time.Millisecond
	const window = int(500 * time.Millisecond / step)
	var readings []time.Duration
	for start := time.Now(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-process.Ended():
			return errors.New("the receiver ended by itself")
		case <-time.After(step):
		}
		readings = append(readings, meter.Of(process.Pid()).CPU)
		waiting := int64(0)
		if at.network == "udp" {
			waiting, _ = meter.UDPQueue(at.port)
		}
		if time.Since(start) < least || len(readings) <= window || waiting > 0 {
			continue
		}
		// A floor that drains every 2 ms uses 1 or 2 % of a core when idle.
		if n := len(readings); readings[n-1]-readings[n-1-window] < 30*time.Millisecond {
			return nil
		}
		if time.Since(start) > most {
			return fmt.Errorf("the receiver is still busy %v after the last message", most)
		}
	}
}

// readOutput has each file that matches a glob read, inflated if it is gzip,
// and returns the sum of the files' sizes.
func readOutput(glob string, read func(io.Reader) error) (size int64, err error) {
	names, err := filepath.Glob(glob)
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("no file %s was written: %w", glob, errors.Join(err, os.ErrNotExist))
	}
	slices.Sort(names)
	for _, name := range names {
		n, err := readFile(name, read)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		size += n
	}
	return size, nil
}

func readFile(name string, read func(io.Reader) error) (size int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if filepath.Ext(name) != ".gz" {
		return info.Size(), read(file)
	}
	text, err := gzip.NewReader(file)
	if err != nil {
		return 0, err
	}
	return info.Size(), read(text)
}
