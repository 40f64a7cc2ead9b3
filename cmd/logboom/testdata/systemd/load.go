// Command load sends numbered messages, or requests, at a rate, and waits
// where the receiver is not ready.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if args[0] == "http" {
		return requests(args[1], n)
	}
	rate, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	conn, err := net.Dial(args[0], args[1])
	if err != nil {
		return err
	}
	start := time.Now()
	for i := range n {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		if _, err := fmt.Fprintf(conn, "<190>Nov 30 12:00:00 web nginx: %s %d", args[4], i); err != nil {
			return err
		}
	}
	return nil
}

func requests(url string, n int) error {
	for range n {
		answer, err := http.Get(url)
		if err != nil {
			return err
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	return nil
}
