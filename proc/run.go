package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxOutput is how much of a command's output is kept, in bytes.
const maxOutput = 64 << 10

// Command runs a command as the program is run, with its directory, user and
// environment, and returns the beginning of what it wrote, up to 64 KiB of
// both streams. If ctx ends before the command, its whole group is killed.
func (p *Program) Command(ctx context.Context, words []string) ([]byte, error) {
	cmd, err := p.command(words)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	err = p.cfg.Family.start(cmd, &p.cfg)
	w.Close()
	if err != nil {
		return nil, err
	}
	output := make(chan []byte)
	go func() { // ends with the pipe, or at its deadline
		kept, _ := io.ReadAll(io.LimitReader(r, maxOutput))
		io.Copy(io.Discard, r) // a full pipe would hang the command
		output <- kept
	}()
	killer := context.AfterFunc(ctx, func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	err = cmd.Wait()
	if !killer() {
		err = errors.Join(ctx.Err(), err)
	}
	p.cfg.Family.reaped(cmd.Process.Pid)
	r.SetReadDeadline(time.Now().Add(drainGrace)) // what it left behind may hold the pipe
	return <-output, err
}
