package meter

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReapedTicks(t *testing.T) {
	const tail = " S 1 2 3 0 -1 4194560 10 20 30 40 101 102 7 8 20 0 1 0 55 0 0"
	for name, test := range map[string]struct {
		stat string
		want int64
		ok   bool
	}{
		"plain":                     {"12 (cat)" + tail, 15, true},
		"a name that looks like it": {"12 (a) R 9 (b) )" + tail, 15, true},
		"cut off":                   {"12 (cat) S 1 2 3", 0, false},
		"empty":                     {"", 0, false},
		"no number":                 {"12 (cat) S 1 2 3 0 -1 4194560 10 20 30 40 101 102 x 8 20", 0, false},
	} {
		got, err := reapedTicks([]byte(test.stat))
		if (err == nil) != test.ok || err == nil && got != test.want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, test.want)
		}
	}
}

func TestField(t *testing.T) {
	const io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 44\nread_bytes: 5\n"
	if got := field(io, "syscw:"); got != 44 {
		t.Errorf("syscw is %d, want 44", got)
	}
	if got := field(io, "none:"); got != 0 {
		t.Errorf("a field that is not there is %d", got)
	}
}

func TestUDPQueue(t *testing.T) {
	const table = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  391: 0100007F:1414 00000000:0000 07 00000000:00000500 00:00000000 00000000     0        0 1 2 0 0
  392: 00000000:1414 00000000:0000 07 00000000:00000001 00:00000000 00000000     0        0 1 2 0 0
  393: 0100007F:1415 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
`
	for port, want := range map[int]struct {
		bytes int64
		bound bool
	}{0x1414: {0x501, true}, 0x1415: {0, true}, 0x1416: {0, false}} {
		if bytes, bound := udpQueue(table, port); bytes != want.bytes || bound != want.bound {
			t.Errorf("port %#x: %d, %v; want %+v", port, bytes, bound, want)
		}
	}
}

// start starts a shell that runs a script.
func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(exec.Command("sh", "-c", script), filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	return p
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestUsageOfATree(t *testing.T) {
	for name, script := range map[string]string{
		"itself":              "while :; do :; done",
		"a child":             "(while :; do :; done) & wait",
		"a child of a child":  "(sh -c 'while :; do :; done' & wait) & wait",
		"children waited for": "while :; do (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); done",
	} {
		p := start(t, script)
		before := Of(p.Pid())
		eventually(t, "CPU of "+name, func() bool { return Of(p.Pid()).Sub(before).CPU > 100*time.Millisecond })
		if err := p.Stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUsageCountsWrites(t *testing.T) {
	p := start(t, "for i in 1 2 3 4 5 6 7; do echo $i; done > /dev/null; exec sleep 1000")
	eventually(t, "seven writes", func() bool { return Of(p.Pid()).Writes >= 7 })
	if got := Of(p.Pid()).Writes; got != 7 {
		t.Errorf("%d writes, want 7", got)
	}
}

func TestUsageOfNobody(t *testing.T) {
	p := start(t, "exit 0")
	if err := p.Wait(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := Of(p.Pid()); got != (Usage{}) {
		t.Errorf("a process that is gone uses %+v", got)
	}
}

// alive says whether any process of a group is.
func alive(group int) bool { return syscall.Kill(-group, 0) == nil }
