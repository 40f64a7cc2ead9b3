package sink

import (
	"regexp"
	"slices"

	"logboom/syslog"
)

// Match is what a sink takes. The zero value takes everything.
type Match struct {
	Severities uint8 // a bit for each severity, 1<<severity; 0: all
	Programs   []string
	Message    *regexp.Regexp
}

func (f *Match) isSet() bool {
	return f.Severities != 0 || len(f.Programs) > 0 || f.Message != nil
}

func (f *Match) takes(m *syslog.Message) bool {
	return (f.Severities == 0 || f.Severities>>m.Severity()&1 == 1) &&
		(len(f.Programs) == 0 || slices.ContainsFunc(f.Programs, func(p string) bool { return p == string(m.Tag) })) &&
		(f.Message == nil || f.Message.Match(m.Message))
}
