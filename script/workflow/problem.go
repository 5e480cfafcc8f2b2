package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep/internal/spelling"
)

// A Position is a place in the author's files. Line and Column count from 1, the
// column in UTF-16 units as JavaScript tools do. A zero Line is an unknown place.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// IsZero reports whether nothing is known about the place.
func (p Position) IsZero() bool { return p.Line == 0 }

// String returns file:line:column, or nothing for an unknown place.
func (p Position) String() string {
	if p.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// compare orders positions as a reader meets them.
func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// A Problem is one thing that is wrong with a declaration.
type Problem struct {
	Position
	Path    string `json:"path"`    // such as consumers.addRow.subscribe[0]
	Message string `json:"message"` // what is wrong
	Fix     string `json:"fix"`     // what to write; empty: the message says it
}

// String is the problem on one line, place first.
func (p Problem) String() string {
	var b strings.Builder
	for _, part := range []string{p.Position.String(), p.Path} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(p.Message)
	if p.Fix != "" {
		b.WriteString(" (" + p.Fix + ")")
	}
	return b.String()
}

// A DeclarationError holds everything that is wrong with a declaration, sorted
// by place. It is a failure of class logic.
type DeclarationError struct {
	Problems []Problem `json:"problems"`
}

// Error lists the problems, one to a line.
func (e *DeclarationError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sortProblems orders problems by place; the unplaced ones come first.
func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(a.Position.compare(b.Position), cmp.Compare(a.Path, b.Path))
	})
}

// nearest returns the word that s was probably meant to be, or nothing. Words of
// two letters or less are all near each other, so they must be the same but for
// capitals.
func nearest(s string, words []string) string {
	best, bestDistance := "", max(1, len(s)/3)+1
	if len(s) <= 2 {
		bestDistance = 1
	}
	for _, w := range words {
		if d := spelling.Distance(strings.ToLower(s), strings.ToLower(w)); d < bestDistance {
			best, bestDistance = w, d
		}
	}
	return best
}

// didYouMean is the fix for a word that is not among words.
func didYouMean(s string, words []string) string {
	if w := nearest(s, words); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return ""
}
