// Package load makes the work of the benchmark: nginx's syslog datagrams and
// an application's lines, numbered, sent at a stated rate; and it checks,
// byte for byte, what a receiver wrote of them.
package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

const (
	setSize   = 16384 // texts of a set; then it starts again, with other numbers
	digits    = 10    // of a number, at the very end of its text
	numbering = " seq=0000000000"
)

// A Set is a fixed choice of texts. Number n of it is text n modulo its size,
// ending with n. It is the same in every process that makes it.
type Set struct {
	texts   [][]byte
	headers []int // bytes of each text that a receiver may leave out: the syslog header
}

// NewMessages is a set of what nginx sends for its combined log: an RFC 3164
// header and an access line, some 250 bytes in all. Host names of headers are
// web-0000, web-0001 and so on, as many as hosts, in turn.
func NewMessages(hosts int) *Set {
	random := rand.New(rand.NewPCG(1, 1))
	agents := userAgents()
	s := &Set{}
	for i := range setSize {
		second := i * 600 / setSize // time passes as at 27 requests a second
		clock := fmt.Sprintf("10:%02d:%02d", 20+second/60, second%60)
		header := fmt.Sprintf("<190>Nov 30 %s web-%04d nginx: ", clock, i%hosts)
		text := append([]byte(header), accessLine(random, agents, clock)...)
		s.add(append(text, numbering...), len(header))
	}
	return s
}

// NewLines is a set of an application's log lines of exactly size bytes,
// line feed not included; size is at least 64.
func NewLines(size int) *Set {
	random := rand.New(rand.NewPCG(2, 2))
	s := &Set{}
	for i := range 1024 {
		text := fmt.Appendf(nil, "[2025-11-30T10:%02d:%02d.%06d+00:00] app.%s:", i/60, i%60, random.IntN(1e6), pick(random, levels))
		for len(text) < size {
			text = append(text, ' ')
			text = append(text, pick(random, words)...)
			if random.IntN(7) == 0 {
				text = fmt.Appendf(text, " id=%d", random.IntN(1e6))
			}
		}
		text = append(text[:size-len(numbering)], numbering...)
		s.add(text, 0)
	}
	return s
}

func (s *Set) add(text []byte, header int) {
	s.texts = append(s.texts, text)
	s.headers = append(s.headers, header)
}

// Append appends number n of the set to dst.
func (s *Set) Append(dst []byte, n int) []byte {
	dst = append(dst, s.texts[n%len(s.texts)]...)
	for i := len(dst) - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// Number is the number at the end of text, if text is what was sent under
// it, with its syslog header or without.
func (s *Set) Number(text []byte) (n int, ok bool) {
	head := len(text) - digits
	if head < 0 {
		return 0, false
	}
	for _, c := range text[head:] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	want := s.texts[n%len(s.texts)]
	header := s.headers[n%len(s.texts)]
	want = want[:len(want)-digits]
	return n, bytes.Equal(text[:head], want) || bytes.Equal(text[:head], want[header:])
}

// accessLine is a line of nginx's combined log.
func accessLine(random *rand.Rand, agents []string, clock string) string {
	path := ""
	for range 1 + random.IntN(3) {
		path += "/" + pick(random, segments)
	}
	if random.IntN(2) == 0 {
		path += fmt.Sprintf("/%d", random.IntN(1e6))
	}
	path += pick(random, endings)
	if random.IntN(4) == 0 {
		path += fmt.Sprintf("?page=%d&q=%x", random.IntN(50), random.IntN(1<<24))
	}
	referer := "-"
	if random.IntN(10) >= 6 {
		referer = "https://www.example.com/" + pick(random, segments) + "/" + pick(random, segments)
	}
	// The product of two: few browsers make most requests.
	agent := agents[random.IntN(len(agents))*random.IntN(len(agents))/len(agents)]
	return fmt.Sprintf(`%d.%d.%d.%d - - [30/Nov/2025:%s +0000] "%s %s HTTP/1.1" %s %d "%s" "%s"`,
		1+random.IntN(223), random.IntN(256), random.IntN(256), random.IntN(256), clock,
		pick(random, methods), path, pick(random, statuses), random.IntN(1e5), referer, agent)
}

// userAgents are what browsers, robots and tools call themselves.
func userAgents() []string {
	var all []string
	for version := range 15 {
		for i, system := range systems {
			build := version % 3 * i * 61 // what newer ones hide
			all = append(all,
				fmt.Sprintf("Mozilla/5.0 (%s) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.%d.%d Safari/537.36", system, 110+version, 13*build, build),
				fmt.Sprintf("Mozilla/5.0 (%s; rv:%d.0) Gecko/20100101 Firefox/%d.0", system, 109+version, 109+version))
		}
		all = append(all, fmt.Sprintf("Mozilla/5.0 (iPhone; CPU iPhone OS 17_%d like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.%d Mobile/15E148 Safari/604.1", version%6, version%6))
	}
	all = append(append(all, robots...), robots...)
	rand.New(rand.NewPCG(3, 3)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func pick(random *rand.Rand, from []string) string { return from[random.IntN(len(from))] }

var (
	levels = []string{"INFO", "WARNING", "ERROR", "DEBUG"}
	words  = []string{
		"user", "order", "payment", "failed", "completed", "request", "cache", "miss", "timeout", "retry", "queue", "job",
		"processed", "controller", "session", "token", "expired", "connection", "database", "query", "slow", "index",
	}
	segments = []string{
		"api", "v1", "v2", "users", "orders", "cart", "products", "search", "static", "js", "css", "img", "blog", "login",
		"account", "checkout", "items", "reviews", "feed", "uploads", "health", "category", "tags", "profile", "settings",
	}
	endings  = []string{"", "", "", "", ".html", ".js", ".css", ".png", ".jpg", ".svg", ".json", ".php"}
	methods  = []string{"GET", "GET", "GET", "GET", "GET", "GET", "GET", "POST", "POST", "HEAD"}
	statuses = []string{"200", "200", "200", "200", "200", "200", "200", "304", "301", "404"}
	systems  = []string{
		"Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7", "X11; Linux x86_64",
		"X11; Ubuntu; Linux x86_64", "Linux; Android 10; K",
	}
	robots = []string{
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
		"Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
		"curl/8.5.0", "Go-http-client/1.1", "Go-http-client/2.0", "python-requests/2.31.0", "okhttp/4.12.0",
		"kube-probe/1.29", "Prometheus/2.48.0", "ELB-HealthChecker/2.0", "GuzzleHttp/7", "axios/1.6.2", "-",
	}
)
