package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"logboom/drain"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// helperEnv makes this test binary a child of its own tests.
const helperEnv = "PROC_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "flood":
		flood()
		return
	case "adopt":
		adopt()
		return
	case "notify":
		note()
		return
	}
	goleak.VerifyTestMain(m)
}

// flood writes 2,000 lines of 10,000 bytes as fast as it can, and then, on
// stderr, the longest time that one write took and the time of them all, in
// nanoseconds.
func flood() {
	line := append(bytes.Repeat([]byte{'x'}, 9999), '\n')
	start := time.Now()
	var longest time.Duration
	for range 2000 {
		before := time.Now()
		if _, err := os.Stdout.Write(line); err != nil {
			os.Exit(1)
		}
		longest = max(longest, time.Since(before))
	}
	fmt.Fprintln(os.Stderr, int64(longest), int64(time.Since(start)))
}

func newPoller(t testing.TB) *drain.Poller {
	t.Helper()
	poller, err := drain.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { poller.Close() })
	return poller
}

func newFamily(t testing.TB) *Family {
	t.Helper()
	family := NewFamily("", zerolog.Nop())
	t.Cleanup(family.Close)
	return family
}

// eventually polls a condition until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// finishes waits for a goroutine to end.
func finishes(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// records is a handler that keeps what it is given, record by record: a line
// with its LF, "…" before and after a piece that has a neighbour, "$" after
// a last line without LF.
type records struct {
	mu   sync.Mutex // guards the fields below
	all  []string
	text []byte // every byte, in order
	bad  string // the first block that breaks the contract
}

func (r *records) take(b Block) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lfs := bytes.Count(b.Text, []byte{'\n'})
	ended := bytes.HasSuffix(b.Text, []byte{'\n'})
	switch {
	case b.Received.IsZero(), b.Partial && (b.Lines != 1 || lfs > 1 || lfs == 1 && !ended), b.Last && lfs > 0,
		!b.Partial && !b.Last && (!ended || b.Lines != lfs), b.Last && b.Lines != 1:
		r.bad = fmt.Sprintf("%+v", b)
	}
	r.text = append(r.text, b.Text...)
	switch {
	case b.Partial:
		r.all = append(r.all, "…"+string(b.Text))
	case b.Last:
		r.all = append(r.all, string(b.Text)+"$")
	default:
		r.all = append(r.all, strings.SplitAfter(string(b.Text[:len(b.Text)-1]), "\n")...)
		r.all[len(r.all)-1] += "\n"
	}
	// The text was borrowed: whoever still looks at it must see rubbish.
	for i := range b.Text {
		b.Text[i] = 0xDB
	}
}

func (r *records) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// expect compares the records; long ones are shown by their length.
func (r *records) expect(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bad != "" {
		t.Errorf("bad block: %s", r.bad)
	}
	if len(r.all) != len(want) {
		t.Fatalf("%d records, want %d: %s", len(r.all), len(want), show(r.all))
	}
	for i := range want {
		if r.all[i] != want[i] {
			t.Errorf("record %d: %s, want %s", i, show(r.all[i:i+1]), show(want[i:i+1]))
		}
	}
}

func show(all []string) string {
	var b strings.Builder
	for i, s := range all {
		if i == 10 {
			b.WriteString(" and more")
			break
		}
		if len(s) > 60 {
			s = s[:20] + "... (" + strconv.Itoa(len(s)) + " bytes)"
		}
		fmt.Fprintf(&b, " %q", s)
	}
	return b.String()
}
