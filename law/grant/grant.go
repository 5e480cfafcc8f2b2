// Package grant decides whether a workflow may make a call: whether its grant names the
// tool, and what the conditions of the grant say about the params (law: permitted).
//
// # Conditions
//
// A condition is an expression of the Common Expression Language over params, what the
// script passed, that is true or false. Numbers without a fraction are integers, the
// others doubles, and both compare with each other. Conditions and params may be hostile:
// an expression has a length and a depth, its cost is estimated before it is accepted and
// counted while it is evaluated. What cannot be evaluated, since a param is missing or of
// another type, or since it costs too much, is never a yes: the call is refused when the
// condition is a when, and a person is asked when it is an approve.
//
// As the language has it, what is true whatever a missing param was is true:
// params.a == 1 || true. A condition that must not hold without a param says
// has(params.a) && params.a == 1.
package grant

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// Always is an approve condition that asks before each call.
const Always = "always"

// Rules are the tools of a grant with their conditions, ready to decide. They may be used
// by several goroutines. The zero Rules allow nothing.
type Rules struct{ entries []entry }

// An entry is one keep.GrantedTool.
type entry struct {
	keep.GrantedTool
	when, approve *Condition // nil: there is none
}

// A ConditionError says why a condition of a grant is refused.
type ConditionError struct {
	Tool string // as the grant names it
	Key  string // when or approve
	Text string
	Err  error
}

// Error names the tool, the key and why.
func (e *ConditionError) Error() string {
	return fmt.Sprintf("%s of %s: %q: %v", e.Key, e.Tool, e.Text, e.Err)
}

// Unwrap returns why.
func (e *ConditionError) Unwrap() error { return e.Err }

// Compile returns the rules of the tools of a grant. The error joins a *ConditionError for
// each condition that cannot be used; the rules can be used nevertheless, and such a
// condition is never a yes.
func Compile(tools []keep.GrantedTool) (*Rules, error) {
	r := &Rules{entries: make([]entry, 0, len(tools))}
	var errs []error
	length := 0
	compile := func(text string) (*Condition, error) {
		if length += len(text); length > MaxConditions {
			return nil, fmt.Errorf("the conditions of a grant have at most %d characters together", MaxConditions)
		}
		return CompileCondition(text)
	}
	for _, t := range tools {
		e := entry{GrantedTool: t}
		var err error
		if t.When != "" {
			if e.when, err = compile(t.When); err != nil {
				errs = append(errs, &ConditionError{t.Tool, "when", t.When, err})
			}
		}
		if t.Approve != "" {
			if e.approve, err = compile(approveText(t.Approve)); err != nil {
				errs = append(errs, &ConditionError{t.Tool, "approve", t.Approve, err})
			}
		}
		r.entries = append(r.entries, e)
	}
	return r, errors.Join(errs...)
}

func approveText(s string) string {
	if s == Always {
		return "true"
	}
	return s
}

// A Verdict says what a grant says about a call.
type Verdict struct {
	Allowed bool
	Why     string // why it is not allowed; or else why a person must agree
	Ask     bool   // a person must agree; only if it is allowed
}

// Check decides about a call of a tool with params, a JSON object. Of several entries about
// the tool the strictest one counts. An entry about a name that the tool had before allows
// nothing, and its conditions count.
func (r *Rules) Check(tool keep.ToolName, params []byte, before ...keep.ToolName) Verdict {
	if !slices.ContainsFunc(r.entries, func(e entry) bool { return e.Matches(tool) }) {
		v := Verdict{Why: "its grant does not name the tool"}
		if i := slices.IndexFunc(r.entries, func(e entry) bool { return slices.ContainsFunc(before, e.Matches) }); i >= 0 {
			v.Why += fmt.Sprintf(", but %s, as it was called: that allows nothing, so give it %s", r.entries[i].Tool, tool)
		}
		return v
	}
	v := Verdict{Allowed: true}
	var values any
	for _, e := range r.entries {
		who := "its grant"
		switch {
		case e.Matches(tool):
		case slices.ContainsFunc(before, e.Matches):
			who = fmt.Sprintf("its grant of %s, as the tool was called,", e.Tool)
		default:
			continue
		}
		if values == nil && (e.when != nil || e.approve != nil) {
			var err error
			if values, err = decode(params); err != nil {
				return Verdict{Why: "its params cannot be read: " + err.Error()}
			}
		}
		if e.When != "" {
			if ok, why := e.when.holds(values); !ok {
				return Verdict{Why: fmt.Sprintf("the condition %q of %s does not hold: %s", e.When, who, why)}
			}
		}
		if e.Approve != "" && !v.Ask {
			v.Why = asks(who, e.Approve, e.approve, values)
			v.Ask = v.Why != ""
		}
	}
	return v
}

// holds reports whether c is true of the params, and if not why.
func (c *Condition) holds(values any) (ok bool, why string) {
	ok, err := c.eval(values)
	switch {
	case err != nil:
		return false, err.Error()
	case !ok:
		return false, "with " + c.mentioned(values)
	}
	return true, ""
}

// Merge returns old with more. What old names of the same name is replaced.
func Merge(old, more []keep.GrantedTool) []keep.GrantedTool {
	out := make([]keep.GrantedTool, 0, len(old)+len(more))
	for _, t := range old {
		if !names(more, t.Tool) {
			out = append(out, t)
		}
	}
	return append(out, more...)
}

// Without returns old without the entries of these names, and the names that it lacks.
func Without(old []keep.GrantedTool, tools []string) (rest []keep.GrantedTool, missing []string) {
	var gone []keep.GrantedTool
	for _, name := range tools {
		if !names(old, name) {
			missing = append(missing, name)
		}
		gone = append(gone, keep.GrantedTool{Tool: name})
	}
	for _, t := range old {
		if !names(gone, t.Tool) {
			rest = append(rest, t)
		}
	}
	return rest, missing
}

func names(list []keep.GrantedTool, tool string) bool {
	for _, t := range list {
		if t.Tool == tool {
			return true
		}
	}
	return false
}

// Lacking returns those of the tools that a grant does not name.
func Lacking(g keep.Grant, tools []keep.ToolName) []keep.ToolName {
	var out []keep.ToolName
	for _, t := range tools {
		if !g.Covers(t) {
			out = append(out, t)
		}
	}
	return out
}

// Difference returns what now has other than was, a line each that begins with + or -.
func Difference(was, now []keep.GrantedTool) []string {
	var lines []string
	has := func(list []keep.GrantedTool, t keep.GrantedTool) bool {
		for _, o := range list {
			if o == t {
				return true
			}
		}
		return false
	}
	for _, t := range was {
		if !has(now, t) {
			lines = append(lines, "- "+Text(t))
		}
	}
	for _, t := range now {
		if !has(was, t) {
			lines = append(lines, "+ "+Text(t))
		}
	}
	return lines
}

// Text returns an entry of a grant as one line for people.
func Text(t keep.GrantedTool) string {
	var b strings.Builder
	b.WriteString(t.Tool)
	if t.When != "" {
		fmt.Fprintf(&b, " when %s", t.When)
	}
	switch t.Approve {
	case "":
	case Always:
		b.WriteString(", asks each time")
	default:
		fmt.Fprintf(&b, ", asks if %s", t.Approve)
	}
	return b.String()
}
