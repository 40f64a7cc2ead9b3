package syslog

import "time"

// DefaultPriority is user.notice, what a message without a valid PRI has
// (RFC 3164 section 4.3.3).
const DefaultPriority = 13

// Header is what [Scan] found before a message. Every slice points into the
// scanned bytes and is borrowed with them; nil means absent. Whatever was not
// understood is part of Message: header and message together hold every byte
// that is not framing.
type Header struct {
	Priority uint8 // facility*8 + severity, 0 to 191
	RFC5424  bool  // the header has the form of RFC 5424

	Host    []byte
	Tag     []byte // the program: TAG of RFC 3164, APP-NAME of RFC 5424
	PID     []byte // PROCID
	MsgID   []byte // RFC 5424 only
	Data    []byte // RFC 5424 structured data, valid, as it stands; nil for "-"
	Message []byte // the rest, always

	stamp stamp
}

// Facility is the facility code, 0 (kern) to 23 (local7).
func (h *Header) Facility() int { return int(h.Priority >> 3) }

// Severity is the severity code, 0 (emerg) to 7 (debug).
func (h *Header) Severity() int { return int(h.Priority & 7) }

// Message is one received message. It is borrowed for the call that hands it
// out: whoever keeps any of it copies it.
type Message struct {
	Header
	Received  time.Time
	Peer      string // the sender's address without a port; "" where there is none
	Truncated bool   // cut at max_message; the rest is lost and counted
	Partial   bool   // given out before its end was seen
}
