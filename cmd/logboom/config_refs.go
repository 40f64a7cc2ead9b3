package main

import (
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// references checks names: of sources and programs, which are one set, and of
// the sinks that they feed. It works on the tree, so that a section with an
// error elsewhere still counts.
func (d *decoder) references(sources, programs, sinks []section) {
	names := make([]string, len(sinks))
	fed := make(map[string]bool)
	for i, s := range sinks {
		names[i] = s.name
	}
	taken := make(map[string]string)
	for _, s := range slices.Concat(sources, programs) {
		if other, ok := taken[s.name]; ok {
			d.errorf(s.at, "the name %q is taken by %s, at %s", s.name, other, d.show(d.place(other)))
		}
		taken[s.name] = s.at
		for _, key := range []string{"sinks", "stdout", "stderr"} {
			d.sinkList(join(s.at, key), s.t[key], names, fed)
		}
	}
	for _, s := range sinks {
		if !fed[s.name] {
			d.errorf(s.at, "no source feeds this sink")
		}
	}
	d.dependencies(programs)
	if len(taken) == 0 && len(d.errs) == 0 {
		d.errs = append(d.errs, Error{File: d.files[0], Text: "there is neither a source nor a program"})
	}
}

// sinkList checks one list of sinks and notes those that it feeds. v is nil
// where the section has no such list.
func (d *decoder) sinkList(at string, v any, names []string, fed map[string]bool) {
	list, isList := v.([]any)
	if isList && len(list) == 0 && strings.HasSuffix(at, ".sinks") {
		d.errorf(at, "must name a sink")
	}
	for i, e := range list {
		name, ok := e.(string)
		switch {
		case !ok: // complained about already
		case !slices.Contains(names, name):
			d.errorf(element(at, i), "sink %v", notOneOf(name, names))
		case slices.Contains(list[:i], e):
			d.errorf(element(at, i), "sink %q is there twice", name)
		}
		if ok {
			fed[name] = true
		}
	}
}

// conflicts checks that no two sections claim one address, path or stream.
// Starting would find most of these too, but not before the first sources
// have taken messages in; and two writers of one file it would not find.
func (d *decoder) conflicts(cfg *Config) {
	claims := make(map[string]string)
	claim := func(path, at string) {
		if path == "" {
			return
		}
		path = filepath.Clean(path)
		if other, ok := claims[path]; ok {
			d.errorf(at, "%q is claimed by %s already", path, other)
			return
		}
		claims[path] = at
	}
	for _, s := range cfg.FIFOs {
		claim(s.Path, join(join("source", s.Name), "path"))
	}
	for i, s := range cfg.Stdin {
		if i > 0 {
			d.errorf(join("source", s.Name), "there is one standard input, and %s reads it", join("source", cfg.Stdin[0].Name))
		}
	}
	// Paths with variables are compared as templates: whether two of them meet
	// depends on messages, and is found when the files are opened.
	for _, s := range cfg.Files {
		claim(s.Path, join(join("sink", s.Name), "path"))
		claim(s.Symlink, join(join("sink", s.Name), "symlink"))
	}
	for _, s := range cfg.Streams {
		claim("/dev/"+s.Type, join(join("sink", s.Name), "type"))
	}
	for i, s := range cfg.Syslog {
		at := join(join("source", s.Name), "listen")
		if s.Listen.isPath() {
			claim(s.Listen.Address, at)
			continue
		}
		for _, other := range cfg.Syslog[:i] {
			if overlap(s.Listen, other.Listen) {
				d.errorf(at, "%q meets %q of source.%s", s.Listen, other.Listen, other.Name)
			}
		}
		if overlap(s.Listen, Address{"tcp", cfg.HTTP.Address}) {
			d.errorf(at, "%q meets %q of http.address", s.Listen, cfg.HTTP.Address)
		}
	}
}

// overlap reports whether two internet addresses cannot both be bound. Names
// other than localhost are not looked up: two of one address pass, and the
// second bind fails.
func overlap(a, b Address) bool {
	hostA, portA, errA := net.SplitHostPort(a.Address)
	hostB, portB, errB := net.SplitHostPort(b.Address)
	if errA != nil || errB != nil || a.Network != b.Network || number(portA) != number(portB) || number(portA) == 0 { // any free one
		return false
	}
	ipA, ipB := ipOf(hostA), ipOf(hostB)
	if ipA == nil || ipB == nil {
		return hostA == hostB || isEvery(ipA) || isEvery(ipB)
	}
	return ipA.Equal(ipB) || covers(ipA, ipB) || covers(ipB, ipA)
}

func number(port string) uint64 {
	n, _ := strconv.ParseUint(port, 10, 16) // it was checked
	return n
}

// ipOf is the address of a host, as far as it can be known without asking
// anybody; else nil. No host at all is every address of both families.
func ipOf(host string) net.IP {
	switch strings.ToLower(host) {
	case "":
		return net.IPv6unspecified
	case "localhost": // RFC 6761, section 6.3; package net prefers IPv4
		return net.IPv4(127, 0, 0, 1)
	}
	host, _, _ = strings.Cut(host, "%") // a zone: which interface
	return net.ParseIP(host)
}

// isEvery reports whether an address stands for others too.
func isEvery(ip net.IP) bool { return ip != nil && ip.IsUnspecified() }

// covers reports whether binding one address takes the other too: [::] is every
// address of both families, 0.0.0.0 every one of IPv4.
func covers(one, other net.IP) bool {
	return isEvery(one) && (one.To4() == nil || other.To4() != nil)
}

// memory checks what sections want of the memory cap. A batch, message or
// line of a quarter of it is the largest that leaves room for others beside
// it: one that fills, one that is delivered, and what waits. And all that is
// guaranteed to sinks must be there.
func (d *decoder) memory(cfg *Config) {
	limit := cfg.Memory.Cap / 4
	check := func(at string, n int) {
		if n > limit {
			d.errorf(at, "%s is over a quarter of memory.cap, %s", text(Size(n)), text(Size(cfg.Memory.Cap)))
		}
	}
	check("batch.buffer", cfg.Batch.Buffer)
	for _, s := range cfg.Syslog {
		check(join(join("source", s.Name), "max_message"), s.MaxMessage)
	}
	for _, s := range cfg.FIFOs {
		check(join(join("source", s.Name), "max_line"), s.MaxLine)
	}
	for _, s := range cfg.Stdin {
		check(join(join("source", s.Name), "max_line"), s.MaxLine)
	}
	for _, p := range cfg.Programs {
		check(join(join("program", p.Name), "max_line"), p.MaxLine)
	}
	total := 0
	for _, o := range cfg.outputs() {
		at := join("sink", o.Name)
		if o.Buffer != cfg.Batch.Buffer { // else it was said of [batch]
			check(join(at, "buffer"), o.Buffer)
		}
		most := cfg.Memory.Cap - cfg.Memory.Cap/receivePart
		if total += max(0, o.Memory); total > most {
			d.errorf(join(at, "memory"), "with this the guaranteed shares come to %s, over what sinks can have of memory.cap, %s",
				text(Size(total)), text(Size(most)))
		}
	}
}

// outputs are the common parts of all sinks.
func (c *Config) outputs() []*Output {
	var list []*Output
	for i := range c.Files {
		list = append(list, &c.Files[i].Output)
	}
	for i := range c.Forwards {
		list = append(list, &c.Forwards[i].Output)
	}
	for i := range c.Streams {
		list = append(list, &c.Streams[i].Output)
	}
	return list
}
