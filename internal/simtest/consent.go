package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
)

// In every third world people give and take grants, between any two steps. What a grant
// allows is decided here a second time, from how it was made and not from its text.

// A permit is what one grant of a workflow allows.
type permit struct {
	tools []string // without their connection
	when  []int    // the condition of each; see conditions
}

// A condition is what a grant may demand of params, and the same in Go.
type condition struct {
	text  string // empty: nothing
	holds func(params []byte) bool
}

// conditions are those that grants have. What a param lacks is never a yes.
var conditions = []condition{
	{"", func([]byte) bool { return true }},
	{"size(params.id) % 2 == 0", func(params []byte) bool {
		var p struct{ ID string }
		return json.Unmarshal(params, &p) == nil && len(p.ID)%2 == 0 // ids are ASCII
	}},
	{"params.n == 0", func(params []byte) bool { // calls of consumers have no n
		var p struct{ N *int }
		return json.Unmarshal(params, &p) == nil && p.N != nil && *p.N == 0
	}},
	{"params.nothing == 1", func([]byte) bool { return false }},
}

// everyTool are the tools of the connection.
var everyTool = append(slices.Clone(mutators), "get", "list")

// allows reports whether the permit has a tool, with these params.
func (p permit) allows(tool keep.ToolName, params []byte) bool {
	n := slices.Index(p.tools, plainTool(tool))
	return n >= 0 && conditions[p.when[n]].holds(params)
}

// consents decides whether people give grants in this world. Tools whose names change are
// the matter of other worlds. The draw is its own, so that the other worlds are those of
// before.
func (w *world) consents() bool {
	return !w.edited && rand.New(rand.NewPCG(w.seed, 8)).IntN(3) == 0
}

// consent gives the workflow another grant, or takes all from it.
func (w *world) consent(o *operator.Operator, f *flow) (string, error) {
	by := operator.Giver{By: "ann", From: "sim"}
	if w.chance(0.2) {
		_, err := o.TakeGrant(person, f.name, by, nil)
		return "take all from " + string(f.name), err
	}
	p := permit{tools: slices.Clone(everyTool)}
	if w.chance(0.5) {
		n := w.below(len(p.tools))
		p.tools = slices.Delete(p.tools, n, n+1)
	}
	when := 0
	if w.chance(0.4) {
		when = w.below(len(conditions))
	}
	p.when = slices.Repeat([]int{when}, len(p.tools))
	_, err := o.SetGrant(person, f.name, p.granted(), by, nil)
	return fmt.Sprintf("give %s %+v", f.name, p), err
}

// consentBeside is somebody who gives or takes a grant at the last moment: a call is decided,
// and is about to be recorded.
func (w *world) consentBeside(ctx context.Context, c keep.Commit) {
	calls := slices.ContainsFunc(c.Changes, func(change keep.Change) bool {
		put, ok := change.(keep.PutMutation)
		return ok && put.Mutation.State == keep.InFlight
	})
	if !calls || !w.granted || ctx.Value(byPerson{}) != nil || !w.maybe(0.1) {
		return
	}
	n := slices.IndexFunc(w.flows, func(f *flow) bool { return f.name == c.Workflow })
	what, err := w.consent(w.newCommand("beside ").operator, w.flows[n])
	w.note(fmt.Sprintf("person: at the last moment: %s: %v", what, err))
	w.saw("grant: another at the last moment")
}

// deploy makes a version current, or has it wait for a person.
func (w *world) deploy(o *operator.Operator, f *flow, b behaviour) error {
	d := f.deployment(b, w.settings)
	if !w.granted || w.chance(0.5) {
		return second(o.Deploy(person, d))
	}
	_, err := o.DeployGranted(person, d, nil, operator.Consent{
		Giver: operator.Giver{By: "eve", From: "sim"}, Calls: []keep.ToolName{"svc.list", keep.ToolName("svc." + everyTool[w.below(len(everyTool))])}, Give: w.chance(0.2),
	})
	return err
}

// granted returns the permit as a grant says it. Reads have no condition.
func (p permit) granted() (tools []keep.GrantedTool) {
	for i, name := range p.tools {
		g := keep.GrantedTool{Tool: "svc." + name}
		if slices.Contains(mutators, name) {
			g.When = conditions[p.when[i]].text
		}
		tools = append(tools, g)
	}
	return tools
}

// permitOf returns the permit that a grant was made of.
func permitOf(g keep.Grant) (p permit) {
	for _, t := range g.Tools {
		p.tools = append(p.tools, plainTool(keep.ToolName(t.Tool)))
		p.when = append(p.when, slices.IndexFunc(conditions, func(c condition) bool { return c.text == t.When }))
	}
	return p
}

// watchGrants notes what holds from a commit on, and looks whether the call that it
// records was permitted by what held until then.
func (w *world) watchGrants(c keep.Commit) {
	for _, change := range c.Changes {
		switch v := change.(type) {
		case keep.PutMutation:
			if m := v.Mutation; m.State == keep.InFlight && !w.begun[attemptOf(m)] {
				w.begun[attemptOf(m)] = true
				w.permitted("is recorded to be sent", m, len(w.permits[m.Workflow]))
			}
		case keep.PutProposal:
			w.proposed[versionOf(v.Proposal.Workflow, v.Proposal.Version)] = true
		case keep.EndProposal:
			w.saw("proposal: " + string(v.State))
			w.proposed[versionOf(c.Workflow, v.Version)] = v.State != keep.ProposalApproved
		case keep.PutRun:
			if w.proposed[versionOf(c.Workflow, v.Run.Version)] {
				w.broken("permitted", "run %s is of version %s, to which nobody agreed", v.Run.ID, v.Run.Version)
			}
		case keep.PutGrant:
			w.permits[c.Workflow] = append(w.permits[c.Workflow], permitOf(v.Grant))
			w.saw(fmt.Sprintf("grant: taken %t", v.Grant.IsTaken()))
		}
	}
}

// versionOf names a version of a workflow.
func versionOf(name keep.WorkflowName, v keep.Version) string { return string(name) + " " + v.String() }

// permitted reports a call that no grant allowed since the one of number from held.
// Before its first grant a workflow may call everything.
func (w *world) permitted(what string, m keep.Mutation, from int) {
	all := w.permits[m.Workflow]
	if from == 0 || slices.ContainsFunc(all[from-1:], func(p permit) bool { return p.allows(m.Tool, m.Payload) }) {
		return
	}
	w.broken("permitted", "%s %s with %s, and the grant %d does not allow it: %+v", m.Key, what, m.Payload, len(all), all[len(all)-1])
}

// watchPermit looks whether a call that is sent again is permitted: by what held since
// its process looked, which is once for each time.
func (w *world) watchPermit(p *process, m keep.Mutation) {
	from, looked := p.looked[m.Workflow]
	if !looked {
		w.broken("permitted", "%s is sent again, and nobody looked whether it may be", m.Key)
		return
	}
	w.permitted("is sent again", m, from)
}

// watchRead looks whether a read is permitted: by what held since its process looked. In a group
// two actors of one process may have looked at different times: one that lost its lease still reads.
func (w *world) watchRead(p *process, name keep.WorkflowName, tool string, params []byte) {
	if w.granted && w.group == nil {
		w.permitted("is read", keep.Mutation{Key: keep.MutationKey("svc." + tool), Workflow: name, Tool: keep.ToolName("svc." + tool), Payload: params}, p.looked[name])
	}
}

// looks notes what holds when the engine of a process reads it.
func (p *process) looks(ctx context.Context, name keep.WorkflowName) {
	if ctx.Value(byPerson{}) == nil {
		p.looked[name] = len(p.w.permits[name])
	}
}

// Workflow implements store.Workflows.
func (s *store) Workflow(ctx context.Context, name keep.WorkflowName) (keep.Workflow, error) {
	if s.p.w.granted { // the other worlds are those of before
		if err := s.read(ctx, "workflow", string(name)); err != nil {
			return keep.Workflow{}, err
		}
		s.p.looks(ctx, name)
	}
	return s.Store.Workflow(ctx, name)
}

// Grant implements store.Grants.
func (s *store) Grant(ctx context.Context, name keep.WorkflowName) (keep.Grant, error) {
	if err := s.read(ctx, "grant", string(name)); err != nil {
		return keep.Grant{}, err
	}
	if s.p.w.does(servesOldGrant) {
		all, err := s.Store.GrantsBefore(ctx, name)
		if err == nil && len(all) > 1 {
			old := all[len(all)-1]
			old.N = all[0].N
			return old, nil
		}
	}
	return s.Store.Grant(ctx, name)
}

// permitAll ends what people changed: each workflow may call everything.
func (w *world) permitAll(o *operator.Operator) {
	for _, f := range w.flows {
		_, err := o.SetGrant(person, f.name, permit{everyTool, make([]int, len(everyTool))}.granted(), operator.Giver{By: "ann", From: "sim"}, nil)
		w.must("give", err)
	}
}
