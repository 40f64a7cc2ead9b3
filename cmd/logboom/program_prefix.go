package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"

	"logboom/proc"
	"logboom/sink"
	"logboom/syslog"
)

// linePrefix is the text that goes before each line of a program: a literal,
// or one with variables. Of those only the time differs from line to line.
type linePrefix struct{ text string }

// prefixVariable matches $$, $name and ${name}, and a lone dollar.
var prefixVariable = regexp.MustCompile(`\$(\$|\w+|\{\w*\})?`)

// prefixVariables are the names that a prefix may hold.
var prefixVariables = []string{"time", "program", "process", "pid", "stream", "host", "source", "facility", "severity"}

// parsePrefix checks the names of variables.
func parsePrefix(text string) (*linePrefix, error) {
	for _, v := range prefixVariable.FindAllString(text, -1) {
		name := strings.Trim(v, "${}")
		known := v == "$$"
		for _, p := range prefixVariables {
			known = known || name == p
		}
		if !known {
			return nil, fmt.Errorf("unknown variable %q; known are $%s; $$ is a dollar", v, strings.Join(prefixVariables, " $"))
		}
	}
	return &linePrefix{text}, nil
}

// of fills in what stays the same for one stream of one process.
func (p *linePrefix) of(o *sink.Origin, process string) *prefixer {
	value := map[string]string{
		"program": string(o.Program), "process": process, "pid": string(o.PID), "stream": o.Stream,
		"host": o.LocalHost, "source": o.Source,
		"facility": syslog.FacilityName(int(o.Priority >> 3)), "severity": syslog.SeverityName(int(o.Priority & 7)),
	}
	x := &prefixer{}
	from := 0
	var literal []byte
	for _, at := range prefixVariable.FindAllStringIndex(p.text, -1) {
		literal = append(literal, p.text[from:at[0]]...)
		from = at[1]
		switch v := p.text[at[0]:at[1]]; {
		case v == "$$":
			literal = append(literal, '$')
		case strings.Trim(v, "${}") == "time":
			x.parts = append(x.parts, literal)
			literal = nil
		default:
			literal = append(literal, value[strings.Trim(v, "${}")]...)
		}
	}
	x.parts = append(x.parts, append(literal, p.text[from:]...))
	return x
}

// prefixer puts a prefix before the lines of one pipe. Its memory is reused.
type prefixer struct {
	parts [][]byte // with the time between each two
	text  []byte   // of the lines with their prefixes
	one   []byte   // the prefix of a block, whose lines were received together
}

// prefixChunk is how much text is given on at once, in bytes: lines of one
// byte with a long prefix must not take many times the memory of the block.
const prefixChunk = 128 << 10

// before returns a handler that gives next what it is given, each line with
// the prefix before it; a line in pieces has it before the first one.
func (x *prefixer) before(next func(proc.Block)) func(proc.Block) {
	return func(b proc.Block) {
		x.render(b.Received)
		if b.Partial || b.Last || b.Record {
			x.piece(b, next)
			return
		}
		rest := b.Text
		b.Text, b.Lines = nil, 0
		x.text = x.text[:0]
		for len(rest) > 0 {
			n := bytes.IndexByte(rest, '\n') + 1
			x.text = append(append(x.text, x.one...), rest[:n]...)
			rest = rest[n:]
			b.Lines++
			if len(rest) == 0 || len(x.text) >= prefixChunk {
				b.Text = x.text
				next(b)
				b.Before += b.Lines
				x.text, b.Lines = x.text[:0], 0
			}
		}
	}
}

// piece passes on a piece of a line, or a record of several lines: that has
// the prefix before its first one.
func (x *prefixer) piece(b proc.Block, next func(proc.Block)) {
	if !b.Continues {
		x.text = append(append(x.text[:0], x.one...), b.Text...)
		b.Text = x.text
	}
	next(b)
}

// render makes the prefix of lines that were received at a time.
func (x *prefixer) render(received time.Time) {
	x.one = append(x.one[:0], x.parts[0]...)
	for _, part := range x.parts[1:] {
		x.one = received.AppendFormat(x.one, "2006-01-02T15:04:05.000Z07:00")
		x.one = append(x.one, part...)
	}
}
