package report

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{nil, math.NaN()},
		{[]float64{3}, 3},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 100, 2}, 3},
	} {
		if got := median(test.values); got != test.want && !(math.IsNaN(got) && math.IsNaN(test.want)) {
			t.Errorf("median of %v is %v, want %v", test.values, got, test.want)
		}
	}
	values := []float64{3, 1, 2}
	if median(values); values[0] != 3 {
		t.Errorf("values were sorted in place: %v", values)
	}
}

// row is a row with values of one figure; NaN is a round that failed.
func row(name string, values ...float64) *Row {
	r := &Row{Name: name}
	for _, v := range values {
		if math.IsNaN(v) {
			r.Samples = append(r.Samples, nil)
		} else {
			r.Samples = append(r.Samples, Sample{"x": v, "bad": v})
		}
	}
	return r
}

func TestRatioIsOfRounds(t *testing.T) {
	failed := math.NaN()
	for name, test := range map[string]struct {
		of, to *Row
		want   float64
	}{
		// The medians' ratio would be 1: the machine became slower, for both.
		"a machine that changes": {row("", 1, 10, 100), row("", 2, 20, 200), 0.5},
		"a failed round":         {row("", 1, failed, 3), row("", 2, 1, 6), 0.5},
		"another's failed round": {row("", 1, 7, 3), row("", 2, failed, 6), 0.5},
		"fewer rounds":           {row("", 1), row("", 4, 8), 0.25},
		"to nothing":             {row("", 1), row("", 0), math.NaN()},
		"never measured":         {row("", failed), row("", 2), math.NaN()},
	} {
		if got := ratio(test.of, test.to, "x"); got != test.want && !(math.IsNaN(got) && math.IsNaN(test.want)) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	if got := (Column{Digits: 2}).text(12345.678); got != "12,345.68" {
		t.Errorf("12345.678 is %q", got)
	}
}

// table has every kind of row and column.
func table() *Table {
	ours := row("ours & <us>", 1, 3, 2)
	ours.Ours = true
	failed := row("failed", math.NaN())
	failed.Errors = []string{"it is broken"}
	return &Table{
		Title: "Cost", Note: "Of all.", Reference: "peer",
		Columns: []Column{{Key: "x", Name: "µs", Digits: 1}, {Key: "bad", Name: "lost", Fault: true}, {Key: "none", Name: "none"}},
		Rows:    []*Row{ours, row("peer", 4, 1200, 4), failed},
		Missing: []string{"another (Debian: another)"},
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	if err := table().Markdown(&b); err != nil {
		t.Fatal(err)
	}
	const want = `
### Cost

Of all.

|             |                µs | ratio | lost (worst) | none |
|-------------|------------------:|------:|-------------:|-----:|
| ours & <us> |     2.0 (1.0–3.0) |  0.25 |            3 |    – |
| peer        | 4.0 (4.0–1,200.0) |  1.00 |        1,200 |    – |
| failed      |                 – |     – |            – |    – |

Not measured: another (Debian: another).

Failed: failed: it is broken
`
	if got := b.String(); got != want {
		t.Errorf("table is\n%s\nwant\n%s", got, want)
	}
}

func TestTablesWithoutAReference(t *testing.T) {
	table := table()
	table.Reference = "nobody"
	var b strings.Builder
	if err := table.Markdown(&b); err != nil || !strings.Contains(b.String(), "2.0 (1.0–3.0) |     – |") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// texts are the texts of an SVG, and the number of its bars. It fails if the
// picture is no XML.
func texts(t *testing.T, picture string) (all []string, bars int) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			return all, bars - 1 // the background is no bar
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "rect" {
				bars++
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" {
				all = append(all, text)
			}
		}
	}
}

func TestPicture(t *testing.T) {
	empty := &Table{Title: "Nothing", Columns: []Column{{Key: "x", Name: "req/s", High: true}}, Rows: []*Row{row("zero", 0), row("never")}}
	var b strings.Builder
	if err := Picture(&b, "All & <some>", "how", []*Table{table(), empty}); err != nil {
		t.Fatal(err)
	}
	all, bars := texts(t, b.String())
	if bars != 3 {
		t.Errorf("%d bars, want those of ours, the peer and zero:\n%s", bars, b.String())
	}
	shown := strings.Join(all, "\n")
	for _, want := range []string{
		"All & <some>", "Cost", "µs, less is better; (ratio to “peer”)", "ours & <us>", "2.0 (0.25 ×), lost: 3", "4.0, lost: 1,200\n", "failed\n–", "req/s, more is better",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the picture lacks %q:\n%s", want, shown)
		}
	}
	if strings.Contains(b.String(), "NaN") {
		t.Errorf("the picture has a NaN:\n%s", b.String())
	}
}
