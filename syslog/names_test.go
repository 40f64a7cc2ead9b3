package syslog

import (
	"strconv"
	"testing"
)

func TestFacilityNames(t *testing.T) {
	testNames(t, 24, FacilityName, ParseFacility)
	for name, code := range map[string]int{
		"kern": 0, "auth": 4, "authpriv": 10, "clock": 15, "local0": 16, "LOCAL7": 23, "security": 4,
	} {
		if got, ok := ParseFacility(name); got != code || !ok {
			t.Errorf("ParseFacility(%q) = %d, %v; want %d", name, got, ok, code)
		}
	}
}

func TestSeverityNames(t *testing.T) {
	testNames(t, 8, SeverityName, ParseSeverity)
	for name, code := range map[string]int{
		"emerg": 0, "err": 3, "info": 6, "Debug": 7, "panic": 0, "error": 3, "warn": 4,
	} {
		if got, ok := ParseSeverity(name); got != code || !ok {
			t.Errorf("ParseSeverity(%q) = %d, %v; want %d", name, got, ok, code)
		}
	}
}

// testNames checks that each code has one name, and that both are read back.
func testNames(t *testing.T, codes int, name func(int) string, parse func(string) (int, bool)) {
	t.Helper()
	seen := make(map[string]bool)
	for code := range codes {
		n := name(code)
		if n == "" || seen[n] {
			t.Errorf("code %d is named %q", code, n)
		}
		seen[n] = true
		for _, text := range []string{n, strconv.Itoa(code)} {
			if got, ok := parse(text); got != code || !ok {
				t.Errorf("%q is read as %d, %v; want %d", text, got, ok, code)
			}
		}
	}
	for _, text := range []string{"", "local8", "-1", "+1", strconv.Itoa(codes), "256", "1.0", " 1"} {
		if got, ok := parse(text); ok {
			t.Errorf("%q is read as %d", text, got)
		}
	}
	if name(-1) != "" || name(codes) != "" {
		t.Error("a code that does not exist has a name")
	}
}
