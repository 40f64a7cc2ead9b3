package syslog

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// checkRecent compares what a recent makes of messages in turn with what Scan
// makes of each, and returns how many it did not scan.
func checkRecent(t *testing.T, messages [][]byte, local bool) (known int) {
	t.Helper()
	var r recent
	for _, b := range messages {
		want, got := Header{}, Header{Host: []byte("old"), Data: []byte("old"), MsgID: []byte("old"), RFC5424: true}
		Scan(&want, b, local)
		isKnown := r.n > 0 && bytes.HasPrefix(b, r.text[:r.n])
		r.scan(&got, b, local)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q of %q, local %v:\n%+v, Scan makes\n%+v", b, messages, local, got, want)
		}
		if !isKnown {
			continue
		}
		known++
		for _, field := range [][]byte{got.Host, got.Tag, got.PID} {
			if cap(field) != len(field) {
				t.Fatalf("%q: what is appended to %q would be written into the message", b, field)
			}
		}
	}
	return known
}

func TestRecent(t *testing.T) {
	for _, header := range []string{
		"<190>Mar 15 10:20:30 web-1 nginx: ",
		"<190>Mar 15 10:20:30 nginx: ",
		"<190>Mar 15 10:20:30  nginx: ",
		"<190>Mar 15 10:20:30 web-1   nginx: ",
		"<190>Mar 15 10:20:30 - nginx: ",
		"<13>Mar 15 10:20:30 10.0.0.1 app[123]: ",
		"<13>Mar 15 10:20:30 2001:db8::1 app[]: ",
		"<13>2026-03-15T10:20:30.123456+01:00 h a[b]: ",
		"<13> Mar 15 2026 10:20:30 aa aa[aa]: ",
		"<13>Mar 15 10:20:30 " + strings.Repeat("h", 60) + " " + strings.Repeat("t", 40) + ": ",
	} {
		for _, local := range []bool{false, true} {
			var messages [][]byte
			for _, message := range []string{"GET /", "", "x: y", " b[1]: ", "nginx: ", "\n"} {
				messages = append(messages, []byte(header+message))
			}
			if known := checkRecent(t, messages, local); known != len(messages)-1 {
				t.Errorf("%q: %d of %d messages were not scanned", header, known, len(messages)-1)
			}
		}
	}
}

// TestRecentIsNotFooled by headers whose meaning is up to what follows, or
// that begin alike.
func TestRecentIsNotFooled(t *testing.T) {
	for _, texts := range [][]string{
		{"<13>Mar 15 10:20:30 cafe:: hello", "<13>Mar 15 10:20:30 cafe:: nginx: hello", "<13>Mar 15 10:20:30 cafe:: : hello"},
		{"<13>Mar 15 10:20:30 web-1 hello", "<13>Mar 15 10:20:30 web-1 nginx: hello"},
		{"<13>Mar 15 10:20:30 web-1 nginx: ", "<13>Mar 15 10:20:30 web-1 nginx:", "<13>Mar 15 10:20:30 web-1 nginx:x"},
		{"<13>Mar 15 10:20:30 web-1 nginx: x", "<14>Mar 15 10:20:30 web-1 nginx: x", "<13>Mar 15 10:20:31 web-1 nginx: x"},
		{"<13>Mar 15 10:20:30 a b: x", "<14>1 - h a p m - x", "plain", "<13>Mar 15 10:20:30 a b: x"},
		{"<14>1 - h a p m - a: ", "<14>1 - h a p m - a: "},
		{"<13>Mar 15 10:20:30 a " + strings.Repeat("t", 200) + ": x", "<13>Mar 15 10:20:30 a " + strings.Repeat("t", 200) + ": x"},
	} {
		var messages [][]byte
		for _, text := range texts {
			messages = append(messages, []byte(text))
		}
		checkRecent(t, messages, false)
		checkRecent(t, messages, true)
	}
}

// FuzzRecent has a header and two texts behind it, in turn.
func FuzzRecent(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), []byte("x"), []byte("app[1]: y"), false)
		f.Add([]byte(s), []byte("x"), []byte("app[1]: y"), true)
	}
	f.Add([]byte("<13>Mar  5 10:20:30 cafe:: "), []byte("x"), []byte("a: x"), true)
	f.Fuzz(func(t *testing.T, header, one, other []byte, local bool) {
		first := append(bytes.Clone(header), one...)
		second := append(bytes.Clone(header), other...)
		checkRecent(t, [][]byte{first, second, header, second, first}, local)
	})
}

func BenchmarkRecent(b *testing.B) {
	var r recent
	var h Header
	line := []byte(nginxLine)
	for b.Loop() {
		r.scan(&h, line, false)
	}
}
