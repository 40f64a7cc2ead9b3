package main

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"logboom/bench/load"
)

//go:embed floor.c
var floorSource []byte

// A floor is a program that takes datagrams and writes a gzip file and does
// nothing else: what is left below it cannot be saved.
type floor struct {
	name    string
	command []string // followed by network, address and file
}

// discardName is the floor that throws away what it gets.
const discardName = "floor: C, discards"

// buildFloors makes the floors: in C with zlib and with isa-l, as far as there
// are a compiler and libraries; in Go if there are not. The first is the one
// that others are compared with.
func buildFloors(ctx context.Context, dir, self string) []floor {
	source := filepath.Join(dir, "floor.c")
	if err := os.WriteFile(source, floorSource, 0o644); err != nil {
		return []floor{{"floor: Go", []string{self, floorCommand}}}
	}
	var floors []floor
	for _, variant := range []struct {
		name string
		args []string
	}{
		{"floor: C, zlib", []string{"-lz"}},
		{"floor: C, isa-l", []string{"-DISAL", "-lisal"}},
	} {
		program := filepath.Join(dir, fmt.Sprintf("floor-%d", len(floors)))
		if compile(ctx, source, program, variant.args...) {
			floors = append(floors, floor{variant.name, []string{program}})
		} else if len(floors) == 0 {
			floors = append(floors, floor{"floor: Go", []string{self, floorCommand}})
		}
	}
	return floors
}

// buildDiscard makes the floor that discards; without a compiler there is none.
func buildDiscard(ctx context.Context, dir string) []receiver {
	program := filepath.Join(dir, "floor-discard")
	if !compile(ctx, filepath.Join(dir, "floor.c"), program, "-DDISCARD", "-lz") {
		return nil
	}
	r := floor{discardName, []string{program}}.receiver()
	r.output = ""
	return []receiver{r}
}

func compile(ctx context.Context, source, program string, args ...string) bool {
	args = append([]string{"-O2", "-o", program, source}, args...)
	return exec.CommandContext(ctx, "cc", args...).Run() == nil
}

// command is the floor on an address, writing to file.
func (f floor) start(ctx context.Context, at address, file string) *exec.Cmd {
	where := at.path
	if at.network == "udp" {
		where = fmt.Sprint(at.port)
	}
	args := append(f.command[1:len(f.command):len(f.command)], at.network, where, file)
	return exec.CommandContext(ctx, f.command[0], args...)
}

// floorCommand, as the first argument, makes this program the floor in Go.
const floorCommand = "floor"

// goFloor is floor.c in Go, with the standard library's gzip. Its arguments
// are network, port or path, and file.
func goFloor(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: bench %s udp PORT | unixgram PATH   FILE", floorCommand)
	}
	const slots, slot, member, pause, receive = 1024, 2048, 64 << 10, 2 * time.Millisecond, 4 << 20
	at := arguments[1]
	if arguments[0] == "udp" {
		at = "127.0.0.1:" + at
	}
	fd, err := load.Listen(arguments[0], at, receive)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	file, err := os.OpenFile(arguments[2], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)

	vector := load.NewVector(slots, slot)
	text := make([]byte, 0, member+slot+1)
	packer := newPacker(file)
	flushed := time.Now()
	for stopping := false; ; {
		select {
		case <-stop:
			stopping = true
		default:
		}
		n, err := vector.Receive(fd)
		if err != nil {
			return err
		}
		for i := range n {
			text = append(append(text, vector.Datagram(i)...), '\n')
			if len(text) >= member {
				if err := packer.write(text); err != nil {
					return err
				}
				text = text[:0]
			}
		}
		if done := stopping && n == 0; done || time.Since(flushed) >= time.Second {
			if err := packer.write(text); err != nil || done {
				return err
			}
			text, flushed = text[:0], time.Now()
		}
		if !stopping && n < slots/4 {
			time.Sleep(pause)
		}
	}
}

// A packer writes texts as gzip members, one write(2) each.
type packer struct {
	file   *os.File
	packed bytes.Buffer
	writer *gzip.Writer
}

func newPacker(file *os.File) *packer {
	p := &packer{file: file}
	p.writer, _ = gzip.NewWriterLevel(&p.packed, gzip.BestSpeed) // the level is a good one
	return p
}

func (p *packer) write(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	p.packed.Reset()
	p.writer.Reset(&p.packed)
	if _, err := p.writer.Write(text); err != nil {
		return err
	}
	if err := p.writer.Close(); err != nil {
		return err
	}
	_, err := p.file.Write(p.packed.Bytes())
	return err
}
