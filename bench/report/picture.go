package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// The picture's measures, in pixels.
const (
	pictureWidth = 960
	nameWidth    = 250
	figureWidth  = 270
	barsWidth    = pictureWidth - nameWidth - figureWidth - 20
	rowHeight    = 22
	titleHeight  = 46
	headHeight   = 64
)

// Picture writes an SVG: for each table its first column as bars, ours set
// off, thin lines from the lowest to the highest round, figures and ratios
// beside them.
func Picture(w io.Writer, title, subtitle string, tables []*Table) error {
	var b strings.Builder
	y := headHeight
	for _, table := range tables {
		y = drawTable(&b, table, y)
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="#ffffff"/>
<text x="16" y="28" font-size="19" font-weight="600" fill="#1c1917">%[3]s</text>
<text x="16" y="48" fill="#57534e">%[4]s</text>
%[5]s</svg>
`, pictureWidth, y+16, html.EscapeString(title), html.EscapeString(subtitle), b.String())
	return err
}

// drawTable draws one table from height y on, and returns where it ends.
func drawTable(b *strings.Builder, t *Table, y int) int {
	column := t.Columns[0]
	about := column.Name + ", less is better"
	if column.High {
		about = column.Name + ", more is better"
	}
	if t.reference() != nil {
		about += "; (ratio to “" + t.Reference + "”)"
	}
	fmt.Fprintf(b, "<text x=\"16\" y=\"%d\" font-weight=\"600\" fill=\"#1c1917\">%s</text>\n", y+20, html.EscapeString(t.Title))
	fmt.Fprintf(b, "<text x=\"16\" y=\"%d\" fill=\"#57534e\" font-size=\"12\">%s</text>\n", y+37, html.EscapeString(about))
	y += titleHeight
	scale := scaleOf(t, column)
	for _, row := range t.Rows {
		drawRow(b, t, row, y, scale)
		y += rowHeight
	}
	return y
}

// scaleOf is pixels for one unit of a column, so that its longest line fits.
func scaleOf(t *Table, column Column) float64 {
	longest := 0.0
	for _, row := range t.Rows {
		for _, v := range row.values(column.Key) {
			longest = max(longest, v)
		}
	}
	if longest == 0 {
		return 0
	}
	return barsWidth / longest
}

// drawRow draws a row's name, bar, range and figures.
func drawRow(b *strings.Builder, t *Table, row *Row, y int, scale float64) {
	column := t.Columns[0]
	middle := y + rowHeight/2
	colour, weight := "#a8a29e", "400"
	if row.Ours {
		colour, weight = "#c2410c", "600"
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" font-weight=\"%s\" fill=\"#1c1917\">%s</text>\n",
		nameWidth-8, middle+4, weight, html.EscapeString(row.Name))
	figure := column.figure(row)
	end := float64(nameWidth)
	if !math.IsNaN(figure) {
		values := row.values(column.Key)
		low, high := slices.Min(values)*scale, slices.Max(values)*scale
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", nameWidth, y+4, figure*scale, rowHeight-8, colour)
		fmt.Fprintf(b, "<path d=\"M%.1f %dH%.1f\" stroke=\"#1c1917\"/>\n", nameWidth+low, middle, nameWidth+high)
		end += max(high, figure*scale)
	}
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" font-weight=\"%s\" fill=\"#1c1917\">%s</text>\n", end+8, middle+4, weight, html.EscapeString(t.figures(row)))
}

// figures are what stands beside a row's bar: the figure, its ratio, and what
// went wrong, since who loses messages is cheap.
func (t *Table) figures(row *Row) string {
	column := t.Columns[0]
	text := column.text(column.figure(row))
	if reference := t.reference(); reference != nil && reference != row {
		text += " (" + Column{Digits: 2}.text(ratio(row, reference, column.Key)) + " ×)"
	}
	for _, column := range t.Columns {
		if v := column.figure(row); column.Fault && v > 0 {
			text += fmt.Sprintf(", %s: %s", column.Name, column.text(v))
		}
	}
	return text
}
