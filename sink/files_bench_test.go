package sink

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"logboom/syslog"
)

// BenchmarkPaths is the cost of a message to one path and to a thousand that
// are open at once: taken, compressed and written. A batch has the same number
// of messages in both, so that the difference is that of the paths.
func BenchmarkPaths(b *testing.B) {
	const line = `192.0.2.1 - - [15/Mar/2026:10:20:30 +0000] "GET /index.html HTTP/1.1" 200 1234 "-" "a browser of some length"`
	for _, paths := range []int{1, 1000} {
		b.Run(fmt.Sprint(paths), func(b *testing.B) {
			conf := fileConf(b, filepath.Join(b.TempDir(), "$host/access-%Y-%m-%d.log.gz"))
			conf.Limits.Messages = 100
			conf.File.MaxOpen = 1000
			s := makeSink(b, conf, newArena(b, 64<<20))
			s.run()
			e := s.Edge(-1, nil)
			o := new(Origin)
			ms := make([]syslog.Message, paths)
			for i := range ms {
				ms[i] = fromHost(fmt.Sprint("host", i), line)
			}
			send := func(messages int) {
				for n := 0; n < messages; n += len(ms) {
					now := time.Now()
					for i := range ms {
						ms[i].Received = now
					}
					e.Append(o, ms[:min(len(ms), messages-n)])
				}
			}
			send(100 * paths) // so that all files are open
			s.delivered(100 * paths)
			b.ReportAllocs()
			b.ResetTimer()
			send(b.N)
			s.finish()
		})
	}
}
