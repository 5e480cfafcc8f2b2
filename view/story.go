package view

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
)

// ofRun tells of a run: its own call and question, and the attempts of its chain.
func (t *teller) ofRun(r keep.Run) (Story, error) {
	out := Story{
		Workflow: r.Workflow,
		Sentence: fmt.Sprintf("Run of %s %s in %s %s%s: %s, phase %s.", r.Kind, r.Handler, r.Workflow, r.Version, titled(r.Title), r.Status, r.Phase),
		Runs:     []keep.RunID{r.ID},
	}
	for _, held := range r.Reservations {
		for _, id := range held.IDs[:min(len(held.IDs), maxRelated)] {
			out.Events = append(out.Events, keep.EventRef{Topic: held.Topic, MessageID: id})
		}
	}
	var err error
	if out.Inputs, err = t.s.Causes(t.ctx, r.Chain); err != nil {
		return out, err
	}
	out.Inputs = out.Inputs[:min(len(out.Inputs), maxRelated)]
	calls, err := t.s.Calls(t.ctx, r.Chain, maxRelated)
	if err != nil {
		return out, err
	}
	for _, m := range slices.Backward(calls) {
		if m.Run != r.ID {
			continue
		}
		out.Mutations = append(out.Mutations, m.Key)
		out.Became = append(out.Became, callOf(m))
	}
	if r.Error != nil {
		out.Became = append(out.Became, fmt.Sprintf("It stopped with a failure of class %s: %s.", r.Error.Class, strings.TrimRight(r.Error.Error(), ".")))
	}
	questions, err := t.s.EscalationsOf(t.ctx, r.Chain, maxRelated)
	if err != nil {
		return out, err
	}
	for _, q := range slices.Backward(questions) {
		if q.Run == r.ID {
			out.Questions = append(out.Questions, q.ID)
			out.Became = append(out.Became, decisionOn(q))
		}
	}
	if open, err := t.open(r.Workflow, []keep.Run{r}); err != nil || open != nil {
		if err == nil {
			out.waitsAs(open)
		}
		return out, err
	}
	later, _, err := t.s.Runs(t.ctx, keep.RunFilter{Workflow: r.Workflow, Chain: r.Chain}, keep.Page{Limit: 1, Bare: true})
	if err == nil && len(later) > 0 && later[0].ID != r.ID {
		out.Became = append(out.Became, fmt.Sprintf("Another attempt took its work over: %s, which is %s.", later[0].ID, later[0].Status))
		out.Runs = append(out.Runs, later[0].ID)
	}
	return out, err
}

// waitOfCall says for what a call of r waits; empty: for nothing.
func (t *teller) waitOfCall(r keep.Run, m keep.Mutation) (string, error) {
	isOpen := !r.Closed && r.Mutation == m.Key
	if !isOpen && !lifecycle.Unknown(m.State) {
		return "", nil
	}
	if isOpen {
		waits, err := ReadWaits(t.ctx, t.s, r)
		return waits.WaitOf(r, m).String(), err
	}
	limits, err := readLimits(t.ctx, t.s)
	return limits.WaitOfDoubt(m).String(), err
}

// ofMutation tells of a call: how often it was made and asked about, and who knows how it
// ended.
func (t *teller) ofMutation(m keep.Mutation) (Story, error) {
	moves, err := t.s.History(t.ctx, m.Key)
	out := Story{Workflow: m.Workflow, Sentence: callOf(m), Mutations: []keep.MutationKey{m.Key}, Runs: []keep.RunID{m.Run}}
	for _, move := range moves[max(0, len(moves)-maxRelated):] {
		out.Became = append(out.Became, moved(move))
	}
	if err != nil {
		return out, err
	}
	r, err := t.s.Run(t.ctx, m.Run)
	if err != nil {
		return out, ignoreMissing(err) // it was swept
	}
	if out.Wait, err = t.waitOfCall(r, m); err != nil {
		return out, err
	}
	out.Inputs, err = t.s.Causes(t.ctx, r.Chain)
	if err != nil {
		return out, err
	}
	questions, err := t.s.EscalationsOf(t.ctx, r.Chain, maxRelated)
	for _, q := range slices.Backward(questions) {
		if q.Mutation == m.Key {
			out.Questions = append(out.Questions, q.ID)
		}
	}
	return out, err
}

// ofEvent tells of an event: which runs worked on it, and what it waits for.
func (t *teller) ofEvent(ev keep.Event) (Story, error) {
	out := Story{
		Workflow: ev.Workflow,
		Sentence: fmt.Sprintf("Event of topic %s in %s, published by %s: %s.", ev.Topic, ev.Workflow, ev.CreatedBy, ev.Status),
		Events:   []keep.EventRef{{Topic: ev.Topic, MessageID: ev.MessageID}},
		Inputs:   ev.CausedBy[:min(len(ev.CausedBy), maxRelated)],
	}
	runs, err := t.s.RunsOfEvent(t.ctx, ev.Workflow, ev.Topic, ev.MessageID, maxRelated)
	if err != nil {
		return out, err
	}
	acts, err := ActsOfEvent(t.ctx, t.s, ev)
	if err != nil {
		return out, err
	}
	out.Became = acted(acts)
	if err := t.became(&out, ev.Workflow, runs); err != nil || ev.Status != keep.EventPending || out.Wait != "" {
		return out, err
	}
	out.Wait, err = t.queued(ev)
	return out, err
}

// queued says what an event waits for that no run has.
func (t *teller) queued(ev keep.Event) (string, error) {
	w, d, err := inForce(t.ctx, t.s, ev.Workflow)
	if err != nil {
		return "", err
	}
	if d.Workflow != "" && len(ReadersOf(d.Definition, ev.Topic)) == 0 {
		return fmt.Sprintf("No consumer of %s reads the topic %s.", ev.Workflow, ev.Topic), nil
	}
	st, err := ReadSituation(t.ctx, t.s, ev.Workflow, keep.MaxPage)
	if err != nil {
		return "", err
	}
	if w.Paused {
		return t.paused(w)
	}
	open := st.Runs[ev.Workflow]
	if first := First(holding(d.Definition, ev, open)); first != nil {
		return fmt.Sprintf("Waits in line behind %s. %s", first.ID, first.Wait), nil
	}
	return "Waits for a consumer to take it." + heldKeys(d.Definition, ev.Topic, open), nil
}

// paused says what waits for a workflow to be resumed, and who paused it.
func (t *teller) paused(w keep.Workflow) (string, error) {
	acts, err := Acts(t.ctx, t.s, w.Name.Subject())
	wait := fmt.Sprintf("Waits until %s is resumed: it is paused.", w.Name)
	if a := PauseOf(w, acts); a != nil {
		wait += " " + a.sentence()
	}
	return wait, err
}

// holding returns the open runs that an event surely waits for: those that hold up the workflow, the one that is
// executed, and those that began with the event. Its order key only the script can say.
func holding(def keep.Definition, ev keep.Event, open []*Run) []*Run {
	return slices.DeleteFunc(slices.Clone(open), func(r *Run) bool {
		return r.Status != keep.StatusActive && r.Trigger != (keep.EventRef{Topic: ev.Topic, MessageID: ev.MessageID}) &&
			!schedule.Open{Run: r.Run, Strict: schedule.IsStrict(def, r.Run)}.HoldsUp()
	})
}

// carriedBy reports whether the handler of a name carries on with a run, or reads the events of one that none carries on with.
func carriedBy(def keep.Definition, r *Run, name keep.HandlerName) bool {
	h, ok := def.Carrier(r.Kind, r.Handler)
	if !ok {
		h, ok = schedule.ReaderOf(def, r.Run)
	}
	return ok && h.Name == name
}

// heldKeys says which order keys of consumers that read a topic have an unfinished run; empty: none.
func heldKeys(def keep.Definition, topic keep.TopicName, open []*Run) string {
	const some = 3
	var b strings.Builder
	for _, name := range ReadersOf(def, topic) {
		var keys []string
		for _, r := range open {
			if key, ok := r.Lane.Key(); ok && carriedBy(def, r, name) {
				keys = append(keys, strconv.Quote(key))
			}
		}
		if len(keys) == 0 {
			continue
		}
		more := ""
		if n := len(keys) - some; n > 0 {
			keys, more = keys[:some], fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(&b, " Events of these order keys of %s wait for other runs: %s%s.", name, strings.Join(keys, ", "), more)
	}
	return b.String()
}

// ofInput tells of an input: what it caused, and what that waits for.
func (t *teller) ofInput(in keep.Input) (Story, error) {
	progress, err := t.s.Progress(t.ctx, []keep.InputID{in.ID}, maxRelated, maxRelated)
	if err != nil {
		return Story{}, err
	}
	out := Story{
		Workflow: in.Workflow,
		Sentence: fmt.Sprintf("Input of %s from %s %s, with the id %q there%s: %s.", in.Workflow, in.Source, in.Type, in.ExternalID, titled(in.Title),
			InputState(in.Status, SkippedOf(progress[in.ID].Events, maxRelated))),
		Inputs: []keep.InputID{in.ID},
	}
	runs, err := t.s.RunsOf(t.ctx, in.ID, maxRelated)
	if err != nil {
		return out, err
	}
	events := progress[in.ID].Events
	for _, ev := range slices.Backward(events) {
		out.Events = append(out.Events, keep.EventRef{Topic: ev.Topic, MessageID: ev.MessageID})
	}
	acts, err := Acts(t.ctx, t.s, keep.Subject{Workflow: in.Workflow, Kind: keep.AboutInput, ID: string(in.ID)})
	if err != nil {
		return out, err
	}
	out.Became = acted(acts)
	if err := t.became(&out, in.Workflow, runs); err != nil || out.Wait != "" {
		return out, err
	}
	return out, t.unfinished(&out, in)
}

// unfinished says what an input waits for that its newest runs do not say: any event that it caused may be unfinished, however old.
func (t *teller) unfinished(out *Story, in keep.Input) error {
	if in.Status == keep.InputDone {
		return nil
	}
	filter := keep.EventFilter{Workflow: in.Workflow, Input: in.ID, Status: keep.EventReserved}
	newest := keep.Page{Limit: maxRelated, Bare: true}
	reserved, _, err := t.s.Events(t.ctx, filter, newest)
	if err != nil {
		return err
	}
	for _, ev := range slices.Backward(reserved) {
		runs, _, err := t.s.Runs(t.ctx, keep.RunFilter{Workflow: in.Workflow, Chain: ev.ReservedBy, Open: true}, keep.Page{Limit: 1, Bare: true})
		if err != nil {
			return err
		}
		if open, err := t.open(in.Workflow, runs); err != nil || open != nil {
			if err == nil {
				out.waitsAs(open)
				out.Wait = fmt.Sprintf("Event %s of %s, which %s has: %s", ev.MessageID, ev.Topic, open.ID, out.Wait)
			}
			return err
		}
	}
	filter.Status = keep.EventPending
	free, _, err := t.s.Events(t.ctx, filter, newest)
	if err != nil || len(free) == 0 {
		return err
	}
	ev := free[len(free)-1]
	wait, err := t.queued(ev)
	if wait != "" {
		out.Wait = fmt.Sprintf("Event %s of %s: %s", ev.MessageID, ev.Topic, wait)
	}
	return err
}

// ofItem tells of an item of a job.
func (t *teller) ofItem(it keep.Item) (Story, error) {
	out := Story{Workflow: it.Workflow, Sentence: fmt.Sprintf("Item of a job of %s%s: %s, attempt %d.", it.Workflow, titled(it.Title), it.Status, it.Attempt)}
	asked, _, err := t.s.Escalations(t.ctx, keep.EscalationFilter{Workflow: it.Workflow, Item: it.ID, Open: true}, keep.Page{Limit: maxRelated})
	if err != nil {
		return out, err
	}
	for _, q := range slices.Backward(asked) {
		out.Questions = append(out.Questions, q.ID)
		out.Wait = fmt.Sprintf("Waits for a person to answer %s; see keep inbox.", q.ID)
	}
	acts, err := Acts(t.ctx, t.s, keep.Subject{Workflow: it.Workflow, Kind: keep.AboutItem, ID: it.ID})
	if err != nil {
		return out, err
	}
	out.Became = acted(acts)
	ref := keep.ItemRef{Workflow: it.Workflow, ID: it.ID}
	keys, err := t.s.ItemCalls(t.ctx, []keep.ItemRef{ref}, maxRelated)
	if err != nil || len(keys[ref]) == 0 {
		return out, err
	}
	calls, err := t.s.MutationsByKey(t.ctx, keys[ref])
	if err != nil {
		return out, err
	}
	slices.SortFunc(calls, func(a, b keep.Mutation) int { return a.CreatedAt.Compare(b.CreatedAt) })
	var ids []keep.RunID
	for _, m := range calls {
		out.Mutations = append(out.Mutations, m.Key)
		out.Became = append(out.Became, callOf(m))
		if !slices.Contains(ids, m.Run) {
			ids = append(ids, m.Run)
		}
	}
	out.Runs = ids
	runs, err := t.s.RunsByID(t.ctx, ids)
	if err != nil {
		return out, err
	}
	open, err := t.open(it.Workflow, runs)
	if err != nil {
		return out, err
	}
	if open != nil && !lifecycle.ItemOver(it) {
		out.Wait = open.Wait.String()
	}
	for _, m := range calls { // one whose run continued without it, or is over
		if !lifecycle.Unknown(m.State) || open != nil && open.Mutation == m.Key {
			continue
		}
		limits, err := readLimits(t.ctx, t.s)
		if err != nil {
			return out, err
		}
		out.Wait = limits.WaitOfDoubt(m).String()
	}
	return out, nil
}

// ofQuestion tells of a question to a person.
func (t *teller) ofQuestion(q keep.Escalation) Story {
	out := Story{
		Workflow:  q.Workflow,
		Sentence:  fmt.Sprintf("Question of kind %s about %s: %s", q.Kind, cmp.Or(string(q.Workflow), "an account"), strings.Join(strings.Fields(q.Question), " ")),
		Questions: []keep.EscalationID{q.ID},
	}
	if q.Run != "" {
		out.Runs = []keep.RunID{q.Run}
	}
	if q.Mutation != "" {
		out.Mutations = []keep.MutationKey{q.Mutation}
	}
	if q.ClosedAt.IsZero() {
		out.Wait = "Waits for a person to answer it; see keep inbox."
		if q.Kind == keep.AskReconnect {
			out.Wait = "Waits for a person to connect the account again."
		}
		return out
	}
	out.Became = []string{decisionOn(q)}
	return out
}

// ofVersion tells of a version; later are those that were deployed after it, newest first.
func (t *teller) ofVersion(d keep.Deployment, later []keep.Deployment) (Story, error) {
	acts, err := Acts(t.ctx, t.s, d.Workflow.Subject())
	by, name := "", "version "+d.Version.String()
	for _, a := range acts {
		if a.Action == keep.Deployed && (a.Note == name || strings.HasPrefix(a.Note, name+";")) {
			by = fmt.Sprintf(" by %s (%s)", a.By, a.From)
		}
	}
	out := Story{Workflow: d.Workflow, Sentence: fmt.Sprintf("Version %s of %s, deployed %s%s.", d.Version, d.Workflow, at(d.CreatedAt), by)}
	if len(later) > 0 {
		next := later[len(later)-1]
		out.Became = []string{fmt.Sprintf("Version %s replaced it %s.", next.Version, at(next.CreatedAt))}
	} else {
		out.Became = []string{"It is in force."}
	}
	return out, err
}

// became adds what runs made of an event or an input, newest of the runs first, and what
// the one that is open waits for.
func (t *teller) became(out *Story, w keep.WorkflowName, runs []keep.Run) error {
	var keys []keep.MutationKey
	for _, r := range slices.Backward(runs) {
		out.Runs = append(out.Runs, r.ID)
		if r.Mutation != "" && !slices.Contains(keys, r.Mutation) {
			keys = append(keys, r.Mutation)
		}
	}
	out.Mutations = keys
	list, err := t.s.MutationsByKey(t.ctx, keys)
	if err != nil {
		return err
	}
	calls := make(map[keep.MutationKey]keep.Mutation, len(list))
	for _, m := range list {
		calls[m.Key] = m
	}
	for _, r := range slices.Backward(runs) {
		line := fmt.Sprintf("%s of %s: %s.", r.ID, r.Handler, r.Status)
		if m, ok := calls[r.Mutation]; ok {
			line += " " + callOf(m)
		}
		out.Became = append(out.Became, line)
	}
	open, err := t.open(w, runs)
	if err == nil && open != nil {
		out.waitsAs(open)
	}
	return err
}

// waitsAs says what an open run waits for, and which question is about that.
func (s *Story) waitsAs(open *Run) {
	s.Wait = open.Wait.String()
	if q := open.Question; q != nil && !slices.Contains(s.Questions, q.ID) {
		s.Questions = append(s.Questions, q.ID)
	}
}

// open returns the run among runs that is not closed; nil: there is none.
func (t *teller) open(w keep.WorkflowName, runs []keep.Run) (*Run, error) {
	i := slices.IndexFunc(runs, func(r keep.Run) bool { return !r.Closed })
	if i < 0 {
		return nil, nil
	}
	explained, err := Explain(t.ctx, t.s, runs[i:i+1])
	if err != nil {
		return nil, err
	}
	return explained[0], nil
}

// callOf says in a sentence what a call is and how it stands.
func callOf(m keep.Mutation) string {
	state := strings.ReplaceAll(string(m.State), "_", " ")
	if lifecycle.Unknown(m.State) {
		state = "not known (" + state + ")"
	}
	target := ""
	if m.Target != "" {
		target = " on " + m.Target
	}
	by := ""
	if m.ResolvedBy != "" {
		by = ", by " + m.ResolvedBy
	}
	return fmt.Sprintf("%s%s, %s: %s%s.", m.Tool, target, lifecycle.TimesSent(m), state, by)
}

// moved says in a sentence what became of a call, and when.
func moved(m keep.Move) string {
	line := fmt.Sprintf("%s: %s", at(m.At), m.To)
	if m.Detail != "" {
		line += ", " + strings.TrimRight(m.Detail, ".")
	}
	return line + "."
}

// decisionOn says what became of a question.
func decisionOn(q keep.Escalation) string {
	switch {
	case q.Decision != nil:
		text := fmt.Sprintf("%s answered the question %s %s: %s", q.Decision.By, q.ID, at(q.Decision.At), q.Decision.Action)
		if q.Decision.Note != "" {
			text += fmt.Sprintf(" (%s)", strings.TrimRight(q.Decision.Note, "."))
		}
		return text + "."
	case q.ClosedAt.IsZero():
		return fmt.Sprintf("A person is asked: %s.", q.ID)
	}
	return fmt.Sprintf("The question %s was closed without an answer.", q.ID)
}

func titled(title string) string {
	if title == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", title)
}

// at writes a time as waits do.
func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// ignoreMissing returns nil for what a sweep may have removed.
func ignoreMissing(err error) error {
	if errors.Is(err, keep.ErrNotFound) {
		return nil
	}
	return err
}
