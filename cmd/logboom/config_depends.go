package main

import (
	"slices"
	"strings"
	"time"
)

// ready completes how a program tells that it is ready.
func (d *decoder) ready(s section, p *Program) {
	if _, given := s.t["ready"]; !given {
		return
	}
	at := join(s.at, "ready")
	ways := 0
	for _, set := range []bool{p.Ready.Line != nil, p.Ready.TCP != "", p.Ready.Notify} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		d.errorf(at, "wants one of line, tcp and notify = true")
	}
	if p.Ready.Timeout == 0 {
		p.Ready.Timeout = 30 * time.Second
	}
}

// dependencies checks depends_on: names of other programs, and no circle.
func (d *decoder) dependencies(programs []section) {
	names := make([]string, len(programs))
	needs := make(map[string][]string)
	for i, s := range programs {
		names[i] = s.name
	}
	for _, s := range programs {
		list, _ := s.t["depends_on"].([]any)
		for i, e := range list {
			name, ok := e.(string)
			at := element(join(s.at, "depends_on"), i)
			switch {
			case !ok: // complained about already
			case name == s.name:
				d.errorf(at, "a program cannot depend on itself")
			case !slices.Contains(names, name):
				d.errorf(at, "program %v", notOneOf(name, names))
			default:
				needs[s.name] = append(needs[s.name], name)
			}
		}
	}
	done := make(map[string]bool)
	for _, name := range names {
		if circle := findCircle(name, needs, done, nil); circle != nil {
			d.errorf(join(join("program", circle[0]), "depends_on"), "goes round in a circle: %s", strings.Join(circle, ", "))
		}
	}
}

// findCircle looks for a way from a name back to itself, of which path is the
// beginning; nil if there is none, or it was found before. It ends with the
// name that it begins with.
func findCircle(name string, needs map[string][]string, done map[string]bool, path []string) []string {
	if i := slices.Index(path, name); i >= 0 {
		return append(slices.Clone(path[i:]), name)
	}
	if done[name] {
		return nil
	}
	path = append(path, name)
	var found []string
	for _, next := range needs[name] {
		if circle := findCircle(next, needs, done, path); found == nil {
			found = circle
		}
	}
	done[name] = true
	return found
}
