package repair

import (
	"slices"

	"github.com/keep-run/keep/internal/javascript"
)

// An around is what a token is in: how many loops execute it again, how many functions leave to their callers when and how often it
// is executed, and how many braces are open.
type around struct{ loops, functions, braces int }

// A nest knows what the token is in that it noted last. Where it is not certain that a statement without braces has ended, what comes
// next counts as a part of it.
type nest struct {
	now  around
	open []level
	last javascript.Token // of the grammar
}

// A level is a bracket that is open.
type level struct{ before, within around }

// continues are the names that continue a statement behind a brace.
var continues = []string{"else", "while", "catch", "finally", "in", "instanceof", "as", "satisfies"}

// note learns from the next token of the grammar.
func (n *nest) note(t javascript.Token) {
	switch {
	case t.Kind == javascript.Name && !n.last.Is(".") && !n.last.Is("?."):
		n.name(t.Text)
	case t.Kind == javascript.Punct:
		n.sign(t.Text)
	}
	n.last = t
}

func (n *nest) name(text string) {
	// No loop and no arrow has a declaration as its body.
	if text == "const" || text == "let" || n.last.Is("}") && !slices.Contains(continues, text) {
		n.end()
	}
	switch text {
	case "for", "while", "do":
		n.now.loops++
	case "function":
		n.now.functions++
	}
}

func (n *nest) sign(text string) {
	switch text {
	case "=>":
		n.now.functions++
	case ";":
		n.end()
	case "(", "[", "{", "${":
		l := level{n.now, n.now}
		if text == "{" {
			l.within.braces++
		}
		n.open, n.now = append(n.open, l), l.within
	case ")", "]", "}":
		if last := len(n.open) - 1; last >= 0 {
			n.open, n.now = n.open[:last], n.open[last].before
		}
	}
}

// end ends a statement.
func (n *nest) end() {
	n.now = around{}
	if last := len(n.open) - 1; last >= 0 {
		n.now = n.open[last].within
	}
}
