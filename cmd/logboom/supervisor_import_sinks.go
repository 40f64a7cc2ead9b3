package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// importedSink is where one or more streams go.
type importedSink struct {
	name string
	key  string // tells it from others: its type, or its path
	text []byte // of its section, without the header
}

// streams writes where the two streams go.
func (p *importedProgram) streams() {
	redirected, _ := parseBoolean(p.options["redirect_stderr"])
	stdout := p.stream("stdout")
	if redirected {
		p.setList("stdout", stdout)
		return
	}
	stderr := p.stream("stderr")
	if len(stdout) > 0 && slices.Equal(stdout, stderr) {
		p.setList("sinks", stdout)
		return
	}
	p.setList("stdout", stdout)
	p.setList("stderr", stderr)
}

func (p *importedProgram) setList(key string, names []string) {
	list := []byte{'['}
	for i, name := range names {
		list = appendString(appendSeparator(list, i), name)
	}
	p.set(key, string(list)+"]")
}

// stream is the list of sinks of one stream.
func (p *importedProgram) stream(stream string) (names []string) {
	logfile, ok := p.options[stream+"_logfile"]
	if !ok {
		logfile = "AUTO"
	}
	toSyslog, _ := parseBoolean(p.options[stream+"_syslog"])
	switch strings.ToLower(logfile) {
	case "none", "off", "", "/dev/null":
	case "syslog":
		toSyslog = true
	case "auto":
		dir := p.inherited["childlogdir"]
		if dir == "" {
			dir = "/var/log/logboom"
		}
		path := filepath.Join(p.path(dir), pathQuoter.Replace(p.name)+"-"+stream+".log")
		p.note("%s_logfile=AUTO: supervisord would make a name up, and remove the file when it starts anew", stream)
		names = append(names, p.fileSink(stream, path))
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/1/fd/1":
		names = append(names, p.sink("stdout", "stdout", "type = \"stdout\"\n"))
	case "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2", "/proc/1/fd/2":
		names = append(names, p.sink("stderr", "stderr", "type = \"stderr\"\n"))
	default:
		path := p.path(logfile)
		if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "$") {
			p.note("%s_logfile=%s: it was relative to where supervisord ran, now it is to the config", stream, logfile)
		}
		names = append(names, p.fileSink(stream, path))
	}
	if toSyslog {
		names = append(names, p.sink("syslog", "syslog", "type = \"syslog\"\ntargets = [\"unixgram:///dev/log\"]\nformat = \"rfc3164\"\n"))
	}
	return names
}

// fileSink is a sink that writes a file, rotated as supervisord does: by
// default it keeps ten of 50 MB.
func (p *importedProgram) fileSink(stream, path string) string {
	section := append(appendString([]byte("type = \"file\"\npath = "), path), '\n')
	size, backups := 50<<20, 10
	if s, ok := p.options[stream+"_logfile_maxbytes"]; ok {
		n, err := parseMaxBytes(s)
		if err != nil {
			p.note("%s_logfile_maxbytes=%s: not carried over: %v", stream, s, err)
		} else {
			size = n
		}
	}
	if s, ok := p.options[stream+"_logfile_backups"]; ok {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			p.note("%s_logfile_backups=%s: not carried over: it is no number", stream, s)
		} else {
			backups = n
		}
	}
	const least = 4 << 10
	if size > 0 {
		if size < least {
			p.note("%s_logfile_maxbytes: at least %d", stream, least)
		}
		if backups == 0 {
			p.note("%s_logfile_backups=0: one file is kept", stream)
		}
		section = fmt.Appendf(section, "rotate = { size = %q }\nkeep = { files = %d }\n", text(Size(max(size, least))), max(backups, 1))
	}
	name := p.name + "-" + stream
	if redirected, _ := parseBoolean(p.options["redirect_stderr"]); redirected || p.sameFile() {
		name = p.name
	}
	return p.sink(name, path, string(section))
}

// sameFile reports whether both streams go to one file.
func (p *importedProgram) sameFile() bool {
	return p.options["stdout_logfile"] != "" && p.options["stdout_logfile"] == p.options["stderr_logfile"]
}

// parseMaxBytes reads a size as supervisord writes it: 50MB.
func parseMaxBytes(s string) (int, error) {
	var size Size
	err := size.UnmarshalText([]byte(s))
	return int(size), err
}

// sink returns the name of the sink with a key, which is made if there is
// none yet.
func (im *importer) sink(name, key, text string) string {
	used := make(map[string]bool)
	for _, s := range im.sinks {
		if s.key == key {
			return s.name
		}
		used[s.name] = true
	}
	s := &importedSink{name: unique(name, used), key: key, text: []byte(text)}
	im.sinks = append(im.sinks, s)
	return s.name
}
