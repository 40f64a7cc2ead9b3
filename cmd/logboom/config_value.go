package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/user"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"logboom/sink"
)

// Size is a number of bytes, written "64KiB", "64k" or "65536". K, M and G
// are powers of 1,024 with or without the i, as in nginx and supervisord.
type Size int

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	in := string(text)
	digits := strings.TrimRight(in, "bBiIkKmMgG") // ParseInt refuses what else is there
	n, err := strconv.ParseInt(digits, 10, 64)
	shift := 0
	switch strings.ToLower(in[len(digits):]) {
	case "", "b":
	case "k", "kb", "kib":
		shift = 10
	case "m", "mb", "mib":
		shift = 20
	case "g", "gb", "gib":
		shift = 30
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || n < 0 || n > math.MaxInt>>shift {
		return fmt.Errorf(`%q is no size: want a number of bytes, or with a unit as in "64KiB", "8MiB", "1GiB"`, in)
	}
	*s = Size(n << shift)
	return nil
}

// MarshalText writes the size in the largest unit that keeps it whole.
func (s Size) MarshalText() ([]byte, error) {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if s != 0 && s%(1<<u.shift) == 0 {
			return fmt.Appendf(nil, "%d%s", s>>u.shift, u.name), nil
		}
	}
	return strconv.AppendInt(nil, int64(s), 10), nil
}

// Duration is a time as [time.ParseDuration] reads it, with d for days, and
// never negative: "500ms", "1s", "5m", "1h", "7d", "1d12h", "0".
type Duration time.Duration

const day = 24 * time.Hour

// UnmarshalText reads a time.
func (d *Duration) UnmarshalText(text []byte) error {
	in := string(text)
	// time.ParseDuration's own errors speak of Go's units.
	bad := fmt.Errorf(`%q is no time: want a number with a unit, as in "500ms", "1s", "5m", "1h", "7d"`, in)
	var total time.Duration
	rest := in
	if days, after, ok := strings.Cut(in, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16) // 179 years; no overflow below
		if err != nil {
			return bad
		}
		total, rest = time.Duration(n)*day, after
	}
	if rest != "" || in == "" {
		t, err := time.ParseDuration(rest)
		if err != nil || t < 0 || total+t < 0 {
			return bad
		}
		total += t
	}
	*d = Duration(total)
	return nil
}

// MarshalText writes the time in the largest unit that keeps it whole.
func (d Duration) MarshalText() ([]byte, error) {
	t := time.Duration(d)
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if t != 0 && t%u.unit == 0 {
			return fmt.Appendf(nil, "%d%s", t/u.unit, u.name), nil
		}
	}
	if t == 0 {
		return []byte("0"), nil
	}
	return []byte(t.String()), nil
}

// FullMode is what a source does while the memory of a sink is full.
type FullMode int

// Drop counts the message and goes on; Block waits until there is room; Wait
// waits for a stated time, then drops until there is room.
const (
	Drop FullMode = iota
	Block
	Wait
)

// WhenFull is a FullMode and, for Wait, its time, which is over 0.
type WhenFull struct {
	Mode FullMode
	Wait time.Duration
}

// UnmarshalText reads "drop", "block" or a time. No time at all is to drop.
func (w *WhenFull) UnmarshalText(text []byte) error {
	switch string(text) {
	case "drop":
		*w = WhenFull{Mode: Drop}
		return nil
	case "block":
		*w = WhenFull{Mode: Block}
		return nil
	}
	var d Duration
	if d.UnmarshalText(text) != nil {
		return fmt.Errorf(`%q is neither "drop", "block" nor a time such as "1s"`, text)
	}
	*w = WhenFull{Mode: Wait, Wait: time.Duration(d)}
	if d == 0 {
		w.Mode = Drop
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (w WhenFull) MarshalText() ([]byte, error) {
	switch w.Mode {
	case Drop:
		return []byte("drop"), nil
	case Block:
		return []byte("block"), nil
	}
	return Duration(w.Wait).MarshalText()
}

// Fsync is a [sink.Sync]: "never", "batch" or a time.
type Fsync sink.Sync

// UnmarshalText reads it. No time at all is a sync for each batch.
func (f *Fsync) UnmarshalText(text []byte) error {
	switch string(text) {
	case "never":
		*f = Fsync(sink.SyncNever)
		return nil
	case "batch":
		*f = Fsync(sink.SyncBatch)
		return nil
	}
	var d Duration
	if d.UnmarshalText(text) != nil {
		return fmt.Errorf(`%q is neither "never", "batch" nor a time such as "1s"`, text)
	}
	if *f = Fsync(d); d == 0 {
		*f = Fsync(sink.SyncBatch)
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (f Fsync) MarshalText() ([]byte, error) {
	switch sink.Sync(f) {
	case sink.SyncNever:
		return []byte("never"), nil
	case sink.SyncBatch:
		return []byte("batch"), nil
	}
	return Duration(f).MarshalText()
}

// Severity is a syslog severity, 0 (emerg) to 7 (debug).
type Severity uint8

const info = 6

var severities = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

// UnmarshalText reads a name; panic, error and warn are syslog.conf(5)'s old
// ones.
func (s *Severity) UnmarshalText(text []byte) error {
	name := string(text)
	switch name {
	case "panic":
		name = "emerg"
	case "error":
		name = "err"
	case "warn":
		name = "warning"
	}
	i := slices.Index(severities, name)
	if i < 0 {
		return notOneOf(name, severities)
	}
	*s = Severity(i)
	return nil
}

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(severities[s]), nil }

// SeverityRange is the severities from Min to Max, both included; Min is the
// smaller number and so the graver one.
type SeverityRange struct{ Min, Max Severity }

// UnmarshalText reads "info..emerg", ends in any order. One name alone means
// it and everything graver, as in syslog.conf(5).
func (r *SeverityRange) UnmarshalText(text []byte) error {
	from, to, ok := strings.Cut(string(text), "..")
	if !ok {
		to = severities[0]
	}
	if err := r.Max.UnmarshalText([]byte(from)); err != nil {
		return err
	}
	if err := r.Min.UnmarshalText([]byte(to)); err != nil {
		return err
	}
	r.Min, r.Max = min(r.Min, r.Max), max(r.Min, r.Max)
	return nil
}

// MarshalText writes both ends.
func (r SeverityRange) MarshalText() ([]byte, error) {
	return []byte(severities[r.Max] + ".." + severities[r.Min]), nil
}

// Address is where to listen or to send: a network (udp, tcp, unix, unixgram)
// and a host:port or the path of a socket.
type Address struct{ Network, Address string }

// networks are the schemes of addresses; laterNetworks are not supported yet.
var (
	networks      = []string{"udp", "tcp", "unix", "unixgram"}
	laterNetworks = []string{"tls", "relp"}
)

// UnmarshalText reads network://address. A path alone is unixgram.
func (a *Address) UnmarshalText(text []byte) error {
	in := string(text)
	network, address, ok := strings.Cut(in, "://")
	switch {
	case !ok && strings.Contains(in, "/"):
		network, address = "unixgram", in
	case !ok:
		return fmt.Errorf(`%q has no scheme: want udp://host:port, tcp://host:port, unix:///path, unixgram:///path`, in)
	case slices.Contains(laterNetworks, network):
		return fmt.Errorf("%q: %s is not supported yet", in, network)
	case !slices.Contains(networks, network):
		return fmt.Errorf("%q: scheme %w", in, notOneOf(network, networks))
	}
	*a = Address{network, address}
	if a.isPath() {
		if address == "" || strings.IndexByte(address, 0) >= 0 {
			return fmt.Errorf("%q has no path", in)
		}
		if address[0] == '@' {
			return fmt.Errorf("%q is an abstract socket, which is not supported: want a path", in)
		}
		return nil
	}
	if err := checkHostPort(address); err != nil {
		return fmt.Errorf("%q: %w", in, err)
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a Address) String() string { return a.Network + "://" + a.Address }

// isPath tells a unix socket from an internet one.
func (a Address) isPath() bool { return a.Network == "unix" || a.Network == "unixgram" }

// checkHostPort checks the form of host:port. The host may be empty; whether
// a name resolves is not asked.
func checkHostPort(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		var ae *net.AddrError
		if errors.As(err, &ae) {
			return errors.New(ae.Err)
		}
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is no number from 0 to 65535", port)
	}
	return nil
}

// scalar reads and writes one type of another package that a string in the
// config stands for.
type scalar struct {
	parse  func(string) (any, error)
	format func(any) string
}

// scalars by type. Types of our own are encoding.TextUnmarshalers instead.
var scalars = map[reflect.Type]scalar{
	reflect.TypeFor[time.Duration](): {
		func(s string) (any, error) {
			var d Duration
			err := d.UnmarshalText([]byte(s))
			return time.Duration(d), err
		},
		func(v any) string { return text(Duration(v.(time.Duration))) },
	},
	reflect.TypeFor[os.FileMode](): {
		func(s string) (any, error) {
			n, err := strconv.ParseUint(s, 8, 32)
			// Bits above have no use here, and os.FileMode has others for them.
			if err != nil || n > 0o777 {
				return nil, fmt.Errorf(`%q is no mode: want octal digits up to "0777"`, s)
			}
			return os.FileMode(n), nil
		},
		func(v any) string { return fmt.Sprintf("%04o", v) },
	},
	reflect.TypeFor[netip.Prefix](): {
		func(s string) (any, error) {
			// One address is a network of its own; a zone names no network.
			if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
				return netip.PrefixFrom(addr, addr.BitLen()), nil
			}
			p, err := netip.ParsePrefix(s)
			if err != nil {
				return nil, fmt.Errorf(`%q is no network: want an address, or one with a length as in "10.0.0.0/8"`, s)
			}
			return p.Masked(), nil
		},
		func(v any) string { return v.(netip.Prefix).String() },
	},
	reflect.TypeFor[*regexp.Regexp](): {
		func(s string) (any, error) {
			re, err := regexp.Compile(s)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", s, err)
			}
			return re, nil
		},
		func(v any) string { return v.(*regexp.Regexp).String() },
	},
	reflect.TypeFor[*time.Location](): {
		func(s string) (any, error) {
			loc, err := time.LoadLocation(s)
			if err != nil || s == "" { // which LoadLocation takes for UTC
				return nil, fmt.Errorf(`%q is no time zone: want "Local", "UTC" or a name such as "Europe/Berlin"`, s)
			}
			return loc, nil
		},
		func(v any) string { return v.(*time.Location).String() },
	},
	reflect.TypeFor[syscall.Signal](): {
		func(s string) (any, error) { return parseSignal(s) },
		func(v any) string { return strings.TrimPrefix(unix.SignalName(v.(syscall.Signal)), "SIG") },
	},
}

// text is a value of our own as the config shows it.
func text(v interface{ MarshalText() ([]byte, error) }) string {
	b, err := v.MarshalText()
	if err != nil {
		panic(err) // none of the config's types can fail here
	}
	return string(b)
}

// parseID is the number of a user, or of a group, given by name or number. A
// number need not be known to the system.
func parseID(s string, group bool) (int, error) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return int(n), nil
	}
	if group {
		g, err := user.LookupGroup(s)
		if err != nil {
			return -1, fmt.Errorf("no group %q on this system", s)
		}
		return strconv.Atoi(g.Gid)
	}
	u, err := user.Lookup(s)
	if err != nil {
		return -1, fmt.Errorf("no user %q on this system", s)
	}
	return strconv.Atoi(u.Uid)
}

// notOneOf is the error for a word that is none of those allowed, with the
// nearest of them if it looks like a slip.
func notOneOf(got string, allowed []string) error {
	if near := nearest(got, allowed); near != "" {
		return fmt.Errorf("%q is unknown: did you mean %q?", got, near)
	}
	return fmt.Errorf("%q is none of %s", got, strings.Join(allowed, ", "))
}

// nearest is the first word within two edits of got (one, for short ones), or "".
func nearest(got string, words []string) string {
	best, found := min(2, len(got)/3)+1, ""
	for _, w := range words {
		if n := distance(got, w); n < best {
			best, found = n, w
		}
	}
	return found
}

// distance is the number of single-byte edits between two words
// (Levenshtein's), or more than two if their lengths alone say so.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
