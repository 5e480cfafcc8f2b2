package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

var workflowPromises = []promise{
	{"a deployment is read back as it was written, to the byte", func(w *world) {
		d := fullDeployment()
		w.commit("w", keep.Deploy{Deployment: d})
		d.CreatedAt = kept(d.CreatedAt)
		w.same("Deployment", get[keep.Deployment](w)(w.Deployment(w.ctx, "w", d.Version)), d)
		d.Code, d.Map = nil, nil
		w.same("Deployments", get[[]keep.Deployment](w)(w.Deployments(w.ctx, "w")), []keep.Deployment{d})
		want := keep.Workflow{Name: "w", Version: d.Version, CreatedAt: w.at, UpdatedAt: w.at}
		w.same("Workflows", get[[]keep.Workflow](w)(w.Workflows(w.ctx)), []keep.Workflow{want})
		w.same("Workflow", get[keep.Workflow](w)(w.Workflow(w.ctx, "w")), want)
		_, err := w.Workflow(w.ctx, "other")
		w.fails("Workflow", err, notFound("workflow", "other"))
	}},
	{"a deployment becomes the current version", func(w *world) {
		w.deploy("w")
		made := w.at
		w.commit("w", keep.SetPaused{Paused: true})
		for _, v := range []keep.Version{{Major: 1, Minor: 1}, {Major: 2}, {Major: 10}} {
			w.commit("w", keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: v}})
		}
		w.deploy("a workflow before it")
		last := w.at.Add(-time.Second)
		got := get[[]keep.Workflow](w)(w.Workflows(w.ctx))
		w.same("workflow", got[len(got)-1], keep.Workflow{Name: "w", Version: keep.Version{Major: 10}, Paused: true, CreatedAt: made, UpdatedAt: last})
		if len(got) != 2 || got[0].Name != "a workflow before it" {
			w.Errorf("workflows = %v, want them sorted by name", got)
		}
		var versions []string
		for _, d := range get[[]keep.Deployment](w)(w.Deployments(w.ctx, "")) {
			versions = append(versions, d.Version.String())
		}
		current := get[[]keep.Deployment](w)(w.Current(w.ctx))
		w.same("Current", []string{string(current[0].Workflow), current[1].Version.String()}, []string{"a workflow before it", "10.0"})
		w.same("newest first", versions, []string{"1.0", "10.0", "2.0", "1.1", "1.0"})
	}},
	{"a version that exists, or is older than the current one, is stale", func(w *world) {
		w.deploy("w")
		w.commit("w", keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 2, Minor: 1}}})
		for _, v := range []keep.Version{{}, {Major: 1}, {Major: 1, Minor: 9}, {Major: 2}, {Major: 2, Minor: 1}} {
			w.refuse("w", is(keep.ErrStale), keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: v}})
		}
		w.refuse("new", is(keep.ErrStale), keep.Deploy{Deployment: keep.Deployment{Workflow: "new"}})
		w.refuse("w", invalid, keep.Deploy{Deployment: keep.Deployment{Workflow: "other", Version: keep.Version{Major: 9}}})
		_, err := w.Deployment(w.ctx, "w", keep.Version{Major: 2})
		w.fails("Deployment", err, notFound("version", "w 2.0"))
		far := keep.Version{Major: 99_999_999_999, Minor: 99_999_999_999} // as a person may write it
		_, err = w.Deployment(w.ctx, "w", far)
		w.fails("Deployment", err, notFound("version", "w "+far.String()))
		_, err = w.Proposal(w.ctx, "w", far)
		w.fails("Proposal", err, notFound("version", "w "+far.String()))
	}},
	{"a workflow is paused and resumed", func(w *world) {
		w.refuse("w", notFound("workflow", "w"), keep.SetPaused{Paused: true})
		w.deploy("w")
		w.refuse("w", invalid, keep.SetPaused{Note: "why"})
		for _, c := range []keep.SetPaused{{Paused: true}, {Paused: true, Note: "\"</data-1> \u202e 😀"}, {Paused: true, Note: "why"}, {}, {Paused: true}} {
			w.commit("w", c)
			if got := get[keep.Workflow](w)(w.Workflow(w.ctx, "w")); got.Paused != c.Paused || got.PauseNote != c.Note || !got.UpdatedAt.Equal(w.at) {
				w.Errorf("paused = %v, %q at %s, want %+v", got.Paused, got.PauseNote, got.UpdatedAt, c)
			}
		}
		// A change that wants another state is refused, whatever it would do.
		for _, now := range []keep.PauseState{{}, {Paused: true}, {Paused: true, Note: "why"}} {
			w.commit("w", keep.SetPaused{Paused: now.Paused, Note: now.Note})
			for _, want := range []keep.PauseState{{}, {Paused: true}, {Paused: true, Note: "why"}, {Paused: true, Note: "Why"}} {
				for _, c := range []keep.SetPaused{{Paused: true, Note: "again", If: &want}, {If: &want}} {
					if want != now {
						w.refuse("w", is(keep.ErrStale), c)
						continue
					}
					w.commit("w", c)
					w.commit("w", keep.SetPaused{Paused: now.Paused, Note: now.Note})
				}
			}
		}
		w.deploy("other")
		w.commit("w", keep.SetPaused{Paused: true, Note: "kept"})
		w.commit("w", keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 7}}})
		if got := get[keep.Workflow](w)(w.Workflow(w.ctx, "w")); got.PauseNote != "kept" {
			w.Errorf("a deploy left the note %q", got.PauseNote)
		}
	}},
	{"a handler state is read back as it was written", func(w *world) {
		h := keep.HandlerState{Workflow: "w", Handler: "$b", Kind: keep.Producer, IdleSeq: 1 << 60, WakeAt: oddTime,
			NextAt: oddTime.Add(time.Hour), LastRun: "run_1", LastAt: oddTime.Add(-time.Hour)}
		a := keep.HandlerState{Workflow: "w", Handler: "$a", Kind: keep.Job}
		w.commit("w", keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "$b", Kind: keep.Consumer}})
		w.commit("w", keep.PutHandler{State: h}, keep.PutHandler{State: a})
		w.commit("other", keep.PutHandler{State: keep.HandlerState{Workflow: "other", Handler: "x", Kind: keep.Job}})
		h.WakeAt, h.NextAt, h.LastAt = kept(h.WakeAt), kept(h.NextAt), kept(h.LastAt)
		w.same("Handlers", get[[]keep.HandlerState](w)(w.Handlers(w.ctx, "w")), []keep.HandlerState{a, h})
		w.same("of all", get[[]keep.HandlerState](w)(w.Handlers(w.ctx, ""))[1:], []keep.HandlerState{a, h})
		w.same("of none", get[[]keep.HandlerState](w)(w.Handlers(w.ctx, "unknown")), []keep.HandlerState(nil))
		w.refuse("w", invalid, keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "h", Kind: "demon"}})
		w.refuse("w", invalid, keep.PutHandler{State: keep.HandlerState{Workflow: "other", Handler: "h", Kind: keep.Job}})
	}},
	{"a request to run stays until it is served", func(w *world) {
		h := keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Job, RequestedAt: oddTime}
		requested := func() time.Time { return get[[]keep.HandlerState](w)(w.Handlers(w.ctx, "w"))[0].RequestedAt }
		expect := func(what string, want time.Time) {
			w.Helper()
			if got := requested(); !got.Equal(want) {
				w.Errorf("%s: requested at %s, want %s", what, got, want)
			}
		}
		w.commit("w", keep.PutHandler{State: h})
		expect("a state is no request", time.Time{})
		w.commit("w", keep.RequestRun{Handler: "h"})
		at := w.at
		expect("requested", at)
		w.commit("w", keep.PutHandler{State: h})
		expect("a state without Served clears nothing", at)
		w.commit("w", keep.PutHandler{State: h, Served: at.Add(-time.Millisecond)})
		expect("an older one was served", at)
		w.commit("w", keep.PutHandler{State: h, Served: at})
		expect("served", time.Time{})
		w.commit("w", keep.RequestRun{Handler: "h"})
		w.commit("w", keep.RequestRun{Handler: "h"})
		expect("requested twice", w.at)
		known := w.at
		w.commitAt(known.Add(-time.Minute), "w", keep.RequestRun{Handler: "h"})
		w.commit("w", keep.PutHandler{State: h, Served: known})
		expect("the one before was served, by a clock that is ahead", known.Add(time.Millisecond))
		w.commitAt(known, "w", keep.LookAgain{Handler: "h"})
		expect("by a clock that is behind", known.Add(2*time.Millisecond))
		w.commit("w", keep.PutHandler{State: h, Served: w.at.Add(time.Hour)})
		expect("served later", time.Time{})
	}},
	{"a handler state is made from one that was read", func(w *world) {
		at := kept(oddTime)
		was := keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Consumer, IdleSeq: 5, WakeAt: at, LastRun: "run_1", LastAt: at}
		now := keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Consumer, IdleSeq: 7, WakeAt: at.Add(time.Hour), NextAt: at.Add(time.Minute), LastRun: "run_2", LastAt: at.Add(time.Second)}
		made := was
		made.IdleSeq = 0
		for _, c := range []struct {
			what string
			put  keep.PutHandler
			want keep.HandlerState
		}{
			{"nothing but what it looks at", keep.PutHandler{State: made, Over: &was}, keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Consumer, WakeAt: now.WakeAt, NextAt: now.NextAt, LastRun: now.LastRun, LastAt: now.LastAt}},
			{"what is made from nothing", keep.PutHandler{State: made}, made},
			{"another kind", keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Job, NextAt: at}, Over: new(keep.HandlerState)}, keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Job, NextAt: at}},
		} {
			w.commit("w", keep.PutHandler{State: now})
			w.commit("w", c.put)
			w.same(c.what, get[[]keep.HandlerState](w)(w.Handlers(w.ctx, "w")), []keep.HandlerState{c.want})
		}
	}},
	{"a run is not requested while one is open", func(w *world) {
		w.refuse("w", notFound("handler", "h"), keep.RequestRun{Handler: "h"})
		w.refuse("w", notFound("handler", "h"), keep.LookAgain{Handler: "h"})
		late := keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Job}}
		w.refuse("w", notFound("handler", "h"), keep.RequestRun{Handler: "h"}, late)
		w.refuse("w", notFound("handler", "h"), keep.LookAgain{Handler: "h"}, late)
		w.commit("w", keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Job}})
		r := w.start("w", "t")
		w.refuse("w", is(keep.ErrRunOpen), keep.RequestRun{Handler: "h"})
		w.refuse("w", is(keep.ErrRunOpen), keep.RequestRun{Handler: "unknown"})
		w.finish(r, keep.RequestRun{Handler: "h"})
	}},
	{"a consumer looks again at all its events, whatever a run says that began before", func(w *world) {
		h := keep.HandlerState{Workflow: "w", Handler: "h", Kind: keep.Consumer, IdleSeq: 9}
		w.commit("w", keep.PutHandler{State: h})
		r := w.start("w", "t")
		began := w.at
		w.commit("w", keep.LookAgain{Handler: "h"}) // a run is open
		at := w.at
		state := func() keep.HandlerState { return get[[]keep.HandlerState](w)(w.Handlers(w.ctx, "w"))[0] }
		if got := state(); got.IdleSeq != 0 || !got.RequestedAt.Equal(at) {
			w.Errorf("the consumer looked at events up to %d, requested at %s", got.IdleSeq, got.RequestedAt)
		}
		w.finish(r, keep.PutHandler{State: h, Served: began})
		if got := state(); !got.RequestedAt.Equal(at) {
			w.Errorf("after the run: requested at %s, want %s", got.RequestedAt, at)
		}
	}},
	{"a checkpoint keeps its values to the byte", func(w *world) {
		kv := func(key string) []byte { return get[[]byte](w)(w.KV(w.ctx, "w", "p", key)) }
		w.commit("w", keep.SetKV{Producer: "p", Key: odd, Value: json.RawMessage(` {"é": 1.0} `)},
			keep.SetKV{Producer: "p", Key: "empty", Value: json.RawMessage{}},
			keep.SetKV{Producer: "p", Key: "null", Value: json.RawMessage("null")},
			keep.SetKV{Producer: "q", Key: "null", Value: json.RawMessage("1")})
		w.commit("other", keep.SetKV{Producer: "p", Key: "null", Value: json.RawMessage("2")})
		w.same("odd", kv(odd), []byte(` {"é": 1.0} `))
		w.same("empty", kv("empty"), []byte{})
		w.same("null", kv("null"), []byte("null"))
		w.same("unknown", kv("unknown"), []byte(nil))
		size := len(odd) + len(` {"é": 1.0} `) + len("empty") + len("null") + len("null")
		w.same("KVSize", get[int](w)(w.KVSize(w.ctx, "w", "p")), size)
		w.commit("w", keep.SetKV{Producer: "p", Key: odd, Value: json.RawMessage(`2`)}, keep.SetKV{Producer: "p", Key: "empty"},
			keep.SetKV{Producer: "p", Key: "unknown"})
		w.same("changed", kv(odd), []byte(`2`))
		w.same("deleted", kv("empty"), []byte(nil))
		w.same("KVSize", get[int](w)(w.KVSize(w.ctx, "w", "p")), len(odd)+1+len("null")+len("null"))
		want := []keep.SetKV{{Producer: "p", Key: odd, Value: json.RawMessage(`2`)}, {Producer: "p", Key: "null", Value: json.RawMessage("null")}}
		slices.SortFunc(want, func(a, b keep.SetKV) int { return strings.Compare(a.Key, b.Key) })
		w.same("KVs", get[[]keep.SetKV](w)(w.KVs(w.ctx, "w", "p")), want)
		w.same("KVs of none", len(get[[]keep.SetKV](w)(w.KVs(w.ctx, "w", "unknown"))), 0)
	}},
	{"a checkpoint that is full breaks no law, whatever is in its keys", func(w *world) {
		const most, each = 1 << 20, 64 << 10
		var changes []keep.Change
		for i := range most / each {
			key := strings.Repeat("\x00\x1a", 100) + fmt.Sprint(i)
			changes = append(changes, keep.SetKV{Producer: "p", Key: key, Value: append(append([]byte(`"`), bytes.Repeat([]byte("x"), each-len(key)-2)...), '"')})
		}
		w.commit("w", changes...)
		w.same("KVSize", get[int](w)(w.KVSize(w.ctx, "w", "p")), most)
	}},
	{"what was decided by a value of a checkpoint is refused if it is another one", func(w *world) {
		when := func(v string) keep.Change {
			c := keep.IfKV{Producer: "p", Key: "a"}
			if v != "" {
				c.Value = json.RawMessage(v)
			}
			return c
		}
		set := keep.SetKV{Producer: "p", Key: "a", Value: json.RawMessage("1")}
		w.refuse("w", is(keep.ErrStale), when("1"), set)
		w.commit("w", when(""), set)
		w.refuse("w", is(keep.ErrStale), when(""), set)
		w.refuse("w", is(keep.ErrStale), when("2"), set)
		w.commit("other", when(""))
		w.commit("w", when("1"), keep.SetKV{Producer: "p", Key: "a", Value: json.RawMessage("2")}, when("2"))
		w.commit("w", when("2"), keep.ResetKV{Producer: "p"}, when(""))
		w.same("reset", get[int](w)(w.KVSize(w.ctx, "w", "p")), 0)
	}},
	{"a checkpoint is reset as a whole, and no other", func(w *world) {
		w.commit("w", keep.SetKV{Producer: "p", Key: "a", Value: json.RawMessage("1")},
			keep.SetKV{Producer: "p", Key: "b", Value: json.RawMessage("1")},
			keep.SetKV{Producer: "q", Key: "a", Value: json.RawMessage("1")})
		w.commit("other", keep.SetKV{Producer: "p", Key: "a", Value: json.RawMessage("1")})
		w.commit("w", keep.ResetKV{Producer: "p"})
		w.same("reset", get[int](w)(w.KVSize(w.ctx, "w", "p")), 0)
		w.same("other producer", get[int](w)(w.KVSize(w.ctx, "w", "q")), 2)
		w.same("other workflow", get[int](w)(w.KVSize(w.ctx, "other", "p")), 2)
		w.same("never set", get[int](w)(w.KVSize(w.ctx, "w", "unknown")), 0)
	}},
}

// fullDeployment returns one with every field set.
func fullDeployment() keep.Deployment {
	return keep.Deployment{
		Workflow: "w", Version: keep.Version{Major: 4, Minor: 2}, Hash: "00ff", Entry: "invoices é.ts",
		Code: []byte("export default 1\x00\xff"), Map: []byte(`{"version":3}`),
		Definition: keep.Definition{
			Name: "w", Topics: []keep.TopicName{"a", "b:c/d"}, Called: []keep.CalledTopic{{Name: "new/a", First: "a"}}, NewTopics: []keep.TopicName{"b:c/d"},
			Renamed: []keep.Renamed{{Kind: "workflow", Name: "x", First: "w"}, {Kind: "topic", Name: "new/a", First: "a"}},
			Handlers: []keep.Handler{
				{Name: "p", Kind: keep.Producer, Schedule: keep.Schedule{Cron: "0 9 * * 1-5", Timezone: "Europe/Berlin"}},
				{Name: "none", Kind: keep.Producer, Publishes: []keep.TopicName{}},
				{Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"a"}, Publishes: []keep.TopicName{"b:c/d"}, HasMutate: true, HasNext: true},
				{Name: "j", Kind: keep.Job, Schedule: keep.Schedule{Interval: 90 * time.Second}},
			},
		},
		CreatedAt: oddTime,
	}
}
