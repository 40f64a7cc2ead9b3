package syslog

import (
	"slices"
	"strconv"
	"strings"
)

// The names of the facilities and severities, by code: RFC 5424 section 6.2.1,
// in the words of syslog.conf(5).
var (
	facilities = []string{
		"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news",
		"uucp", "cron", "authpriv", "ftp", "ntp", "audit", "alert", "clock",
		"local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
	}
	severities = []string{
		"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
	}
)

// Older words that configs of other programs use.
var (
	facilityAliases = map[string]string{"security": "auth"}
	severityAliases = map[string]string{"panic": "emerg", "error": "err", "warn": "warning"}
)

// FacilityName returns the name of a facility code, "" if there is none.
func FacilityName(code int) string { return nameOf(facilities, code) }

// SeverityName returns the name of a severity code, "" if there is none.
func SeverityName(code int) string { return nameOf(severities, code) }

// ParseFacility returns the code of a facility's name, in any case, of its
// older alias, or of its number in decimal.
func ParseFacility(name string) (code int, ok bool) {
	return codeOf(facilities, facilityAliases, name)
}

// ParseSeverity is [ParseFacility] for severities.
func ParseSeverity(name string) (code int, ok bool) {
	return codeOf(severities, severityAliases, name)
}

// nameOf returns the name of a code, or "".
func nameOf(names []string, code int) string {
	if code < 0 || code >= len(names) {
		return ""
	}
	return names[code]
}

// codeOf returns the code of a name, an alias or a number.
func codeOf(names []string, aliases map[string]string, name string) (int, bool) {
	name = strings.ToLower(name)
	if official, found := aliases[name]; found {
		name = official
	}
	if code := slices.Index(names, name); code >= 0 {
		return code, true
	}
	code, err := strconv.ParseUint(name, 10, 8)
	if err != nil || int(code) >= len(names) {
		return 0, false
	}
	return int(code), true
}
