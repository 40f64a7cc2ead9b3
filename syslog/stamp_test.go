package syslog

import (
	"testing"
	"time"
)

func location(tb testing.TB, name string) *time.Location {
	tb.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return zone
}

// timeOf is the time of a header that begins with the stamp, and its message.
func timeOf(stamp string, received time.Time, zone *time.Location) (string, bool) {
	var h Header
	Scan(&h, []byte("<13>"+stamp+" h1 app: x"), false)
	return h.Time(received, zone).Format(time.RFC3339Nano), h.HasTime() && string(h.Message) == "x"
}

func TestStampForms(t *testing.T) {
	zone := time.FixedZone("", 2*60*60) // of the source
	tests := []struct{ in, want string }{
		{"Mar 15 10:20:30", "2026-03-15T10:20:30+02:00"},
		{" Mar 15 10:20:30", "2026-03-15T10:20:30+02:00"},
		{"mAR 15 10:20:30", "2026-03-15T10:20:30+02:00"},
		{"Mar  5 10:20:30", "2026-03-05T10:20:30+02:00"},
		{"Mar 05 10:20:30", "2026-03-05T10:20:30+02:00"},
		{"Mar 5 10:20:30", "2026-03-05T10:20:30+02:00"},
		{"Mar 15 10:20:30:", "2026-03-15T10:20:30+02:00"},
		{"Mar 15 10:20:30.25", "2026-03-15T10:20:30.25+02:00"},
		{"Mar 15 10:20:30.663:", "2026-03-15T10:20:30.663+02:00"},
		{"Mar 15 2019 10:20:30", "2019-03-15T10:20:30+02:00"},
		{"Mar 5 2019 10:20:30.5:", "2019-03-05T10:20:30.5+02:00"},
		{"Mar 15 10:20:30 2019", "2019-03-15T10:20:30+02:00"},
		{"Mar 15 10:20:30 2019:", "2019-03-15T10:20:30+02:00"},
		{"Mar 15 10:20:60", "2026-03-15T10:21:00+02:00"},
		{"2019-03-15T10:20:30Z", "2019-03-15T10:20:30Z"},
		{"2019-03-15t10:20:30z", "2019-03-15T10:20:30Z"},
		{"2019-03-15T10:20:30", "2019-03-15T10:20:30+02:00"},
		{"2019-03-15 10:20:30", "2019-03-15T10:20:30+02:00"},
		{"2019-03-15 10:20:30.5+01:00:", "2019-03-15T10:20:30.5+01:00"},
		{"2019-03-15T10:20:30+05:30", "2019-03-15T10:20:30+05:30"},
		{"2019-03-15T10:20:30-0700", "2019-03-15T10:20:30-07:00"},
		{"2019-03-15T10:20:30-07", "2019-03-15T10:20:30-07:00"},
		{"2019-03-15T10:20:30+00:20", "2019-03-15T10:20:30+00:20"},
		{"2019-03-15T10:20:30-23:59", "2019-03-15T10:20:30-23:59"},
		{"2019-03-15T10:20:30.1234567899Z", "2019-03-15T10:20:30.123456789Z"},
		// Not a date: the time is when the message came.
		{"Feb 29 10:20:30", "2026-03-15T10:20:30Z"},
		{"Feb 29 2025 10:20:30", "2026-03-15T10:20:30Z"},
		{"Feb 29 2024 10:20:30", "2024-02-29T10:20:30+02:00"},
		{"Feb 29 1900 10:20:30", "2026-03-15T10:20:30Z"},
		{"Apr 31 10:20:30", "2026-03-15T10:20:30Z"},
		{"2026-02-30T10:20:30Z", "2026-03-15T10:20:30Z"},
	}
	for _, tt := range tests {
		got, whole := timeOf(tt.in, cameAt, zone)
		if got != tt.want || !whole {
			t.Errorf("%q: %s (header read: %v), want %s", tt.in, got, whole, tt.want)
		}
	}
}

func TestStampRefused(t *testing.T) {
	for _, in := range []string{
		"", "Mar", "Mar 15", "Mar 15 10:20", "Mar 15 10:20:3", "  Mar 15 10:20:30",
		"Foo 15 10:20:30", "Mar 0 10:20:30", "Mar 32 10:20:30", "Mar 15  10:20:30", "Mar15 10:20:30",
		"Mar 15 24:20:30", "Mar 15 10:60:30", "Mar 15 10:20:61", "Mar 15 10.20.30", "Mar 15 1a:20:30",
		"Mar 15 10:20:30.", "Mar 15 10:20:30x", "Mar 15 10:20:30::", "Mar 15 10:20:30Z", "Mar x5 10:20:30",
		"*Mar 15 10:20:30", "2019-13-15T10:20:30Z", "2019-00-15T10:20:30Z", "2019-03-32T10:20:30Z",
		"2019-03-00T10:20:30Z", "2019-03-15_10:20:30Z", "2019-03-15T10:20:30+24:00", "2019-03-15T10:20:30+01:60",
		"2019-03-15T10:20:30+1", "2019-03-15T25:20:30Z", "20190315T102030Z",
		"2019-03-15", "1742034030",
	} {
		text := in + " h1 app: x"
		var h Header
		Scan(&h, []byte("<13>"+text), false)
		if h.HasTime() || string(h.Message) != text || !h.Time(cameAt, time.UTC).Equal(cameAt) {
			t.Errorf("%q is taken for a time; message %q", in, h.Message)
		}
	}
}

// A time without a year is of the one that brings it nearest.
func TestNearestYear(t *testing.T) {
	tests := []struct{ stamp, received, want string }{
		{"Dec 31 23:59:58", "2027-01-01T00:00:05Z", "2026-12-31T23:59:58Z"}, // P19
		{"Jan  1 00:00:02", "2026-12-31T23:59:58Z", "2027-01-01T00:00:02Z"},
		{"Mar 15 10:20:30", "2026-03-15T10:20:30Z", "2026-03-15T10:20:30Z"},
		{"Sep 13 10:20:30", "2026-03-15T10:20:30Z", "2026-09-13T10:20:30Z"},
		{"Sep 14 10:20:30", "2026-03-15T10:20:30Z", "2025-09-14T10:20:30Z"},
		{"Feb 29 10:00:00", "2027-12-31T00:00:00Z", "2028-02-29T10:00:00Z"},
		{"Feb 29 10:00:00", "2028-03-01T00:00:00Z", "2028-02-29T10:00:00Z"},
		{"Feb 29 10:00:00", "2029-01-10T00:00:00Z", "2029-01-10T00:00:00Z"}, // of 2029: not a date
	}
	for _, tt := range tests {
		received, err := time.Parse(time.RFC3339, tt.received)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := timeOf(tt.stamp, received, time.UTC); got != tt.want {
			t.Errorf("%q received %s: %s, want %s", tt.stamp, tt.received, got, tt.want)
		}
	}
	// The year is that of the source's clock: in its zone it is 2027 already.
	zone := time.FixedZone("", 12*60*60)
	received := time.Date(2026, 12, 31, 13, 0, 0, 0, time.UTC)
	if got, _ := timeOf("Jan  1 01:00:00", received, zone); got != "2027-01-01T01:00:00+12:00" {
		t.Errorf("across the year in the source's zone: %s", got)
	}
}

// Hours that the clocks show twice, and hours that they leap over.
func TestSummerTime(t *testing.T) {
	zone := location(t, "Europe/Berlin")
	newYork := location(t, "America/New_York")
	apia := location(t, "Pacific/Apia")
	tests := []struct {
		stamp, received string
		zone            *time.Location
		want            string
	}{
		{"Oct 25 02:30:05", "2026-10-25T01:30:10Z", zone, "2026-10-25T02:30:05+01:00"}, // P24
		{"Oct 25 02:30:05", "2026-10-25T00:30:10Z", zone, "2026-10-25T02:30:05+02:00"},
		{"Oct 25 01:59:59", "2026-10-25T01:30:10Z", zone, "2026-10-25T01:59:59+02:00"},
		{"Oct 25 03:00:00", "2026-10-25T01:30:10Z", zone, "2026-10-25T03:00:00+01:00"},
		{"Oct 25 2026 02:30:05", "2026-10-25T01:30:10Z", zone, "2026-10-25T02:30:05+01:00"},
		{"Mar 29 02:30:05", "2026-03-29T01:30:10Z", zone, "2026-03-29T02:30:05+01:00"}, // P25
		{"Mar 29 02:00:00", "2026-03-29T01:30:10Z", zone, "2026-03-29T02:00:00+01:00"},
		{"Mar 29 01:59:59", "2026-03-29T01:30:10Z", zone, "2026-03-29T01:59:59+01:00"},
		{"Mar 29 03:00:00", "2026-03-29T01:30:10Z", zone, "2026-03-29T03:00:00+02:00"},
		// West of UTC time.Date errs to the other side of the leap.
		{"Mar  8 02:30:05", "2026-03-08T07:30:10Z", newYork, "2026-03-08T02:30:05-05:00"},
		{"Nov  1 01:30:05", "2026-11-01T05:30:10Z", newYork, "2026-11-01T01:30:05-04:00"},
		{"Nov  1 01:30:05", "2026-11-01T06:30:10Z", newYork, "2026-11-01T01:30:05-05:00"},
		// Samoa left out a whole day.
		{"Dec 30 2011 12:00:00", "2011-12-30T12:00:00Z", apia, "2011-12-30T12:00:00-10:00"},
	}
	for _, tt := range tests {
		received, err := time.Parse(time.RFC3339, tt.received)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := timeOf(tt.stamp, received, tt.zone); got != tt.want {
			t.Errorf("%q received %s: %s, want %s", tt.stamp, tt.received, got, tt.want)
		}
	}
}

func TestTimeAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	zone := location(t, "Europe/Berlin")
	for _, stamp := range []string{
		"Mar 15 10:20:30", "Mar 29 02:30:05", "2026-03-15T10:20:30+05:30", "2026-03-15T10:20:30.5", "-",
	} {
		var h Header
		Scan(&h, []byte("<13>"+stamp+" h1 app: x"), false)
		if n := testing.AllocsPerRun(100, func() { h.Time(cameAt, zone) }); n != 0 {
			t.Errorf("Time of %q: %v allocations", stamp, n)
		}
	}
}

func BenchmarkTime(b *testing.B) {
	zone := location(b, "Europe/Berlin")
	for _, line := range []string{nginxLine, rfc5424Line} {
		var h Header
		Scan(&h, []byte(line), false)
		b.Run(string(h.Tag), func(b *testing.B) {
			for b.Loop() {
				h.Time(cameAt, zone)
			}
		})
	}
}
