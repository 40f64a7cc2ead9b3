package syslog

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// BenchmarkStream is a message of 250 bytes over TCP, its sender included: of
// one that sends as fast as it is read, and of one that sends many or one
// whenever the connection has been idle.
func BenchmarkStream(b *testing.B) {
	line := "<190>Mar 15 10:20:30 web nginx: " + strings.Repeat("x", 250-33) + "\n"
	for i, burst := range []int{0, 100, 1, 0, 100, 1} {
		name, windows := "flat out", i >= 3
		if burst > 0 {
			name = fmt.Sprintf("bursts of %d", burst)
		}
		if windows {
			name += " into windows"
		}
		b.Run(name, func(b *testing.B) {
			var got atomic.Int64
			arrived := make(chan struct{}, 1)
			cfg := tcpConfig(func(ms []Message) {
				n := got.Add(int64(len(ms)))
				if burst > 0 && n%int64(burst) == 0 || n == int64(b.N) {
					arrived <- struct{}{}
				}
			})
			if windows {
				cfg.Window = (&fakeArena{room: -1}).take
			}
			s := listenStream(b, cfg)
			run(b, s)
			c := dial(b, "tcp", s.Addr())
			text := []byte(strings.Repeat(line, max(burst, 100)))
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; {
				n := min(left, len(text)/len(line))
				if burst > 0 {
					n = min(left, burst)
				}
				if _, err := c.Write(text[:n*len(line)]); err != nil {
					b.Fatal(err)
				}
				if left -= n; burst > 0 || left == 0 {
					<-arrived
				}
			}
		})
	}
}
