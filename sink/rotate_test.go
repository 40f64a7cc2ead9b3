package sink

import (
	"testing"
	"time"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Skip("no time zones here: ", err)
	}
	return loc
}

// Ends of periods go by the clock on the wall, on both days on which it
// changes too, and in zones where it changes at midnight or by half an hour.
func TestPeriodEnd(t *testing.T) {
	const hour = time.Hour
	for _, tt := range []struct {
		zone  string
		every time.Duration
		at    string   // with the zone's offset
		ends  []string // one after the other
	}{
		{"UTC", hour, "2026-03-15T10:20:30Z", []string{"2026-03-15T11:00:00Z", "2026-03-15T12:00:00Z"}},
		{"UTC", time.Minute, "2026-03-15T10:20:30Z", []string{"2026-03-15T10:21:00Z"}},
		{"UTC", 7 * day, "2026-03-15T10:20:30Z", []string{"2026-03-16T00:00:00Z", "2026-03-23T00:00:00Z"}}, // Mondays
		{"UTC", day, "1969-12-31T10:00:00Z", []string{"1970-01-01T00:00:00Z"}},
		{"Asia/Kolkata", hour, "2026-03-15T10:20:30+05:30", []string{"2026-03-15T11:00:00+05:30"}},
		{"Asia/Kolkata", day, "2026-03-15T00:00:00+05:30", []string{"2026-03-16T00:00:00+05:30"}},

		// The clocks go from 2 to 3 o'clock.
		{"Europe/Berlin", day, "2026-03-28T12:00:00+01:00", []string{"2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "2026-03-31T00:00:00+02:00"}},
		{"Europe/Berlin", 7 * day, "2026-03-28T12:00:00+01:00", []string{"2026-03-30T00:00:00+02:00", "2026-04-06T00:00:00+02:00"}},
		{"Europe/Berlin", hour, "2026-03-29T00:30:00+01:00", []string{"2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		{"Europe/Berlin", 2 * hour, "2026-03-29T00:30:00+01:00", []string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		{"Europe/Berlin", 6 * hour, "2026-03-29T00:30:00+01:00", []string{"2026-03-29T06:00:00+02:00", "2026-03-29T12:00:00+02:00"}},

		// They go from 3 to 2 o'clock.
		{"Europe/Berlin", day, "2026-10-24T12:00:00+02:00", []string{"2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", "2026-10-27T00:00:00+01:00"}},
		{"Europe/Berlin", hour, "2026-10-25T01:30:00+02:00", []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"Europe/Berlin", 2 * hour, "2026-10-25T01:30:00+02:00", []string{"2026-10-25T02:00:00+02:00", "2026-10-25T04:00:00+01:00"}},
		{"Europe/Berlin", 6 * hour, "2026-10-25T01:30:00+02:00", []string{"2026-10-25T06:00:00+01:00", "2026-10-25T12:00:00+01:00"}},

		// Midnight is skipped, and comes twice.
		{"America/Sao_Paulo", day, "2018-11-03T12:00:00-03:00", []string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"}},
		{"America/Sao_Paulo", day, "2018-02-17T12:00:00-02:00", []string{"2018-02-18T00:00:00-03:00", "2018-02-19T00:00:00-03:00"}},
		// By half an hour: 2:00 becomes 1:30.
		{"Australia/Lord_Howe", hour, "2026-04-05T01:40:00+11:00", []string{"2026-04-05T02:00:00+10:30", "2026-04-05T03:00:00+10:30"}},
	} {
		loc := zone(t, tt.zone)
		at := parseTime(t, tt.at, loc)
		for _, text := range tt.ends {
			want := parseTime(t, text, loc)
			if got := (Rotate{Every: tt.every}).end(at); !got.Equal(want) {
				t.Errorf("%s, %v, at %v: %v, want %v", tt.zone, tt.every, at, got, want)
			}
			at = want
		}
	}
}

func parseTime(t testing.TB, text string, loc *time.Location) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.In(loc)
}

// Whatever the zone and the period: an end is after the time that it is asked
// for, no time before it has another, and none is further off than a period
// and a change of the clocks.
func TestPeriodEndsAreInOrder(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Beirut", "Pacific/Apia", "Africa/Casablanca"} {
		loc := zone(t, name)
		for _, every := range []time.Duration{15 * time.Minute, time.Hour, 3 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day} {
			r := Rotate{Every: every}
			from := time.Date(2011, 1, 1, 0, 0, 0, 0, loc)
			last := r.end(from)
			for at := from; at.Year() < 2012; at = at.Add(13*time.Minute + time.Second) {
				end := r.end(at)
				if !end.After(at) || end.Sub(at) > every+25*time.Hour {
					t.Fatalf("%s, %v: at %v the end is %v", name, every, at, end)
				}
				if at.Before(last) && !end.Equal(last) && every < day {
					t.Fatalf("%s, %v: at %v the end is %v, before it was %v", name, every, at, end, last)
				}
				last = end
			}
		}
	}
}

// The clock may jump. Set forward it rotates once, set back it neither rotates
// again nor delays what is due by more than a period.
func TestClockJumps(t *testing.T) {
	r := Rotate{Every: day}
	noon := time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		at   []time.Duration // from noon of the first day
		over []bool
	}{
		{"days pass", []time.Duration{time.Hour, 12 * time.Hour, 13 * time.Hour, 36 * time.Hour}, []bool{false, true, false, true}},
		{"forward and right again", []time.Duration{100 * day, 0, 11 * time.Hour, 12 * time.Hour}, []bool{true, false, false, true}},
		{"a second back at midnight", []time.Duration{12 * time.Hour, 12*time.Hour - time.Second, 12 * time.Hour}, []bool{true, false, false}},
		{"an hour back", []time.Duration{-time.Hour, 12 * time.Hour}, []bool{false, true}},
		{"days back", []time.Duration{-10 * day, -10*day + 11*time.Hour, -10*day + 12*time.Hour}, []bool{false, false, true}},
	} {
		p := r.of(noon)
		for i, after := range tt.at {
			at := noon.Add(after)
			over := p.over(at, r)
			if over != tt.over[i] {
				t.Errorf("%s: at %v over is %v", tt.name, at, over)
			}
			if over {
				p = r.of(at)
			}
		}
	}
	if p := (Rotate{Size: 1}).of(noon); p.over(noon.Add(1000*day), Rotate{Size: 1}) {
		t.Error("a period without an end is over")
	}
}

func TestCheckEvery(t *testing.T) {
	for every, good := range map[time.Duration]bool{
		time.Second: true, 90 * time.Minute: true, time.Hour: true, 6 * time.Hour: true, day: true, 7 * day: true,
		0: false, -time.Hour: false, 7 * time.Hour: false, 36 * time.Hour: false, 1500 * time.Millisecond: false,
	} {
		if err := CheckEvery(every); (err == nil) != good {
			t.Errorf("%v: %v", every, err)
		}
	}
}

// A rotated name has the time before its extensions, and tells the original.
func TestRotatedNames(t *testing.T) {
	at := time.Date(2026, 3, 15, 10, 20, 30, 0, time.UTC)
	for _, tt := range []struct{ name, first, third string }{
		{"access.log.gz", "access-2026-03-15T10-20-30.log.gz", "access-2026-03-15T10-20-30-2.log.gz"},
		{"access.log", "access-2026-03-15T10-20-30.log", "access-2026-03-15T10-20-30-2.log"},
		{"app.zst", "app-2026-03-15T10-20-30.zst", "app-2026-03-15T10-20-30-2.zst"},
		{"access", "access-2026-03-15T10-20-30", "access-2026-03-15T10-20-30-2"},
		{"www.example.com.log.gz", "www.example.com-2026-03-15T10-20-30.log.gz", "www.example.com-2026-03-15T10-20-30-2.log.gz"},
		{"a-2026-03-15.log", "a-2026-03-15-2026-03-15T10-20-30.log", "a-2026-03-15-2026-03-15T10-20-30-2.log"},
		{"a.longsuffix", "a.longsuffix-2026-03-15T10-20-30", "a.longsuffix-2026-03-15T10-20-30-2"},
		{".gz", ".gz-2026-03-15T10-20-30", ".gz-2026-03-15T10-20-30-2"},
		{"x.a-b", "x.a-b-2026-03-15T10-20-30", "x.a-b-2026-03-15T10-20-30-2"},
	} {
		if got := rotatedName(tt.name, at, 0); got != tt.first {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.first)
		}
		if got := rotatedName(tt.name, at, 2); got != tt.third {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.third)
		}
		for _, rotated := range []string{tt.first, tt.third} {
			if got, ok := originalName(rotated); got != tt.name || !ok {
				t.Errorf("%s: the original is %s, %v", rotated, got, ok)
			}
		}
		if got, ok := originalName(tt.name); got != tt.name || ok {
			t.Errorf("%s: the original is %s, %v", tt.name, got, ok)
		}
	}
	for _, name := range []string{
		"access-2026-13-15T10-20-30.log", "access-2026-03-15T10-20-30-02.log", "access-2026-03-15T10-20-30-x.log",
		"access2026-03-15T10-20-30.log", "-2026-03-15T10-20-30.log", "2026-03-15T10-20-30.log", "access-2026-03-15T10-20-30-.log",
	} {
		if got, ok := originalName(name); ok {
			t.Errorf("%s: the original is %s", name, got)
		}
	}
}

// Names of what others chose are split and joined alike.
func FuzzRotatedName(f *testing.F) {
	for _, name := range []string{"access.log.gz", "a", ".gz", "..", "a.b.c.zst", "a-1.log", "a-2026-03-15T10-20-30-1.log"} {
		f.Add(name, 0)
		f.Add(name, 3)
	}
	at := time.Date(2026, 3, 15, 10, 20, 30, 0, time.UTC)
	f.Fuzz(func(t *testing.T, name string, taken int) {
		if taken < 0 || name == "" {
			return
		}
		rotated := rotatedName(name, at, taken)
		if got, ok := originalName(rotated); !ok || got != name {
			t.Errorf("%q: rotated %q, of which the original is %q, %v", name, rotated, got, ok)
		}
	})
}
