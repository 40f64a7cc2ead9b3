package meter

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStopEndsTheWholeGroup(t *testing.T) {
	p := start(t, "sleep 1000 & sleep 1000 & wait")
	eventually(t, "three processes", func() bool { return len(tree(p.Pid())) == 3 })
	if err := p.Stop(); err != nil {
		t.Errorf("an end by SIGTERM is no failure, but: %v", err)
	}
	eventually(t, "the group is gone", func() bool { return !alive(p.Pid()) })
	if err := p.Stop(); err != nil {
		t.Errorf("stopped again: %v", err)
	}
}

func TestStopEndsGroupsOfChildren(t *testing.T) {
	// As a supervisor does.
	p := start(t, "setsid sleep 1000 & trap 'exit 0' TERM; wait")
	eventually(t, "two groups", func() bool { return len(groups(p.Pid())) == 2 })
	all := groups(p.Pid())
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "both are gone", func() bool {
		for group := range all {
			if alive(group) {
				return false
			}
		}
		return true
	})
}

func TestStopWaitsForAHandler(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	for status, ok := range map[string]bool{"0": true, "143": true, "3": false} {
		p := start(t, "trap 'exit "+status+"' TERM; echo > "+ready+status+"; while :; do sleep 0.01; done")
		eventually(t, "the handler", func() bool {
			names, _ := filepath.Glob(ready + status)
			return len(names) == 1
		})
		if err := p.Stop(); (err == nil) != ok {
			t.Errorf("exit status %s: %v", status, err)
		}
	}
}

func TestErrorsQuoteTheLog(t *testing.T) {
	p := start(t, "echo what is wrong >&2; exit 1")
	if err := p.Wait(10 * time.Second); err == nil || !strings.Contains(err.Error(), "what is wrong") {
		t.Errorf("error %v does not say what is wrong", err)
	}
}

func TestWaitHasALimit(t *testing.T) {
	p := start(t, "trap '' TERM; sleep 1000 & wait")
	begun := time.Now()
	if err := p.Wait(50 * time.Millisecond); err == nil {
		t.Error("no error after the limit")
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	eventually(t, "the group is gone", func() bool { return !alive(p.Pid()) })
}

func TestCPUOfAnEndedProcess(t *testing.T) {
	p := start(t, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; (i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done)")
	if err := p.Wait(time.Minute); err != nil {
		t.Fatal(err)
	}
	if p.CPU() < 20*time.Millisecond {
		t.Errorf("400,000 turns of a shell took %v", p.CPU())
	}
}

func TestStartFails(t *testing.T) {
	if _, err := Start(exec.Command("/nowhere/program"), filepath.Join(t.TempDir(), "log")); err == nil {
		t.Error("a program that is not there was started")
	}
}
