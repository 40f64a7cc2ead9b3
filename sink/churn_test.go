package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Rotation, renaming with a reopen, and retention, again and again under full
// load: every line is there once, none is split, every file is whole, and
// retention removes what is old and nothing else.
func TestChurn(t *testing.T) { // GZ04, FI01
	rounds := 50
	if os.Getenv("LOGBOOM_SOAK") != "" {
		rounds = 1000 // a minute
	}
	for _, name := range []string{"x.log.gz", "x.log"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		conf := fileConf(t, path)
		conf.Limits.Flush = 200 * time.Microsecond
		conf.File.Rotate.Size = 4 << 10
		conf.File.Keep.Age = day
		s := start(t, conf)
		l := startLoad(t, s.Sink)
		paths, old := []string{path}, 0
		for i := range rounds {
			eventually(t, "it is rotated", func() bool { return s.log.count("rotated") > i })
			aside := filepath.Join(dir, fmt.Sprintf("aside-%04d-%s", i, name))
			eventually(t, "the file is there", func() bool { return os.Rename(path, aside) == nil })
			s.Reopen()
			paths = append(paths, aside)
			if i%10 == 0 {
				ours(t, filepath.Join(dir, rotatedName(name, time.Now().AddDate(-1, 0, i), 0)), 1, 2*day)
				old++
			}
		}
		l.end()
		s.finish()
		var rotated []string
		for _, path := range rotatedOf(t, path) {
			stat, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(stat.ModTime()) > day {
				old--
				continue
			}
			rotated = append(rotated, path)
		}
		if s.log.count("cannot") > 0 || len(rotated) < rounds {
			t.Errorf("%s: %d rotations in %d rounds", name, len(rotated), rounds)
		}
		// Those that were made after the last look may be left.
		if made := (rounds + 9) / 10; old < made*9/10 {
			t.Errorf("%s: %d of %d old files were removed", name, old, made)
		}
		for _, path := range rotated {
			if strings.HasSuffix(path, ".gz") {
				members(t, path)
			}
		}
		if _, err := os.Lstat(path); err != nil {
			paths = paths[1:] // it was renamed, and nothing came after
		}
		l.check(t, append(paths, rotated...)...)
		t.Logf("%s: %d lines in %d files, %d of them rotated; %d old ones removed", name, l.sent[0]+l.sent[1]+l.sent[2], len(paths)+len(rotated), len(rotated), old)
	}
}
