package load

import (
	"os"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// write writes to a pipe that a check reads.
func write(t *testing.T, size, rate int, length time.Duration) (Written, *Check) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // Write is for a process of its own
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	check := NewCheck(NewLines(size-1), 50_000_000)
	done := make(chan error, 1)
	go func() { done <- check.Read(r) }()
	written, err := Write(int(w.Fd()), size, rate, length)
	w.Close()
	if err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	return written, check
}

func TestWrittenLinesArriveInOrder(t *testing.T) {
	for _, size := range []int{120, 10_000} {
		written, check := write(t, size, 0, 100*time.Millisecond)
		if written.Lines == 0 || check.Unique != written.Lines || check.Lines != written.Lines || check.Disorder > 0 {
			t.Errorf("%d lines written, %d read, %d of them whole, %d out of order", written.Lines, check.Lines, check.Unique, check.Disorder)
		}
		if written.P50 <= 0 || written.P50 > written.P999 || written.P999 > written.Longest || written.Longest > written.Took {
			t.Errorf("durations are %+v", written)
		}
	}
}

func TestWriteKeepsToItsRate(t *testing.T) {
	const rate, length = 1000, 200 * time.Millisecond
	written, _ := write(t, 120, rate, length)
	if most := int(written.Took.Seconds()*rate) + 1; written.Lines < 10 || written.Lines > most {
		t.Errorf("%d lines in %v, want at most %d", written.Lines, written.Took, most)
	}
}

func TestWriteFailsWithoutAReader(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	unix.Close(ends[0])
	defer unix.Close(ends[1])
	if _, err := Write(ends[1], 120, 0, time.Second); err == nil {
		t.Error("a write to nobody did not fail")
	}
}
