package sink

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Target is one address that a syslog sink can send to.
type Target struct {
	Network string // udp, tcp or unixgram
	Address string // host:port, or the path of a socket
}

// syslogPort is the port of syslog over UDP (RFC 5426 section 3.3), and by
// custom over TCP.
const syslogPort = "514"

// maxSocketPath bounds the path of a unix socket, in bytes (unix(7)).
const maxSocketPath = 107

// ParseTarget parses "udp://host:port", "tcp://host:port", where ":port" may
// be missing, "unixgram:///path" or "/path".
func ParseTarget(s string) (Target, error) {
	network, address, ok := strings.Cut(s, "://")
	if !ok {
		network, address = "unixgram", s
	}
	var err error
	switch network {
	case "udp", "tcp":
		address, err = parseHostPort(address)
	case "unixgram":
		err = checkSocketPath(address)
	case "tls", "relp":
		err = fmt.Errorf("%s:// is not supported yet", network)
	default:
		err = fmt.Errorf("%q is none of udp, tcp, unixgram", network)
	}
	if err != nil {
		return Target{}, fmt.Errorf("target %q: %w", s, err)
	}
	return Target{network, address}, nil
}

func parseHostPort(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		// Without a port, or not well-formed with one either.
		if host, port, err = net.SplitHostPort(s + ":" + syslogPort); err != nil {
			return "", fmt.Errorf("want host or host:port, with [] around an IPv6 address")
		}
	}
	if host == "" || strings.ContainsAny(host, "/?#@ ") {
		return "", fmt.Errorf("%q is no host", host)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port %q is not between 1 and 65535", port)
	}
	return net.JoinHostPort(host, port), nil
}

func checkSocketPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("want udp://, tcp://, unixgram:// or an absolute path")
	case len(path) > maxSocketPath:
		return fmt.Errorf("a socket's path has at most %d bytes", maxSocketPath)
	case strings.IndexByte(path, 0) >= 0:
		return fmt.Errorf("a path cannot hold a NUL byte")
	}
	return nil
}

// String is the target as a config writes it.
func (t Target) String() string { return t.Network + "://" + t.Address }

// isStream reports whether records need a framing on the way to the target.
func (t Target) isStream() bool { return t.Network == "tcp" }
