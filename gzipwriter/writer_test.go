package gzipwriter

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/flate"
	kgzip "github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"
)

// vector is the header of a member, by hand; its CRC-32C was computed bit by bit.
const vector = "1f8b0804" + "00000000" + "04" + "ff" + "3900" + "4c42" + "3500" +
	"01" + "04030201" + "08070605" + "0c0b0a09" +
	"01cc6da68bfc9c18" + "ff9508e28bfc9c18" +
	"8877665544332211" + "00ffeeddccbbaa99" + "07000000" + "d8cb44ac"

var vectorHeader = header{length: 0x01020304, text: 0x05060708, info: Info{
	Messages: 0x090a0b0c, First: 1773570030000000001, Last: 1773570030999999999,
	Arena: 0x1122334455667788, Sequence: 0x99aabbccddeeff00, Dropped: 7,
}}

func TestHeaderLayout(t *testing.T) {
	var h [headerLen]byte
	vectorHeader.put(h[:], 4)
	if got := hex.EncodeToString(h[:]); got != vector {
		t.Errorf("header\n got %s\nwant %s", got, vector)
	}
	var back header
	if !back.parse(h[:]) || back != vectorHeader {
		t.Errorf("parse gave %+v, want %+v", back, vectorHeader)
	}
}

func TestHeaderParseRefuses(t *testing.T) {
	good, err := hex.DecodeString(vector)
	if err != nil {
		t.Fatal(err)
	}
	var h header
	for i := range good {
		if h.parse(good[:i]) {
			t.Errorf("took a header cut at %d", i)
		}
	}
	for bit := range len(good) * 8 {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		// What LB does not cover: other flags, MTIME, XFL and OS are allowed to
		// differ, and XLEN to be larger.
		free := bit/8 == 3 && bit%8 < 5 && bit%8 != 2 || bit/8 >= 4 && bit/8 < 10
		larger := (bit/8 == 10 || bit/8 == 11) && b[bit/8] > good[bit/8]
		if got := h.parse(b); got != (free || larger) {
			t.Errorf("bit %d of byte %d flipped: parse = %v", bit%8, bit/8, got)
		}
	}
	short := vectorHeader
	short.length = headerLen + minDeflate + trailerLen - 1
	short.put(good, 4)
	if h.parse(good) {
		t.Error("took a length that no member can have")
	}
}

func TestMemberReadsBack(t *testing.T) {
	noise := make([]byte, 300_000)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(noise)
	texts := map[string][]byte{
		"one byte": {'\n'}, "line": []byte("GET / 200\n"), "access": accessLines(1, 256<<10),
		"noise": noise, "zeros": make([]byte, 1<<20),
	}
	for level := 1; level <= 9; level++ {
		w, err := NewWriter(level)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range texts {
			info := Info{Messages: 3, First: -1, Last: 1 << 62, Arena: 1 << 63, Sequence: 9, Dropped: 1<<32 - 1}
			m, err := w.Member(text, info)
			if err != nil {
				t.Fatalf("level %d, %s: %v", level, name, err)
			}
			checkMember(t, m, text, info)
		}
	}
}

// checkMember holds one member against the standard library.
func checkMember(t *testing.T, member, text []byte, info Info) {
	t.Helper()
	in := bytes.NewReader(member)
	r, err := stdgzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	r.Multistream(false)
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, text) || in.Len() != 0 {
		t.Fatalf("%d bytes of text of %d, %d bytes left, %v", len(got), len(text), in.Len(), err)
	}
	if len(r.Extra) != 57 || string(r.Extra[:4]) != "LB\x35\x00" || r.Name != "" || !r.ModTime.IsZero() {
		t.Fatalf("header %+v", r.Header)
	}
	var h header
	want := header{length: uint32(len(member)), text: uint32(len(text)), info: info}
	if !h.parse(member) || h != want {
		t.Fatalf("LB says %+v, want %+v", h, want)
	}
}

// GZ06: there is never a member without text.
func TestMemberRefuses(t *testing.T) {
	w, err := NewWriter(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{nil, {}} {
		if m, err := w.Member(text, Info{Dropped: 5}); m != nil || !errors.Is(err, ErrEmpty) {
			t.Errorf("empty text gave %d bytes, %v", len(m), err)
		}
	}
	// Mapped and never touched, so that it takes no memory, under -race either.
	long, err := unix.Mmap(-1, 0, MaxText+1, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(long)
	if m, err := w.Member(long, Info{}); m != nil || !errors.Is(err, ErrTooLong) {
		t.Errorf("too long a text gave %d bytes, %v", len(m), err)
	}
	m, err := w.Member([]byte("after\n"), Info{})
	if err != nil {
		t.Fatal(err)
	}
	checkMember(t, m, []byte("after\n"), Info{})
	for _, level := range []int{-2, 0, 10} {
		if _, err := NewWriter(level); err == nil {
			t.Errorf("level %d was taken", level)
		}
	}
}

func TestMemberAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	text := accessLines(1, 256<<10)
	for _, level := range []int{1, 6, 9} {
		w, err := NewWriter(level)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10, func() {
			if _, err := w.Member(text, Info{}); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("level %d: %v allocations a member", level, n)
		}
	}
}

// Every reader of gzip files at hand reads all members, and none that they lie.
func TestOtherReaders(t *testing.T) { // GZ05
	file, text := join(batches(t, 10, 20_000))
	name := create(t, file).Name()
	for _, c := range [][]string{
		{"gzip", "-dc"}, {"zcat"}, {"pigz", "-dc"}, {"busybox", "zcat"}, {"zgrep", ""},
		{"python3", "-c", "import gzip,sys;sys.stdout.buffer.write(gzip.open(sys.argv[1]).read())"},
		{"perl", "-MIO::Uncompress::Gunzip=:all", "-e", "gunzip(shift,'-',MultiStream=>1) or die"},
		{"node", "-e", "process.stdout.write(require('zlib').gunzipSync(require('fs').readFileSync(process.argv[1])))"},
		{"java", javaZcat(t)},
		{"gzip", "-t"}, {"pigz", "-t"},
	} {
		t.Run(c[0], func(t *testing.T) {
			if _, err := exec.LookPath(c[0]); err != nil {
				t.Skip(err)
			}
			cmd := exec.Command(c[0], append(c[1:], name)...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil || stderr.Len() > 0 {
				t.Fatalf("%v: %s", err, stderr.Bytes())
			}
			if c[len(c)-1] != "-t" && !bytes.Equal(out, text) {
				t.Errorf("read %d bytes of %d", len(out), len(text))
			}
		})
	}
}

// javaZcat is a program that java runs from its source.
func javaZcat(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "Zcat.java")
	const source = `class Zcat {
	public static void main(String[] a) throws Exception {
		new java.util.zip.GZIPInputStream(new java.io.FileInputStream(a[0])).transferTo(System.out);
		System.out.flush();
	}
}
`
	if err := os.WriteFile(name, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// GoAccess counts all requests of a file, by itself or behind zcat where it was
// built without zlib.
func TestGoAccess(t *testing.T) {
	if _, err := exec.LookPath("goaccess"); err != nil {
		t.Skip(err)
	}
	file, text := join(batches(t, 10, 20_000))
	name := create(t, file).Name()
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.Command("goaccess", name, "--log-format=COMBINED", "--no-global-config", "--no-progress", "-o", report)
	if help, err := exec.Command("goaccess", "--version").CombinedOutput(); err == nil && !bytes.Contains(help, []byte("zlib")) {
		t.Log("this goaccess knows no gzip: zcat reads for it")
		cmd = exec.Command("sh", "-c", `zcat "$0" | goaccess - --log-format=COMBINED --no-global-config --no-progress -o "$1"`, name, report)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got struct {
		General struct {
			Total int `json:"total_requests"`
			Valid int `json:"valid_requests"`
		}
	}
	if err := json.Unmarshal(content(t, report), &got); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); got.General.Total != lines || got.General.Valid != lines {
		t.Errorf("%+v of %d lines", got.General, lines)
	}
}

// BenchmarkMember says what a member of 256 KiB of access log lines costs, and
// how long the text is to the member.
func BenchmarkMember(b *testing.B) {
	text := accessLines(1, 256<<10)
	for _, level := range []int{1, 2, 3, 6} {
		b.Run(fmt.Sprintf("level=%d", level), func(b *testing.B) {
			w, err := NewWriter(level)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var m []byte
			for b.Loop() {
				m, _ = w.Member(text, Info{})
			}
			b.ReportMetric(float64(len(text))/float64(len(m)), "ratio")
		})
	}
}

// BenchmarkOthers is what else could have made the deflate stream.
func BenchmarkOthers(b *testing.B) {
	text := accessLines(1, 256<<10)
	var out output
	run := func(name string, compress func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				out = out[:0]
				if err := compress(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(text))/float64(len(out)), "ratio")
		})
	}
	writer := func(w interface {
		io.WriteCloser
		Reset(io.Writer)
	}) func() error {
		return func() error {
			w.Reset(&out)
			if _, err := w.Write(text); err != nil {
				return err
			}
			return w.Close()
		}
	}
	std, _ := stdgzip.NewWriterLevel(io.Discard, 1)
	k1, _ := kgzip.NewWriterLevel(io.Discard, 1)
	window, _ := flate.NewWriterWindow(io.Discard, flate.MaxCustomWindowSize)
	run("standard level 1", writer(std))
	run("klauspost gzip level 1", writer(k1))
	run("klauspost window 32 KiB", writer(window))
	run("klauspost stateless", func() error { return flate.StatelessDeflate(&out, text, true, nil) })
}
