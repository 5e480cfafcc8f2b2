package pair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/prove"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/internal/pause"
)

// A Trial is a proof of one tool.
type Trial struct {
	Server *mcp.Server
	Tool   Tool
	Params json.RawMessage // with {n} in its texts
	Calls  int             // that change something, at most; at least prove.MinCalls
	Wait   time.Duration   // how long an effect may take to show
	Run    string          // is in all that is made: in the params in place of {n}, and in the marks
}

// A Proof is what was shown.
type Proof struct {
	Tool    prove.Tool
	Pairing mcp.Pairing // that was tried last
}

// mark is what is appended to a text: on lines of its own, so that the text stays as it is read.
const mark = "\n\nkeep:{token}"

// Plan returns the candidate that is tried first, as it is before anything is known.
func (tr Trial) Plan() prove.Plan { return tr.plan(tr.pairing(), tr.Calls) }

// plan returns the trials of a pairing.
func (tr Trial) plan(p mcp.Pairing, calls int) prove.Plan {
	p.ErrorsRefused = true // what the server refuses is shown, and not asked about
	t, _ := tr.Server.Tool(p, 0).(connector.Mutator)
	return prove.Plan{Tool: t, Params: tr.Params, Calls: calls, Run: tr.Run, Doubts: isToolError}
}

// isToolError reports whether a tool said itself that it failed, which says nothing of what it did before.
func isToolError(err error) bool {
	f, ok := errors.AsType[*keep.Failure](err)
	return ok && f.Code == mcp.CodeToolError
}

// pairing returns what is tried of a tool: the key that it may honour, else its mark.
func (tr Trial) pairing() mcp.Pairing {
	p := mcp.Pairing{Tool: tr.Tool.Name, Identity: slices.Clone(tr.Tool.Params)}
	switch {
	case tr.Tool.Key != "":
		p.TokenParam, p.Deduplicates = tr.Tool.Key, true
		p.Identity = slices.DeleteFunc(p.Identity, func(name string) bool { return name == tr.Tool.Key })
	case tr.Tool.Mark != "":
		p.TokenParam, p.TokenAppend = tr.Tool.Mark, mark
	}
	return p
}

// Prove tries the tool. It makes at most Calls calls of it.
//
// A key is tried first, because it needs no lookup. What it cost counts, and so does what it made: the
// report has to name all that a person must remove.
func (tr Trial) Prove(ctx context.Context) Proof {
	p, left, key := tr.pairing(), tr.Calls, tr.Tool.Key
	out := Proof{Pairing: p}
	if p.Deduplicates {
		out.Tool = prove.Try(ctx, tr.Server.Name(), tr.plan(p, left), tr.Wait)
		left -= out.Tool.Calls
		if out.Tool.Grade == keep.LevelKey || tr.Tool.Mark == "" || left < prove.MinCalls+1 || ctx.Err() != nil {
			return out
		}
		tr.Tool.Key = ""
		p = tr.pairing()
	}
	before := out.Tool
	lookup, probe := tr.probe(ctx, p)
	if lookup == nil {
		out.Pairing, out.Tool = p, probe
	} else {
		p.Lookup, p.SettleAfter = lookup, tr.Wait
		out.Pairing, out.Tool = p, prove.Try(ctx, tr.Server.Name(), tr.plan(p, left-probe.Calls), tr.Wait)
		out.Pairing.SettleAfter = out.Tool.Settle()
		out.Tool.Calls, out.Tool.Found = out.Tool.Calls+probe.Calls, out.Tool.Found+probe.Found
		out.Tool.Made = append(probe.Made, out.Tool.Made...)
	}
	out.Tool.Calls, out.Tool.Made = out.Tool.Calls+before.Calls, append(append([]prove.Made{}, before.Made...), out.Tool.Made...)
	if before.Calls > 0 {
		out.Tool.Faults = append(ofKey(key, before), out.Tool.Faults...)
	}
	return out
}

// ofKey returns what spoke against a param as a key, which was tried.
func ofKey(param string, was prove.Tool) (faults []string) {
	for _, why := range was.Faults {
		faults = append(faults, fmt.Sprintf("%s was tried as a key, and level A was not shown: %s", param, why))
	}
	if len(faults) == 0 {
		faults = []string{fmt.Sprintf("%s was tried as a key, and level A was not shown: a repeat was %s", param, was.Repeat)}
	}
	return faults
}

// probe makes one call, and looks by which lookup its mark is found. A lookup that shows a mark that was never
// made shows anything, such as what it was asked for, and is left out.
func (tr Trial) probe(ctx context.Context, p mcp.Pairing) (*mcp.Lookup, prove.Tool) {
	out := prove.Tool{Tool: p.Tool, Level: keep.LevelWitness, Grade: keep.LevelNone, Made: []prove.Made{}, Faults: []string{}, Advice: []string{}}
	plan := tr.plan(p, 1)
	m := plan.Call(tr.Server.Name(), "0")
	candidates, why := tr.candidates(ctx, m)
	if len(candidates) == 0 {
		out.Faults = append(out.Faults, why...)
		return nil, out
	}
	out.Calls++
	_, err := plan.Tool.Mutate(ctx, m)
	if plan.MayHaveMade(err) { // also if no answer came, or one that does not say that nothing was made
		out.Made = append(out.Made, prove.MadeBy("looking for the mark", m, err))
	}
	if err != nil {
		out.Faults = append(out.Faults, fmt.Sprintf("the call was answered with an error: %v", err))
		return nil, out
	}
	began := time.Now()
	for wait := 20 * time.Millisecond; ctx.Err() == nil; wait = min(wait*3/2, 5*time.Second) {
		for _, l := range candidates {
			path, err := tr.Server.Find(ctx, l, m)
			if err != nil {
				why = append(why, err.Error())
			}
			if path != "" {
				l.Found = path
				out.Found++
				return &l, out
			}
		}
		if time.Since(began) > tr.Wait {
			break
		}
		_ = pause.For(ctx, wait)
	}
	slices.Sort(why)
	out.Faults = append(append(out.Faults, fmt.Sprintf("none of %s showed the mark in %s", names(candidates), tr.Wait)), slices.Compact(why)...)
	return nil, out
}

// candidates returns the lookups that may show m, which was not made yet, and why others cannot. That a tool reads only is a guess by its
// name, and nothing more is believed for it: a mark that it shows counts as level C, and one that it does not show as nothing.
func (tr Trial) candidates(ctx context.Context, m keep.Mutation) (out []mcp.Lookup, why []string) {
	switch {
	case tr.Tool.Mark == "":
		return nil, []string{"no param takes a text to which a mark could be appended; name one with --mark"}
	case len(tr.Tool.Lookups) == 0:
		return nil, []string{"no tool of the server could show what was made; name one with --lookup"}
	}
	for _, l := range tr.Tool.Lookups {
		c := mcp.Lookup{Tool: l.Tool, Args: make(map[string]json.RawMessage)}
		for name, text := range l.Args {
			c.Args[name], _ = json.Marshal(text) // of a text
		}
		path, err := tr.Server.Find(ctx, c, m)
		switch {
		case path != "":
			why = append(why, l.Tool+" shows a mark that was never made")
			continue
		case ctx.Err() != nil:
			return nil, []string{"it was stopped before the end"}
		case err != nil && errors.Is(err, context.DeadlineExceeded):
			why = append(why, err.Error())
			continue
		}
		out = append(out, c) // an error may be that nothing is there yet
	}
	return out, why
}

// names returns the tools of lookups.
func names(list []mcp.Lookup) string {
	var out []string
	for _, l := range list {
		out = append(out, l.Tool)
	}
	return strings.Join(out, ", ")
}

// args returns those of a lookup as texts.
func args(l mcp.Lookup) map[string]string {
	out := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(l.Args)) {
		var text string
		if json.Unmarshal(l.Args[name], &text) == nil {
			out[name] = text
		}
	}
	return out
}
