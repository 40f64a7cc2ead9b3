package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Table compares rows by one figure, and shows others beside it.
type Table struct {
	Title     string
	Note      string // what a reader must know; may be empty
	Reference string // name of the row that ratios are to
	Columns   []Column
	Rows      []*Row
	Missing   []string // rows that could not be measured here, and why
}

// A Column is a figure. The first column of a table is the one compared.
type Column struct {
	Key    string
	Name   string // with its unit
	Digits int    // after the point
	High   bool   // more is better
	Worst  bool   // show the highest of all rounds
	Fault  bool   // ought to be 0: shown as the worst, and in the picture if it is not 0
}

// A Row is one program, or one way to do the work.
type Row struct {
	Name    string
	Ours    bool     // set off in the picture
	Samples []Sample // one a round; nil where it failed
	Errors  []string
}

// values are a row's figures of all rounds that have one.
func (r *Row) values(key string) []float64 {
	var values []float64
	for _, sample := range r.Samples {
		if v, ok := sample[key]; ok {
			values = append(values, v)
		}
	}
	return values
}

// figure is what a column shows of a row; NaN if there is nothing.
func (c Column) figure(r *Row) float64 {
	values := r.values(c.Key)
	if (c.Worst || c.Fault) && len(values) > 0 {
		return slices.Max(values)
	}
	return median(values)
}

// text is a figure as a reader wants it; a dash if there is none.
func (c Column) text(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return group(strconv.FormatFloat(v, 'f', c.Digits, 64))
}

// Thousands is n as people write it: 20,000.
func Thousands(n int) string { return group(strconv.Itoa(n)) }

// group sets commas between thousands.
func group(number string) string {
	whole, fraction, _ := strings.Cut(number, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}

// withRange is the median, and the lowest and the highest if they differ.
func (c Column) withRange(r *Row) string {
	values := r.values(c.Key)
	text := c.text(c.figure(r))
	if len(values) < 2 {
		return text
	}
	return fmt.Sprintf("%s (%s–%s)", text, c.text(slices.Min(values)), c.text(slices.Max(values)))
}

// reference is the row that ratios are to; nil if it was not measured.
func (t *Table) reference() *Row {
	for _, row := range t.Rows {
		if row.Name == t.Reference {
			return row
		}
	}
	return nil
}

// Markdown writes the table, for a terminal as for a page.
func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(&b, "%s\n\n", t.Note)
	}
	writeGrid(&b, t.grid())
	for _, missing := range t.Missing {
		fmt.Fprintf(&b, "\nNot measured: %s.\n", missing)
	}
	for _, row := range t.Rows {
		for _, err := range row.Errors {
			fmt.Fprintf(&b, "\nFailed: %s: %s\n", row.Name, err)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// grid is the table's cells, headings first.
func (t *Table) grid() [][]string {
	first := t.Columns[0]
	reference := t.reference()
	head := []string{"", first.Name, "ratio"}
	for _, column := range t.Columns[1:] {
		name := column.Name
		if column.Worst || column.Fault {
			name += " (worst)"
		}
		head = append(head, name)
	}
	grid := [][]string{head}
	for _, row := range t.Rows {
		cells := []string{row.Name, first.withRange(row), "–"}
		if reference != nil {
			cells[2] = Column{Digits: 2}.text(ratio(row, reference, first.Key))
		}
		for _, column := range t.Columns[1:] {
			cells = append(cells, column.text(column.figure(row)))
		}
		grid = append(grid, cells)
	}
	return grid
}

// writeGrid writes cells as a markdown table whose columns are aligned: names
// to the left, figures to the right.
func writeGrid(b *strings.Builder, grid [][]string) {
	widths := make([]int, len(grid[0]))
	for _, cells := range grid {
		for i, cell := range cells {
			widths[i] = max(widths[i], len([]rune(cell)), 2)
		}
	}
	for n, cells := range grid {
		for i, cell := range cells {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i == 0 {
				fmt.Fprintf(b, "| %s%s |", cell, pad)
			} else {
				fmt.Fprintf(b, " %s%s |", pad, cell)
			}
		}
		b.WriteByte('\n')
		if n == 0 {
			for i, width := range widths {
				if i == 0 {
					fmt.Fprintf(b, "|%s|", strings.Repeat("-", width+2))
				} else {
					fmt.Fprintf(b, "%s:|", strings.Repeat("-", width+1))
				}
			}
			b.WriteByte('\n')
		}
	}
}
