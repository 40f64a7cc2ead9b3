package main

import (
	"regexp"
	"strings"
)

// scope says which environment %(ENV_X)s is taken from, as in supervisord.
type scope int

const (
	ofDaemon  scope = iota // in [supervisord] environment: the process's own
	ofGlobals              // in a program's environment: that, and [supervisord]'s
	ofProgram              // in its other options: and the program's own, too
)

// pythonFormat matches what Python's % operator replaces: %% and %(name)s.
var pythonFormat = regexp.MustCompile(`%%|%\(([^()]*)\)[-+ #0]*[0-9]*(?:\.[0-9]+)?[a-zA-Z]`)

// text converts a value of the ini file to a string of a config: %% is just a
// percent sign there, a dollar may have to be doubled, and a variable of the
// environment becomes ${env:X}, which is inserted before a command is split
// into words, as in supervisord.
func (p *importedProgram) text(s string, in scope) string {
	return p.convert(s, in, func(literal string) string {
		literal = strings.ReplaceAll(literal, "%(", "%%(")
		if last := len(literal) - 1; last >= 0 && literal[last] == '$' {
			return escapeDollars(literal[:last]) + "$$" // what follows may begin with a brace
		}
		return escapeDollars(literal)
	}, func(match, _ string) string { return match })
}

// path converts the value of a log file's option to the template of a path. A
// sink is fed by a whole program: where it has several processes they share
// the file.
func (p *importedProgram) path(s string) string {
	path := p.convert(s, ofProgram, pathQuoter.Replace, func(match, name string) string {
		switch name {
		case "program_name", "group_name":
			return pathQuoter.Replace(p.name)
		case "host_node_name":
			return "$host"
		case "process_num":
			if p.processCount > 1 {
				return "\x00"
			}
		}
		known, err := expander{"process_num": p.firstProcess, "numprocs": p.processCount}.expand(match)
		if err != nil {
			known = match
		}
		return pathQuoter.Replace(known)
	})
	shared := strings.NewReplacer("_\x00", "", "-\x00", "", ".\x00", "", "\x00", "").Replace(path)
	if shared != path {
		p.note("%s: all processes write to one file", s)
	}
	return shared
}

// convert replaces what pythonFormat matches: names that are known now by
// their values, others by what keep makes of them. All else goes through
// literal.
func (p *importedProgram) convert(s string, in scope, literal func(string) string, keep func(match, name string) string) string {
	var out, plain strings.Builder
	flush := func() {
		out.WriteString(literal(plain.String()))
		plain.Reset()
	}
	from := 0
	for _, at := range pythonFormat.FindAllStringSubmatchIndex(s, -1) {
		plain.WriteString(s[from:at[0]])
		from = at[1]
		match := s[at[0]:at[1]]
		if match == "%%" {
			plain.WriteByte('%')
			continue
		}
		name := s[at[2]:at[3]]
		if value, ok := p.known[name]; ok {
			plain.WriteString(value)
			continue
		}
		flush()
		env, isEnv := strings.CutPrefix(name, "ENV_")
		if !isEnv {
			out.WriteString(keep(match, name))
			continue
		}
		own, isOwn := p.own[env]
		global, isGlobal := p.globals[env]
		switch {
		case isOwn && in == ofProgram:
			out.WriteString(p.convert(own, ofGlobals, literal, keep))
		case isGlobal && in >= ofGlobals:
			out.WriteString(p.convert(global, ofDaemon, literal, keep))
		default:
			out.WriteString("${env:" + env + "}")
		}
	}
	plain.WriteString(s[from:])
	flush()
	return out.String()
}
