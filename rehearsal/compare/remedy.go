package compare

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/rehearsal/replay"
)

// callIn is a call as a difference shows it.
type callIn struct {
	Tool     keep.ToolName   `json:"tool"`
	Subkey   string          `json:"subkey"`
	Identity json.RawMessage `json:"identity"`
	Payload  json.RawMessage `json:"payload"`
	Params   json.RawMessage `json:"params"`
}

// mutations returns the calls that would have been otherwise, each once.
func (c *comparer) mutations(run keep.Run, made []keep.Mutation, all []replay.Difference) []Mutation {
	var list []Mutation
	at := make(map[keep.MutationKey]int)
	for _, d := range all {
		m, ok := c.mutation(run, made, d)
		if !ok {
			continue
		}
		if i, again := at[m.Key]; again && (m.Key != "" || run.Kind == keep.Consumer) { // which makes one call
			if m.Remedy == ByHand {
				list[i].Remedy, list[i].How = m.Remedy, m.How // identity and payload differ
			}
			continue
		}
		at[m.Key] = len(list)
		list = append(list, m)
	}
	// Other reservations and errors before the call take it away.
	for _, m := range made {
		if _, said := at[m.Key]; !said && run.Kind == keep.Consumer && before(all) {
			list = append(list, c.describe(run, m, Missing, replay.Call))
		}
	}
	return list
}

// before reports whether a run would have ended, or worked on something else, before its call.
func before(all []replay.Difference) bool {
	for _, d := range all {
		switch {
		case d.What == replay.Reservations && d.Phase == "prepare", d.What == replay.Failed && d.Phase != "next" && !isNull(d.Now):
			return true
		}
	}
	return false
}

// mutation returns the call that a difference is about.
func (c *comparer) mutation(run keep.Run, made []keep.Mutation, d replay.Difference) (Mutation, bool) {
	change := Changed
	switch d.What {
	case replay.Identity, replay.Payload:
	case replay.Call:
		switch {
		case isNull(d.Now):
			change = Missing
		case isNull(d.Recorded) && run.Mutation == "":
			change = Added
		}
	default:
		return Mutation{}, false
	}
	if change == Added {
		var now callIn
		_ = json.Unmarshal(d.Now, &now) // as replay wrote it
		return c.describe(run, keep.Mutation{Tool: now.Tool}, change, d.What), true
	}
	for _, m := range made {
		if run.Kind == keep.Consumer || isOf(m, d) {
			return c.describe(run, m, change, d.What), true
		}
	}
	var was callIn
	_ = json.Unmarshal(d.Recorded, &was) // as replay wrote it; a payload may have no tool
	if d.What == replay.Payload {
		was.Tool = ""
	}
	return c.describe(run, keep.Mutation{Tool: was.Tool}, change, d.What), true
}

// isOf reports whether a difference in an item is about the call m.
func isOf(m keep.Mutation, d replay.Difference) bool {
	if d.What == replay.Payload {
		return sameValue(m.Payload, d.Recorded)
	}
	var was callIn
	if json.Unmarshal(d.Recorded, &was) != nil || was.Tool != "" && was.Tool != m.Tool {
		return false
	}
	switch {
	case was.Identity != nil:
		return sameValue(m.Identity, was.Identity) && m.Subkey == was.Subkey
	case was.Params != nil:
		return sameValue(m.Payload, was.Params)
	}
	return false
}

// describe says of a call what can be done about it.
func (c *comparer) describe(run keep.Run, m keep.Mutation, change Change, what replay.What) Mutation {
	out := Mutation{Key: m.Key, Run: run.ID, Tool: m.Tool, Title: m.Title, Change: change, Remedy: RemedyOf(m.State, change, what)}
	out.Title = cmp.Or(out.Title, run.Title)
	switch {
	case out.Remedy != Redo:
	case m.Item != "":
		out.How = fmt.Sprintf("keep items reprocess %s %s", run.Workflow, word(m.Item))
	case run.Kind == keep.Consumer && len(run.Reservations) > 0 && len(run.Reservations[0].IDs) > 0:
		r := run.Reservations[0]
		out.How = fmt.Sprintf("keep events redo %s %s %s", run.Workflow, r.Topic, word(string(r.IDs[0])))
	}
	return out
}

// word returns s as a shell takes it for one word.
func word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@", r)
	}
	if s != "" && s[0] != '-' && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// maxInputs is how many inputs of one run are named.
const maxInputs = 20

// inputs names what a run came from: what its events came from, or those that it published. Of
// a run that differs they are described.
func (c *comparer) inputs(ctx context.Context, run keep.Run, all []replay.Difference, differs bool, out *Run) error {
	ids, err := c.cfg.Store.Causes(ctx, run.Chain)
	if err != nil {
		return err
	}
	for _, d := range all[:min(len(all), maxRun)] {
		var e struct {
			Topic keep.TopicName `json:"topic"`
			ID    keep.MessageID `json:"message_id"`
		}
		if d.What != replay.Publishes || json.Unmarshal(d.Recorded, &e) != nil || e.ID == "" {
			continue
		}
		ev, err := c.cfg.Store.Event(ctx, run.Workflow, e.Topic, e.ID)
		if err != nil && !isNotFound(err) {
			return err
		}
		ids = append(ids, ev.CausedBy...)
	}
	if len(ids) == 0 {
		return nil
	}
	out.Input = &ids[0]
	if !differs {
		return nil
	}
	named, err := c.cfg.Store.InputsByID(ctx, ids[:min(len(ids), maxInputs)])
	for _, in := range named {
		out.inputs = appendNew(out.inputs, []Input{{in.ID, in.Source, in.Type, in.ExternalID, in.Title}})
	}
	return err
}
