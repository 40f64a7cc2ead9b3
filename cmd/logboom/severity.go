package main

import (
	"bytes"
	"strconv"

	"logboom/proc"
)

// LineSeverity is the severity of a stream's lines: a Severity, or what each
// line says of itself.
type LineSeverity uint8

const autoSeverity LineSeverity = 8

// UnmarshalText reads a name, or "auto".
func (s *LineSeverity) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*s = autoSeverity
		return nil
	}
	return (*Severity)(s).UnmarshalText(text)
}

// MarshalText writes what UnmarshalText reads.
func (s LineSeverity) MarshalText() ([]byte, error) {
	if s == autoSeverity {
		return []byte("auto"), nil
	}
	return Severity(s).MarshalText()
}

// of returns a handler for the lines of a stream, given what makes one for the
// lines of a severity.
func (s LineSeverity) of(handler func(Severity) func(proc.Block)) func(proc.Block) {
	if s != autoSeverity {
		return handler(Severity(s))
	}
	f := &severityFinder{current: info}
	for i := range f.next {
		f.next[i] = handler(Severity(i))
	}
	return f.take
}

// severityFinder leads each line of one pipe to the handler of its severity.
type severityFinder struct {
	next    [8]func(proc.Block)
	current Severity // of the line that pieces are of
}

// take passes blocks on, lines of one severity that follow each other in one.
func (f *severityFinder) take(b proc.Block) {
	if b.Partial || b.Last || b.Record {
		f.piece(b)
		return
	}
	rest := b.Text
	run, lines := 0, 0 // bytes and lines of one severity, from the beginning of b.Text
	for len(rest) > 0 {
		n := bytes.IndexByte(rest, '\n') + 1
		severity, ok := severityOf(rest[:n-1])
		if !ok {
			severity = info
		}
		if severity != f.current && lines > 0 {
			f.pass(b, run, lines)
			b.Text = b.Text[run:]
			b.Before += lines
			run, lines = 0, 0
		}
		f.current = severity
		run, lines, rest = run+n, lines+1, rest[n:]
	}
	f.pass(b, run, lines)
}

// pass hands on the first bytes of a block.
func (f *severityFinder) pass(b proc.Block, bytes, lines int) {
	b.Text, b.Lines = b.Text[:bytes], lines
	f.next[f.current](b)
}

// piece passes on a piece of a line, or a record: its first line tells.
func (f *severityFinder) piece(b proc.Block) {
	if !b.Continues {
		line, _, _ := bytes.Cut(b.Text, []byte{'\n'})
		severity, ok := severityOf(line)
		if !ok {
			severity = info
		}
		f.current = severity
	}
	f.next[f.current](b)
}

// severityOf is what a line says of its severity: one of Monolog's line
// formatter, or JSON with a key "level" or "level_name", as Monolog,
// RoadRunner, Caddy and others write it.
func severityOf(line []byte) (Severity, bool) {
	switch {
	case len(line) == 0:
	case line[0] == '[':
		return monologSeverity(line)
	case line[0] == '{':
		return jsonSeverity(line)
	}
	return 0, false
}

// maxChannel bounds CHANNEL.LEVEL: of a Monolog line, in bytes.
const maxChannel = 128

// monologSeverity reads [TIME] CHANNEL.LEVEL: MESSAGE.
func monologSeverity(line []byte) (Severity, bool) {
	_, rest, ok := bytes.Cut(line[:min(len(line), 2*maxChannel)], []byte("] "))
	if !ok {
		return 0, false
	}
	end := bytes.IndexByte(rest[:min(len(rest), maxChannel)], ':')
	dot := bytes.LastIndexByte(rest[:max(end, 0)], '.')
	if dot < 0 || bytes.IndexByte(rest[:end], ' ') >= 0 {
		return 0, false
	}
	return severityOfWord(rest[dot+1 : end])
}

// jsonSeverity looks for the first of the keys in the outermost object. What
// is no valid JSON has just no severity.
func jsonSeverity(line []byte) (Severity, bool) {
	depth := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			n := stringEnd(line[i:])
			text := line[i+1 : i+n-1]
			i += n - 1
			if depth == 1 && (string(text) == "level" || string(text) == "level_name") {
				value := bytes.TrimLeft(line[i+1:], " \t")
				if len(value) > 0 && value[0] == ':' {
					return severityOfValue(bytes.TrimLeft(value[1:], " \t"))
				}
			}
		}
	}
	return 0, false
}

// stringEnd is how many bytes a JSON string takes with both its quotes; of one
// without end, two at least and more than there are.
func stringEnd(s []byte) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return max(len(s), 2)
}

// severityOfValue reads a JSON string or number.
func severityOfValue(value []byte) (Severity, bool) {
	if len(value) > 0 && value[0] == '"' {
		word, _, _ := bytes.Cut(value[1:], []byte{'"'})
		return severityOfWord(word)
	}
	n := 0
	for n < len(value) && n < 4 && value[n] >= '0' && value[n] <= '9' {
		n++
	}
	number, err := strconv.Atoi(string(value[:n]))
	if err != nil {
		return 0, false
	}
	switch { // Monolog's from 100 on, Pino's and Bunyan's below
	case number >= 600:
		return 0, true
	case number >= 550:
		return 1, true
	case number >= 500, number == 60:
		return 2, true
	case number >= 400, number == 50:
		return 3, true
	case number >= 300, number == 40:
		return 4, true
	case number >= 250:
		return 5, true
	case number >= 200, number == 30:
		return info, true
	case number == 100, number == 20, number == 10:
		return 7, true
	}
	return 0, false
}

// severityOfWord reads the name of a level, in any case.
func severityOfWord(word []byte) (Severity, bool) {
	var lower [9]byte // of the longest name
	if len(word) > len(lower) {
		return 0, false
	}
	for i, c := range word {
		lower[i] = c | 0x20
	}
	switch string(lower[:len(word)]) {
	case "emergency", "emerg":
		return 0, true
	case "alert":
		return 1, true
	case "critical", "crit", "fatal", "panic", "dpanic":
		return 2, true
	case "error", "err":
		return 3, true
	case "warning", "warn":
		return 4, true
	case "notice":
		return 5, true
	case "info":
		return info, true
	case "debug", "trace":
		return 7, true
	}
	return 0, false
}
