package main

import (
	"io"
	"net"
	"testing"
	"time"
)

// What a message holds is no second message at the next receiver: a line feed
// is escaped where it would end the frame, and goes as it is where it does not.
func TestForwardForged(t *testing.T) { // FW15
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const message = "a\n<8>1 - evil - - - - x"
	for framing, want := range map[string]string{
		"lf":    "a#012<8>1 - evil - - - - x\n",
		"octet": "23 " + message,
	} {
		t.Run(framing, func(t *testing.T) {
			d := startDaemon(t, fill(prelude+`
[source.in]
type = "syslog"
listen = "unixgram://in.sock"
format = "raw"
sinks = ["remote"]
[sink.remote]
type = "syslog"
format = "raw"
targets = ["tcp://TARGET"]
framing = "FRAMING"
flush = "10ms"
`, "TARGET", l.Addr(), "FRAMING", framing))
			if _, err := dial(t, "unixgram", d.path("in.sock")).Write([]byte(message)); err != nil {
				t.Fatal(err)
			}
			l.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(20 * time.Second))
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
			wantSums(t, d.stop(), 1)
			if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
				t.Errorf("then %q, %v", rest, err)
			}
		})
	}
}
