package compare_test

import (
	"encoding/json"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/rehearsal/compare"
	"github.com/keep-run/keep/rehearsal/replay"
)

// diff returns a difference; an empty text is none.
func diff(what replay.What, was, now string) replay.Difference {
	if was == "" {
		was = "null"
	}
	if now == "" {
		now = "null"
	}
	return replay.Difference{Phase: "next", What: what, Recorded: json.RawMessage(was), Now: json.RawMessage(now)}
}

func TestChangeOf(t *testing.T) {
	for _, tt := range []struct {
		name  string
		diffs []replay.Difference
		known bool
		want  compare.Change
	}{
		{"nothing differs", nil, true, compare.Same},
		{"nothing differs as far as it is known", nil, false, compare.Inconclusive},
		{"a call less", []replay.Difference{diff(replay.Call, `{}`, "")}, true, compare.Missing},
		{"a call more", []replay.Difference{diff(replay.Call, "", `{}`)}, true, compare.Added},
		{"another tool", []replay.Difference{diff(replay.Call, `{"a":1}`, `{}`)}, true, compare.Changed},
		{"an event more and one less", []replay.Difference{diff(replay.Publishes, "", `{}`), diff(replay.Publishes, `{}`, "")}, true, compare.Changed},
		{"an item less", []replay.Difference{diff(replay.Items, `{}`, "")}, false, compare.Missing},
		{"payload", []replay.Difference{diff(replay.Payload, `1`, `2`)}, true, compare.Changed},
		{"payload, and not to the end", []replay.Difference{diff(replay.Payload, `1`, `2`)}, false, compare.Changed},
		{"a payload that is not kept", []replay.Difference{diff(replay.Payload, "", `2`)}, true, compare.Changed},
		{"checkpoint", []replay.Difference{diff(replay.Checkpoint, "", `"another"`)}, true, compare.Changed},
		{"reservations", []replay.Difference{diff(replay.Reservations, `[]`, `[1]`)}, true, compare.Changed},
		{"fails", []replay.Difference{diff(replay.Publishes, `{}`, ""), diff(replay.Failed, "", `{}`)}, true, compare.Failed},
		{"fails otherwise", []replay.Difference{diff(replay.Failed, `{"code":"a"}`, `{"code":"b"}`)}, true, compare.Failed},
		{"fails no more", []replay.Difference{diff(replay.Failed, `{"code":"a"}`, "")}, true, compare.Changed},
		{"only data", []replay.Difference{diff(replay.Data, `{"data":1}`, `{"data":2,"ui":{}}`)}, true, compare.Same},
		{"only data, and not to the end", []replay.Difference{diff(replay.Data, `{"data":1}`, `{"data":2}`)}, false, compare.Inconclusive},
		{"data, spelled otherwise", []replay.Difference{diff(replay.Data, `{"data":1,"wakeAt":10}`, `{"wakeAt":1e1}`)}, true, compare.Same},
		{"when it is due", []replay.Difference{diff(replay.Data, `{"wakeAt":1}`, `{"wakeAt":2}`)}, true, compare.Changed},
		{"data that is not kept", []replay.Difference{diff(replay.Data, "", `{"data":2}`)}, true, compare.Changed},
		{"data and a payload", []replay.Difference{diff(replay.Data, `{"data":1}`, `{}`), diff(replay.Payload, `1`, `2`)}, true, compare.Changed},
		{"order key", []replay.Difference{diff(replay.OrderKey, `"a"`, `"b"`)}, true, compare.Changed},
		{"ids that Keep made", []replay.Difference{diff(replay.MadeIDs, `[1]`, `[2]`)}, true, compare.Same},
	} {
		if got := compare.ChangeOf(tt.diffs, tt.known); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestImpactOf(t *testing.T) {
	done := func(all ...compare.Change) (list []compare.Judged) {
		for _, c := range all {
			list = append(list, compare.Judged{Change: c, Done: true})
		}
		return list
	}
	open := compare.Judged{Change: compare.Changed}
	for _, tt := range []struct {
		name     string
		runs     []compare.Judged
		declared []string
		whole    bool
		want     compare.Impact
	}{
		{"no run", nil, nil, true, compare.Unknown},
		{"all the same", done(compare.Same, compare.Same), nil, true, compare.Safe},
		{"not all of them", done(compare.Same, compare.Same), nil, false, compare.Unknown},
		{"one is not known", done(compare.Same, compare.Inconclusive), nil, true, compare.Unknown},
		{"one differs", done(compare.Same, compare.Changed), nil, true, compare.Impactful},
		{"one differs, one is not known", done(compare.Inconclusive, compare.Missing), nil, true, compare.Impactful},
		{"one differs, not all were gone through", done(compare.Added), nil, false, compare.Impactful},
		{"one fails", done(compare.Failed), nil, true, compare.Impactful},
		{"one that did nothing differs", append(done(compare.Same), open), nil, true, compare.Safe},
		{"only one that did nothing", []compare.Judged{open}, nil, true, compare.Unknown},
		{"only one that did nothing, which would do the same", []compare.Judged{{Change: compare.Same}}, nil, true, compare.Unknown},
		{"another declaration", done(compare.Same), []string{"the schedule of poll is another"}, true, compare.Impactful},
		{"another declaration, no run", nil, []string{"x"}, true, compare.Impactful},
	} {
		if got := compare.ImpactOf(tt.runs, tt.declared, tt.whole); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestRemedyOf(t *testing.T) {
	for _, tt := range []struct {
		state keep.MutationState
		c     compare.Change
		what  replay.What
		want  compare.Remedy
	}{
		{"", compare.Added, replay.Call, compare.Redo},
		{"", compare.Changed, replay.Call, compare.ByHand}, // its record is not kept
		{keep.Failed, compare.Missing, replay.Call, compare.Nothing},
		{keep.Failed, compare.Changed, replay.Payload, compare.Nothing},
		{keep.Applied, compare.Changed, replay.Payload, compare.Redo},
		{keep.Applied, compare.Changed, replay.Identity, compare.ByHand},
		{keep.Applied, compare.Changed, replay.Call, compare.ByHand},
		{keep.Applied, compare.Missing, replay.Call, compare.ByHand},
		{keep.InFlight, compare.Changed, replay.Payload, compare.ByHand},
		{keep.NeedsReconcile, compare.Changed, replay.Payload, compare.ByHand},
		{keep.Indeterminate, compare.Missing, replay.Call, compare.ByHand},
		{keep.Skipped, compare.Changed, replay.Payload, compare.ByHand},
	} {
		if got := compare.RemedyOf(tt.state, tt.c, tt.what); got != tt.want {
			t.Errorf("%q %s %s: %s, want %s", tt.state, tt.c, tt.what, got, tt.want)
		}
	}
}

func TestDeclared(t *testing.T) {
	base := keep.Definition{Topics: []keep.TopicName{"a"}, Handlers: []keep.Handler{
		{Name: "poll", Kind: keep.Producer, Schedule: keep.Schedule{Cron: "0 1 * * *"}},
		{Name: "send", Kind: keep.Consumer, Subscribe: []keep.TopicName{"a"}, HasMutate: true},
	}}
	with := func(f func(d *keep.Definition)) keep.Definition {
		d := base
		d.Handlers = append([]keep.Handler{}, base.Handlers...)
		f(&d)
		return d
	}
	for name, tt := range map[string]struct {
		to   keep.Definition
		want int
	}{
		"the same":            {base, 0},
		"a topic more":        {with(func(d *keep.Definition) { d.Topics = []keep.TopicName{"a", "b"} }), 0},
		"a topic less":        {with(func(d *keep.Definition) { d.Topics = nil }), 1},
		"a schedule":          {with(func(d *keep.Definition) { d.Handlers[0].Schedule.Timezone = "Europe/Berlin" }), 1},
		"what it reads":       {with(func(d *keep.Definition) { d.Handlers[1].Subscribe = []keep.TopicName{"b"} }), 1},
		"an order":            {with(func(d *keep.Definition) { d.Handlers[1].Order = keep.OrderNone }), 1},
		"a handler less":      {with(func(d *keep.Definition) { d.Handlers = d.Handlers[:1] }), 1},
		"a handler more":      {with(func(d *keep.Definition) { d.Handlers = append(d.Handlers, keep.Handler{Name: "x"}) }), 1},
		"another kind":        {with(func(d *keep.Definition) { d.Handlers[0].Kind = keep.Job }), 1},
		"no call":             {with(func(d *keep.Definition) { d.Handlers[1].HasMutate = false }), 0}, // replays show it
		"another name for it": {with(func(d *keep.Definition) { d.Handlers[0].Name = "read" }), 2},
		"what is blocked":     {with(func(d *keep.Definition) { d.OnBlocked = "x" }), 1},
	} {
		if got := compare.Declared(base, tt.to); len(got) != tt.want {
			t.Errorf("%s: %q, want %d", name, got, tt.want)
		}
	}
}
