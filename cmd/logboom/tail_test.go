package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestTailCommand(t *testing.T) {
	list := spansOf(t, span{0, 9, 0}, span{10, 20, 0})
	whole, torn := file(t, "whole", list...), file(t, "torn", list[0], list[1][:60])
	for _, c := range []struct {
		args           []string
		stdout, stderr string
		code           int
	}{
		{[]string{whole}, "0 a\n0 b\n1 a\n1 b\n", "", 0},
		{[]string{"-n", "3", whole}, "0 b\n1 a\n1 b\n", "", 0},
		{[]string{"-n0", whole}, "", "", 0},
		{[]string{"-n1", torn}, "0 b\n", "60 bytes lost at offset " + fmt.Sprint(len(list[0])), 1},
		{[]string{"-n", "-1", whole}, "", "invalid argument", 2},
		{[]string{whole, torn}, "", "accepts 1 arg", 2},
		{[]string{t.TempDir()}, "", "not a regular file", 1},
		{[]string{whole + ".none"}, "", "no such file", 1},
	} {
		code, stdout, stderr := command(append([]string{"tail"}, c.args...)...)
		if code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
}

// tail -f of the binary gives out members as they come, and ends when nobody
// reads any more, though nothing happens in the file.
func TestTailFollowsUntilHangup(t *testing.T) {
	list := spansOf(t, span{0, 9, 0}, span{10, 20, 0})
	name := file(t, "x.gz", list[0])
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(logboom(t), "tail", "-n1", "-f", name)
	cmd.Stdout = w
	p := spawn(t, cmd)
	w.Close()
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	expect("0 b\n")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(list[1]); err != nil {
		t.Fatal(err)
	}
	expect("1 a\n1 b\n")
	r.Close()
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		t.Fatal("still there")
	}
}
