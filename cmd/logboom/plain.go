package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"logboom/buffer"
)

// plainOwner is what the arena of pipe and exec says of them: whoever finds it
// needs nothing else to deliver what it holds.
type plainOwner struct {
	Path     string      `json:"path"`
	Compress string      `json:"compress"`
	Level    int         `json:"level"`
	Mode     fs.FileMode `json:"mode"`
}

func ownerOf(s *FileSink) plainOwner { return plainOwner{s.Path, s.Compress, s.Level, s.Mode} }

func (o plainOwner) text() []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and numbers
	}
	return text
}

// parseOwner reads what an arena says. False: it is not of pipe or exec.
func parseOwner(text []byte) (o plainOwner, ok bool) {
	err := json.Unmarshal(text, &o)
	_, known := compressions[o.Compress]
	return o, known && err == nil && filepath.IsAbs(o.Path) && o.Level >= 1 && o.Level <= 9
}

// plainDirs are the folders for the arenas of pipe and exec, which run side by
// side: one that lies in memory, and one that outlives a reboot.
func plainDirs() (runtime, state string) {
	runtime, state = defaultDirs(os.Getuid(), os.Getenv)
	given := os.Getenv("RUNTIME_DIRECTORY")
	runtime = systemdDir(given, runtime)
	state = systemdDir(os.Getenv("STATE_DIRECTORY"), state)
	if given == "" && !isOnTmpfs(runtime) && isOnTmpfs("/dev/shm") {
		runtime = filepath.Join("/dev/shm", fmt.Sprintf("logboom-%d", os.Getuid()))
	}
	return filepath.Join(runtime, "pipe"), filepath.Join(state, "pipe")
}

// isOnTmpfs reports whether a folder lies, or would lie, in memory.
func isOnTmpfs(dir string) bool {
	var stat unix.Statfs_t
	for {
		err := unix.Statfs(dir, &stat)
		if err == nil {
			return stat.Type == unix.TMPFS_MAGIC
		}
		parent := filepath.Dir(dir)
		if err != unix.ENOENT || parent == dir {
			return false
		}
		dir = parent
	}
}

// makePrivate makes a folder that nobody else may look into, or checks that it
// is one: others may write to the folder above.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(dir), dir} {
		var stat unix.Stat_t
		if err := unix.Lstat(dir, &stat); err != nil {
			return &fs.PathError{Op: "lstat", Path: dir, Err: err}
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR || int(stat.Uid) != os.Geteuid() || stat.Mode&0o022 != 0 {
			return fmt.Errorf("%s is no folder of this user's alone", dir)
		}
	}
	return nil
}

// findPlain is findArenas of pipe, exec and recover. The first two take up what
// one that wrote to the same file has left behind. Without a place for an arena
// they go on, and what is in memory ends with them.
func (d *daemon) findPlain() error {
	err := makePrivate(d.conf.RuntimeDir)
	if d.left == nil {
		d.left = d.findOwn()
	}
	if err == nil {
		err = d.openArena(d.conf.RuntimeDir, d.conf.Memory.Cap)
	}
	if err != nil {
		d.log.Warn().Err(err).Msg("no place for what outlives a kill: what is in memory then is lost")
		d.arena, err = buffer.NewArena(d.conf.Memory.Cap)
		return err
	}
	if !d.arena.SetOwner(d.owner) {
		d.log.Warn().Msg("the path is too long to be kept with what outlives a kill: logboom recover cannot deliver that")
	}
	return nil
}

// findOwn looks for what was left behind by those that wrote to the same file.
func (d *daemon) findOwn() *leftovers {
	own := ownerOf(&d.conf.Files[0])
	d.owner = own.text()
	return findLeft(arenasIn(d.log, d.conf.RuntimeDir, d.conf.StateDir), d.conf.StateDir, func(owner []byte) bool {
		o, ok := parseOwner(owner)
		return ok && o.Path == own.Path
	}, d.log)
}
