package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	source "logboom/bench/load"
)

const flatConf = `
runtime_dir = "run"
state_dir = "state"
[http]
address = ""
[source.in]
type = "syslog"
listen = "udp://127.0.0.1:PORT"
sinks = ["out"]
[sink.out]
type = "file"
path = "logs/out.log.gz"
rotate = { size = "64MiB" }
keep = { files = 4 }
`

// TestSoakFlat: private memory, which is all but the arena, is small and does
// not grow in a run of half an hour at 100,000 messages a second, nor does the
// number of descriptors.
func TestSoakFlat(t *testing.T) {
	const rate = 100_000
	length := long(5*time.Second, 30*time.Minute)
	port := freePort(t, "udp")
	d := startDaemon(t, fill(flatConf, "PORT", port))
	sent := make(chan error, 1)
	go func() {
		_, err := source.Send(t.Context(), "udp", fmt.Sprintf("127.0.0.1:%d", port),
			source.NewMessages(1), source.Part{Step: 1, Messages: rate * int(length/time.Second)}, rate, source.SendBatch)
		sent <- err
	}()
	var private, descriptors []int
	tick := time.NewTicker(length / 100)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-tick.C:
			private = append(private, d.memoryKiB("RssAnon"))
			descriptors = append(descriptors, d.descriptors())
		case err := <-sent:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		}
	}
	s := d.stop()
	if want := rate * int(length/time.Second); s.received+s.kernelDropped != want || s.delivered != s.received {
		t.Errorf("of %d messages %d were received and %d dropped by the kernel; %d delivered", want, s.received, s.kernelDropped, s.delivered)
	}
	early, late := slices.Max(private[5:len(private)/3]), slices.Max(private[len(private)*2/3:])
	t.Logf("private memory: at most %d KiB in the first third of %v, %d KiB in the last; %d descriptors; %d of %d messages dropped by the kernel",
		early, length, late, descriptors[len(descriptors)-1], s.kernelDropped, s.received+s.kernelDropped)
	if late > 40<<10 {
		t.Errorf("private memory of %d KiB", late)
	}
	if late > early+early/4+1<<10 {
		t.Errorf("private memory grew from %d KiB to %d KiB", early, late)
	}
	if first, last := descriptors[5], slices.Max(descriptors[len(descriptors)*2/3:]); last > first+4 {
		t.Errorf("%d descriptors after %d", last, first)
	}
}
