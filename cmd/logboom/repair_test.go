package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRepairCommand(t *testing.T) {
	list := spansOf(t, span{0, 9, 0}, span{10, 20, 0}, span{21, 30, 0})
	join := func(parts ...[]byte) (s string) {
		for _, p := range parts {
			s += string(p)
		}
		return s
	}
	inside := []byte(string(list[1]))
	inside[72] ^= 0x40 // of the deflate stream: its header still leads over it
	for _, c := range []struct {
		name, data, left, torn, said string
		code                         int
	}{
		{"whole", join(list...), join(list...), "", "%[1]s: whole\n", 0},
		{"torn", join(list[0], list[1][:60]), join(list[0]), string(list[1][:60]), "%[1]s: cut 60 bytes in 1 piece, kept in %[1]s.torn\n", 0},
		{"middle", join(list[0], []byte("x"), list[1], []byte("yz"), list[2]), join(list...), "xyz", "%[1]s: cut 3 bytes in 2 pieces, kept in %[1]s.torn\n", 0},
		{"inside", join(list[0], inside, list[2]), join(list[0], list[2]), string(inside), fmt.Sprintf("%%[1]s: cut %d bytes in 1 piece, kept in %%[1]s.torn\n", len(inside)), 0},
		{"plain", "a\nb\n", "a\nb\n", "", "left as it is", 1},
		{"garbage", "\x00\x01\x02", "\x00\x01\x02", "", "left as it is", 1},
	} {
		name := write(t, c.name, c.data)
		code, stdout, stderr := command("repair", name)
		left, err := os.ReadFile(name)
		torn, _ := os.ReadFile(name + ".torn")
		said := c.said
		if code == 0 {
			said = fmt.Sprintf(c.said, name)
		}
		if err != nil || code != c.code || string(left) != c.left || string(torn) != c.torn || !strings.Contains(stdout+stderr, said) {
			t.Errorf("%s: exit %d, %q, %q; %d bytes left, %q torn", c.name, code, stdout, stderr, len(left), torn)
		}
		if code == 0 {
			if code, stdout, _ := command("verify", name); code != 0 {
				t.Errorf("%s: %s", c.name, stdout)
			}
		}
	}
}

// A file that a writer holds is left alone; a link stays a link.
func TestRepairLocks(t *testing.T) {
	list := spansOf(t, span{0, 9, 0}, span{10, 20, 0})
	name := file(t, "x", list[0], []byte("garbage"), list[1])
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command("repair", link); code != exitFailed || !strings.Contains(stderr, "another writer has it") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	f.Close()
	if code, stdout, stderr := command("repair", link); code != 0 || !strings.Contains(stdout, name+".torn") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if to, err := os.Readlink(link); err != nil || to != name {
		t.Errorf("%q, %v", to, err)
	}
	if left := readFile(t, name); len(left) != len(list[0])+len(list[1]) {
		t.Errorf("%d bytes left", len(left))
	}
}
