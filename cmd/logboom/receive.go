package main

import (
	"time"

	"logboom/buffer"
	"logboom/sink"
	"logboom/syslog"
)

// maxReceive bounds the window of one socket, in bytes.
const maxReceive = 4 << 20

// labelDatagrams is the label of windows that datagrams are received into.
const labelDatagrams = "datagrams"

// receiveWindow takes a part of the arena to receive datagrams into; nil where
// there is none to spare.
func (d *daemon) receiveWindow(f *feed, s SyslogSource) *buffer.Window {
	n := syslog.ReceiveMemory(s.MaxMessage, min(maxReceive, d.arena.Size()/16))
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

// adoptWindow sees to it that what had been received, but was not with all
// sinks, gets there: by the source of the same name, before it receives
// anything. Of a source that is gone, it goes to a file in the state
// directory.
func (d *daemon) adoptWindow(w *buffer.Window, recovered map[string]*outlet) error {
	if !w.IsOpen() {
		return w.Close()
	}
	f, o := d.feeds[w.Source], &sink.Origin{Source: w.Source, LocalHost: d.host, Zone: time.Local}
	if f == nil {
		to, err := d.recovered(recovered, w.Source)
		if err != nil {
			return err
		}
		f = &feed{input: d.newInput(w.Source)}
		f.setEdges([]*edge{{Edge: to.Edge(-1, d.giveUp)}})
		f.takeUp(w, o, true)
		return nil
	}
	raw := false
	if s, ok := f.section.(SyslogSource); ok {
		raw, o.Zone = s.Format == "raw", s.Timezone
	}
	f.left = append(f.left, func() { f.takeUp(w, o, raw) })
	return nil
}

// takeUp takes the messages of a window that was left behind to the sinks that
// do not have them.
func (f *feed) takeUp(w *buffer.Window, o *sink.Origin, raw bool) {
	ms, err := syslog.LeftDatagrams(w.Memory(), raw, time.Now())
	if err != nil {
		f.log.Error().Err(err).Msg("what was being received when the daemon was killed is lost")
	}
	if len(ms) > 0 {
		f.messages(o, ms, w)
		f.log.Info().Int("messages", len(ms)).Msg("taking up what was being received")
	}
	w.End()
	if err := w.Close(); err != nil {
		f.log.Error().Err(err).Msg("closing a window")
	}
}
