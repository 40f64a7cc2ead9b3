package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// How long leftovers are given after TERM, and how long then after KILL.
const (
	leftoverTerm = 5 * time.Second
	leftoverKill = 2 * time.Second
)

// record is the file that outlives us if we are killed: the process groups of
// our children. It belongs to one goroutine.
type record struct {
	path string
	recorded
}

// recorded is what is in the file.
type recorded struct {
	Boot    string    `json:"boot"`    // of the kernel: pids and times are of this boot
	Session int       `json:"session"` // ours, and so our children's
	Groups  []groupOf `json:"groups"`
}

// groupOf is one child's process group.
type groupOf struct {
	ID      int    `json:"pgid"`
	Started uint64 `json:"started"` // its leader, in ticks after the boot
	Program string `json:"program"`

	left bool // its leader has been reaped
}

func newRecord(path string) *record {
	session, _ := unix.Getsid(0) // 0 in a container whose session began outside, as /proc has it
	return &record{path: path, recorded: recorded{Boot: bootID(), Session: session}}
}

// bootID tells one boot of the machine from another; "" if unknown.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// add notes the group of a child that has just been started.
func (r *record) add(pid int, program string) {
	if s, ok := readStat(pid); ok { // it is not reaped yet
		r.Groups = append(r.Groups, groupOf{ID: pid, Started: s.started, Program: program})
	}
}

// ended notes that the leader of a group is gone. The group stays in the
// record for as long as it has other members. The file may say for longer that
// there is one: nobody will be found then.
func (r *record) ended(pid int) {
	kept := r.Groups[:0]
	for _, g := range r.Groups {
		g.left = g.left || g.ID == pid
		if !g.left || unix.Kill(-g.ID, 0) != unix.ESRCH {
			kept = append(kept, g)
		}
	}
	r.Groups = kept
}

// save puts a new file in the place of the old.
func (r *record) save() error {
	text, err := json.Marshal(&r.recorded)
	if err != nil {
		return err
	}
	fresh := r.path + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, r.path)
}

// remove ends the record: nothing is left to be found by the next start. What
// a program was allowed to leave behind stays so.
func (r *record) remove() { os.Remove(r.path) }

// endLeftovers ends the groups that are in the record of a daemon which was
// killed: TERM, and KILL for what does not go. Two copies of a program must
// not run side by side.
func endLeftovers(path string, log zerolog.Logger) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var old recorded
	if err == nil {
		err = json.Unmarshal(text, &old)
	}
	if err != nil {
		log.Warn().Err(fmt.Errorf("%s: %w", path, err)).Msg("the record of process groups cannot be read: programs of a killed daemon may still run")
		return
	}
	var left []groupOf
	for _, g := range old.Groups {
		if len(old.members(g)) > 0 {
			log.Warn().Str("program", g.Program).Int("group", g.ID).Msg("ending what a killed daemon has left behind")
			left = append(left, g)
		}
	}
	left = old.end(left, unix.SIGTERM, leftoverTerm)
	left = old.end(left, unix.SIGKILL, leftoverKill)
	for _, g := range left {
		log.Error().Str("program", g.Program).Int("group", g.ID).Msg("what a killed daemon has left behind cannot be ended")
	}
}

// members are the processes that are left of a group. A number that now
// belongs to others is recognised: a leader has the time of its start, and the
// processes of a group without one (whose number no new process gets while it
// lasts) are of the session of the daemon and younger than the leader.
func (r *recorded) members(g groupOf) []stat {
	if r.Boot != bootID() || g.ID <= 1 {
		return nil
	}
	all, _ := groupMembers(g.ID)
	for _, s := range all {
		if s.pid == g.ID && s.started != g.Started || s.session != r.Session || s.started < g.Started {
			return nil
		}
	}
	return all
}

// end sends a signal to groups, waits, and returns those that are still there.
func (r *recorded) end(groups []groupOf, sig unix.Signal, wait time.Duration) (left []groupOf) {
	for _, g := range groups {
		unix.Kill(-g.ID, sig) // fails if it has just ended
	}
	for deadline := time.Now().Add(wait); len(groups) > 0; time.Sleep(groupPoll) {
		left = nil
		for _, g := range groups {
			if len(r.members(g)) > 0 {
				left = append(left, g)
			}
		}
		if groups = left; time.Now().After(deadline) {
			return left
		}
	}
	return nil
}
