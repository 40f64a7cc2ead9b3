package proc

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mayBecome says why a child of ours cannot run as a user. A change of user
// needs CAP_SETUID, one of groups CAP_SETGID (capabilities(7)).
func mayBecome(who *syscall.Credential) error {
	if who == nil || os.Geteuid() == 0 {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	const need = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	if caps[0].Effective&need != need {
		return fmt.Errorf("user %d: not permitted, since the daemon runs as user %d", who.Uid, os.Geteuid())
	}
	return nil
}
