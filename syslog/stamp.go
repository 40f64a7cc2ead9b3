package syslog

import (
	"sync/atomic"
	"time"
)

// stamp is the time that a header names, as its fields stand there. What it is
// as an instant is worked out by [Header.Time], since few formats need it: that
// takes longer than all of [Scan].
type stamp struct {
	nanosecond int32
	year       int16
	offset     int16 // minutes east of UTC
	month      uint8
	day        uint8
	hour       uint8
	minute     uint8
	second     uint8 // 60 is a leap second
	has        uint8 // what of it was there: the bits below; 0 is no time
}

const (
	hasClock  = 1 << iota // month, day and time of day
	hasYear               // else the nearest one is meant
	hasOffset             // else the zone is the source's
)

// HasTime reports whether the header names a time.
func (h *Header) HasTime() bool { return h.stamp.has != 0 }

// Time returns the time that the header names. received is when the message
// came: the answer where the header names no time, or one that no calendar has
// (29 February of a common year), and what the year is found by where the
// header has none: the nearest one. zone, not nil, is what a time without an
// offset is in; one with an offset is returned in that. It allocates nothing,
// but for an offset that is not of whole quarters of an hour.
func (h *Header) Time(received time.Time, zone *time.Location) time.Time {
	s := &h.stamp
	switch {
	case s.has == 0:
		return received
	case s.has&hasYear == 0:
		return s.nearest(received, zone)
	case !s.isDate(int(s.year)):
		return received
	case s.has&hasOffset != 0:
		return s.in(int(s.year), fixedZone(int(s.offset)*60))
	}
	return s.local(int(s.year), s.in(int(s.year), zone), received)
}

// nearest returns the instant of a stamp without a year, in the year that
// brings it nearest to received.
func (s *stamp) nearest(received time.Time, zone *time.Location) time.Time {
	// Within half a common year no other year can be nearer.
	const sure = 182 * 24 * time.Hour
	year := received.In(zone).Year()
	t := s.in(year, zone)
	if away := t.Sub(received); away.Abs() > sure {
		other := year + 1
		if away > 0 {
			other = year - 1
		}
		if u := s.in(other, zone); u.Sub(received).Abs() < away.Abs() {
			year, t = other, u
		}
	}
	// Asked of that year only: a leap day in another is no better guess.
	if !s.isDate(year) {
		return received
	}
	return s.local(year, t, received)
}

// local corrects t, what time.Date makes of the stamp in a year, where clocks
// are set to or from summer time. A time that they show twice is the one nearer
// to received; one that they leap over is reckoned by the offset before the
// leap, and returned in that.
func (s *stamp) local(year int, t, received time.Time) time.Time {
	_, offset := t.Zone()
	start, end := t.ZoneBounds()

	shown := t.Add(time.Duration(offset) * time.Second)
	if meant := s.in(year, time.UTC); !shown.Equal(meant) {
		// time.Date took the offset before the leap or the one after it.
		if shown.After(meant) {
			_, offset = start.Add(-time.Second).Zone()
		}
		return meant.Add(time.Duration(-offset) * time.Second).In(fixedZone(offset))
	}

	// The same clock by the offset before this one, or after it, is a second
	// reading only where that offset is in force then.
	if !start.IsZero() {
		_, before := start.Add(-time.Second).Zone()
		earlier := t.Add(time.Duration(offset-before) * time.Second)
		if earlier.Before(start) {
			return nearer(earlier, t, received)
		}
	}
	if !end.IsZero() {
		_, after := end.Zone()
		later := t.Add(time.Duration(offset-after) * time.Second)
		if !later.Before(end) {
			return nearer(t, later, received)
		}
	}
	return t
}

// nearer returns a or b, whichever is nearer to t; a if both are as near.
func nearer(a, b, t time.Time) time.Time {
	if b.Sub(t).Abs() < a.Sub(t).Abs() {
		return b
	}
	return a
}

// in returns the stamp's instant in a year and zone, as time.Date has it.
func (s *stamp) in(year int, zone *time.Location) time.Time {
	return time.Date(year, time.Month(s.month), int(s.day),
		int(s.hour), int(s.minute), int(s.second), int(s.nanosecond), zone)
}

// isDate reports whether the year has the stamp's day.
func (s *stamp) isDate(year int) bool {
	switch time.Month(s.month) {
	case time.February:
		leap := year%4 == 0 && (year%100 != 0 || year%400 == 0)
		return s.day <= 28 || s.day == 29 && leap
	case time.April, time.June, time.September, time.November:
		return s.day <= 30
	}
	return s.day <= 31
}

// quarterZones holds the zones that fixedZone has made, by quarters of an hour
// from 24 hours west of UTC on, so that a message allocates none.
var quarterZones [2*24*4 + 1]atomic.Pointer[time.Location]

// fixedZone returns the zone that is offset seconds east of UTC.
func fixedZone(offset int) *time.Location {
	const quarter, day = 15 * 60, 24 * 60 * 60
	switch {
	case offset == 0:
		return time.UTC
	case offset%quarter != 0 || offset < -day || offset > day:
		return time.FixedZone("", offset) // in no use since about 1970
	}
	slot := &quarterZones[(offset+day)/quarter]
	zone := slot.Load()
	if zone == nil {
		zone = time.FixedZone("", offset)
		slot.Store(zone) // two at once make two equal zones
	}
	return zone
}

// scanStamp reads the time at the front of a BSD header and returns its length,
// or 0 if b does not begin with one: "Mmm d hh:mm:ss", or an ISO time. A colon
// after it, as Cisco's routers write, is counted in. A space or the end of b
// follows it. s is written only if there is one.
func scanStamp(s *stamp, b []byte) int {
	var t stamp
	n := 0
	if len(b) > 0 && isDigit(b[0]) {
		n = scanISO(&t, b)
	} else {
		n = scanBSD(&t, b)
	}
	if n == 0 {
		return 0
	}
	if n < len(b) && loneColon(b[n:]) {
		n++
	}
	if n < len(b) && b[n] != ' ' {
		return 0
	}
	*s = t
	return n
}

// scanBSD reads "Mmm d hh:mm:ss" (RFC 3164 section 4.1.2) in its variants: the
// month in any case, the day padded with a space, a zero or nothing, a
// fraction, a year after the day or the time. It returns the length, or 0.
func scanBSD(s *stamp, b []byte) int {
	if len(b) < len("Mmm d hh:mm:ss") || b[3] != ' ' {
		return 0
	}
	s.month = month(b)
	i := 4
	if b[i] == ' ' {
		i++
	}
	width := 1
	if isDigit(b[i+1]) {
		width = 2
	}
	day := number(b[i : i+width])
	i += width
	if s.month == 0 || day < 1 || day > 31 || b[i] != ' ' {
		return 0
	}
	s.day = uint8(day)
	i++
	// A clock has its colon where a year has its third digit.
	if y := number(b[i:min(len(b), i+4)]); y >= 0 && len(b) > i+4 && b[i+4] == ' ' {
		s.year, s.has = int16(y), hasYear
		i += len("2006 ")
	}
	n := scanClock(s, b[i:])
	if n == 0 {
		return 0
	}
	i += n
	if s.has&hasYear == 0 {
		i += scanTrailingYear(s, b[i:])
	}
	s.has |= hasClock
	return i
}

// month returns the month, 1 to 12, whose English abbreviation in any case b
// begins with, or 0. b has three bytes or more.
func month(b []byte) uint8 {
	switch string([]byte{b[0] | 0x20, b[1] | 0x20, b[2] | 0x20}) {
	case "jan":
		return 1
	case "feb":
		return 2
	case "mar":
		return 3
	case "apr":
		return 4
	case "may":
		return 5
	case "jun":
		return 6
	case "jul":
		return 7
	case "aug":
		return 8
	case "sep":
		return 9
	case "oct":
		return 10
	case "nov":
		return 11
	case "dec":
		return 12
	}
	return 0
}

// scanTrailingYear reads " 2009" after a BSD time. A word of four digits could
// be a host as well: only what a clock would show is a year.
func scanTrailingYear(s *stamp, b []byte) int {
	const n = len(" 2006")
	if len(b) < n || b[0] != ' ' {
		return 0
	}
	y := number(b[1:n])
	if y < 1970 || y > 2099 || len(b) > n && b[n] != ' ' && !loneColon(b[n:]) {
		return 0
	}
	s.year = int16(y)
	s.has |= hasYear
	return n
}

// scanISO reads an RFC 3339 time, and its relatives in use: a space for the T,
// no colon or no minutes in the offset, no offset. It returns the length, or 0.
// Whether the month has such a day is the caller's to ask.
func scanISO(s *stamp, b []byte) int {
	const date = len("2006-01-02")
	if len(b) < len("2006-01-02T15:04:05") || b[4] != '-' || b[7] != '-' ||
		b[date]|0x20 != 't' && b[date] != ' ' {
		return 0
	}
	year, month, day := number(b[:4]), number(b[5:7]), number(b[8:10])
	if year < 0 || month < 1 || month > 12 || day < 1 || day > 31 {
		return 0
	}
	n := scanClock(s, b[date+1:])
	if n == 0 {
		return 0
	}
	n += date + 1
	s.year, s.month, s.day = int16(year), uint8(month), uint8(day)
	s.has = hasClock | hasYear
	return n + scanOffset(s, b[n:])
}

// scanClock reads "hh:mm:ss" and a fraction, of which it keeps nanoseconds. It
// returns the length, or 0.
func scanClock(s *stamp, b []byte) int {
	if len(b) < len("hh:mm:ss") || b[2] != ':' || b[5] != ':' {
		return 0
	}
	hour, minute, second := number(b[:2]), number(b[3:5]), number(b[6:8])
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 {
		return 0
	}
	s.hour, s.minute, s.second = uint8(hour), uint8(minute), uint8(second)
	n := len("hh:mm:ss")
	if n+1 >= len(b) || b[n] != '.' || !isDigit(b[n+1]) {
		return n
	}
	weight := int32(100_000_000) // 0 after nine digits: the others do not count
	for n++; n < len(b) && isDigit(b[n]); n++ {
		s.nanosecond += int32(b[n]-'0') * weight
		weight /= 10
	}
	return n
}

// scanOffset reads "Z", "+hh:mm", "+hhmm" or "+hh", and returns the length, or
// 0, which is no offset.
func scanOffset(s *stamp, b []byte) int {
	switch {
	case len(b) > 0 && b[0]|0x20 == 'z':
		s.has |= hasOffset
		return 1
	case len(b) < len("+hh") || b[0] != '+' && b[0] != '-':
		return 0
	}
	hours, minutes, n := number(b[1:3]), 0, 3
	switch {
	case len(b) >= 6 && b[3] == ':' && isDigit(b[4]):
		minutes, n = number(b[4:6]), 6
	case len(b) >= 5 && isDigit(b[3]):
		minutes, n = number(b[3:5]), 5
	}
	if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
		return 0
	}
	s.offset = int16(60*hours + minutes)
	if b[0] == '-' {
		s.offset = -s.offset
	}
	s.has |= hasOffset
	return n
}
