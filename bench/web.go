package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// freePort is a TCP port of 127.0.0.1 that nobody uses.
func freePort() (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// listening says whether somebody accepts connections on a port.
func listening(port int) bool {
	conn, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// client does not keep connections: a server that is stopped must not wait.
var client = http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true},
}

// get is the body of a page, which must be there.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %.200s", url, response.Status, body)
	}
	return string(body), err
}

// A loader is a program that sends requests for a time.
type loader struct {
	name    string
	command func(length time.Duration, url string) []string
	// What to find in what it prints: requests a second, requests answered,
	// and those answered with an error.
	rate, requests, failed *regexp.Regexp
}

// An answered is what a loader found.
type answered struct {
	perSecond float64
	requests  int
}

// wrk keeps so many connections busy.
func wrk(connections int) loader {
	return loader{
		name: fmt.Sprintf("wrk -c %d", connections),
		command: func(length time.Duration, url string) []string {
			return []string{"wrk", "-t", "1", "-c", strconv.Itoa(connections), "-d", seconds(length) + "s", url}
		},
		rate:     regexp.MustCompile(`Requests/sec:\s+([\d.]+)`),
		requests: regexp.MustCompile(`(\d+) requests in`),
		failed:   regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`),
	}
}

// ab makes a new connection for each request, so many at a time.
func ab(connections int) loader {
	return loader{
		name: fmt.Sprintf("ab -c %d", connections),
		command: func(length time.Duration, url string) []string {
			// -n after -t: not the 50,000 requests that -t implies.
			return []string{"ab", "-q", "-r", "-c", strconv.Itoa(connections), "-t", seconds(length), "-n", "5000000", url}
		},
		rate:     regexp.MustCompile(`Requests per second:\s+([\d.]+)`),
		requests: regexp.MustCompile(`Complete requests:\s+(\d+)`),
		failed:   regexp.MustCompile(`Non-2xx responses:\s+(\d+)`),
	}
}

// seconds is a duration rounded up to whole seconds.
func seconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}

// load sends requests for a time.
func (l loader) load(ctx context.Context, length time.Duration, url string) (answered, error) {
	command := l.command(length, url)
	ctx, cancel := context.WithTimeout(ctx, length+30*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return answered{}, fmt.Errorf("%s: %w: %.300s", strings.Join(command, " "), err, text)
	}
	return l.parse(string(text))
}

// parse reads what the program printed.
func (l loader) parse(text string) (answered, error) {
	if failed := l.failed.FindStringSubmatch(text); failed != nil && failed[1] != "0" {
		return answered{}, fmt.Errorf("%s: %s requests were answered with an error", l.name, failed[1])
	}
	rate, requests := l.rate.FindStringSubmatch(text), l.requests.FindStringSubmatch(text)
	if rate == nil || requests == nil {
		return answered{}, fmt.Errorf("%s printed no rate: %.300s", l.name, text)
	}
	perSecond, rateErr := strconv.ParseFloat(rate[1], 64)
	count, countErr := strconv.Atoi(requests[1])
	return answered{perSecond, count}, errors.Join(rateErr, countErr)
}
