package main

import (
	"encoding"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSize(t *testing.T) {
	tests := []struct {
		in   string
		want Size
		out  string // "": as in
	}{
		{"0", 0, ""}, {"1", 1, ""}, {"1023", 1023, ""}, {"1024", 1024, "1KiB"}, {"7B", 7, "7"},
		{"64KiB", 64 << 10, ""}, {"64k", 64 << 10, "64KiB"}, {"64K", 64 << 10, "64KiB"}, {"64KB", 64 << 10, "64KiB"},
		{"8MiB", 8 << 20, ""}, {"8m", 8 << 20, "8MiB"}, {"1536MiB", 1536 << 20, ""}, {"1g", 1 << 30, "1GiB"}, {"2048k", 2 << 20, "2MiB"},
		{"9223372036854775807", math.MaxInt64, ""},
	}
	for _, tt := range tests {
		var s Size
		if err := s.UnmarshalText([]byte(tt.in)); err != nil || s != tt.want {
			t.Errorf("%q is %d, %v, want %d", tt.in, s, err, tt.want)
		}
		if tt.out == "" {
			tt.out = tt.in
		}
		if got := text(s); got != tt.out {
			t.Errorf("%d is written %q, want %q", s, got, tt.out)
		}
	}
	refused[Size](t, "", "k", "KiB", "-1", "-1k", "1.5MiB", "1 KiB", "1x", "1kk", "1KiBB", "0x10", "1_000",
		"9223372036854775808", "9007199254740992k", "8589934592GiB", "1\x00")
}

func TestDuration(t *testing.T) {
	tests := []struct {
		in   string
		want time.Duration
		out  string
	}{
		{"0", 0, ""}, {"0s", 0, "0"}, {"500ms", 500 * time.Millisecond, ""}, {"1s", time.Second, ""}, {"1000ms", time.Second, "1s"},
		{"90s", 90 * time.Second, ""}, {"5m", 5 * time.Minute, ""}, {"1h", time.Hour, ""}, {"7d", 7 * day, ""}, {"24h", day, "1d"},
		{"1d12h", 36 * time.Hour, "36h"}, {"1m30s", 90 * time.Second, "90s"}, {"1.5s", 1500 * time.Millisecond, "1500ms"},
		{"1us", time.Microsecond, "1µs"}, {"0d", 0, "0"}, {"65535d", 65535 * day, ""},
	}
	for _, tt := range tests {
		var d Duration
		if err := d.UnmarshalText([]byte(tt.in)); err != nil || time.Duration(d) != tt.want {
			t.Errorf("%q is %v, %v, want %v", tt.in, time.Duration(d), err, tt.want)
		}
		if tt.out == "" {
			tt.out = tt.in
		}
		if got := text(d); got != tt.out {
			t.Errorf("%v is written %q, want %q", tt.want, got, tt.out)
		}
	}
	refused[Duration](t, "", "1", "s", "d", "-1s", "-1d", "1d-1h", "1 s", "1w", "1.5d", "65536d", "d1", "9999999999h", "65535d2562047h")
}

func TestWhenFull(t *testing.T) {
	for in, want := range map[string]WhenFull{
		"drop": {Mode: Drop}, "block": {Mode: Block}, "1s": {Wait, time.Second}, "250ms": {Wait, 250 * time.Millisecond},
		"0": {Mode: Drop}, // to wait for no time is to drop
	} {
		var w WhenFull
		if err := w.UnmarshalText([]byte(in)); err != nil || w != want {
			t.Errorf("%q is %v, %v, want %v", in, w, err, want)
		}
		if got := text(w); got != in && in != "0" {
			t.Errorf("%v is written %q, want %q", w, got, in)
		}
	}
	refused[WhenFull](t, "", "Drop", "wait", "1", "-1s")
}

func TestSeverity(t *testing.T) {
	for in, want := range map[string]Severity{
		"emerg": 0, "panic": 0, "alert": 1, "crit": 2, "err": 3, "error": 3, "warning": 4, "warn": 4, "notice": 5, "info": 6, "debug": 7,
	} {
		var s Severity
		if err := s.UnmarshalText([]byte(in)); err != nil || s != want {
			t.Errorf("%q is %d, %v, want %d", in, s, err, want)
		}
	}
	refused[Severity](t, "", "INFO", "7", "trace")

	for in, want := range map[string]SeverityRange{
		"info..emerg": {0, 6}, "emerg..info": {0, 6}, "err..err": {3, 3}, "warn..notice": {4, 5},
		"err": {0, 3}, // and graver, as in syslog.conf(5)
	} {
		var r SeverityRange
		if err := r.UnmarshalText([]byte(in)); err != nil || r != want {
			t.Errorf("%q is %v, %v, want %v", in, r, err, want)
		}
		var again SeverityRange
		if err := again.UnmarshalText([]byte(text(r))); err != nil || again != r {
			t.Errorf("%v is written %q, which is read as %v, %v", r, text(r), again, err)
		}
	}
	refused[SeverityRange](t, "", "..", "info..", "..info", "info...err", "info..err..crit")
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]Address{
		"udp://127.0.0.1:5140":   {"udp", "127.0.0.1:5140"},
		"udp://[::1]:514":        {"udp", "[::1]:514"},
		"udp://:514":             {"udp", ":514"},
		"tcp://logs.example:0":   {"tcp", "logs.example:0"},
		"unix:///run/a":          {"unix", "/run/a"},
		"unixgram:///run/a":      {"unixgram", "/run/a"},
		"unixgram://run/a":       {"unixgram", "run/a"},
		"/run/a":                 {"unixgram", "/run/a"},
		"./a":                    {"unixgram", "./a"},
		"unix:///run/with:colon": {"unix", "/run/with:colon"},
	} {
		var a Address
		if err := a.UnmarshalText([]byte(in)); err != nil || a != want {
			t.Errorf("%q is %v, %v, want %v", in, a, err, want)
		}
	}
	refused[Address](t, "", "localhost:514", "udp://localhost", "udp://::1:514", "udp://1:2:3", "udp://a:-1", "udp://a:65536", "udp://a:syslog",
		"tls://a:1", "relp://a:1", "http://a:1", "UDP://a:1", "unix://", "unixgram:///a\x00b", "://a:1")
}

// refused checks that each text is refused, with an error that shows it or
// says which part of it is wrong.
func refused[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, texts ...string) {
	t.Helper()
	for _, in := range texts {
		var v T
		err := P(&v).UnmarshalText([]byte(in))
		if err == nil {
			t.Errorf("%q is taken for %v", in, v)
		} else if len(err.Error()) < 10 {
			t.Errorf("%q: the error %q says too little", in, err)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"flush", "buffer", "messages", "mode", "type"}
	for in, want := range map[string]string{
		"flsh": "flush", "fulsh": "", "bufer": "buffer", "bufffer": "buffer", "mesages": "messages", "message": "messages",
		"mod": "mode", "tpye": "", "m": "", "": "", "typ": "type", "retention": "", "masseges": "messages",
	} {
		if got := nearest(in, words); got != want {
			t.Errorf("nearest to %q is %q, want %q", in, got, want)
		}
	}
}

// Two addresses overlap if, and only if, the second of two sockets cannot be
// bound to them: the kernel is asked too.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"udp://127.0.0.1:P", "udp://127.0.0.1:P", true},
		{"udp://127.0.0.1:P", "udp://localhost:P", true},
		{"tcp://LOCALHOST:P", "tcp://127.0.0.1:P", true},
		{"udp://127.0.0.1:P", "udp://[::ffff:127.0.0.1]:P", true},
		{"udp://127.0.0.1:P", "udp://0.0.0.0:P", true},
		{"udp://[::]:P", "udp://127.0.0.1:P", true},
		{"udp://:P", "udp://localhost:P", true},
		{"tcp://:P", "tcp://0.0.0.0:P", true},
		{"udp://[::]:P", "udp://[::1]:P", true},
		{"udp://[0:0::1]:P", "udp://[::1]:P", true},
		{"udp://0.0.0.0:P", "udp://[::1]:P", false},
		{"tcp://127.0.0.1:P", "tcp://[::1]:P", false},
		{"udp://127.0.0.1:P", "udp://127.0.0.2:P", false},
		{"udp://127.0.0.1:P", "tcp://127.0.0.1:P", false},
		{"udp://127.0.0.1:0", "udp://127.0.0.1:0", false},
	} {
		var a, b Address
		port := strconv.Itoa(freePort(t, "udp"))
		in := func(text string) []byte { return []byte(strings.ReplaceAll(text, ":P", ":"+port)) }
		if err := errors.Join(a.UnmarshalText(in(c.a)), b.UnmarshalText(in(c.b))); err != nil {
			t.Fatal(err)
		}
		if overlap(a, b) != c.want || overlap(b, a) != c.want {
			t.Errorf("%s and %s: overlap is %v", c.a, c.b, overlap(a, b))
		}
		first, err := bind(a)
		if err != nil {
			t.Logf("%s: %v", c.a, err) // without IPv6, say, or taken
			continue
		}
		second, err := bind(b)
		if err == nil {
			second.Close()
		}
		first.Close()
		if err != nil && !errors.Is(err, unix.EADDRINUSE) {
			t.Logf("%s: %v", c.b, err)
		} else if (err != nil) != c.want {
			t.Errorf("%s and then %s: %v", c.a, c.b, err)
		}
	}
}

// bind binds an address as a source does.
func bind(a Address) (io.Closer, error) {
	if a.Network == "udp" {
		return net.ListenPacket(a.family(), a.Address)
	}
	return net.Listen(a.family(), a.Address)
}
