package sink

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Rotate is when a file ends and the next of the same name begins. Zero: never.
type Rotate struct {
	Size  int64         // bytes that a file has at most, unless a single batch is longer
	Every time.Duration // a divisor of a day, or whole days; see [CheckEvery]
}

const (
	day = 24 * time.Hour

	// monday is how long after the epoch the first Monday began: from there
	// whole days are counted, so that seven of them are a week.
	monday = 4 * day
)

// CheckEvery reports what is wrong with a period of rotation: periods that a
// day cannot be divided into would begin at another hour each day.
func CheckEvery(every time.Duration) error {
	if every > 0 && every%time.Second == 0 && (day%every == 0 || every%day == 0) {
		return nil
	}
	return errors.New("neither divides a day nor is a number of days")
}

// end is when the period that t lies in ends, by the clock on the wall in t's
// zone: "1h" ends at the full hour, "6h" at 0, 6, 12 and 18 o'clock, "1d" at
// midnight, "7d" on Monday. It is always after t.
//
// A day on which the clocks change is shorter or longer, not shifted: an end
// that the clock skips is when it skips it, and an hour that comes twice ends
// twice.
func (r Rotate) end(t time.Time) time.Time {
	every := int64(r.Every / time.Second)
	local := onTheWall(t) - int64(monday/time.Second)
	left := every - (local%every+every)%every
	end := time.Unix(t.Unix()+left, 0).In(t.Location())
	shift := offset(end) - offset(t)
	if shift == 0 || (onTheWall(end)-int64(monday/time.Second))%every == 0 {
		return end
	}
	// The clocks change in between. If they skip the end, it is their change.
	if moved := end.Add(-time.Duration(shift) * time.Second); offset(moved) == offset(end) {
		return moved
	}
	return end
}

// onTheWall is what the clock on the wall shows, in seconds.
func onTheWall(t time.Time) int64 { return t.Unix() + offset(t) }

func offset(t time.Time) int64 {
	_, seconds := t.Zone()
	return int64(seconds)
}

// period is the time that a file is for.
type period struct {
	since time.Time // a time within
	end   time.Time // zero: none
}

// of returns the period that t lies in.
func (r Rotate) of(t time.Time) period {
	if r.Every == 0 {
		return period{since: t}
	}
	return period{since: t, end: r.end(t)}
}

// over reports whether the period is over at t.
//
// If the clock was set back by more than a period, the one that it now shows
// takes the place of p, or else the file would have no end for as long. After
// less than that nothing changes: an end that was passed is not passed again.
func (p *period) over(t time.Time, r Rotate) bool {
	if p.end.IsZero() {
		return false
	}
	if t.Before(p.since.Add(-r.Every)) {
		*p = r.of(t)
	}
	return !t.Before(p.end)
}

// stampLayout is the time in the name of a rotated file. Sorted by name, files
// are sorted by time, but for the hour that comes twice.
const stampLayout = "2006-01-02T15-04-05"

// rotatedName is the name that a file gets when it is rotated at t: with the
// time before its extensions, and -1, -2 if that name is taken.
func rotatedName(name string, t time.Time, taken int) string {
	stem, ext := splitName(name)
	name = stem + "-" + t.Format(stampLayout)
	if taken > 0 {
		name = fmt.Sprintf("%s-%d", name, taken)
	}
	return name + ext
}

// originalName is the name that a file had before it was rotated. It reports
// false if the file was not.
func originalName(name string) (string, bool) {
	stem, ext := splitName(name)
	if i := strings.LastIndexByte(stem, '-'); i > 0 && isNumber(stem[i+1:]) && len(stem) > i+1 && stem[i+1] != '0' {
		if original, ok := cutStamp(stem[:i]); ok {
			return original + ext, true
		}
	}
	if original, ok := cutStamp(stem); ok {
		return original + ext, true
	}
	return name, false
}

// cutStamp takes "-" and a time off the end of a stem.
func cutStamp(stem string) (string, bool) {
	at := len(stem) - len(stampLayout)
	if at < 2 || stem[at-1] != '-' {
		return stem, false
	}
	_, err := time.Parse(stampLayout, stem[at:])
	return stem[:at-1], err == nil
}

// splitName splits the extensions off a file's name: that of the compression,
// and one of up to five letters and digits before it.
func splitName(name string) (stem, ext string) {
	stem = name
	for _, end := range []string{".gz", ".zst"} {
		if rest, ok := strings.CutSuffix(stem, end); ok && rest != "" {
			stem = rest
		}
	}
	more := filepath.Ext(stem)
	if len(more) > 1 && len(more) <= 6 && len(more) < len(stem) && isAlphanumeric(more[1:]) {
		stem = stem[:len(stem)-len(more)]
	}
	return stem, name[len(stem):]
}

func isAlphanumeric(s string) bool {
	for _, c := range []byte(s) {
		if !isNameByte(c) || c == '_' {
			return false
		}
	}
	return true
}

func isNumber(s string) bool {
	for _, c := range []byte(s) {
		if !isDigit(c) {
			return false
		}
	}
	return s != ""
}
