package scripttest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/rehearsal"
)

// judge returns a sentence for each thing that is not as the test expects.
func judge(e Expect, r *rehearsal.Result, c *cast) []string {
	problems := slices.Clone(c.problems)
	got := observe(r, c)
	lists := []struct {
		name      string
		want, got []map[string]any
	}{
		{"reservations", e.Reservations, got.Reservations},
		{"calls", e.Calls, got.Calls},
		{"publishes", e.Publishes, got.Publishes},
		{"items", e.Items, got.Items},
		{"questions", e.Questions, got.Questions},
	}
	for _, l := range lists {
		if l.want != nil {
			problems = append(problems, compareLists(l.name, l.want, l.got)...)
		}
	}
	if e.KV != nil && !contains(e.KV, got.KV) {
		problems = append(problems, fmt.Sprintf("kv: want %s; got %s", show(e.KV), show(got.KV)))
	}
	return append(problems, judgeFailures(e, r.Runs, len(c.problems) > 0)...)
}

// observe returns what came of a test in the words of an Expect.
func observe(r *rehearsal.Result, c *cast) Expect {
	kv := make(map[string]any, len(r.Stored))
	for key, v := range r.Stored {
		kv[key] = value(v)
	}
	return Expect{
		Reservations: reservations(c.def, r.Runs), Calls: calls(c.calls, r.Mutations), Publishes: publishes(c.def, r.Events),
		Items: items(r.Items), Questions: questions(r.Questions, r.Mutations), KV: kv,
	}
}

// judgeFailures compares the failures of runs with the one that is expected. Failures
// that a problem explains already are left out.
func judgeFailures(e Expect, runs []keep.Run, explained bool) []string {
	var failed []*keep.Failure
	for _, run := range runs {
		if run.Error != nil && !run.Closed {
			failed = append(failed, run.Error)
		}
	}
	if e.Error == nil {
		if len(e.Questions) > 0 || explained {
			return nil
		}
		var problems []string
		for _, f := range failed {
			problems = append(problems, fmt.Sprintf("a run failed (%s): %v", f.Class, f))
		}
		return problems
	}
	expected := func(f *keep.Failure) bool {
		return f != nil && (e.Error.Class == "" || e.Error.Class == string(f.Class)) && strings.Contains(f.Message, e.Error.Message)
	}
	if slices.ContainsFunc(runs, func(run keep.Run) bool { return expected(run.Error) }) {
		var problems []string
		for _, f := range slices.DeleteFunc(failed, expected) {
			if !explained {
				problems = append(problems, fmt.Sprintf("another run failed (%s): %v", f.Class, f))
			}
		}
		return problems
	}
	want := fmt.Sprintf("error: want class %q with %q in its message", e.Error.Class, e.Error.Message)
	if len(failed) == 0 {
		return []string{want + "; no run failed"}
	}
	return []string{fmt.Sprintf("%s; got class %q: %v", want, failed[0].Class, failed[0])}
}

// compareLists compares whole lists, in order.
func compareLists(name string, want, got []map[string]any) []string {
	var problems []string
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			problems = append(problems, fmt.Sprintf("%s[%d]: want %s; there is none", name, i, show(want[i])))
		case i >= len(want):
			problems = append(problems, fmt.Sprintf("%s[%d]: want none; got %s", name, i, show(got[i])))
		case !contains(want[i], got[i]):
			problems = append(problems, fmt.Sprintf("%s[%d]: want %s; got %s", name, i, show(want[i]), show(got[i])))
		}
	}
	return problems
}

// covers reports whether the JSON object raw has all of want.
func covers(want map[string]any, raw json.RawMessage) bool {
	var got any
	return json.Unmarshal(raw, &got) == nil && contains(want, got)
}

// contains reports whether got has all of want: tables by the keys of want, lists
// whole, numbers by value.
func contains(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range w {
			have, ok := g[k]
			if !ok || !contains(v, have) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !contains(w[i], g[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(plain(want), plain(got))
}

// plain returns v as JSON has it: TOML knows integers and dates.
func plain(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var out any
	if json.Unmarshal(raw, &out) != nil {
		return v
	}
	return out
}

// maxShown is how much of a value a problem quotes, in bytes.
const maxShown = 500

func show(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(raw) > maxShown {
		return strings.ToValidUTF8(string(raw[:maxShown]), "") + "…"
	}
	return string(raw)
}

// value returns JSON as values of Go; nil if there is none.
func value(raw json.RawMessage) any {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

// reservations returns what runs reserved, once for all attempts that have the same events: one that failed before had none.
// Tests name topics as the script of d does.
func reservations(d keep.Definition, runs []keep.Run) []map[string]any {
	var out []map[string]any
	had := make(map[keep.RunID][]keep.Reservation) // by chain
	for _, run := range runs {
		if len(run.Reservations) == 0 || reflect.DeepEqual(had[run.Chain], run.Reservations) {
			continue
		}
		had[run.Chain] = run.Reservations
		for _, r := range run.Reservations {
			ids := make([]any, len(r.IDs))
			for i, id := range r.IDs {
				ids[i] = string(id)
			}
			out = append(out, map[string]any{"topic": string(d.CalledIn(r.Topic)), "ids": ids})
		}
	}
	return out
}

// attempts returns a run with the attempts before it, oldest first.
func attempts(ctx context.Context, s Store, run keep.Run) ([]keep.Run, error) {
	all := []keep.Run{run}
	for all[0].RetryOf != "" {
		before, err := s.Run(ctx, all[0].RetryOf)
		if err != nil {
			return nil, err
		}
		all = slices.Insert(all, 0, before)
	}
	return all, nil
}

// calls are those that left, with the state of their records.
func calls(made []call, records []keep.Mutation) []map[string]any {
	state := make(map[keep.MutationKey]keep.MutationState, len(records))
	for _, m := range records {
		state[m.Key] = m.State
	}
	var out []map[string]any
	for _, c := range made {
		out = append(out, map[string]any{"tool": string(c.tool), "params": value(c.params), "state": string(state[c.key])})
	}
	return out
}

func publishes(d keep.Definition, events []keep.Event) []map[string]any {
	var out []map[string]any
	for _, e := range events {
		out = append(out, map[string]any{"topic": string(d.CalledIn(e.Topic)), "messageId": string(e.MessageID), "payload": value(e.Payload)})
	}
	return out
}

func items(all []keep.Item) []map[string]any {
	var out []map[string]any
	for _, it := range all {
		out = append(out, map[string]any{"id": it.ID, "title": it.Title, "status": string(it.Status), "attempt": it.Attempt})
	}
	return out
}

func questions(open []keep.Escalation, records []keep.Mutation) []map[string]any {
	tool := make(map[keep.MutationKey]keep.ToolName, len(records))
	for _, m := range records {
		tool[m.Key] = m.Tool
	}
	var out []map[string]any
	for _, q := range open {
		out = append(out, map[string]any{"kind": string(q.Kind), "question": q.Question, "tool": string(tool[q.Mutation]), "item": q.Item})
	}
	return out
}
