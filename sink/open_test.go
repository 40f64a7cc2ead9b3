package sink

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// A file that was made in vain is removed, but only if it is still that file
// and empty.
func TestMadeInVain(t *testing.T) {
	w := newFiles(new(counters), zerolog.Nop())
	for _, tt := range []struct {
		name   string
		meddle func(path string) error
		left   string
	}{
		{"as made", func(string) error { return nil }, ""},
		{"replaced", func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, []byte("theirs"), 0o600))
		}, "theirs"},
		{"filled", func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o600) }, "theirs"},
		{"removed", os.Remove, ""},
	} {
		path := filepath.Join(t.TempDir(), "x.log")
		spec := &File{Prefix: filepath.Dir(path), Mode: 0o600, DirMode: 0o700, UID: -1, GID: -1}
		if _, err := w.file(path, spec, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := tt.meddle(path); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(nil); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(path)
		if string(got) != tt.left || tt.left == "" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}

// Folders and files that others make at the same time are taken as they are.
func TestMadeTogether(t *testing.T) {
	for range 50 {
		dir := t.TempDir()
		var all sync.WaitGroup
		errs := make(chan error, 8)
		for i := range cap(errs) {
			all.Go(func() {
				path := filepath.Join(dir, "a/b/c/d.log")
				spec := &File{Prefix: filepath.Join(dir, "a/b"), Mode: 0o600, DirMode: 0o700, UID: -1, GID: -1}
				if i%2 == 0 {
					spec.Prefix = dir
				}
				fd, _, err := openFile(path, spec)
				errs <- err
				unix.Close(fd)
			})
		}
		all.Wait()
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
}
