package main

import (
	"net/netip"
	"os"
	"regexp"
	"syscall"
	"time"
)

// Config is a whole, valid configuration: every default filled in, every path
// absolute, every reference resolved. It holds plain values alone, so that a
// reload compares old and new sections with [reflect.DeepEqual].
//
// The tags of its fields are the grammar of conf.toml. `toml` names the key
// and says how its text is read:
//
//	path       a relative path starts at the config file's folder
//	size       an int that is written "64KiB"
//	seconds    a time that may also be a plain number of seconds
//	auto       "auto" stands for the default, or for Auto where that is it
//	user,group an int that is written as a name or a number; -1: not set
//	id         may also be written as a number
//	command    a list, or one string that is split as a shell would
//	each       a table, or one value for each of its keys
//	required   has no default
//	omitempty  not printed while empty
//
// `enum` lists the values allowed; `later` those (or, on a blank field, the
// keys) that are known but not supported yet; `min` and `max` bound a number,
// size or time; `only` names the kinds of section (see kinder) in which the
// key has an effect and is therefore allowed.
type Config struct {
	RuntimeDir  string        `toml:"runtime_dir,path"`
	StateDir    string        `toml:"state_dir,path"`
	StopTimeout time.Duration `toml:"stop_timeout"`

	Log    Log    `toml:"log"`
	Memory Memory `toml:"memory"`
	HTTP   HTTP   `toml:"http"`
	Batch  Batch  `toml:"batch"`

	// Named sections, each list in the order of the file.
	Syslog   []SyslogSource `toml:"-"`
	FIFOs    []FIFOSource   `toml:"-"`
	Stdin    []StdinSource  `toml:"-"` // at most one
	Programs []Program      `toml:"-"`
	Files    []FileSink     `toml:"-"`
	Forwards []SyslogSink   `toml:"-"`
	Streams  []StreamSink   `toml:"-"`
}

// Auto is the value of a size or time that the daemon chooses by itself.
const Auto = -1

// Log is the daemon's own log.
type Log struct {
	Level  string `toml:"level" enum:"debug info warn error"`
	Format string `toml:"format" enum:"auto json console"`
}

// Memory bounds what all batches take together, in bytes.
type Memory struct {
	Cap int `toml:"cap,size" min:"1MiB"`
}

// HTTP is where metrics and health are served; an empty Address: nowhere.
type HTTP struct {
	Address string `toml:"address"`
}

// Batch says when a batch ends: at Messages messages, at Buffer bytes, or
// Flush after its first message, whichever comes first.
type Batch struct {
	Messages int           `toml:"messages" min:"1"`
	Buffer   int           `toml:"buffer,size" min:"4KiB"`
	Flush    time.Duration `toml:"flush" min:"1ms"`
}

// Owner is who owns a file or socket that the daemon makes; -1 leaves it as
// it comes.
type Owner struct {
	UID int `toml:"owner,user"`
	GID int `toml:"group,group"`
}

// Input is what every source has.
type Input struct {
	Name     string   `toml:"-"`
	Type     string   `toml:"type,required"`
	WhenFull WhenFull `toml:"when_full"` // the file sinks' memory is full
	Sinks    []string `toml:"sinks,required"`
}

// SyslogSource is a socket that syslog messages come in by.
type SyslogSource struct {
	Input
	Listen         Address        `toml:"listen,required"`
	Format         string         `toml:"format" enum:"auto raw" later:"rfc3164 rfc5424"`
	Framing        string         `toml:"framing" enum:"auto octet lf" only:"tcp unix"`
	MaxMessage     int            `toml:"max_message,size" min:"480"` // bytes; RFC 5424 section 6.1
	ReceiveBuffer  int            `toml:"receive_buffer,size" min:"4KiB" max:"1GiB" only:"udp unixgram"`
	DrainInterval  time.Duration  `toml:"drain_interval,auto" max:"1s" only:"udp unixgram"` // 0: wake for each datagram
	Readers        int            `toml:"readers" min:"1" max:"64" only:"udp"`
	Timezone       *time.Location `toml:"timezone"`
	Mode           os.FileMode    `toml:"mode" only:"unix unixgram"`
	Owner          `only:"unix unixgram"`
	Allow          []netip.Prefix `toml:"allow,omitempty" only:"udp tcp"` // nil: all
	MaxConnections int            `toml:"max_connections" min:"1" only:"tcp unix"`
	IdleTimeout    time.Duration  `toml:"idle_timeout" only:"tcp unix"` // 0: none
	_              struct{}       `later:"tls"`
}

// Lines says how the bytes of a pipe become records.
type Lines struct {
	MaxLine        int           `toml:"max_line,size" min:"1KiB"` // longer lines are given out in pieces
	PartialTimeout time.Duration `toml:"partial_timeout"`          // 0: for ever
	TrimCR         bool          `toml:"trim_cr"`
	Multiline      Multiline     `toml:"multiline,omitempty"`
}

// Multiline joins lines to records: one begins where Start matches. No Start:
// each line is a record.
type Multiline struct {
	Start   *regexp.Regexp `toml:"start,required,omitempty"`
	Timeout time.Duration  `toml:"timeout,omitempty" min:"1ms"`
}

// FIFOSource is a named pipe, made with Mode if it is missing.
type FIFOSource struct {
	Input
	Path string      `toml:"path,path,required"`
	Mode os.FileMode `toml:"mode"`
	Lines
	Severity LineSeverity `toml:"severity"`
}

// StdinSource is the daemon's standard input.
type StdinSource struct {
	Input
	Lines
	Severity LineSeverity `toml:"severity"`
}

// Program is a supervised child. Sinks is short for both Stdout and Stderr:
// a loaded Config has it nil and those two filled in. An empty list throws a
// stream away; with RedirectStderr the second one is nil. Texts may hold
// %(name)s, but for %(here)s, which is resolved; see [Program.instances].
type Program struct {
	Name           string            `toml:"-"`
	Command        []string          `toml:"command,command,required"` // at least one word
	Directory      string            `toml:"directory,omitempty"`      // absolute, or begins with %(
	Environment    map[string]string `toml:"environment,omitempty"`    // added to the daemon's own
	User           Account           `toml:"user,omitempty,id"`
	Umask          Umask             `toml:"umask,omitempty"`
	Nice           int               `toml:"nice" min:"-20" max:"19"` // added to the daemon's
	Rlimits        Rlimits           `toml:"rlimits,omitempty"`
	ProcessName    string            `toml:"process_name"`
	NumProcs       int               `toml:"numprocs" min:"1" max:"1000"`
	NumProcsStart  int               `toml:"numprocs_start" min:"0" max:"100000"`
	Priority       int               `toml:"priority"`             // lower ones start first and stop last
	DependsOn      []string          `toml:"depends_on,omitempty"` // programs that are up before it starts
	Ready          Ready             `toml:"ready,omitempty"`
	Autostart      bool              `toml:"autostart"`
	Autorestart    string            `toml:"autorestart" enum:"unexpected true false"`
	ExitCodes      []int             `toml:"exitcodes" min:"0" max:"255"`
	StartWait      time.Duration     `toml:"startsecs,seconds"`
	StartRetries   int               `toml:"startretries" min:"-1"` // -1: never give up
	Backoff        Backoff           `toml:"backoff"`
	StopSignal     syscall.Signal    `toml:"stopsignal"`
	StopWait       time.Duration     `toml:"stopwaitsecs,seconds"`
	StopAsGroup    bool              `toml:"stopasgroup"`
	KillAsGroup    bool              `toml:"killasgroup"`
	RedirectStderr bool              `toml:"redirect_stderr"`
	ReloadSignal   Signal            `toml:"reload_signal,omitempty"`
	ReloadCommand  []string          `toml:"reload_command,command,omitempty"`
	Prefix         string            `toml:"prefix,omitempty"` // template of what goes before each line
	Lines
	Severity StreamSeverity `toml:"severity,each"`
	WhenFull WhenFull       `toml:"when_full"`
	Sinks    []string       `toml:"sinks,omitempty"`
	Stdout   []string       `toml:"stdout"`
	Stderr   []string       `toml:"stderr,omitempty"`
}

// Ready is how a program tells that it is ready: by one of Line, TCP and
// Notify. A Timeout of 0: there is nothing to tell.
type Ready struct {
	Line    *regexp.Regexp `toml:"line,omitempty"`
	TCP     string         `toml:"tcp,omitempty"` // host:port; may hold %(name)s
	Notify  bool           `toml:"notify,omitempty"`
	Timeout time.Duration  `toml:"timeout,omitempty" min:"1ms"`
}

// Backoff is the delay between restarts: from Min to Max, and back to Min
// after a run longer than Reset.
type Backoff struct {
	Min   time.Duration `toml:"min" min:"1ms"`
	Max   time.Duration `toml:"max"`
	Reset time.Duration `toml:"reset"`
}

// StreamSeverity is the severity of the lines of each of a program's streams.
type StreamSeverity struct {
	Stdout LineSeverity `toml:"stdout"`
	Stderr LineSeverity `toml:"stderr"`
}

// Output is what every sink has.
type Output struct {
	Name string `toml:"-"`
	Type string `toml:"type,required"`
	Batch
	Memory int   `toml:"memory,size,auto" min:"4KiB"` // guaranteed share of the cap, in bytes, or Auto
	Match  Match `toml:"match"`
}

// Match is what a sink takes: a message that meets all of it. No program and
// no expression: any.
type Match struct {
	Severity SeverityRange  `toml:"severity"`
	Program  []string       `toml:"program,omitempty"`
	Message  *regexp.Regexp `toml:"message,omitempty"`
}

// Text says how a message is written to a file or a stream. Either Format or
// Template is set.
type Text struct {
	Format    string `toml:"format,omitempty" enum:"raw rfc3164 rfc5424 json"`
	Template  string `toml:"template,omitempty"`
	Escape    string `toml:"escape" enum:"line control none" only:"raw rfc3164 rfc5424 template"`
	GapNotice bool   `toml:"gap_notice,auto"`
}

// FileSink writes files. Path is the text of a template, absolute.
type FileSink struct {
	Output
	Path     string `toml:"path,required"`
	Compress string `toml:"compress,auto" enum:"gzip zstd none"`
	Level    int    `toml:"level" min:"1" max:"9" only:"gzip zstd"`
	Text
	Sync    Fsync       `toml:"fsync"`
	Mode    os.FileMode `toml:"mode"`
	DirMode os.FileMode `toml:"dir_mode"`
	Owner
	Rotate      Rotate   `toml:"rotate,omitempty"`
	Keep        Keep     `toml:"keep,omitempty"`
	Symlink     string   `toml:"symlink,path,omitempty"` // leads to the newest file
	MaxOpen     int      `toml:"max_open" min:"1"`
	MaxNewFiles int      `toml:"max_new_files" min:"1"` // a minute
	_           struct{} `later:"spool"`
}

// Rotate is when a file gets a name of its own and the next begins: before it
// is over Size bytes, and at the end of each period of Every; 0: not.
type Rotate struct {
	Size  int           `toml:"size,size,omitempty" min:"4KiB"`
	Every time.Duration `toml:"every,omitempty" min:"1s"`
}

// Keep is what stays of rotated files: so many, so many bytes, those so young;
// 0: all.
type Keep struct {
	Files int           `toml:"files,omitempty" min:"1"`
	Bytes int           `toml:"bytes,size,omitempty" min:"4KiB"`
	Age   time.Duration `toml:"age,omitempty" min:"1s"`
}

// SyslogSink forwards to the first of Targets that answers.
type SyslogSink struct {
	Output
	Targets        []Address     `toml:"targets,required"`
	Format         string        `toml:"format" enum:"rfc5424 rfc3164 raw"`
	Framing        string        `toml:"framing,auto" enum:"lf octet" only:"tcp"`
	Escape         string        `toml:"escape" enum:"line control none" only:"lf"`
	ConnectTimeout time.Duration `toml:"connect_timeout" min:"1ms" only:"tcp"`
	WriteTimeout   time.Duration `toml:"write_timeout" min:"1ms" only:"tcp"`
	ResolveEvery   time.Duration `toml:"resolve_every" min:"1s" only:"udp tcp"`
	ResendWindow   int           `toml:"resend_window,size" only:"tcp"` // bytes
	Retry          Retry         `toml:"retry"`
	WhenFull       WhenFull      `toml:"when_full"`
	_              struct{}      `later:"tls spool"`
}

// Retry is the delay between attempts to deliver, from Min to Max.
type Retry struct {
	Min time.Duration `toml:"min" min:"1ms"`
	Max time.Duration `toml:"max"`
}

// StreamSink is the daemon's standard output or standard error, as Type says.
type StreamSink struct {
	Output
	Text
}

// kinder is a section in which some keys have an effect only sometimes: those
// whose `only` tag names one of its kinds. Valid after the section was read.
type kinder interface{ kinds() []string }

func (s *SyslogSource) kinds() []string { return []string{s.Listen.Network} }

func (t *Text) kinds() []string {
	if t.Template != "" {
		return []string{"template"}
	}
	return []string{t.Format}
}

func (s *FileSink) kinds() []string { return append(s.Text.kinds(), s.Compress) }

func (s *SyslogSink) kinds() []string {
	var kinds []string
	for _, target := range s.Targets {
		kinds = append(kinds, target.Network)
		if target.Network == "tcp" && s.Framing == "lf" {
			kinds = append(kinds, "lf")
		}
	}
	return kinds
}
