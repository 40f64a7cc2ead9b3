// Package meter starts the programs of the benchmark, and says what they and
// their children cost.
package meter

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Usage is what processes have used since they began.
type Usage struct {
	CPU    time.Duration // user and system
	Writes int64         // write(2) and its kin, on anything but sockets
}

// Sub is the usage between an earlier reading and u.
func (u Usage) Sub(earlier Usage) Usage {
	return Usage{u.CPU - earlier.CPU, u.Writes - earlier.Writes}
}

// Of is the usage of a process, of its children and of theirs, so far. A
// process that is gone counts as far as its parent has waited for it.
func Of(pid int) Usage {
	var sum Usage
	for _, pid := range tree(pid) {
		sum.CPU += ownCPU(pid) + reapedCPU(pid)
		sum.Writes += writes(pid)
	}
	return sum
}

// tree is a process and all that descend from it.
func tree(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", all[i]))
		for _, task := range tasks {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", all[i], task.Name()))
			for field := range strings.FieldsSeq(string(text)) {
				if child, err := strconv.Atoi(field); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	return all
}

// ownCPU is what all threads of a process have used: its CPU clock, which is
// what utime and stime of proc(5) are rounded from.
func ownCPU(pid int) time.Duration {
	const schedClock = 2 // see clock_getcpuclockid(3)
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|schedClock), &t) != nil {
		return 0 // gone
	}
	return time.Duration(t.Nano())
}

// reapedCPU is what children that a process has waited for have used.
func reapedCPU(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	ticks, _ := reapedTicks(text)
	return time.Duration(ticks) * (time.Second / 100) // USER_HZ is 100 wherever Go runs
}

// reapedTicks is cutime and cstime of a process's stat file, proc(5).
func reapedTicks(stat []byte) (int64, error) {
	// The name, in parentheses, may hold anything.
	_, rest, _ := cutLast(stat, []byte(") "))
	fields := strings.Fields(string(rest))
	if len(fields) < 15 {
		return 0, fmt.Errorf("stat has %d fields after the name", len(fields))
	}
	user, err := strconv.ParseInt(fields[13], 10, 64) // the fields count from 3
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[14], 10, 64)
	return user + system, err
}

func cutLast(s, separator []byte) (before, after []byte, found bool) {
	if i := bytes.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, nil, false
}

// writes is the number of write system calls of a process.
func writes(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	return field(string(text), "syscw:")
}

// field is the number that follows a name in a text of lines; 0 if none does.
func field(text, name string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}
