package repair

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/internal/outcome"
	"github.com/keep-run/keep/law/grant"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/law/trace"
)

// A shadow goes through the run that failed with another script.
type shadow struct {
	b      *Bench
	engine *engine.Engine
	failed keep.Run
	with   engine.Replay
	rules  *grant.Rules // nil: everything is allowed
	ended  map[string]trace.Entry
	seen   map[string][]trace.Entry
	out    law.Shadow
}

func (b *Bench) newShadow(failed keep.Run, script engine.Script, d keep.Definition, rules *grant.Rules) (*shadow, error) {
	e, err := b.engineOf(failed.Workflow)
	return &shadow{b: b, engine: e, failed: failed, rules: rules, with: engine.Replay{Script: script, Definition: d, Run: failed}}, err
}

// elsewhen moves the clock for the second time that a run is gone through: what is made of time
// or chance is another thing then, and so is what a script would do next year.
const elsewhen = 401*24*time.Hour + 11*time.Minute + 7*time.Second

// run goes through the run twice, at another time and with other chance.
func (s *shadow) run(ctx context.Context) (law.Shadow, error) {
	first, err := s.once(ctx, 0)
	if err != nil || first.Ending != law.Through {
		return first, err
	}
	second, err := s.once(ctx, elsewhen)
	if err != nil {
		return first, err
	}
	first.Varies = second.Ending != first.Ending || !slices.EqualFunc(first.Effects, second.Effects, sameEffect)
	return first, nil
}

func sameEffect(a, b law.Effect) bool {
	return a.Name == b.Name && bytes.Equal(a.Values, b.Values)
}

// once goes through the run.
func (s *shadow) once(ctx context.Context, moved time.Duration) (law.Shadow, error) {
	s.out = law.Shadow{Sources: law.Sources{}}
	ok, err := s.recorded(ctx)
	if err != nil || !ok {
		return s.out, err
	}
	if s.failed.Kind != keep.Consumer {
		err = s.handler(ctx, moved)
	} else {
		err = s.consumer(ctx, moved)
	}
	return s.out, err
}

// unknown ends the shadow where nobody knows more.
func (s *shadow) unknown(format string, args ...any) error {
	s.out.Ending, s.out.Why = law.Unknown, fmt.Sprintf(format, args...)
	return nil
}

// recorded reads what the run saw, and reports whether it is enough to begin.
func (s *shadow) recorded(ctx context.Context) (bool, error) {
	t, why, err := readTrace(ctx, s.b.Store, s.failed.ID)
	if err != nil {
		return false, err
	}
	if why == "" && t.Dropped > 0 {
		why = fmt.Sprintf("%d entries of what it saw did not fit into [trace] limit", t.Dropped)
	}
	if why != "" {
		return false, s.unknown("%s", why)
	}
	s.ended, s.seen = map[string]trace.Entry{}, map[string][]trace.Entry{}
	since := map[string][]trace.Entry{}
	for _, e := range t.Entries {
		switch e.What {
		case trace.Read:
			since[e.Phase] = append(since[e.Phase], e)
			s.source(e)
		case trace.Phase:
			s.ended[e.Phase], s.seen[e.Phase] = e, since[e.Phase]
			since[e.Phase] = nil
		}
	}
	return true, nil
}

func (s *shadow) source(e trace.Entry) {
	if e.Result != nil {
		s.out.Sources[e.Tool] = append(s.out.Sources[e.Tool], e.Result)
	}
}

// readTrace returns what a run saw, or why that is not known.
func readTrace(ctx context.Context, db Store, id keep.RunID) (t trace.Trace, why string, err error) {
	parts, err := db.Trace(ctx, id)
	if err != nil {
		return t, "", err
	}
	if len(parts) == 0 {
		return t, "what it saw was not recorded, or is not kept any more ([trace] in keep.toml)", nil
	}
	if t, err = trace.Join(parts); err != nil {
		return t, "what it saw is damaged", nil
	}
	if t.Gap {
		return t, "a part of what it saw is not kept any more ([trace] in keep.toml)", nil
	}
	return t, "", nil
}

// phase executes a phase, and reports whether it came to its end.
func (s *shadow) phase(ctx context.Context, name string, args []json.RawMessage, as trace.Entry, moved time.Duration) (engine.ReplayResult, bool, error) {
	p := engine.ReplayPhase{Name: name, Args: args, Seen: slices.Clone(s.seen[name]), Clock: as.Script.Clock.Add(moved), Seed: as.Script.Seed}
	if moved != 0 {
		p.Seed = append(slices.Clone(p.Seed), 1)
	}
	got, err := s.engine.Replay(ctx, s.with, p)
	switch {
	case err != nil:
		return got, false, err
	case got.Unknown != nil:
		return got, false, s.unknown("%s %s: %s", got.Unknown.Tool, got.Unknown.Params, got.Unknown.Why)
	case got.Failure != nil:
		s.out.Ending, s.out.Why = law.Fails, got.Failure.Error()
		return got, false, nil
	}
	return got, true, nil
}

// publishes adds events that a phase publishes.
func (s *shadow) publishes(list []keep.Event) {
	for _, e := range list {
		s.out.Effects = append(s.out.Effects, law.PublishEffect(e.Topic, e.MessageID, s.failed.MadeID(e.MessageID), e.Payload))
	}
}

// call adds a call, and asks the grant.
func (s *shadow) call(c *engine.ReplayCall) {
	s.out.Effects = append(s.out.Effects, law.CallEffect(c.Tool, c.Subkey, c.Identity, c.Payload))
	if s.rules == nil {
		return
	}
	if v := s.rules.Check(c.Tool, c.Payload, c.Names...); !v.Allowed {
		s.out.Denied = append(s.out.Denied, fmt.Sprintf("%s: %s", c.Tool, v.Why))
	}
}

// handler goes through a producer or a job.
func (s *shadow) handler(ctx context.Context, moved time.Duration) error {
	end, ok := s.ended["handler"]
	if !ok || end.Script == nil {
		return s.unknown("its handler is not recorded")
	}
	got, ok, err := s.phase(ctx, "handler", nil, end, moved)
	if err != nil || !ok {
		return err
	}
	for _, e := range got.Asked {
		if e.Tool == "item.begin" {
			s.out.Effects = append(s.out.Effects, law.ItemEffect(itemOf(e.Params)))
		} else if c, is := s.engine.Identify(keep.ToolName(e.Tool), e.Params); is {
			s.call(&c)
		}
	}
	s.publishes(got.Publishes)
	s.out.Ending, s.out.Whole = law.Through, true
	return nil
}

// consumer goes through prepare and mutate, or through next alone if that is what failed.
func (s *shadow) consumer(ctx context.Context, moved time.Duration) error {
	if s.failed.Phase == keep.Mutated || s.failed.Phase == keep.Emitting {
		return s.next(ctx, moved)
	}
	end, ok := s.ended["prepare"]
	if !ok || end.Script == nil {
		return s.unknown("its prepare is not recorded")
	}
	trigger, arg, why, err := s.trigger(ctx, end)
	if err != nil || why != "" {
		return errors.Join(err, s.unknown("%s", why))
	}
	addEvent(s.out.Sources, trigger)
	got, ok, err := s.phase(ctx, "prepare", []json.RawMessage{arg}, end, moved)
	if err != nil || !ok {
		return err
	}
	holds := false
	for _, r := range got.Reservations {
		s.out.Reserved += len(r.IDs)
		holds = holds || r.Topic == trigger.Topic && slices.Contains(r.IDs, trigger.MessageID)
	}
	if !holds {
		s.out.Ending = law.Skips
		return nil
	}
	return s.mutate(ctx, got.Result, end, moved)
}

// mutate goes through mutate, and through next if there is no call.
func (s *shadow) mutate(ctx context.Context, prepared json.RawMessage, end trace.Entry, moved time.Duration) error {
	h, _ := s.with.Definition.Handler(s.failed.Handler)
	if own, ok := s.ended["mutate"]; ok && own.Script != nil {
		end = own
	}
	if h.HasMutate {
		got, ok, err := s.phase(ctx, "mutate", []json.RawMessage{prepared}, end, moved)
		if err != nil || !ok {
			return err
		}
		if s.out.Ending = law.Through; got.Call != nil {
			s.call(got.Call)
			return s.ledger(ctx, got.Call) // nobody knows what the service would answer
		}
	}
	if s.out.Ending, s.out.Whole = law.Through, true; !h.HasNext {
		return nil
	}
	got, ok, err := s.phase(ctx, "next", []json.RawMessage{prepared, engine.ResultArg(keep.Mutation{})}, end, moved)
	if err != nil || !ok {
		return err
	}
	s.publishes(got.Publishes)
	return nil
}

// next goes through next with what became of the call.
func (s *shadow) next(ctx context.Context, moved time.Duration) error {
	end, ok := s.ended["next"]
	if !ok || end.Script == nil {
		return s.unknown("its next is not recorded")
	}
	m, err := outcome.Of(ctx, s.b.Store, s.failed)
	if err != nil {
		return err
	}
	args := []json.RawMessage{s.failed.Prepared, engine.ResultArg(m)}
	if s.out.Reserved, err = s.b.reserved(ctx, s.failed, s.out.Sources); err != nil {
		return err
	}
	if m.Result != nil {
		s.out.Sources["result of "+cmp.Or(string(m.Tool), "the call")] = []json.RawMessage{m.Result}
	}
	got, ok, err := s.phase(ctx, "next", args, end, moved)
	if err != nil || !ok {
		return err
	}
	s.out.Ending, s.out.Whole = law.Through, true
	if m.Tool != "" {
		s.out.Effects = append(s.out.Effects, law.CallEffect(m.Tool, m.Subkey, m.Identity, m.Payload))
	}
	s.publishes(got.Publishes)
	return nil
}

// trigger returns the event that prepare began with, as the script got it.
func (s *shadow) trigger(ctx context.Context, end trace.Entry) (e keep.Event, arg json.RawMessage, why string, err error) {
	var ref struct {
		Topic     keep.TopicName
		MessageID keep.MessageID
	}
	if end.Params == nil || json.Unmarshal(end.Params, &ref) != nil || ref.MessageID == "" {
		return e, nil, "it began with no event", nil
	}
	e, err = s.b.Store.Event(ctx, s.failed.Workflow, ref.Topic, ref.MessageID)
	if errors.Is(err, keep.ErrNotFound) {
		return e, nil, "its event is not kept any more", nil
	}
	if err != nil {
		return e, nil, "", err
	}
	e.Status = keep.EventPending // as it was
	for _, arg := range engine.TriggerArgs(s.with.Definition, e) {
		if trace.Digest(arg) == end.Script.In {
			return e, arg, "", nil
		}
	}
	return e, nil, "its event says something else since", nil
}

// itemOf returns the id of an item that was begun with these params.
func itemOf(params json.RawMessage) (id string) {
	var item []json.RawMessage
	if json.Unmarshal(params, &item) == nil && len(item) > 0 {
		_ = json.Unmarshal(item[0], &id) // one that is no text is as an empty one
	}
	return id
}

func jsonText(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string always is JSON
	return b
}

// ledger asks about a call that would be made: whether it was refused already, and whether it
// was applied already for what it names.
func (s *shadow) ledger(ctx context.Context, c *engine.ReplayCall) error {
	if s.failed.Mutation != "" {
		m, err := s.b.Store.Mutation(ctx, s.failed.Mutation)
		if err != nil && !errors.Is(err, keep.ErrNotFound) {
			return err
		}
		if slices.Contains(c.Names, m.Tool) && m.Target == c.Target && bytes.Equal(m.Payload, c.Payload) && m.Subkey == c.Subkey {
			s.out.Ending, s.out.Why = law.Fails, fmt.Sprintf("it makes the same call of %s again", c.Tool)
		}
	}
	if len(c.Identity) <= len("{}") {
		return nil // it names nothing
	}
	_, there, err := s.b.Store.Rival(ctx, keep.Unlike{Key: "mut_shadow", Tools: c.Names, Identity: c.Identity, Subkey: c.Subkey})
	if there {
		s.out.Repeated = append(s.out.Repeated, string(c.Tool))
	}
	return err
}
