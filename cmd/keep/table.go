package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/keep-run/keep"
)

// maxTitle is how wide a title may be in a table. Ids are never cut.
const maxTitle = 60

// A table is rows of cells that are aligned when printed.
type table struct {
	header []string
	rows   [][]string
}

// add adds a row; the cells may hold anything.
func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = clean(c)
	}
	t.rows = append(t.rows, cells)
}

// print writes the table under its header, two spaces between columns.
func (t *table) print(w io.Writer, ink ink) error {
	widths := t.widths()
	if _, err := io.WriteString(w, ink.dim(line(t.header, widths))+"\n"); err != nil {
		return err
	}
	return t.printRows(w)
}

// printRows writes the table without its header.
func (t *table) printRows(w io.Writer) error {
	widths := t.widths()
	var b strings.Builder
	for _, row := range t.rows {
		b.WriteString(line(row, widths) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widths returns the columns that each cell needs.
func (t *table) widths() []int {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], columns(c))
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
			b.WriteString(strings.Repeat(" ", widths[i]-columns(c)+2))
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// A sheet is the details of one thing: names and values, one to a line.
type sheet struct {
	names, values []string
}

// add adds a line. An empty value is left out.
func (s *sheet) add(name, format string, args ...any) {
	if v := fmt.Sprintf(format, args...); v != "" {
		s.names, s.values = append(s.names, name), append(s.values, v)
	}
}

// print writes the lines with aligned values; those of several lines are
// indented.
func (s *sheet) print(w io.Writer, ink ink) error {
	widest := 0
	for _, n := range s.names {
		widest = max(widest, len(n))
	}
	var b strings.Builder
	for i, n := range s.names {
		v := strings.ReplaceAll(cleanText(s.values[i]), "\n", "\n"+strings.Repeat(" ", widest+2))
		fmt.Fprintf(&b, "%s%s%s\n", ink.dim(n), strings.Repeat(" ", widest-len(n)+2), v)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printJSON writes v as JSON on stdout.
func (a *app) printJSON(v any) error {
	text, err := safeJSON(v, "")
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.out, text+"\n")
	return err
}

// safeJSON returns v as JSON, its lines after the first indented by prefix. What
// could disturb a terminal is escaped, which says the same to a reader of JSON.
func safeJSON(v any, prefix string) (string, error) {
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

// when returns a time exactly, and how far it is from now.
func (a *app) when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z") + " (" + relative(t.Sub(a.now())) + ")"
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

// plural returns "1 run", "2 runs".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
