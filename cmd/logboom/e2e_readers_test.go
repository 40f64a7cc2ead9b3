package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Several readers of one port share its senders; the order of each sender
// holds, and nothing of any is lost.
func TestReaders(t *testing.T) {
	const readers, senders = 4, 16
	port := freePort(t, "udp")
	d := startDaemon(t, prelude+fmt.Sprintf(`
[source.in]
type = "syslog"
listen = "udp://127.0.0.1:%d"
readers = %d
format = "raw"
sinks = ["out"]
`, port, readers)+plainSink)
	table, err := os.ReadFile("/proc/net/udp")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(table), fmt.Sprintf(" 0100007F:%04X ", port)); n != readers {
		t.Errorf("%d sockets are on the port, want %d", n, readers)
	}
	var all []*sender
	for i := range senders {
		all = append(all, send(fmt.Sprintf("sender-%02d", i), 1000, toDatagrams(t, "udp", fmt.Sprintf("127.0.0.1:%d", port))))
	}
	d.received(senders * 1000)
	total := 0
	for _, s := range all {
		total += s.halt()
		if s.err != nil {
			t.Errorf("%s: %v", s.name, s.err)
		}
	}
	d.received(uint64(total))
	wantSums(t, d.stop(), total)
	text := readFile(t, d.path("out.log"))
	for _, s := range all {
		wantAll(t, text, s.name, s.sent)
	}
}
