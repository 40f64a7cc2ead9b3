package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// stat is what the kernel says of a process in /proc/PID/stat.
type stat struct {
	pid, group, session int
	dead                bool   // a zombie, which is gone for all but its parent
	started             uint64 // clock ticks after the boot
}

// readStat reads the line of one process. ok is false if there is none.
func readStat(pid int) (s stat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return s, false
	}
	// PID (COMM) STATE PPID PGRP SESSION ... and STARTTIME as the 22nd: the
	// name may hold anything (proc_pid_stat(5)).
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return s, false
	}
	s = stat{pid: pid, dead: fields[0] == "Z" || fields[0] == "X"}
	s.group, _ = strconv.Atoi(fields[2])
	s.session, _ = strconv.Atoi(fields[3])
	s.started, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err == nil
}

// groupMembers lists the live processes of a group. known is false without a
// /proc to read.
func groupMembers(group int) (members []stat, known bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		known = true
		if s, ok := readStat(pid); ok && s.group == group && !s.dead {
			members = append(members, s)
		}
	}
	return members, known
}
