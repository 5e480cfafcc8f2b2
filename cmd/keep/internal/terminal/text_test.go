package terminal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/law/approval"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":              "plain",
		"añ語😀":               "añ語😀",
		"a\x1b[31mb":         `a\u001b[31mb`,
		"a\u202eb":           `a\u202eb`,
		"a\u2066b\u2069":     `a\u2066b\u2069`,
		"a\nb\tc\r":          `a\nb\tc\u000d`,
		"a\u009b1m":          `a\u009b1m`,
		"bad\xff":            `bad\xff`,
		"zero\u200bwidth":    `zero\u200bwidth`,
		"tag\U000e0041":      `tag\U000e0041`,
		"\ufffd stays":       "\ufffd stays",
		"family 👨‍👩‍👧 stays": "family 👨‍👩‍👧 stays",
	} {
		if got := Clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := CleanText("a\n\tb\x1b"); got != "a\n\tb\\u001b" {
		t.Errorf("cleanText keeps lines: %q", got)
	}
}

// Whatever comes in, what goes out is safe, valid and not longer than allowed.
func FuzzClean(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff\n", 10)
	f.Fuzz(func(t *testing.T, s string, n int) {
		got := Clean(s)
		if strings.IndexFunc(got, keep.Deceives) >= 0 || !utf8.ValidString(got) {
			t.Errorf("clean(%q) = %q is not safe", s, got)
		}
		if n > 0 && Columns(CutTo(got, n)) > n {
			t.Errorf("cutTo(%q, %d) has %d columns", got, n, Columns(CutTo(got, n)))
		}
		text, err := SafeJSON(s, "")
		var back string
		if err != nil || json.Unmarshal([]byte(text), &back) != nil || strings.IndexFunc(text, keep.Deceives) >= 0 {
			t.Errorf("safeJSON(%q) = %q, %v", s, text, err)
		}
		if utf8.ValidString(s) && back != s {
			t.Errorf("safeJSON(%q) says %q", s, back)
		}
		excerpt(s, n)
	})
}

func TestTableAlignsWideAndHostileCells(t *testing.T) {
	tab := Table{Header: []string{"A", "B"}}
	tab.Add("語語", "x")
	tab.Add("e\u0301", "y")
	tab.Add("\u202e", "z")
	var b bytes.Buffer
	if err := tab.Print(&b, false); err != nil {
		t.Fatal(err)
	}
	want := "A       B\n語語    x\ne\u0301       y\n\\u202e  z\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestRelative(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "now", -500 * time.Millisecond: "now", -90 * time.Second: "1m ago", 2 * time.Hour: "in 2h",
		-47 * time.Hour: "47h ago", -49 * time.Hour: "2d ago", 45 * time.Second: "in 45s",
	} {
		if got := relative(d); got != want {
			t.Errorf("relative(%s) = %q, want %q", d, got, want)
		}
	}
}

func TestExcerptPointsAtThePlace(t *testing.T) {
	for _, c := range []struct {
		line   string
		column int // UTF-16
		at     string
	}{
		{"const x = ;", 11, ";"},
		{"\tx(", 2, "x("},
		{"😀😀 y", 6, "y"}, // two units each
		{"語 z", 3, "z"},
		{strings.Repeat("a", 300) + "!" + strings.Repeat("b", 300), 301, "!"},
		{"short", 99, ""},
		{"", 1, ""},
	} {
		text, caret := excerpt(c.line, c.column)
		rest, used := text, 0
		for rest != "" && used < caret {
			r, n := utf8.DecodeRuneInString(rest)
			used += RuneColumns(r)
			rest = rest[n:]
		}
		if !strings.HasPrefix(rest, c.at) || Columns(text) > maxExcerpt+2 {
			t.Errorf("excerpt(%.20q, %d) = %q, %d: the mark is at %q, want at %q", c.line, c.column, text, caret, rest, c.at)
		}
	}
}

// A line of marks that take no column is shown in a time that grows with its length: a script whose line is one must not hold keep check.
func TestExcerptOfMarks(t *testing.T) {
	cost := func(marks int) float64 {
		line := strings.Repeat("\u0301", marks) + strings.Repeat("a", 60)
		return testing.AllocsPerRun(1, func() { excerpt(line, marks+60) })
	}
	if few, many := cost(100), cost(2000); many > 2*few {
		t.Errorf("2000 marks make %.0f texts, and 100 of them %.0f", many, few)
	}
}

// No line of what a script wrote looks like one of Keep, in the log and in a question.
func TestNoLineOfAScriptBeginsOne(t *testing.T) {
	const fake = "ok\nkeep: Deploy version 2.0 of pay? Write yes: "
	var out bytes.Buffer
	term := New(&out, &out)
	term.LogLine("w", keep.LogLine{Level: "info", Text: fake})
	q := api.Escalation{ID: "q", Workflow: "w", Question: fake, Attempted: fake, Actions: []api.Choice{{Action: "retry", Effect: fake}},
		Marks: []approval.Mark{{Path: "p", Detail: fake}}}
	text := out.String() + "\n" + term.OutInk.QuestionText(q)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "keep:") {
			t.Errorf("a line of a script begins one:\n%s", text)
		}
	}
}
