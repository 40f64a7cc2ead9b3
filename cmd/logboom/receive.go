package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"logboom/buffer"
	"logboom/proc"
	"logboom/sink"
	"logboom/syslog"
)

// maxReceive bounds the window of one socket, in bytes: 128 datagrams of 64 KiB
// and a few. All of them together have 1/socketPart of memory.cap; the rest of
// what is set aside is for pipes and frames.
const (
	maxReceive = 9 << 20
	socketPart = 7
)

// Labels of windows: of those that datagrams are received into, and of those
// that connections are read into.
const (
	labelDatagrams = "datagrams"
	labelStream    = "stream"
)

// receiveWindow takes a part of the arena to receive datagrams into; nil where
// there is none to spare.
func (d *daemon) receiveWindow(f *feed, s SyslogSource) *buffer.Window {
	sockets := 0
	for _, other := range d.conf.Syslog {
		if other.Listen.Network == "udp" || other.Listen.Network == "unixgram" {
			sockets += other.Readers
		}
	}
	n := syslog.ReceiveMemory(s.MaxMessage, min(maxReceive, d.arena.Size()/socketPart/max(sockets, 1)))
	var w *buffer.Window
	if n > 0 {
		w = d.arena.NewWindow(s.Name, labelDatagrams, n)
	}
	if w == nil {
		f.log.Warn().Int("max_message", s.MaxMessage).Msg("memory.cap is too small to receive into the arena: what is being received when the daemon is killed is lost")
	}
	return w
}

// windowOf is w as package syslog wants it.
func windowOf(w *buffer.Window) syslog.Window {
	if w == nil {
		return nil
	}
	return w
}

// streamWindow gives connections of a source parts of the arena.
func (d *daemon) streamWindow(source string) func(int) syslog.StreamWindow {
	return func(n int) syslog.StreamWindow {
		if w := d.arena.NewWindow(source, labelStream, n); w != nil {
			return w
		}
		return nil
	}
}

// lineWindow is a window that a pipe is read into, as package proc wants it.
type lineWindow struct{ *buffer.Window }

func (w lineWindow) Resize(n int) proc.Window {
	if other := w.Window.Resize(n); other != nil {
		return lineWindow{other}
	}
	return nil
}

func (w lineWindow) Replace(others ...proc.Window) {
	var replaced []*buffer.Window
	for _, o := range others {
		replaced = append(replaced, o.(lineWindow).Window)
	}
	w.Window.Replace(replaced...)
}

// lineLabel is what the label of such a window says, behind labelLines: which
// pipe of which process of a program it was.
type lineLabel struct {
	stream  string
	pid     int
	process string
}

const labelLines = "lines"

func (l lineLabel) String() string {
	return fmt.Sprintf("%s %s %d %s", labelLines, l.stream, l.pid, l.process)
}

// parseLabel reads a label. False: it is none of a pipe's.
func parseLabel(text string) (l lineLabel, ok bool) {
	words := strings.SplitN(text, " ", 4)
	if len(words) != 4 || words[0] != labelLines {
		return l, false
	}
	var err error
	l.stream, l.process = words[1], words[3]
	l.pid, err = strconv.Atoi(words[2])
	return l, err == nil
}

// lineWindow gives the reader of a pipe parts of the arena.
func (d *daemon) lineWindow(source string, label lineLabel) func(int) proc.Window {
	return func(n int) proc.Window {
		if w := d.arena.NewWindow(source, label.String(), n); w != nil {
			return lineWindow{w}
		}
		return nil
	}
}

// adoptWindow sees to it that what had been received, but was not with all
// sinks, gets there: by the source of the same name, before it receives
// anything. Of a source that is gone, it goes to a file in the state
// directory.
func (d *daemon) adoptWindow(w *buffer.Window, recovered map[string]*outlet) error {
	label, isLines := parseLabel(w.Label)
	if !holdsAny(w, isLines) {
		return w.Close()
	}
	f := d.feeds[w.Source]
	if f == nil {
		to, err := d.outlets["file"], error(nil)
		if to == nil || !d.plain {
			to, err = d.recovered(recovered, w.Source)
		}
		if err != nil {
			return err
		}
		f = &feed{input: d.newInput(w.Source)}
		f.setEdges([]*edge{{Edge: to.Edge(-1, d.giveUp)}})
		d.takeUp(f, w, label, isLines)
		return nil
	}
	f.left = append(f.left, func() { d.takeUp(f, w, label, isLines) })
	return nil
}

// holdsAny reports whether a window holds anything that is to be taken up. What
// cannot be told counts as that.
func holdsAny(w *buffer.Window, isLines bool) bool {
	switch {
	case isLines:
		return proc.HoldsText(lineWindow{w})
	case w.Label == labelStream:
		left, err := syslog.OpenLeftStream(w)
		return err != nil || left.Holds()
	}
	return w.IsOpen()
}

// takeUp takes what a window holds that was left behind to the sinks that do
// not have it.
func (d *daemon) takeUp(f *feed, w *buffer.Window, label lineLabel, isLines bool) {
	o := &sink.Origin{Source: w.Source, LocalHost: d.host, Zone: time.Local}
	var err error
	switch {
	case isLines && f.takeUpLines != nil:
		err = f.takeUpLines(w, label)
	case isLines:
		err = takeUpText(w, proc.LineConfig{}, func(b proc.Block) { f.block(o, b) })
	default:
		err = f.takeUpMessages(w, o)
	}
	if err != nil {
		kept, asideErr := keepAside(bytes.NewReader(w.Memory()), "window", d.conf.StateDir)
		f.log.Error().Err(err).Str("kept_in", kept).AnErr("not_kept", asideErr).Msg("what was being received when the daemon was killed cannot be taken up")
		w.Close()
	}
}

// takeUpText takes up lines of a pipe that nobody reads any more.
func takeUpText(w *buffer.Window, cfg proc.LineConfig, take func(proc.Block)) error {
	left, err := proc.OpenLeft(lineWindow{w}, cfg, take)
	if err == nil {
		left.Lines(time.Now())
		left.Finish(time.Now())
	}
	return err
}

func (f *feed) takeUpMessages(w *buffer.Window, o *sink.Origin) error {
	raw := true
	if s, ok := f.section.(SyslogSource); ok {
		raw, o.Zone = s.Format == "raw", s.Timezone
	}
	ms, done, err := leftMessages(w, raw)
	if err != nil {
		return err
	}
	if len(ms) > 0 {
		f.messages(o, ms, w)
		f.log.Info().Int("messages", len(ms)).Msg("taking up what was being received")
	}
	done()
	return w.Close()
}

// leftMessages returns the messages of a window that was left behind, and what
// to call when all sinks have them.
func leftMessages(w *buffer.Window, raw bool) (ms []syslog.Message, done func(), err error) {
	if w.Label != labelStream {
		ms, err = syslog.LeftDatagrams(w.Memory(), raw, time.Now())
		return ms, w.End, err
	}
	left, err := syslog.OpenLeftStream(w)
	if err != nil {
		return nil, nil, err
	}
	return left.Messages(raw, time.Now()), left.Done, nil
}
