package load

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listen is a socket of ours, and the address that reaches it.
func listen(t *testing.T, network string) (fd int, address string) {
	t.Helper()
	address = "127.0.0.1:0"
	if network == "unixgram" {
		address = filepath.Join(t.TempDir(), "s")
	}
	fd, err := Listen(network, address, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if network == "udp" {
		name, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		address = fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	}
	return fd, address
}

func TestSentMessagesArriveInOrder(t *testing.T) {
	set := NewMessages(2)
	fd, address := listen(t, "udp")
	const messages, rate = 500, 2000
	done := make(chan error, 1)
	var sent Sent
	go func() {
		var err error
		sent, err = Send(t.Context(), "udp", address, set, Part{0, 1, messages}, rate, SendBatch)
		done <- err
	}()
	vector := NewVector(16, 2048)
	for n, deadline := 0, time.Now().Add(20*time.Second); n < messages; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages arrived", n, messages)
		}
		count, err := vector.Receive(fd)
		if err != nil {
			t.Fatal(err)
		}
		for i := range count {
			if got, ok := set.Number(vector.Datagram(i)); got != n || !ok {
				t.Fatalf("message %d is %q", n, vector.Datagram(i))
			}
			n++
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// Never faster than asked for; how much slower is the machine's affair.
	if least := messages * time.Second / rate; sent.Messages != messages || sent.Took < least {
		t.Errorf("sent %d in %v, want %d in no less than %v", sent.Messages, sent.Took, messages, least)
	}
}

func TestShares(t *testing.T) {
	set := NewMessages(4)
	fd, address := listen(t, "udp")
	all := Part{First: 10, Step: 1, Messages: 102} // two are left out
	for k := range 4 {
		if _, err := Send(t.Context(), "udp", address, set, all.Share(k, 4), 1_000_000, SendBatch); err != nil {
			t.Fatal(err)
		}
	}
	vector := NewVector(16, 2048)
	var got []int
	for len(got) < 100 {
		count, err := vector.Receive(fd)
		if err != nil {
			t.Fatalf("%v after %d messages", err, len(got))
		}
		for i := range count {
			n, ok := set.Number(vector.Datagram(i))
			if want := 10 + len(got)/25 + len(got)%25*4; n != want || !ok {
				t.Fatalf("message %d is %q, want number %d", len(got), vector.Datagram(i), want)
			}
			got = append(got, n)
		}
	}
}

func TestAFullQueueDoesNotStopTheSender(t *testing.T) {
	for _, batch := range []int{1, SendBatch} {
		fd, address := listen(t, "unixgram") // nobody reads yet
		sent, err := Send(t.Context(), "unixgram", address, NewMessages(1), Part{0, 1, 20_000}, 1_000_000, batch)
		if err != nil || sent.Messages != 20_000 {
			t.Errorf("offered %d, want all 20,000: %v", sent.Messages, err)
		}
		queued, err := NewVector(20_000, 512).Receive(fd)
		if err != nil || queued == 0 || sent.Refused != sent.Messages-queued {
			t.Errorf("%d refused of %d while %d are queued: %v", sent.Refused, sent.Messages, queued, err)
		}
	}
}

func TestSendFails(t *testing.T) {
	set := NewMessages(1)
	ended, end := context.WithCancel(t.Context())
	end()
	_, address := listen(t, "udp")
	for name, test := range map[string]struct {
		ctx              context.Context
		network, address string
	}{
		"nobody at a path": {t.Context(), "unixgram", filepath.Join(t.TempDir(), "none")},
		"no address":       {t.Context(), "udp", "localhost"},
		"interrupted":      {ended, "udp", address},
	} {
		if _, err := Send(test.ctx, test.network, test.address, set, Part{0, 1, 1000}, 1, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	taken, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if fd, err := Listen("udp", taken.LocalAddr().String(), 1<<20); err == nil {
		unix.Close(fd)
		t.Error("two sockets listen on one port")
	}
}
