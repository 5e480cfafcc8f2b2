package config

import (
	"fmt"
	"slices"
	"strings"
)

// A Problem is one thing that is wrong, or odd, with a configuration. It holds
// no secrets.
type Problem struct {
	File    string `json:"file"`    // keep.toml as it was named, or the name of a variable
	Line    int    `json:"line"`    // from 1; zero: no line
	Column  int    `json:"column"`  // from 1, in characters; zero: no line
	Path    string `json:"path"`    // of the key, such as connections.crm.base_url; may be empty
	Message string `json:"message"` // what is wrong
	Fix     string `json:"fix"`     // what to do; empty: the message says it

	// Unusable: what is named is there, and refused wherever it is used.
	Unusable bool `json:"-"`
}

// String is the problem on one line, place first.
func (p Problem) String() string {
	s := p.Where() + ": "
	if p.Path != "" {
		s += p.Path + ": "
	}
	s += p.Message
	if p.Fix != "" {
		s += " (" + p.Fix + ")"
	}
	return s
}

// Where returns file:line:column, or the file alone.
func (p Problem) Where() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// An Error holds everything that is wrong with a configuration, sorted by place.
type Error struct {
	Problems []Problem
}

// Error has one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the problems in the order of a reader of the file, each once.
func sorted(ps []Problem) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		switch {
		case a.File != b.File:
			return strings.Compare(a.File, b.File)
		case a.Line != b.Line:
			return a.Line - b.Line
		case a.Column != b.Column:
			return a.Column - b.Column
		}
		return strings.Compare(a.Path, b.Path)
	})
	return slices.Compact(ps)
}

// asError returns nil if there are no problems.
func asError(ps []Problem) error {
	if len(ps) == 0 {
		return nil
	}
	return &Error{Problems: sorted(ps)}
}
