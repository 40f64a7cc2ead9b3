package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// instanceOf is one process of a program with everything of the form
// %(name)s in its settings expanded.
type instanceOf struct {
	name        string
	command     []string
	directory   string   // absolute, or "" for the daemon's
	environment []string // KEY=VALUE, sorted
	reload      []string // reload_command
	readyTCP    string   // ready.tcp
}

// keyError is an error of one key of a section.
type keyError struct {
	key string
	err error
}

func (e *keyError) Error() string { return e.key + ": " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// instances lists the processes of a program. An error is a keyError.
func (p *Program) instances() ([]instanceOf, error) {
	host, _ := os.Hostname()
	var list []instanceOf
	for n := p.NumProcsStart; n < p.NumProcsStart+p.NumProcs; n++ {
		x := expander{
			"program_name": p.Name, "group_name": p.Name, "host_node_name": host,
			"process_num": n, "numprocs": p.NumProcs,
		}
		i, err := p.instance(x)
		if err != nil {
			return nil, err
		}
		for _, other := range list {
			if other.name == i.name {
				return nil, &keyError{"process_name", fmt.Errorf("%q: %d processes need names of their own, as with %%(process_num)02d", p.ProcessName, p.NumProcs)}
			}
		}
		list = append(list, i)
	}
	return list, nil
}

// instance expands one process. As in supervisord, the program's environment
// may use the daemon's, and the other settings may use both.
func (p *Program) instance(x expander) (i instanceOf, err error) {
	environment := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(p.Environment)) {
		if environment[name], err = x.expand(p.Environment[name]); err != nil {
			return i, &keyError{join("environment", name), err}
		}
	}
	for name, value := range environment {
		x["ENV_"+name] = value
	}
	if i.name, err = x.expand(p.ProcessName); err == nil && !isName(i.name) {
		err = fmt.Errorf("%q is no name: want letters, digits, and - _ . after the first", i.name)
	}
	if err != nil {
		return i, &keyError{"process_name", err}
	}
	if i.command, err = x.expandAll(p.Command); err != nil {
		return i, &keyError{"command", err}
	}
	if i.reload, err = x.expandAll(p.ReloadCommand); err != nil {
		return i, &keyError{"reload_command", err}
	}
	if i.readyTCP, err = x.expand(p.Ready.TCP); err == nil && i.readyTCP != "" {
		err = checkHostPort(i.readyTCP)
	}
	if err != nil {
		return i, &keyError{"ready.tcp", err}
	}
	if i.directory, err = x.expand(p.Directory); err == nil && i.directory != "" && !filepath.IsAbs(i.directory) {
		err = fmt.Errorf("%q does not begin with /", i.directory)
	}
	if err != nil {
		return i, &keyError{"directory", err}
	}
	i.environment = []string{"SUPERVISOR_ENABLED=1", "SUPERVISOR_PROCESS_NAME=" + i.name, "SUPERVISOR_GROUP_NAME=" + p.Name}
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		i.environment = append(i.environment, name+"="+environment[name])
	}
	return i, nil
}

// expander has the values of names. Those of the daemon's environment, as
// ENV_NAME, need not be in it.
type expander map[string]any

// percent matches %(name) with a conversion, as Python's % operator has it,
// and what stands for the two characters themselves.
var percent = regexp.MustCompile(`%%\(|%\(([^()]*)\)([-+ #0]*)([0-9]*)(\.[0-9]+)?([a-zA-Z]?)`)

// expand replaces each %(name)s or %(name)02d. %%( is what is left of it
// literally; any other percent sign is just that, unlike in supervisord's
// files, where each is doubled.
func (x expander) expand(s string) (string, error) {
	var wrong error
	out := percent.ReplaceAllStringFunc(s, func(m string) string {
		if m == "%%(" {
			return "%("
		}
		value, err := x.convert(percent.FindStringSubmatch(m))
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("%q: %w", m, err)
		}
		return value
	})
	return out, wrong
}

// convert formats the value of one match: text by s, whole numbers by d and s.
func (x expander) convert(m []string) (string, error) {
	name, flags, width, precision, verb := m[1], m[2], m[3], m[4], m[5]
	value, ok := x[name]
	if env, isEnv := strings.CutPrefix(name, "ENV_"); !ok && isEnv {
		if value, ok = os.LookupEnv(env); !ok {
			return "", fmt.Errorf("environment variable %q is not set", env)
		}
	}
	if !ok {
		return "", fmt.Errorf("unknown name: want %s or ENV_ and a variable", strings.Join(x.names(), ", "))
	}
	n, isNumber := value.(int)
	switch {
	case len(width) > 3 || len(precision) > 3:
		return "", fmt.Errorf("is too wide")
	case (verb == "d" || verb == "i") && isNumber:
		return fmt.Sprintf("%"+flags+width+precision+"d", n), nil
	case verb == "s" && isNumber:
		return fmt.Sprintf("%"+strings.ReplaceAll(flags, "0", "")+width+"s", strconv.Itoa(n)), nil
	case verb == "s":
		return fmt.Sprintf("%"+strings.ReplaceAll(flags, "0", "")+width+precision+"s", value), nil
	}
	return "", fmt.Errorf("wants %%(%s)s, or d in the place of s for a number", name)
}

// names are all that can be used, but for the environment's.
func (x expander) names() []string {
	names := []string{"here"}
	for name := range x {
		if !strings.HasPrefix(name, "ENV_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (x expander) expandAll(list []string) (out []string, err error) {
	for _, s := range list {
		if s, err = x.expand(s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// expandHere puts the folder of the config in the place of %(here)s, which is
// the one name that is not of a process.
func expandHere(s, here string) string {
	const mark = "%(here)s"
	if !strings.Contains(s, mark) {
		return s
	}
	return strings.ReplaceAll(s, mark, strings.ReplaceAll(here, "%(", "%%("))
}
