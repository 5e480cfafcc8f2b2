package terminal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// severityError is the severity of what keeps a script from running.
const severityError = "error"

// A Problem is one thing wrong with a script or the configuration, as people
// and editors are notified of it.
type Problem struct {
	Severity string `json:"severity"` // error, warning or note
	Code     string `json:"code"`     // names the kind of problem, for programs
	File     string `json:"file"`     // as the person would open it
	Line     int    `json:"line"`     // from 1; 0: no line
	Column   int    `json:"column"`   // from 1, in UTF-16 units; 0: no line
	Message  string `json:"message"`
	Fix      string `json:"fix"`    // empty: the message says it
	Source   string `json:"source"` // the line of code; empty: not shown
}

// String is the complaint on one line: file:line:column: message (fix).
func (c Problem) String() string {
	var b strings.Builder
	if c.File != "" {
		b.WriteString(c.File)
		if c.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", c.Line, c.Column)
		}
		b.WriteString(": ")
	}
	if c.Severity != severityError {
		b.WriteString(c.Severity + ": ")
	}
	b.WriteString(WithFix(c.Message, c.Fix))
	return b.String()
}

// MarshalJSON writes what is not known as null.
func (c Problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Severity string  `json:"severity"`
		Code     string  `json:"code"`
		File     *string `json:"file"`
		Line     int     `json:"line"`
		Column   int     `json:"column"`
		Message  string  `json:"message"`
		Fix      *string `json:"fix"`
		Source   *string `json:"source"`
	}{c.Severity, c.Code, OrNull(c.File), c.Line, c.Column, c.Message, OrNull(c.Fix), OrNull(c.Source)})
}

// OrNull returns a text for JSON: null if it is empty, which says that it is not known.
func OrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// WithFix adds to a message how to fix it.
func WithFix(message, fix string) string {
	if fix == "" {
		return message
	}
	return message + " (" + fix + ")"
}

// Short returns a path relative to the working directory if that is shorter.
func Short(file string) string {
	wd, err := os.Getwd()
	if err != nil {
		return file
	}
	if rel, err := filepath.Rel(wd, file); err == nil && len(rel) < len(file) {
		return rel
	}
	return file
}

// misused is the status of a command whose script or keep.toml is wrong; see package exit, which is above this one.
const misused = 2

// PrintProblems tells of problems on stderr, each with its line of code.
func (t *Terminal) PrintProblems(found []Problem) {
	if t.JSON && len(found) > 0 {
		said := map[string]any{"problems": found}
		if HasErrors(found) { // then the command ends with it, as any error is said
			said["exit_code"], said["errors"] = misused, []any{}
		}
		if text, err := SafeJSON(said, ""); err == nil {
			fmt.Fprintln(t.Err, text)
			return
		}
	}
	for _, c := range found {
		fmt.Fprint(t.Err, t.Ink.Problem(c))
	}
}

// SortProblems puts problems in the order of their places; files stay in the
// order in which they were read.
func SortProblems(found []Problem) {
	order := make(map[string]int)
	for _, c := range found {
		if _, known := order[c.File]; !known {
			order[c.File] = len(order)
		}
	}
	slices.SortStableFunc(found, func(a, b Problem) int {
		return cmp.Or(order[a.File]-order[b.File], a.Line-b.Line, a.Column-b.Column)
	})
}

// HasErrors reports whether one of the problems is an error.
func HasErrors(found []Problem) bool {
	return slices.ContainsFunc(found, func(c Problem) bool { return c.Severity == severityError })
}

// Problem returns c with its line of code and a mark below the place.
func (i Ink) Problem(c Problem) string {
	paint := i.Red
	if c.Severity != severityError {
		paint = i.Yellow
	}
	c.File = Clean(c.File) // on one line: the rest of it is none of Keep's
	s := paint(CleanText(c.String())) + "\n"
	if strings.TrimSpace(c.Source) == "" {
		return s
	}
	source, caret := excerpt(c.Source, c.Column)
	number := fmt.Sprintf("%5d", c.Line)
	return s + i.Dim(number+" | ") + source + "\n" + i.Dim(strings.Repeat(" ", len(number))+" | ") +
		strings.Repeat(" ", caret) + paint("^") + "\n"
}

// maxExcerpt is how wide a line of code is shown.
const maxExcerpt = 100

// excerpt returns the part of a line around a column, safe to show, and how many
// columns of the terminal come before the place.
func excerpt(line string, column int) (text string, caret int) {
	units := utf16.Encode([]rune(line))
	from := min(max(column-1, 0), len(units))
	before, after := string(utf16.Decode(units[:from])), string(utf16.Decode(units[from:]))
	before = Clean(strings.ReplaceAll(before, "\t", "    "))
	before = endOf(before, maxExcerpt/2)
	after = CutTo(Clean(strings.ReplaceAll(after, "\t", "    ")), maxExcerpt-Columns(before))
	return before + after, Columns(before)
}

// endOf returns the end of s in at most n columns. It looks at each character once: those that take no column may be many.
func endOf(s string, n int) string {
	if Columns(s) <= n {
		return s
	}
	at, used := len(s), 0
	for at > 0 {
		r, size := utf8.DecodeLastRuneInString(s[:at])
		if used += RuneColumns(r); used > n-1 {
			break
		}
		at -= size
	}
	return "…" + s[at:]
}
