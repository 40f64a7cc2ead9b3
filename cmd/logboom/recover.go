package main

import (
	"cmp"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"logboom/buffer"
	"logboom/gzipwriter"
	"logboom/sink"
)

func recoverCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "recover DIR...",
		Short: "Deliver what a dead pipe, exec or run has left in its arena",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			signals := make(chan os.Signal, 16)
			signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
			var failed error
			for _, dir := range dirs {
				failed = cmp.Or(failed, recoverDir(dir, signals))
			}
			return failed
		},
	}
}

// recoverDir delivers all arenas in a folder that no process has, one after
// the other, as each has sinks of its own.
func recoverDir(dir string, signals <-chan os.Signal) error {
	if _, err := os.ReadDir(dir); err != nil {
		return err
	}
	paths, err := buffer.LeftIn(dir)
	for _, path := range paths {
		err = cmp.Or(err, recoverArena(path, signals))
	}
	return err
}

// recoverArena delivers one arena: of pipe or exec by what it says itself, of
// run what is for files to these files, and the rest to files in the state
// directory.
func recoverArena(path string, signals <-chan os.Signal) error {
	log, own := newLogger(Log{Level: "info", Format: "auto"})
	conf := plainConfig(16<<20, FileSink{})
	left := findLeft([]string{path}, conf.StateDir, func([]byte) bool { return true }, log)
	if len(left.arenas) == 0 {
		return nil // somebody has it, or it was put aside
	}
	d := &daemon{log: log, own: own, plain: true, left: left}
	if o, ok := parseOwner(left.arenas[0].Owner()); ok {
		conf = plainConfig(16<<20, FileSink{
			Path: o.Path, Compress: o.Compress, Level: o.Level, Mode: o.Mode,
			Output: Output{Batch: plainBatch},
		})
		d.owner = left.arenas[0].Owner()
	} else {
		conf.Files = nil
		conf.StateDir = filepath.Dir(conf.StateDir) // that of run
		d.sinks = sinksOf(left.batches)
	}
	if err := d.open(conf); err != nil {
		return err
	}
	err := d.flush(signals)
	var delivered uint64
	for _, o := range d.current() {
		delivered += o.Status().Delivered
	}
	log.Info().Str("arena", path).Uint64("messages", delivered).Msg("recovered")
	return err
}

var plainBatch = Batch{Messages: 10000, Buffer: 256 << 10, Flush: time.Second}

// sinksOf makes a sink for each that had batches for files: below the folder
// that these have in common.
func sinksOf(batches []buffer.Found) (confs []sink.Config) {
	at := make(map[string]int)
	for _, f := range batches {
		if !filepath.IsAbs(f.Key) {
			continue
		}
		i, known := at[f.Sink]
		if !known {
			i = len(confs)
			at[f.Sink] = i
			confs = append(confs, sink.Config{
				Name: f.Sink, Limits: buffer.Limits{Messages: 1, Bytes: buffer.PageSize, Flush: time.Second}, Retry: fileRetry,
				File: sink.File{
					Prefix: filepath.Dir(f.Key), Compress: gzipwriter.Gzip, Level: 1, Mode: 0o640, DirMode: 0o750,
					UID: -1, GID: -1, MaxOpen: 100,
				},
			})
		}
		for prefix := &confs[i].File.Prefix; !isWithin(f.Key, *prefix); {
			*prefix = filepath.Dir(*prefix)
		}
	}
	return confs
}

func isWithin(path, folder string) bool {
	return folder == "/" || strings.HasPrefix(path, folder+"/")
}
