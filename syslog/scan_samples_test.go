package syslog

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// samples decodes a file of one JSON value a line from the folder of samples
// that lies beside a developer's checkout.
func samples[T any](t *testing.T, name string) []T {
	t.Helper()
	file, err := os.Open("../../shared/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the samples %s are not here", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []T
	for d := json.NewDecoder(file); d.More(); {
		var one T
		if err := d.Decode(&one); err != nil {
			t.Fatalf("%s, value %d: %v", name, len(all)+1, err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return all
}

// caseSample is one fault of other receivers, with what is right.
type caseSample struct {
	ID, Area string
	InputHex string `json:"input_hex"`
	Fields   *struct {
		Facility, Severity int
		FacilityName       string `json:"facility_name"`
		SeverityName       string `json:"severity_name"`
		Timestamp          time.Time
		Hostname           string
		AppName            string          `json:"app_name"`
		ProcID             string          `json:"procid"`
		MsgID              string          `json:"msgid"`
		Data               json.RawMessage `json:"structured_data"`
		Msg                string          `json:"msg_go"`
	}
	Context struct {
		Recv       time.Time
		SourceZone string `json:"source_zone"`
		Transport  string
		Peer       string
		LocalHost  string `json:"local_host"`
	}
}

// TestCaseSamples checks all fields of all cases that are about a header.
func TestCaseSamples(t *testing.T) {
	checked := 0
	for _, c := range samples[caseSample](t, "cases/cases.jsonl") {
		if c.Area != "parse" || c.Fields == nil {
			continue // about frames, or not about this package
		}
		checked++
		t.Run(c.ID, func(t *testing.T) { checkCase(t, &c) })
	}
	if checked < 30 {
		t.Errorf("only %d cases are about headers", checked)
	}
}

func checkCase(t *testing.T, c *caseSample) {
	local := strings.HasPrefix(c.Context.Transport, "unix")
	input, err := hex.DecodeString(c.InputHex)
	if err != nil {
		t.Fatal(err)
	}
	var h Header
	Scan(&h, TrimDatagram(input), local)

	host := h.Host
	if host == nil { // what a listener puts in its place
		host = []byte(c.Context.Peer)
		if local {
			host = []byte(c.Context.LocalHost)
		}
	}
	message, err := strconv.Unquote(c.Fields.Msg)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]any{
		"facility":      {h.Facility(), c.Fields.Facility},
		"severity":      {h.Severity(), c.Fields.Severity},
		"facility name": {FacilityName(h.Facility()), c.Fields.FacilityName},
		"severity name": {SeverityName(h.Severity()), c.Fields.SeverityName},
		"host":          {string(host), c.Fields.Hostname},
		"tag":           {orDash(h.Tag), c.Fields.AppName},
		"pid":           {orDash(h.PID), c.Fields.ProcID},
		"msgid":         {orDash(h.MsgID), c.Fields.MsgID},
		"message":       {string(h.Message), message},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q, want %q", name, pair[0], pair[1])
		}
	}
	checkData(t, &h, c.Fields.Data)
	at := h.Time(c.Context.Recv, location(t, c.Context.SourceZone))
	if !at.Equal(c.Fields.Timestamp) || h.HasTime() && at.Format(time.RFC3339) != c.Fields.Timestamp.Format(time.RFC3339) {
		t.Errorf("time: %v, want %v", at, c.Fields.Timestamp)
	}
}

// checkData compares structured data with JSON, where null and "-" are none.
func checkData(t *testing.T, h *Header, want json.RawMessage) {
	t.Helper()
	var none *string
	if json.Unmarshal(want, &none) == nil {
		if h.Data != nil {
			t.Errorf("data %q, want none", h.Data)
		}
		return
	}
	got, err := json.Marshal(h.StructuredData())
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("data %s, want %s", got, want)
	}
}

// orDash returns the word, or "-" for none.
func orDash(word []byte) string {
	if word == nil {
		return "-"
	}
	return string(word)
}

// vectorSample is one message of another project's tests, and what these want.
type vectorSample struct {
	ID, Source, Proto, Note string
	Input                   string
	InputB64                []byte                     `json:"input_b64"`
	Expect                  map[string]json.RawMessage // a key that is not there is not asked
	Agrees                  string                     `json:"parsing_md"`
}

// Where the others want something else after all, and why we differ.
var vectorExceptions = map[string]string{
	"v0112": "VERSION 2 is no header known to us",
	"v0146": "go-syslog keeps a BOM as a part of the message",
	"v0149": "go-syslog keeps a BOM as a part of the message",
	"v0150": "go-syslog keeps a BOM as a part of the message",
	"v0153": "go-syslog keeps a BOM as a part of the message",
	"v0155": "go-syslog keeps a BOM as a part of the message",
	"v0156": "go-syslog keeps a BOM as a part of the message",
	"v0159": "go-syslog keeps a BOM as a part of the message",
	"v0559": "VMware's values without quotes are no structured data",
	"v0586": "one space is header, a second one is message",
	"v0610": "Vector reads structured data out of an RFC 3164 message",
	"v0682": "one space is header, a second one is message",
	"v0713": "one space is header, a second one is message",
}

func TestVectorSamples(t *testing.T) {
	checked := 0
	for _, v := range samples[vectorSample](t, "data/vectors.jsonl") {
		if v.Agrees != "agrees" || v.Proto != "rfc3164" && v.Proto != "rfc5424" {
			continue
		}
		checked++
		if v.InputB64 == nil {
			v.InputB64 = []byte(v.Input)
		}
		wrong := checkVector(t, &v)
		why, excepted := vectorExceptions[v.ID]
		switch {
		case excepted && wrong == "":
			t.Errorf("%s agrees, though %s", v.ID, why)
		case !excepted && wrong != "":
			t.Errorf("%s %q: %s", v.ID, v.InputB64, wrong)
		}
	}
	if checked < 100 {
		t.Errorf("only %d vectors are about headers", checked)
	}
}

// checkVector returns the first thing that a vector wants otherwise, or "".
func checkVector(t *testing.T, v *vectorSample) string {
	t.Helper()
	var h Header
	Scan(&h, TrimDatagram(v.InputB64), false)
	for name, got := range map[string]any{
		"priority": h.Priority, "facility": h.Facility(), "severity": h.Severity(),
		"hostname": asJSON(h.Host), "appname": asJSON(h.Tag), "procid": asJSON(h.PID), "msgid": asJSON(h.MsgID),
		"message": asJSON(h.Message), "message_b64": h.Message, "structured_data": h.StructuredData(),
	} {
		raw, asked := v.Expect[name]
		if !asked || string(raw) == "null" && (name == "priority" || got == "") {
			continue
		}
		want := reflect.New(reflect.TypeOf(got))
		if err := json.Unmarshal(raw, want.Interface()); err != nil {
			t.Fatalf("%s: %s: %v", v.ID, name, err)
		}
		w := want.Elem().Interface()
		if reflect.DeepEqual(got, w) {
			continue
		}
		// rsyslog's %msg% begins with the space after the tag.
		if name != "message" || !strings.Contains(v.Source, "rsyslog") || w != " "+got.(string) {
			return fmt.Sprintf("%s: got %q, want %q", name, got, w)
		}
	}
	return checkVectorTime(&h, v)
}

// checkVectorTime compares the fields of the times as they stand: the vectors
// do not say in which zone a time without one is, nor when it was received.
func checkVectorTime(h *Header, v *vectorSample) string {
	var want string
	if json.Unmarshal(v.Expect["timestamp"], &want) != nil || want == "" {
		return ""
	}
	got := h.Time(cameAt, time.UTC)
	if at, err := time.Parse(time.RFC3339, want); err == nil && h.stamp.has&hasOffset != 0 {
		if !got.Equal(at) {
			return fmt.Sprintf("time: got %v, want %v", got, at)
		}
		return ""
	}
	for layout, shown := range map[string]string{
		time.Stamp:            "01-02 15:04:05.999999999",
		"2006-01-02T15:04:05": "2006-01-02 15:04:05.999999999",
		time.RFC3339:          "01-02 15:04:05.999999999",
	} {
		if at, err := time.Parse(layout, want); err == nil {
			if got.Format(shown) != at.Format(shown) {
				return fmt.Sprintf("time: got %v, want %s", got, want)
			}
			return ""
		}
	}
	return "time: cannot read " + want
}

// asJSON returns b as JSON has it: U+FFFD for each byte that is no UTF-8.
func asJSON(b []byte) string { return string([]rune(string(b))) }

// TestNginxSamples scans datagrams that nginx 1.22.1 sent, from start to stop:
// an empty host, none, an empty message, lines of 20 kB, bytes that are no text.
func TestNginxSamples(t *testing.T) {
	type datagram struct {
		Via string
		B64 []byte
	}
	tags := map[string]bool{"nginx": true, "ngx_err": true, "nh": true, "jj": true,
		"my_tag_32_chars_long_abcdefghij": true}
	for _, d := range samples[datagram](t, "data/hard/nginx_1.22.1_syslog_datagrams.jsonl") {
		var h Header
		Scan(&h, TrimDatagram(d.B64), d.Via == "unix")
		head, message, found := bytes.Cut(d.B64, []byte(": "))
		if !found || !bytes.Equal(h.Message, message) {
			t.Errorf("%.80q: message %.80q", d.B64, h.Message)
		}
		if !tags[string(h.Tag)] || !bytes.HasSuffix(head, h.Tag) || h.PID != nil || !h.HasTime() {
			t.Errorf("%.80q: tag %q, pid %q, time %v", d.B64, h.Tag, h.PID, h.HasTime())
		}
		if bytes.Contains(head, []byte(" vm ")) != (string(h.Host) == "vm") {
			t.Errorf("%.80q: host %q", d.B64, h.Host)
		}
	}
}
