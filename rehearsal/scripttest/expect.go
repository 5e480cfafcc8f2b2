package scripttest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/rehearsal"
)

// expect returns what must come of the test: what came of the run, as far as a rehearsal of it
// comes to the same. What is another in each run, as the time and chance are, is left out and
// said in r.
func (l *life) expect(ctx context.Context, result *rehearsal.Result, c *cast, r *Recorded) (Expect, error) {
	got := observe(result, c)
	e := Expect{Reservations: orNone(reservations(l.def, l.runs)), Questions: []map[string]any{}}
	if want := e.Reservations; !reflect.DeepEqual(plain(want), plain(orNone(got.Reservations))) {
		return e, l.refusef("it reserved %s; its own version, tried with what it saw, reserves %s", show(want), show(got.Reservations))
	}
	var err error
	if e.Calls, err = l.expectCalls(got.Calls, r); err != nil {
		return e, err
	}
	if e.Publishes, err = l.expectPublishes(got.Publishes, r); err != nil {
		return e, err
	}
	if e.Items, err = l.expectItems(got.Items); err != nil {
		return e, err
	}
	var open []string
	for _, q := range l.asked {
		if q.Decision == nil && q.ClosedAt.IsZero() {
			open = append(open, string(q.Kind))
		}
	}
	for _, q := range got.Questions {
		e.Questions = append(e.Questions, map[string]any{"kind": q["kind"], "tool": q["tool"]})
	}
	if len(open) != len(got.Questions) {
		return e, l.refusef("it left %d questions (%q); its own version, tried with what it saw, leaves %s", len(open), open, show(e.Questions))
	}
	if digestOf(result.Stored) == l.stored() {
		e.KV = got.KV
	} else {
		r.Loose = append(r.Loose, "kv")
	}
	return e, l.expectError(&e, result.Runs)
}

// expectError expects the failure that the run ended with.
func (l *life) expectError(e *Expect, runs []keep.Run) error {
	end := l.run.Error
	if l.run.Closed {
		end = nil
	}
	for _, run := range runs {
		if f := run.Error; f != nil && !run.Closed {
			if end == nil || end.Class != f.Class {
				return l.refusef("its own version, tried with what it saw, fails: %v", f)
			}
			e.Error = &Failure{Class: string(f.Class)}
			if f.Message == end.Message {
				e.Error.Message = f.Message
			}
			return nil
		}
	}
	if end != nil {
		return l.refusef("it failed (%v); its own version, tried with what it saw, does not", end)
	}
	return nil
}

// expectCalls compares the calls that left with those of the ledger.
func (l *life) expectCalls(got []map[string]any, r *Recorded) ([]map[string]any, error) {
	var made []map[string]any
	for _, m := range l.calls {
		for range m.Attempts {
			made = append(made, map[string]any{"tool": string(m.Tool), "params": value(m.Payload), "state": string(m.State)})
		}
	}
	if len(made) != len(got) {
		return nil, l.refusef("it made %d calls; its own version, tried with what it saw, makes %d", len(made), len(got))
	}
	out := []map[string]any{}
	for i, m := range made {
		if m["tool"] != got[i]["tool"] || m["state"] != got[i]["state"] {
			return nil, l.refusef("its call %d is %s; its own version, tried with what it saw, makes %s", i+1, show(m), show(got[i]))
		}
		out = append(out, r.row(m, got[i], fmt.Sprintf("calls[%d]", i)))
	}
	return out, nil
}

// expectPublishes compares events with those that the run published, or found there already.
func (l *life) expectPublishes(got []map[string]any, r *Recorded) ([]map[string]any, error) {
	out := []map[string]any{}
	left := slices.Clone(l.made)
	take := func(is func(keep.Event) bool) (map[string]any, bool) {
		i := slices.IndexFunc(left, is)
		if i < 0 {
			return nil, false
		}
		e := left[i]
		left = slices.Delete(left, i, i+1)
		row := map[string]any{"topic": string(e.Topic), "messageId": string(e.MessageID)}
		if e.Payload != nil { // retention has not deleted it
			row["payload"] = value(e.Payload)
		}
		return row, true
	}
	for i, g := range got {
		path := fmt.Sprintf("publishes[%d]", i)
		want, ok := take(func(e keep.Event) bool { return string(e.Topic) == g["topic"] && string(e.MessageID) == g["messageId"] })
		if !ok && l.knew(g) {
			want, ok = g, true
		}
		if !ok { // a message id that is made of the time or of chance
			want, ok = take(func(e keep.Event) bool { return string(e.Topic) == g["topic"] })
		}
		if !ok {
			return nil, l.refusef("its own version, tried with what it saw, publishes %s, and it did not", show(g))
		}
		out = append(out, r.row(want, g, path))
	}
	if len(left) > 0 {
		return nil, l.refusef("it published %s in %s; its own version, tried with what it saw, does not", left[0].MessageID, left[0].Topic)
	}
	return out, nil
}

// knew reports whether an event was there before the run published it again.
func (l *life) knew(row map[string]any) bool {
	return slices.ContainsFunc(l.known, func(e keep.Event) bool {
		return string(e.Topic) == row["topic"] && string(e.MessageID) == row["messageId"]
	})
}

// expectItems compares the items with those that the run began.
func (l *life) expectItems(got []map[string]any) ([]map[string]any, error) {
	began := make(map[string]bool)
	for _, e := range l.seen {
		var it struct {
			ID     string
			IsDone bool
		}
		if e.Tool == "item.begin" && e.Error == nil && json.Unmarshal(e.Result, &it) == nil && !it.IsDone {
			began[it.ID] = true
		}
	}
	out := []map[string]any{}
	for _, g := range got {
		id, _ := g["id"].(string)
		if !began[id] {
			return nil, l.refusef("its own version, tried with what it saw, begins item %q, and it did not", id)
		}
		delete(began, id)
		out = append(out, map[string]any{"id": id, "status": g["status"]})
	}
	for id := range began {
		return nil, l.refusef("it began item %q; its own version, tried with what it saw, does not", id)
	}
	return out, nil
}

// try runs the test, twice: what is another in each run must not be in it.
func (l *life) try(ctx context.Context, cfg Config, t Test, when string) error {
	f, err := Parse(File{Tests: []Test{t}}.TOML(""))
	if err != nil {
		return fmt.Errorf("the test that was made of run %s is wrong:%w", l.run.ID, err)
	}
	for range 2 {
		v, err := Run(ctx, cfg, f.Tests[0])
		if err != nil {
			return err
		}
		if len(v.Problems) == 0 {
			continue
		}
		when = cmp.Or(when, "though it has all that is recorded: the script does something else each time")
		return l.refusef("it fails on its own version %s: %s", when, v.Problems[0])
	}
	return nil
}

// row returns what of want is also in got.
func (r *Recorded) row(want, got map[string]any, path string) map[string]any {
	out, _ := r.loosen(want, got, path)
	row, _ := out.(map[string]any)
	return row
}

// loosen returns what of want is also in got; false: nothing of it.
func (r *Recorded) loosen(want, got any, path string) (any, bool) {
	w, isMap := want.(map[string]any)
	g, both := got.(map[string]any)
	if isMap && both {
		out := make(map[string]any, len(w))
		for _, k := range slices.Sorted(maps.Keys(w)) {
			if v, ok := r.loosen(w[k], g[k], path+"."+k); ok {
				out[k] = v
			}
		}
		return out, true
	}
	if reflect.DeepEqual(plain(want), plain(got)) {
		return want, true
	}
	r.Loose = append(r.Loose, path)
	return nil, false
}

// stored returns the digest of what the run wrote to its checkpoint.
func (l *life) stored() trace.Sum {
	for _, e := range slices.Backward(l.seen) {
		if e.What == trace.Phase && e.Script != nil {
			return e.Script.Stored
		}
	}
	return ""
}

// digestOf returns the digest of a checkpoint as traces have it.
func digestOf(kv map[string]json.RawMessage) trace.Sum {
	if len(kv) == 0 {
		return ""
	}
	var values [][]byte
	for _, key := range slices.Sorted(maps.Keys(kv)) {
		values = append(values, []byte(key), kv[key])
	}
	return trace.Digest(values...)
}

// effectsOf returns, for each tool, whether it changes something.
func effectsOf(conns []connector.Connection) map[string]bool {
	out := map[string]bool{"kv.get": false}
	for _, c := range conns {
		for _, t := range c.Tools {
			out[c.Name+"."+t.Spec().Name] = t.Spec().Effect == connector.Mutate
		}
	}
	return out
}

// failureOf returns f as a file has it.
func failureOf(f *keep.Failure) *Failure {
	if f == nil {
		return nil
	}
	return &Failure{Class: string(f.Class), Message: f.Message}
}

func orNone(list []map[string]any) []map[string]any {
	if list == nil {
		return []map[string]any{}
	}
	return list
}
