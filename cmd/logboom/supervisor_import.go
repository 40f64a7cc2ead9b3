package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func importSupervisorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import-supervisor FILE.ini",
		Short: "Print the programs of a supervisord file, and their log files, as TOML",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := importSupervisor(args[0])
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
}

// importer turns the programs of a supervisord file into sections of ours.
type importer struct {
	ini       *ini
	dir       string            // absolute, of the file
	names     map[string]string // of programs: ours by supervisord's
	processes map[string]bool   // names that are taken
	inherited map[string]string // options of [supervisord]
	globals   map[string]string // its environment, as it stands there
	sinks     []*importedSink
	out       []byte
}

// importSupervisor returns the TOML. What cannot be carried over is a comment
// in it.
func importSupervisor(path string) ([]byte, error) {
	f, err := readINI(path)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	im := &importer{ini: f, dir: dir, names: make(map[string]string), processes: make(map[string]bool)}
	programs := f.programNames()
	if len(programs) == 0 {
		return nil, fmt.Errorf("%s: there is no [program:x] section", path)
	}
	im.nameAll(programs)
	im.comment("Made by logboom import-supervisor from " + filepath.Base(path) + ".")
	im.comment("Give a path the ending .gz, and the file is compressed while it is written.")
	for _, note := range f.notes {
		im.comment(note)
	}
	if err := im.otherSections(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range programs {
		if err := im.program(name); err != nil {
			return nil, fmt.Errorf("%s: [program:%s] %w", path, name, err)
		}
	}
	for _, s := range im.sinks {
		im.out = fmt.Appendf(im.out, "\n[%s]\n%s", join("sink", s.name), s.text)
	}
	return im.out, nil
}

// nameAll gives each program a name that a config of ours may hold.
func (im *importer) nameAll(programs []string) {
	used := make(map[string]bool)
	for _, name := range programs {
		clean := strings.Map(func(r rune) rune {
			if isName("x" + string(r)) {
				return r
			}
			return '_'
		}, name)
		if !isName(clean) {
			clean = "program" + clean
		}
		im.names[name] = unique(clean, used)
	}
}

// unique adds a number to a name that is taken, and takes it.
func unique(name string, used map[string]bool) string {
	candidate := name
	for n := 2; used[candidate]; n++ {
		candidate = name + "-" + strconv.Itoa(n)
	}
	used[candidate] = true
	return candidate
}

// comment writes text as one or more lines of comment.
func (im *importer) comment(text string) {
	for line := range strings.Lines(text) {
		line = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\t' || r == 0x7f { // TOML allows no other
				return ' '
			}
			return r
		}, strings.TrimRight(line, "\r\n"))
		im.out = fmt.Appendf(im.out, "# %s\n", strings.ToValidUTF8(line, "\ufffd"))
	}
}

// otherSections takes from [supervisord] what programs inherit, and tells of
// what is not carried over.
func (im *importer) otherSections() (err error) {
	for _, s := range im.ini.sections {
		switch kind, _, _ := strings.Cut(s.name, ":"); kind {
		case "program", "include":
		case "supervisord":
			im.inherited = s.options
			for _, option := range s.order {
				if !slices.Contains(supervisordOptions, option) {
					im.comment(fmt.Sprintf("[supervisord] %s=%s: not carried over", option, s.options[option]))
				}
			}
			if im.globals, err = splitEnvironment(s.options["environment"]); err != nil {
				return fmt.Errorf("[supervisord] environment: %w", err)
			}
		case "unix_http_server", "inet_http_server", "supervisorctl", "rpcinterface":
			im.comment("[" + s.name + "]: not needed; logboom status, start, stop and restart find the daemon by its config")
		case "group":
			im.comment(fmt.Sprintf("[%s] programs=%s: there are no groups; name the programs one by one", s.name, s.options["programs"]))
		default:
			im.comment("[" + s.name + "]: not carried over")
		}
	}
	return nil
}

// supervisordOptions are the options of [supervisord] that programs inherit,
// and those that are about supervisord's own process alone.
var supervisordOptions = []string{
	"environment", "umask", "directory", "user", "childlogdir",
	"logfile", "logfile_maxbytes", "logfile_backups", "loglevel", "pidfile", "nodaemon", "silent", "identifier", "nocleanup", "minfds", "minprocs",
}
