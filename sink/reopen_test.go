package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// A file that is renamed, removed or replaced from outside is noticed before
// the next write, once a second at most; one that is truncated goes on.
func TestMeddledWith(t *testing.T) {
	for _, tt := range []struct {
		name   string
		meddle func(path string) error
		want   string // in the file of the name
	}{
		{"nothing", func(string) error { return nil }, "1\n2\n3\n"},
		{"removed", os.Remove, "3\n"},
		{"renamed", func(path string) error { return os.Rename(path, path+".1") }, "3\n"},
		{"replaced", func(path string) error {
			if err := os.WriteFile(path+".new", []byte("theirs\n"), 0o640); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, "theirs\n3\n"},
		{"truncated", func(path string) error { return os.Truncate(path, 0) }, "2\n3\n"}, // FI04
		{"folder renamed", func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".old") }, "3\n"},
	} {
		path := filepath.Join(t.TempDir(), "d/x.log")
		log := new(logbook)
		w := newFiles(new(counters), zerolog.New(log))
		spec := specOf(t, path)
		spec.Prefix = filepath.Dir(spec.Prefix)
		put := func(text string) {
			t.Helper()
			if err := w.Deliver(batch(t, path, spec, text), nil); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
		}
		put("1\n")
		if err := tt.meddle(path); err != nil {
			t.Fatal(err)
		}
		put("2\n") // within the second: not looked at
		w.open[path].Value.(*file).looked = time.Now().Add(-time.Second)
		put("3\n")
		if err := w.Close(nil); err != nil {
			t.Error(err)
		}
		if got := read(t, path); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		noticed := 1
		if tt.name == "nothing" || tt.name == "truncated" {
			noticed = 0
		}
		if log.count("moved or removed") != noticed || log.count("") != noticed {
			t.Errorf("%s: log:\n%s", tt.name, log)
		}
	}
}

// FI22: with variables and marks in a path, the file of a time that is over is
// closed when the same values' next one is opened, and no other.
func TestPastIsClosed(t *testing.T) {
	dir := t.TempDir()
	conf := fileConf(t, filepath.Join(dir, "$host-%H.log"))
	conf.Limits.Messages = 1
	s := start(t, conf)
	e := s.Edge(0, nil)
	noon := time.Date(2026, 3, 15, 12, 0, 0, 0, time.Local)
	n := 0
	for hour := range 3 {
		for _, host := range []string{"a", "b"} {
			m := fromHost(host, "m")
			m.Received = noon.Add(time.Duration(hour) * time.Hour)
			put(t, e, m)
			n++
			s.delivered(n)
			for h := range 3 {
				for _, other := range []string{"a", "b"} {
					want := 0
					if h == hour && other <= host || h == hour-1 && other > host {
						want = 1
					}
					path := filepath.Join(dir, fmt.Sprintf("%s-%d.log", other, 12+h))
					if got := descriptorsOf(t, path); got != want {
						t.Errorf("after %s at %d: %s is open %d times", host, 12+hour, path, got)
					}
				}
			}
		}
	}
	s.finish()
}

// Two sinks whose templates lead to one path never mix: the second waits, says
// for which file, and goes on when the first has closed it.
func TestTwoSinksOnePath(t *testing.T) {
	dir := t.TempDir()
	confs := []Config{fileConf(t, filepath.Join(dir, "$host.log.gz")), fileConf(t, filepath.Join(dir, "$program.log.gz"))}
	var sinks []*running
	path := filepath.Join(dir, "same.log.gz")
	for i, conf := range confs {
		conf.Limits.Messages = 1
		s := start(t, conf)
		m := message(fmt.Sprint(i))
		m.Host, m.Tag = []byte("same"), []byte("same")
		put(t, s.Edge(0, nil), m)
		if i == 0 {
			s.delivered(1)
		} else {
			eventually(t, "retries", func() bool { return s.Status().Retries >= 3 })
		}
		sinks = append(sinks, s)
	}
	if st := sinks[1].Status(); st.State != "failing" || st.LastError != "lock "+path+": another writer has it" {
		t.Errorf("%s: %s", st.State, st.LastError)
	}
	other := message("other") // which is not held up
	other.Tag = []byte("other")
	put(t, sinks[1].Edge(0, nil), other)
	sinks[1].delivered(1)
	sinks[0].finish()
	sinks[1].finish()
	if got := read(t, path); got != "0\n1\n" {
		t.Errorf("%q", got)
	}
	members(t, path)
}
