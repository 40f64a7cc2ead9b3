package meter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// stopTime is how long a program may take to write what it holds.
const stopTime = 20 * time.Second

// A Process is a program that was started, at the head of a process group of
// its own.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended; guards err
	err  error
}

// Start starts a command. Its standard error, unless set, goes to the file
// log, which errors then quote. The process must be stopped or waited for.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	if cmd.Stderr == nil {
		file, err := os.Create(log)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		cmd.Stderr = file
		if cmd.Stdout == nil {
			cmd.Stdout = file
		}
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // if we are killed ourselves
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		if p.err != nil {
			p.err = fmt.Errorf("%s: %w%s", cmd.Args[0], p.err, tail(log))
		}
		close(p.done)
	}()
	return p, nil
}

// tail is the end of a log for an error's text.
func tail(log string) string {
	text, _ := os.ReadFile(log)
	if len(text) == 0 {
		return ""
	}
	return ":\n" + string(text[max(0, len(text)-600):])
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended is closed once the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Wait waits for the process to end by itself, and fails if that takes longer
// than limit.
func (p *Process) Wait(limit time.Duration) error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(limit):
		kill(groups(p.Pid()))
		<-p.done
		return fmt.Errorf("%s did not end within %v", p.cmd.Args[0], limit)
	}
}

// Stop has the process end by SIGTERM and waits for it; what it leaves behind
// is killed. To stop it again does nothing.
func (p *Process) Stop() error {
	select {
	case <-p.done:
	default:
		// A supervisor's children have groups of their own, which nobody
		// finds any more once it is gone.
		left := groups(p.Pid())
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
			kill(left)
		case <-time.After(stopTime):
			kill(left)
			<-p.done
			return fmt.Errorf("%s did not stop within %v", p.cmd.Args[0], stopTime)
		}
	}
	if ended(p.err, syscall.SIGTERM) {
		return nil // it has no handler, or passes on the end of a child that has none
	}
	return p.err
}

// ended says whether err is that of a process that ended by a signal, or
// says so by its exit status as a shell would.
func ended(err error, by syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status := exit.Sys().(syscall.WaitStatus)
	return status.Signal() == by || status.ExitStatus() == 128+int(by)
}

// groups are the process groups of a process and of all that descend from it.
func groups(pid int) map[int]bool {
	all := make(map[int]bool)
	for _, pid := range tree(pid) {
		if group, err := syscall.Getpgid(pid); err == nil && group != syscall.Getpgrp() {
			all[group] = true
		}
	}
	return all
}

// kill ends all processes of groups at once.
func kill(groups map[int]bool) {
	for group := range groups {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

// CPU is what the process and the children that it waited for have used,
// once it has ended.
func (p *Process) CPU() time.Duration {
	<-p.done
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}
