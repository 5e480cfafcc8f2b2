package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/keep-run/keep"
)

// MaxTitle is how wide a title may be in a table. Ids are never cut.
const MaxTitle = 60

// A Table is rows of cells that are aligned when printed.
type Table struct {
	Header []string
	rows   [][]string
}

// Add adds a row; the cells may hold anything.
func (t *Table) Add(cells ...string) {
	for i, c := range cells {
		cells[i] = Clean(c)
	}
	t.rows = append(t.rows, cells)
}

// Print writes the table under its header, two spaces between columns.
func (t *Table) Print(w io.Writer, ink Ink) error {
	widths := t.widths()
	if _, err := io.WriteString(w, ink.Dim(line(t.Header, widths))+"\n"); err != nil {
		return err
	}
	return t.PrintRows(w)
}

// PrintRows writes the table without its header.
func (t *Table) PrintRows(w io.Writer) error {
	widths := t.widths()
	var b strings.Builder
	for _, row := range t.rows {
		b.WriteString(line(row, widths) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widths returns the columns that each cell needs.
func (t *Table) widths() []int {
	widths := make([]int, len(t.Header))
	for _, row := range append([][]string{t.Header}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], Columns(c))
		}
	}
	return widths
}

// line returns one row, its cells padded to the widths.
func line(row []string, widths []int) string {
	var b strings.Builder
	for i, c := range row {
		b.WriteString(c)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-Columns(c)+2))
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// A Sheet is the details of one thing: names and values, one to a line.
type Sheet struct {
	names, values []string
}

// Add adds a line. An empty value is left out.
func (s *Sheet) Add(name, format string, args ...any) {
	if v := fmt.Sprintf(format, args...); v != "" {
		s.names, s.values = append(s.names, name), append(s.values, v)
	}
}

// Print writes the lines with aligned values; those of several lines are
// indented.
func (s *Sheet) Print(w io.Writer, ink Ink) error {
	widest := 0
	for _, n := range s.names {
		widest = max(widest, len(n))
	}
	var b strings.Builder
	for i, n := range s.names {
		v := strings.ReplaceAll(CleanText(s.values[i]), "\n", "\n"+strings.Repeat(" ", widest+2))
		fmt.Fprintf(&b, "%s%s%s\n", ink.Dim(n), strings.Repeat(" ", widest-len(n)+2), v)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// SafeJSON returns v as JSON, its lines after the first indented by prefix. What
// could disturb a terminal is escaped, which says the same to a reader of JSON.
func SafeJSON(v any, prefix string) (string, error) {
	data, err := json.MarshalIndent(v, prefix, "  ")
	if err != nil {
		return "", fmt.Errorf("write JSON: %w", err)
	}
	var b strings.Builder
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		switch {
		case r < 0x7f || !keep.Deceives(r):
			b.Write(data[i : i+n])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String(), nil
}

// relative says how far away a time is: "5m ago", "in 2h".
func relative(d time.Duration) string {
	past := d < 0
	if past {
		d = -d
	}
	var s string
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		s = fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		s = fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		s = fmt.Sprintf("%dh", d/time.Hour)
	default:
		s = fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	if past {
		return s + " ago"
	}
	return "in " + s
}

// Plural returns "1 run", "2 runs".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Number is a cell of a table.
func Number(n int) string { return strconv.Itoa(n) }

// OrEmpty returns the text of a value that may be absent.
func OrEmpty[S ~string](s *S) string {
	if s == nil {
		return ""
	}
	return string(*s)
}

// OrDash is OrEmpty for tables, where an empty cell looks like a mistake.
func OrDash[S ~string](s *S) string {
	if s == nil {
		return "-"
	}
	return Clean(string(*s))
}
