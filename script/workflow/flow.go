package workflow

import (
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// terminal warns about code that an awaited mutate call ends. The call is the
// tokens from i to end. Only what certainly never runs is named: the statements
// after it in its own block, and what would use its result.
func (w *walk) terminal(i, end int, tool keep.ToolName) {
	toks := w.f.tokens
	if !w.f.isName(i-1, "await") {
		return // what still runs before the host takes the call cannot be told
	}
	const fix = "the result goes to next, as mutationResult.result"
	next := end
	if next < w.to && w.endsStatement(end-1, next) {
		if w.conditional(i - 1) {
			return
		}
		for next < w.to && toks[next].is(";") {
			next++
		}
		if next >= w.to || toks[next].closes() || toks[next].kind == tName &&
			slices.Contains([]string{"else", "case", "default", "break", "continue", "return"}, toks[next].text) {
			return
		}
		w.find(Warning, DeadCode, w.position(next), w.where, fmt.Sprintf("never runs: %s is called before it and ends mutate", tool), fix)
		return
	}
	if next < w.to && !toks[next].is("}") {
		w.find(Warning, DeadCode, w.position(i), w.where, fmt.Sprintf("nothing uses what %s returns here: the call ends mutate", tool), fix)
	}
}

// endsStatement reports whether a statement ends between the tokens last and
// next: with a semicolon, or with a line that cannot be continued.
func (w *walk) endsStatement(last, next int) bool {
	if w.f.tokens[next].is(";") {
		return true
	}
	newLine := w.f.lineOf(next) > w.f.lineOf(last)
	return newLine && w.f.tokens[next].kind != tPunct
}

// conditional reports whether the statement around token i, an await, hangs on
// an if, else or loop without braces, so that what follows may run.
func (w *walk) conditional(i int) bool {
	toks := w.f.tokens
	for i > w.from && !toks[i-1].is(";") && !toks[i-1].is("{") && !toks[i-1].is("}") {
		if i--; toks[i].is(")") || w.f.isName(i, "else") || w.f.isName(i, "do") {
			return true
		}
	}
	return false
}

// caught warns about each catch around a call of a tool (law: not-catchable).
func (w *walk) caught() {
	for i := w.from; i+1 < w.to && len(w.report.Findings) < maxProblems; i++ {
		if !w.f.isName(i, "try") || !w.f.tokens[i+1].is("{") {
			continue
		}
		end := w.f.match(i + 1)
		if end+1 >= w.to || !w.f.isName(end+1, "catch") {
			continue
		}
		if slices.ContainsFunc(w.calls, func(s span) bool { return i < s.key && s.key < end }) {
			w.find(Warning, UncatchableError, w.position(end+1), w.placeAt(i),
				"never sees the failure of a tool: the host ends the phase and decides what to do", "")
		}
	}
}
