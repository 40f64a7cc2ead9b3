package sink

import (
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for _, test := range []struct{ in, want, err string }{
		{"tcp://logs1.example:6514", "tcp://logs1.example:6514", ""},
		{"tcp://logs1.example", "tcp://logs1.example:514", ""},
		{"udp://[::1]:5140", "udp://[::1]:5140", ""},
		{"udp://[::1]", "udp://[::1]:514", ""},
		{"udp://[fe80::1%eth0]", "udp://[fe80::1%eth0]:514", ""},
		{"udp://192.0.2.1", "udp://192.0.2.1:514", ""},
		{"unixgram:///run/log", "unixgram:///run/log", ""},
		{"/dev/log", "unixgram:///dev/log", ""},

		{"", "", "absolute path"},
		{"logs1.example:514", "", "absolute path"},
		{"unixgram://run/log", "", "absolute path"},
		{"/" + strings.Repeat("x", 107), "", "at most 107 bytes"},
		{"/a\x00b", "", "NUL"},
		{"udp://::1", "", "[] around"},
		{"udp://[::1", "", "[] around"},
		{"tcp://", "", "no host"},
		{"tcp://:514", "", "no host"},
		{"tcp://host/path", "", "no host"},
		{"tcp://host:0", "", `port "0"`},
		{"tcp://host:65536", "", `port "65536"`},
		{"tcp://host:syslog", "", `port "syslog"`},
		{"tls://host:6514", "", "not supported yet"},
		{"relp://host", "", "not supported yet"},
		{"http://host", "", "none of udp, tcp, unixgram"},
	} {
		got, err := ParseTarget(test.in)
		if test.err != "" {
			quoted := strings.Contains(strings.ReplaceAll(errorText(err), "\\x00", "\x00"), `"`+test.in+`"`)
			if !strings.Contains(errorText(err), test.err) || !quoted {
				t.Errorf("%q: error %v, want the value quoted and %q", test.in, err, test.err)
			}
			continue
		}
		if err != nil || got.String() != test.want {
			t.Errorf("%q: %q, %v, want %q", test.in, got, err, test.want)
		}
		if again, err := ParseTarget(got.String()); err != nil || again != got {
			t.Errorf("%q: is %q, %v when parsed again", test.in, again, err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
