package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// importedProgram is the program that is being written.
type importedProgram struct {
	*importer
	name    string // ours
	options map[string]string
	known   map[string]string // values of %(name)s that are the same for all processes
	own     map[string]string // its environment, as it stands in the file
	body    []byte
	notes   []string

	processCount, firstProcess int // numprocs, numprocs_start
}

// program writes one program, and notes the sinks that it feeds.
func (im *importer) program(name string) error {
	section := im.ini.section("program:"+name, false)
	p := &importedProgram{importer: im, name: im.names[name], options: section.options, known: map[string]string{"here": im.dir}}
	if p.name != name {
		p.known["program_name"] = name
		p.note("[program:%s] has another name here", name)
	}
	if group := im.ini.groupOf(name); group != "" {
		p.known["group_name"] = group
		p.inGroup(im.ini.section("group:"+group, false).options["priority"])
	}
	var err error
	if p.own, err = splitEnvironment(p.options["environment"]); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	if p.options["command"] == "" {
		return errors.New("does not specify a command")
	}
	p.run()
	p.numbers()
	p.processNames()
	p.streams()
	for _, option := range section.order {
		if !slices.Contains(importedOptions, option) {
			p.note("%s=%s: not carried over", option, p.options[option])
		}
	}
	im.out = append(im.out, '\n')
	for _, note := range p.notes {
		im.comment(note)
	}
	im.out = fmt.Appendf(im.out, "[%s]\n%s", join("program", p.name), p.body)
	return nil
}

// inGroup takes the priority of its group, if that has one, for a program that
// has none itself: groups start by theirs, and within them programs by theirs.
func (p *importedProgram) inGroup(priority string) {
	if priority == "" {
		return
	}
	if own, ok := p.options["priority"]; ok {
		p.note("priority=%s: it is within a group of priority=%s", own, priority)
		return
	}
	p.note("priority=%s: it is that of its group", priority)
	p.options = maps.Clone(p.options)
	p.options["priority"] = priority
}

// importedOptions are the options of a program that are carried over, or have
// nothing to say here.
var importedOptions = []string{
	"command", "process_name", "numprocs", "numprocs_start", "directory", "umask", "priority", "autostart", "autorestart",
	"startsecs", "startretries", "exitcodes", "stopsignal", "stopwaitsecs", "stopasgroup", "killasgroup", "user",
	"redirect_stderr", "environment",
	"stdout_logfile", "stdout_logfile_maxbytes", "stdout_logfile_backups", "stdout_syslog",
	"stderr_logfile", "stderr_logfile_maxbytes", "stderr_logfile_backups", "stderr_syslog",
}

// note is a comment above the program.
func (p *importedProgram) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// set writes a key whose value is TOML already.
func (p *importedProgram) set(key, value string) {
	p.body = fmt.Appendf(p.body, "%s = %s\n", key, value)
}

func (p *importedProgram) setString(key, value string) { p.set(key, string(appendString(nil, value))) }

// option is an option of the program, or else of [supervisord] if it is one
// that programs inherit.
func (p *importedProgram) option(name string) string {
	if value, ok := p.options[name]; ok {
		return value
	}
	return p.inherited[name]
}

// run writes what is run, and as whom.
func (p *importedProgram) run() {
	p.setString("command", p.text(p.options["command"], ofProgram))
	if dir := p.option("directory"); dir != "" {
		text := p.text(dir, ofProgram)
		if !strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "%(") && !strings.HasPrefix(text, "$") {
			p.note("directory=%s: it was relative to where supervisord ran, now it is to the config", dir)
		}
		p.setString("directory", text)
	}
	// supervisord is told to run as root where it would be root anyway.
	if user := p.option("user"); user != "" && (p.options["user"] != "" || user != "root") {
		p.setString("user", p.text(user, ofProgram))
	}
	if umask := p.option("umask"); umask != "" {
		p.setString("umask", umask)
	}
	if len(p.own)+len(p.globals) == 0 {
		return
	}
	environment := make(map[string]string)
	for name, value := range p.globals {
		environment[name] = p.text(value, ofDaemon)
	}
	for name, value := range p.own {
		environment[name] = p.text(value, ofGlobals)
	}
	list := []byte("{ ")
	for i, name := range sortedKeys(environment) {
		list = appendString(appendSeparator(list, i), name)
		list = appendString(append(list, " = "...), environment[name])
	}
	p.set("environment", string(list)+" }")
}

// numbers writes what is a number or a word. What supervisord would refuse is
// left at its default.
func (p *importedProgram) numbers() {
	for _, key := range []string{"priority", "startsecs", "startretries", "stopwaitsecs"} {
		p.setParsed(key, func(s string) (string, error) {
			n, err := strconv.Atoi(s)
			if err != nil || n < 0 && key != "priority" {
				return "", errors.New("it is no number that may stand here")
			}
			return strconv.Itoa(n), nil
		})
	}
	for _, key := range []string{"autostart", "stopasgroup", "redirect_stderr"} {
		p.setParsed(key, func(s string) (string, error) {
			b, err := parseBoolean(s)
			return strconv.FormatBool(b), err
		})
	}
	p.setParsed("killasgroup", func(s string) (string, error) {
		b, err := parseBoolean(s)
		if asGroup, _ := parseBoolean(p.options["stopasgroup"]); err == nil && !b && asGroup {
			err = errors.New("stopasgroup needs it")
		}
		return strconv.FormatBool(b), err
	})
	p.setParsed("autorestart", func(s string) (string, error) {
		if strings.EqualFold(s, "unexpected") {
			return `"unexpected"`, nil
		}
		b, err := parseBoolean(s)
		return strconv.FormatBool(b), err
	})
	p.setParsed("stopsignal", func(s string) (string, error) {
		sig, err := parseSignal(s)
		return string(appendString(nil, text(Signal(sig)))), err
	})
	p.setParsed("exitcodes", func(s string) (string, error) {
		var codes []string
		for word := range strings.SplitSeq(s, ",") {
			n, err := strconv.ParseUint(strings.TrimSpace(word), 10, 8)
			if err != nil {
				return "", fmt.Errorf("%q is no exit code", word)
			}
			codes = append(codes, strconv.FormatUint(n, 10))
		}
		return "[" + strings.Join(codes, ", ") + "]", nil
	})
}

// setParsed writes an option that is there, in the form that parse gives it. A
// number or a word that comes from the environment is the one that it is now.
func (p *importedProgram) setParsed(key string, parse func(string) (string, error)) {
	s, ok := p.options[key]
	if !ok {
		return
	}
	now, err := expander{}.expand(s)
	var value string
	if err == nil {
		value, err = parse(strings.TrimSpace(now))
	}
	if err != nil {
		p.note("%s=%s: not carried over: %v", key, s, err)
		return
	}
	if now != s {
		p.note("%s=%s: it is %s in the environment of the import", key, s, now)
	}
	p.set(key, value)
}

// parseBoolean reads supervisord's words.
func parseBoolean(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is no boolean", s)
}

// Bounds of numprocs and numprocs_start, as Program has them.
const (
	maxProcesses    = 1000
	maxProcessStart = 100_000
)

// processNames writes how many processes there are and what they are called.
// In supervisord a name is unique within its program alone, here in all.
func (p *importedProgram) processNames() {
	program := Program{Name: p.name, NumProcs: 1, ProcessName: p.text(p.options["process_name"], ofProgram)}
	number := func(key string, to *int, low, high int) {
		p.setParsed(key, func(s string) (string, error) {
			n, err := strconv.Atoi(s)
			if err != nil || n < low || n > high {
				return "", fmt.Errorf("it is no number from %d to %d", low, high)
			}
			*to = n
			return strconv.Itoa(n), nil
		})
	}
	number("numprocs", &program.NumProcs, 1, maxProcesses)
	number("numprocs_start", &program.NumProcsStart, 0, maxProcessStart)
	p.processCount, p.firstProcess = program.NumProcs, program.NumProcsStart
	standard := "%(program_name)s"
	if program.NumProcs > 1 {
		standard += "_%(process_num)02d"
	}
	if program.ProcessName == "" {
		program.ProcessName = standard
	}
	instances, err := program.instances()
	if err == nil {
		err = p.claim(instances)
	}
	if err != nil { // names that depend on the environment too
		p.note("process_name=%s: not carried over: %v", p.options["process_name"], err)
		program.ProcessName = standard
		instances, _ = program.instances()
		p.claim(instances)
	}
	if program.ProcessName != standard {
		p.setString("process_name", program.ProcessName)
	}
}

// claim takes the names of processes. None is taken if one of them is not
// free.
func (p *importedProgram) claim(instances []instanceOf) error {
	for _, i := range instances {
		_, isProgram := p.programNamed(i.name)
		if p.processes[i.name] || isProgram && i.name != p.name {
			return fmt.Errorf("the name %q is taken", i.name)
		}
	}
	for _, i := range instances {
		p.processes[i.name] = true
	}
	return nil
}

// programNamed finds the program that has a name here.
func (im *importer) programNamed(name string) (theirs string, ok bool) {
	for theirs, ours := range im.names {
		if ours == name {
			return theirs, true
		}
	}
	return "", false
}
