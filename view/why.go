package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// A Nature is what an id names.
type Nature string

// What an id may name.
const (
	IsRun      Nature = "run"
	IsMutation Nature = "mutation"
	IsEvent    Nature = "event"
	IsInput    Nature = "input"
	IsItem     Nature = "item"
	IsQuestion Nature = "question"
	IsVersion  Nature = "version"
	IsProposal Nature = "proposal"
)

// maxRelated bounds what a story names of each kind, the newest (law: bounded).
const maxRelated = 20

// A Story is what is known of one thing: what it is, what it waits for, what came of it,
// and what belongs to it.
type Story struct {
	ID       string
	Is       Nature
	Workflow keep.WorkflowName
	Sentence string
	Wait     string   // a sentence; empty: it waits for nothing
	Became   []string // sentences, oldest first

	Inputs    []keep.InputID
	Events    []keep.EventRef
	Runs      []keep.RunID // oldest first
	Mutations []keep.MutationKey
	Questions []keep.EscalationID
}

// An AmbiguousError says that several things have an id.
type AmbiguousError struct {
	ID    string
	Names []string // what has it, such as "event orders/new/17"
}

// Error implements error.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is the id of %d things: %s", e.ID, len(e.Names), strings.Join(e.Names, ", "))
}

// Why returns the story of what an id names: that of a run, mutation, input or question,
// the message id of an event, the id of an item, six characters or more that one of these begins or ends with, a version or a proposal as WORKFLOW@VERSION, or the id of a repair. Ids of
// events and items belong to their topics and workflows, so several may have one: that is
// an *AmbiguousError, whose names, as WORKFLOW/TOPIC/ID and WORKFLOW/ID, are taken, too. [Last] is the newest run, and a part that a run shares with its call
// is that of the run, whose story has the call. Nothing is a *keep.NotFoundError.
func Why(ctx context.Context, s store.Reader, id string) (Story, error) {
	return (&teller{ctx: ctx, s: s}).why(id)
}

// Find is [Why] for who must have an answer at once: it takes no part of an id that a script made, and
// looks for a part of another only if it could be one. Both look at every id.
func Find(ctx context.Context, s store.Reader, id string) (Story, error) {
	return (&teller{ctx: ctx, s: s, fast: true}).why(id)
}

func (t *teller) why(id string) (Story, error) {
	for _, try := range []func(string) error{t.run, t.mutation, t.input, t.question, t.version, t.proposal, t.events, t.items} {
		if err := try(id); err != nil && !errors.Is(err, keep.ErrNotFound) {
			return Story{}, err
		}
	}
	var err error
	switch {
	case len(t.found) > 0:
	case id == Last:
		err = t.last()
	case strings.Contains(id, "/"):
		if err = t.place(id); err == nil && len(t.found) == 0 && len(id) >= MinPart {
			err = t.part(id)
		}
	case len(id) >= MinPart:
		err = t.part(id)
	}
	if err != nil {
		return Story{}, err
	}
	switch len(t.found) {
	case 0:
		return Story{}, &keep.NotFoundError{What: "run, mutation, event, input, item, question, version or proposal", ID: id}
	case 1:
		story, err := t.found[0].tell()
		story.ID, story.Is = t.found[0].id, t.found[0].is
		return story, err
	}
	e := &AmbiguousError{ID: id}
	for _, f := range t.found {
		e.Names = append(e.Names, string(f.is)+" "+f.name)
	}
	return Story{}, e
}

// A teller looks for what has an id.
type teller struct {
	ctx   context.Context
	s     store.Reader
	fast  bool // see Find
	found []candidate
}

// A candidate is a thing that has the id, and how its story is told.
type candidate struct {
	is   Nature
	name string
	id   string
	tell func() (Story, error)
}

func (t *teller) add(is Nature, name string, tell func() (Story, error)) {
	t.found = append(t.found, candidate{is, name, name, tell})
}

// last looks for the newest run.
func (t *teller) last() error {
	id, err := newest(t.ctx, t.s, keep.NounRun)
	if errors.Is(err, keep.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.run(id)
}

// part looks for ids that begin or end with what is the id of nothing: those of one noun
// if it has the prefix of that. A run and its call may differ in nothing else: then it is
// the run.
func (t *teller) part(part string) error {
	try := map[keep.Noun]func(string) error{
		keep.NounRun: t.run, keep.NounMutation: t.mutation, keep.NounInput: t.input, keep.NounQuestion: t.question,
	}
	nouns := keep.Nouns()
	if i := slices.IndexFunc(nouns, func(n keep.Noun) bool { return strings.HasPrefix(part, n.Prefix()) }); i >= 0 {
		nouns = nouns[i : i+1]
	}
	for _, n := range nouns {
		if t.fast && !keep.MayBeInID(strings.TrimPrefix(part, n.Prefix())) {
			continue
		}
		ids, err := t.s.IDsWith(t.ctx, n, strings.TrimPrefix(part, n.Prefix()), maxCandidates)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := try[n](id); err != nil && !errors.Is(err, keep.ErrNotFound) {
				return err
			}
		}
	}
	if len(nouns) > 1 && !t.fast {
		if err := t.places(part); err != nil {
			return err
		}
	}
	suffix := func(c candidate) string { return c.name[strings.IndexByte(c.name, '_')+1:] }
	t.found = slices.DeleteFunc(t.found, func(c candidate) bool {
		return c.is == IsMutation && slices.ContainsFunc(t.found, func(r candidate) bool { return r.is == IsRun && suffix(r) == suffix(c) })
	})
	return nil
}

// places looks for events and items whose ids begin or end with what is the id of nothing.
func (t *teller) places(part string) error {
	evs, err := t.s.EventsWith(t.ctx, "", "", part, maxCandidates)
	if err != nil {
		return err
	}
	for _, p := range evs {
		ev, err := t.s.Event(t.ctx, p.Workflow, p.Topic, keep.MessageID(p.ID))
		if err != nil && !errors.Is(err, keep.ErrNotFound) {
			return err
		}
		if err == nil {
			t.event(ev)
		}
	}
	its, err := t.s.ItemsWith(t.ctx, "", part, maxCandidates)
	if err != nil {
		return err
	}
	for _, p := range its {
		if err := t.item(p.Workflow, p.ID); err != nil {
			return err
		}
	}
	return nil
}

func (t *teller) run(id string) error {
	r, err := t.s.Run(t.ctx, keep.RunID(id))
	if err == nil {
		t.add(IsRun, id, func() (Story, error) { return t.ofRun(r) })
	}
	return err
}

func (t *teller) mutation(id string) error {
	m, err := t.s.Mutation(t.ctx, keep.MutationKey(id))
	if err == nil {
		t.add(IsMutation, id, func() (Story, error) { return t.ofMutation(m) })
	}
	return err
}

func (t *teller) input(id string) error {
	in, err := t.s.Input(t.ctx, keep.InputID(id))
	if err == nil {
		t.add(IsInput, id, func() (Story, error) { return t.ofInput(in) })
	}
	return err
}

func (t *teller) question(id string) error {
	q, err := t.s.Escalation(t.ctx, keep.EscalationID(id))
	if err == nil {
		t.add(IsQuestion, id, func() (Story, error) { return t.ofQuestion(q), nil })
	}
	return err
}

func (t *teller) version(id string) error {
	name, text, ok := strings.Cut(id, "@")
	if !ok {
		return nil
	}
	all, err := t.s.Deployments(t.ctx, keep.WorkflowName(name))
	for i, d := range all {
		if d.Version.String() == text {
			t.add(IsVersion, id, func() (Story, error) { return t.ofVersion(d, all[:i]) })
		}
	}
	return err
}

func (t *teller) events(id string) error {
	topics, err := t.s.TopicCounts(t.ctx, "")
	if err != nil || id == "" {
		return err
	}
	for _, topic := range topics {
		evs, err := t.s.EventsByID(t.ctx, topic.Workflow, topic.Topic, []keep.MessageID{keep.MessageID(id)})
		if err != nil {
			return err
		}
		for _, ev := range evs {
			t.event(ev)
		}
	}
	return nil
}

func (t *teller) event(ev keep.Event) {
	name := keep.Place{Workflow: ev.Workflow, Topic: ev.Topic, ID: string(ev.MessageID)}.String()
	t.found = append(t.found, candidate{IsEvent, name, string(ev.MessageID), func() (Story, error) { return t.ofEvent(ev) }})
}

// place looks for an event or an item as an AmbiguousError names it.
func (t *teller) place(id string) error {
	w, rest, _ := strings.Cut(id, "/")
	if topic, message, ok := strings.Cut(rest, "/"); ok && message != "" {
		evs, err := t.s.EventsByID(t.ctx, keep.WorkflowName(w), keep.TopicName(topic), []keep.MessageID{keep.MessageID(message)})
		if err != nil {
			return err
		}
		for _, ev := range evs {
			t.event(ev)
		}
	}
	if rest == "" {
		return nil
	}
	return t.item(keep.WorkflowName(w), rest)
}

func (t *teller) items(id string) error {
	all, err := t.s.Workflows(t.ctx)
	if err != nil || id == "" {
		return err
	}
	for _, w := range all {
		if err := t.item(w.Name, id); err != nil {
			return err
		}
	}
	return nil
}

// item looks for an item of a workflow.
func (t *teller) item(w keep.WorkflowName, id string) error {
	it, err := t.s.Item(t.ctx, w, id)
	if err == nil {
		name := keep.Place{Workflow: w, ID: id}.String()
		t.found = append(t.found, candidate{IsItem, name, id, func() (Story, error) { return t.ofItem(it) }})
	}
	if errors.Is(err, keep.ErrNotFound) {
		return nil
	}
	return err
}
