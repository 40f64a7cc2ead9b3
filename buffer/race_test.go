//go:build race

package buffer

import (
	"bytes"
	"testing"
)

const raceEnabled = true

// What was given back is made unreadable, so that a late use shows.
func TestPoison(t *testing.T) {
	b := newBuffer(t, 4, Limits{Messages: 1, Bytes: PageSize, Flush: 1 << 40})
	mustAdd(t, b, "", "text")
	bt, _ := b.Next()
	late := bt.Bytes()
	b.Done(bt, 0, "")
	if want := bytes.Repeat([]byte{0xDB}, len(late)); !bytes.Equal(late, want) {
		t.Errorf("after Done: %q", late)
	}
	if bt.Bytes() != nil {
		t.Error("a batch that is done still has its text")
	}

	// A batch that grows leaves its smaller piece behind.
	b.limits = Limits{Messages: 10, Bytes: 2 * PageSize, Flush: 1 << 40}
	mustAdd(t, b, "", "text")
	late = b.open[""].Bytes()
	mustAdd(t, b, "", string(make([]byte, PageSize)))
	if want := bytes.Repeat([]byte{0xDB}, len(late)); !bytes.Equal(late, want) {
		t.Errorf("after growing: %q", late)
	}
}
