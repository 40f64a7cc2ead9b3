package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// said are the words of out.log without those of the programs' ends.
func (d *instance) said(n int) string {
	d.t.Helper()
	return strings.Join(d.lines("out.log", n), " ")
}

// ordered is a program that speaks when it starts and when it is stopped, and
// between the two once the test lets it.
func ordered(name, more string) string {
	return `
[program.` + name + `]
command = ["sh", "-c", '''trap 'echo ` + name + `-ends; exit 0' TERM; echo ` + name + `-starts
while [ ! -e go-` + name + ` ]; do sleep 0.01; done; echo ` + name + `-serves
while :; do sleep 0.01; done''']
directory = "%(here)s"
startsecs = 0
sinks = ["out"]
` + more + "\n"
}

// A program starts when what it depends on is ready, whatever the priorities
// say, also one that a reload adds; and it stops before it.
func TestProgramDependsOn(t *testing.T) {
	database := ordered("db", "priority = 5\nready = { line = '^db-serves$' }")
	app := ordered("app", "priority = 1\ndepends_on = ['db']")
	d := startDaemon(t, prelude+database+app+plainSink)
	d.await("waits for what it depends on", 10*time.Second)
	d.lines("out.log", 1)
	if db, app := d.state("db"), d.state("app"); db != "STARTING" || app != "STOPPED" {
		t.Errorf("db is %s, app %s", db, app)
	}
	touch(t, d.path("go-db"))
	d.reaches("app", "RUNNING")
	if got := d.said(3); got != "db-starts db-serves app-starts" {
		t.Errorf("%s", got)
	}

	// Two more: one that is to be ready first, and who depends on it and app.
	more := ordered("web", "priority = 1\ndepends_on = ['cache', 'app']") + ordered("cache", "ready = { line = '^cache-serves$' }")
	configure(t, d.dir, prelude+database+app+more+plainSink)
	if code, _, stderr := d.ctl("reload"); code != 0 {
		t.Fatal(stderr)
	}
	d.lines("out.log", 4)
	if state := d.state("web"); state != "STOPPED" {
		t.Errorf("web is %s before its cache is ready", state)
	}
	touch(t, d.path("go-cache"))
	d.reaches("web", "RUNNING")
	if got := d.said(6); got != "db-starts db-serves app-starts cache-starts cache-serves web-starts" {
		t.Errorf("%s", got)
	}

	d.stop()
	ends := d.lines("out.log", 10)[6:]
	at := func(name string) int { return slices.Index(ends, name+"-ends") }
	if at("web") < 0 || at("web") > at("app") || at("web") > at("cache") || at("app") > at("db") {
		t.Errorf("they ended in this order: %v", ends)
	}
}

// A daemon is told to stop while a program waits for what is never ready.
func TestStopWhileWaiting(t *testing.T) {
	d := startDaemon(t, prelude+ordered("db", "ready = { tcp = '127.0.0.1:1' }")+ordered("app", "depends_on = ['db']")+plainSink)
	d.await("waits for what it depends on", 10*time.Second)
	// An operator may start it all the same.
	if code, _, stderr := d.ctl("start", "app"); code != 0 {
		t.Error(stderr)
	}
	d.reaches("app", "RUNNING")
	d.signal(unix.SIGTERM)
	d.stopped(0)
}

// A daemon that is told to stop while a reload waits for a program to stop does
// not start it again, though it has not come to stopping it itself.
func TestStopWhileReloading(t *testing.T) {
	program := func(name string, priority int, words string) string {
		return fill(`
[program.NAME]
command = ["sh", "-c", "trap 'while [ ! -e go-NAME ]; do sleep 0.01; done; exit 0' TERM; echo WORDS; while :; do sleep 0.01; done"]
directory = "%(here)s"
priority = PRIORITY
startsecs = 0
sinks = ["out"]
`, "NAME", name, "PRIORITY", priority, "WORDS", words)
	}
	d := startDaemon(t, prelude+program("last", 2, "one")+program("first", 1, "one")+plainSink)
	d.lines("out.log", 2)
	configure(t, d.dir, prelude+program("last", 2, "one")+program("first", 1, "two")+plainSink)
	if code, _, stderr := d.ctl("reload"); code != 0 {
		t.Fatal(stderr)
	}
	d.signal(unix.SIGTERM)
	d.await("stopping", 10*time.Second)
	touch(t, d.path("go-first"))
	d.awaitEntry("stopped", "first")
	touch(t, d.path("go-last"))
	wantSums(t, d.stopped(0), 2)
	if n := len(d.entries("started")); n != 3 { // the programs, and the daemon
		t.Errorf("started %d times", n)
	}
}

// awaitEntry waits for a line of the own log about a program.
func (d *instance) awaitEntry(message, program string) {
	d.t.Helper()
	eventually(d.t, 20*time.Second, program+" "+message, func() bool {
		return slices.ContainsFunc(d.entries(message), func(e entry) bool { return e["program"] == program })
	})
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A reload stops what is gone or changed in the reverse order of starts, and
// starts what is changed or new in their order: what is new not before what is
// gone has stopped, since it may be the same by another name.
func TestReloadOrder(t *testing.T) {
	program := func(name string, priority int, change, more string) string {
		// Its end takes a while, so that others would overtake it.
		return fill(`
[program.NAME]
command = ["sh", "-c", 'trap "sleep 0.2; echo NAME-ends; exit 0" TERM; echo NAME-starts; CHANGE; while :; do sleep 0.01; done']
priority = PRIORITY
startsecs = 0
sinks = ["out"]
`, "NAME", name, "CHANGE", change, "PRIORITY", priority) + more + "\n"
	}
	d := startDaemon(t, prelude+program("first", 1, ":", "")+program("stays", 2, ":", "")+program("web", 3, ":", "depends_on = ['stays']")+
		program("late", 3, ":", "depends_on = ['web']")+program("last", 999, ":", "")+plainSink)
	d.lines("out.log", 5)
	stays := d.status().Programs["stays"].PID

	// What depends on first starts when first says so, and not before.
	configure(t, d.dir, prelude+program("first", 1, "sleep 0.2; echo first-serves", "ready = { line = 'first-serves' }")+
		program("stays", 2, ":", "")+program("web", 3, "true", "depends_on = ['stays', 'first']")+
		program("new", 0, ":", "")+plainSink)
	if code, _, stderr := d.ctl("reload"); code != 0 {
		t.Fatal(stderr)
	}
	d.reaches("web", "RUNNING")
	said := d.lines("out.log", 13)[5:]
	for _, order := range [][]string{
		{"last-ends", "late-ends", "web-ends", "first-ends", "first-starts", "first-serves", "web-starts"},
		{"late-ends", "new-starts"}, // late is what is left of the removed ones
	} {
		at := -1
		for _, word := range order {
			next := slices.Index(said, word)
			if next <= at {
				t.Errorf("%s: not in the order of %v: %v", word, order, said)
			}
			at = next
		}
	}
	if programs := d.status().Programs; programs["stays"].PID != stays || len(programs) != 4 {
		t.Errorf("%+v", programs)
	}
	d.stop()
}
