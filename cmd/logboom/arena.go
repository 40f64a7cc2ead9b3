package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/buffer"
	"logboom/gzipwriter"
	"logboom/sink"
)

// leftovers is what processes before this one have left behind: those that
// were killed in the runtime directory, those that stopped in the state
// directory.
type leftovers struct {
	log        zerolog.Logger
	stateDir   string // where what cannot be trusted is kept
	arenas     []*buffer.Left
	batches    []buffer.Found
	windows    []*buffer.Window
	generation uint64 // the highest
}

// arenasIn lists the arenas in some folders.
func arenasIn(log zerolog.Logger, dirs ...string) (all []string) {
	for _, dir := range dirs {
		paths, err := buffer.LeftIn(dir)
		if err != nil {
			log.Error().Err(err).Msg("cannot look for what was left behind")
		}
		all = append(all, paths...)
	}
	return all
}

// findLeft opens those arenas whose owners are wanted, and finds what they
// hold, the oldest first. One that cannot be opened is kept aside: it never
// holds up the start.
func findLeft(paths []string, stateDir string, wanted func(owner []byte) bool, log zerolog.Logger) *leftovers {
	l := &leftovers{log: log, stateDir: stateDir}
	ids := make(map[uint64]bool)
	for _, path := range paths {
		a, err := buffer.OpenLeft(path)
		switch {
		case errors.Is(err, buffer.ErrInUse), errors.Is(err, buffer.ErrEmpty):
		case err != nil:
			l.setAside(path, err)
		case !wanted(a.Owner()):
			a.Close()
		case ids[a.ID()]:
			// A copy in the state directory, and the process was killed before
			// it had removed the original.
			l.remove(path)
			a.Close()
		default:
			ids[a.ID()] = true
			l.generation = max(l.generation, a.Generation())
			l.arenas = append(l.arenas, a)
		}
	}
	for _, a := range l.arenas {
		l.find(a)
	}
	slices.SortStableFunc(l.batches, buffer.Found.Compare)
	l.windows = buffer.Resolve(l.arenas, l.windows)
	return l
}

func (l *leftovers) remove(path string) {
	if err := os.Remove(path); err != nil {
		l.log.Error().Err(err).Msg("cannot remove an arena")
	}
}

// find adds what an arena holds.
func (l *leftovers) find(a *buffer.Left) {
	batches, windows := a.Find()
	l.batches = append(l.batches, batches...)
	l.windows = append(l.windows, windows...)
	if n := a.Damaged; n > 0 {
		to, err := copyAside(a.Path, l.stateDir)
		if err != nil {
			l.log.Error().Err(err).Str("arena", a.Path).Int("pieces", n).Msg("parts of an arena are damaged, and cannot be kept aside; it stays where it is")
			return
		}
		l.log.Error().Str("arena", a.Path).Int("pieces", n).Str("kept_in", to).Msg("parts of an arena are damaged; what is whole is delivered")
	}
	a.Shrink(batches, windows)
}

// setAside moves what is no arena of ours out of the way.
func (l *leftovers) setAside(path string, reason error) {
	to, err := copyAside(path, l.stateDir)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		l.log.Error().AnErr("reason", reason).Err(err).Msg("an arena was left behind that cannot be read, nor kept aside; it stays where it is")
		return
	}
	l.log.Error().Err(reason).Str("kept_in", to).Msg("an arena was left behind that cannot be read")
}

// copyAside copies a file into a folder under a new name.
func copyAside(path, dir string) (string, error) {
	from, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer from.Close()
	return keepAside(from, filepath.Base(path), dir)
}

// keepAside writes what cannot be trusted into a folder under a new name.
func keepAside(from io.Reader, name, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	to, err := os.CreateTemp(dir, "damaged-"+name+"-*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return "", errors.Join(err, os.Remove(to.Name()))
	}
	return to.Name(), nil
}

// findArenas looks for what was left behind and makes the arena of this
// process.
func (d *daemon) findArenas() error {
	if d.plain {
		return d.findPlain()
	}
	d.left = findLeft(arenasIn(d.log, d.conf.RuntimeDir, d.conf.StateDir), d.conf.StateDir, func([]byte) bool { return true }, d.log)
	return d.openArena(d.conf.RuntimeDir, d.conf.Memory.Cap)
}

// openArena makes the arena of this process: a file, unless there is no place
// for one and a plain daemon has to do without.
func (d *daemon) openArena(dir string, size int) (err error) {
	for ; ; size /= 2 {
		d.arena, err = buffer.CreateArena(dir, size, d.left.generation+1)
		// What was left behind may take up the space; a smaller one will do
		// until that is delivered.
		if !errors.Is(err, unix.ENOSPC) || len(d.left.arenas) == 0 || size/2 < 4<<20 {
			break
		}
		d.log.Warn().Err(err).Int("bytes", size/2).Msg("no space for the whole of memory.cap beside what was left behind; this run makes do with less")
	}
	if err == nil {
		d.lockArena()
		if !d.arena.IsOnTmpfs() && !d.plain {
			d.log.Warn().Str("runtime_dir", dir).Msg("the arena is not on a tmpfs: its pages are written to the disk time and again. Let runtime_dir be on one")
		}
	}
	return err
}

func (d *daemon) lockArena() {
	if err := d.arena.Lock(); err != nil && !d.plain {
		d.log.Warn().Err(err).Int("bytes", d.arena.Size()).Msg("the arena cannot be locked in memory: a kill at the wrong moment may lose a message. Raise LimitMEMLOCK, or ulimit -l")
	}
}

// shareOut gives all sinks their part of the arena. The first round gives back
// what the second hands out.
func (d *daemon) shareOut(outlets map[string]*outlet) {
	for range 2 {
		d.arena.SetAside(d.arena.Size() / receivePart)
		for _, o := range outlets {
			o.Resize(o.conf.Memory)
		}
	}
}

// adopt hands what was left behind to the sinks, before any source is open.
// What belongs to no sink goes to files in the state directory.
func (d *daemon) adopt(l *leftovers) error {
	recovered := make(map[string]*outlet)
	messages := 0
	for _, f := range l.batches {
		messages += f.Messages
		if o := d.outlets[f.Sink]; o != nil && o.Adopt(f) {
			continue
		}
		o, err := d.recovered(recovered, f.Sink)
		if err != nil {
			return err
		}
		if !o.AdoptAll(f) {
			d.log.Error().Str("sink", f.Sink).Int("messages", f.Messages).Msg("a batch was left behind that cannot be understood; it is dropped")
			f.Discard()
		}
	}
	for _, w := range l.windows {
		if err := d.adoptWindow(w, recovered); err != nil {
			return err
		}
	}
	for _, a := range l.arenas {
		if err := a.Release(); err != nil {
			d.log.Error().Err(err).Msg("cannot remove an arena")
		}
	}
	if messages > 0 {
		d.log.Info().Int("messages", messages).Int("batches", len(l.batches)).Msg("taking up what was left behind")
	}
	for _, o := range recovered {
		o.Close()
	}
	return nil
}

// recovered finds or makes the sink for what is of a sink, or a source, that
// is no longer in the config. It ends when it is empty.
func (d *daemon) recovered(all map[string]*outlet, of string) (*outlet, error) {
	if o := all[of]; o != nil {
		return o, nil
	}
	name := "recovered-" + strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, of[:min(len(of), 100)])
	file := filepath.Join(d.conf.StateDir, name+"-"+time.Now().Format("20060102-150405")+".log.gz")
	path, err := sink.ParsePath(strings.NewReplacer("$", "$$", "%", "%%").Replace(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	d.log.Error().Str("name", of).Str("to", file).Msg("messages were left behind for a sink or source that is not in the config as it was; they go to a file of their own")
	o := d.openOutlet(sink.Config{
		Name: name, Limits: buffer.Limits{Messages: 10000, Bytes: 256 << 10, Flush: time.Second}, Retry: fileRetry, Path: path,
		File: sink.File{Compress: gzipwriter.Gzip, Level: 1, Mode: 0o640, DirMode: 0o750, UID: -1, GID: -1, MaxOpen: 1},
	}, nil)
	all[of] = o
	d.lingering = append(d.lingering, o)
	return o, nil
}

// keep saves what is undelivered for the next start, and removes the arenas in
// the runtime directory. Nothing may be appended any more.
func (d *daemon) keep() {
	if err := os.MkdirAll(d.conf.StateDir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		d.log.Error().Err(err).Msg("state_dir")
	}
	saved, err := d.arena.Save(d.conf.StateDir)
	if err != nil {
		d.log.Error().Err(err).Msg("what is undelivered cannot be saved in state_dir; it stays in runtime_dir, which a reboot may empty")
	}
	if len(saved) > 0 {
		d.log.Warn().Strs("saved_in", saved).Msg("what is undelivered is saved; the next start delivers it")
	}
	for _, a := range d.left.arenas {
		if err := a.MoveTo(d.conf.StateDir); err != nil {
			d.log.Error().Err(err).Msg("what was left behind cannot be saved in state_dir")
		}
	}
}
