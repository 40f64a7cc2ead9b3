package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limit is one resource limit of a child (setrlimit(2)).
type Limit struct {
	Name       string // for errors
	Resource   int    // unix.RLIMIT_NOFILE and so on
	Soft, Hard uint64 // in the resource's unit; unix.RLIM_INFINITY: none
}

// held reports whether a child is held back before its first instruction, to
// be given its limits and its nice value.
//
// Limits belong to a process, not to a thread: set on ours around the fork, as
// the umask is, they would be those of the whole daemon, and a hard one that
// was lowered could not be raised again. Set by pid after the fork they would
// come while the program runs. So the child asks to be traced: the kernel then
// stops it at the end of execve(2) (ptrace(2), PTRACE_TRACEME), and it is let
// go once all is set.
func (cfg *Config) held() bool { return cfg.Nice != 0 || len(cfg.Limits) > 0 }

// release sets what a held child is to have and lets it go. It must be called
// on the thread that forked it. After an error the child has been killed and
// is to be waited for; it has not run.
func release(cmd *exec.Cmd, cfg *Config) error {
	pid := cmd.Process.Pid
	err := awaitStop(pid)
	if err == nil {
		err = limit(pid, cfg)
	}
	if err == nil {
		err = os.NewSyscallError("ptrace", unix.PtraceDetach(pid))
	}
	if err != nil {
		cmd.Process.Kill() // fails if it has gone, as then the error says
	}
	return err
}

// awaitStop waits until a child has stopped at its exec. A status that tells
// of its end stays for the one who waits for that.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// limit sets a stopped child's limits and nice value: with our privileges, or
// else with the child's own. Those of another user need CAP_SYS_RESOURCE and
// CAP_SYS_NICE, which root has not in most containers; but lower limits, and
// a higher nice value, anybody may give to his own process.
func limit(pid int, cfg *Config) error {
	err := set(pid, cfg)
	if errors.Is(err, unix.EPERM) && cfg.User != nil {
		err = as(cfg.User, func() error { return set(pid, cfg) })
	}
	return err
}

func set(pid int, cfg *Config) error {
	for _, l := range cfg.Limits {
		if err := unix.Prlimit(pid, l.Resource, &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil); err != nil {
			return fmt.Errorf("rlimits.%s: %w", l.Name, err)
		}
	}
	if cfg.Nice == 0 {
		return nil
	}
	// It inherited ours, which the system call returns as 20 less the nice
	// value (getpriority(2), notes).
	inverse, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, pid, 20-inverse+cfg.Nice)
	}
	if err != nil {
		return fmt.Errorf("nice %d: %w", cfg.Nice, err)
	}
	return nil
}

// as calls f while this thread, and no other, has the real and effective ids
// of a user; the saved ones lead back.
func as(who *syscall.Credential, f func() error) (err error) {
	const same = ^uintptr(0)
	ruid, euid, rgid, egid := os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid()
	// Not those of package syscall, which change every thread.
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(who.Gid), uintptr(who.Gid), same); e != 0 {
		return os.NewSyscallError("setresgid", e)
	}
	_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(who.Uid), uintptr(who.Uid), same)
	if e != 0 {
		err = os.NewSyscallError("setresuid", e)
	} else {
		err = f()
	}
	unix.RawSyscall(unix.SYS_SETRESUID, uintptr(ruid), uintptr(euid), same) // both are allowed: the saved ids are these
	unix.RawSyscall(unix.SYS_SETRESGID, uintptr(rgid), uintptr(egid), same)
	return err
}
