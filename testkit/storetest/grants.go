package storetest

import (
	"errors"
	"fmt"

	"github.com/keep-run/keep"
)

// grant returns the grant of that number of a workflow.
func (w *world) grant(name keep.WorkflowName, n int, tools ...keep.GrantedTool) keep.Grant {
	return keep.Grant{Workflow: name, N: n, Version: keep.Version{Major: 1}, Tools: tools, GivenBy: odd, From: "cli", GivenAt: oddTime}
}

// A refused change and what refuses it.
func isNotFound(err error) bool { return errors.Is(err, keep.ErrNotFound) }

var grantPromises = []promise{
	{"a workflow that was never given a grant has none", func(w *world) {
		w.deploy("a")
		_, err := w.Grant(w.ctx, "a")
		w.fails("no grant", err, isNotFound)
		w.same("granted", get[keep.Workflow](w)(w.Workflow(w.ctx, "a")).Granted, 0)
		w.same("all", len(get[[]keep.Grant](w)(w.Grants(w.ctx))), 0)
		w.refuse("nobody", isNotFound, keep.PutGrant{Grant: w.grant("nobody", 1)})
	}},
	{"grants come back as they were given, each after the one before", func(w *world) {
		w.deploy("b")
		w.deploy("a")
		first := w.grant("a", 1, keep.GrantedTool{Tool: "x.y", When: "params.t == '" + odd + "'", Approve: "always"}, keep.GrantedTool{Tool: "z.*"})
		other := w.grant("b", 1)
		w.commit("a", keep.PutGrant{Grant: first})
		w.commit("b", keep.PutGrant{Grant: other})
		w.refuse("a", isStale, keep.PutGrant{Grant: first})
		w.refuse("a", isStale, keep.PutGrant{Grant: w.grant("a", 3)})
		taken := w.grant("a", 2)
		taken.TakenBy, taken.TakenAt = odd, oddTime
		w.commit("a", keep.PutGrant{Grant: taken})
		first.GivenAt, other.GivenAt, taken.GivenAt, taken.TakenAt = kept(oddTime), kept(oddTime), kept(oddTime), kept(oddTime)
		w.same("the one that holds", get[keep.Grant](w)(w.Grant(w.ctx, "a")), taken)
		w.same("all that hold", get[[]keep.Grant](w)(w.Grants(w.ctx)), []keep.Grant{taken, other})
		w.same("those before", get[[]keep.Grant](w)(w.GrantsBefore(w.ctx, "a")), []keep.Grant{taken, first})
		w.same("granted", get[keep.Workflow](w)(w.Workflow(w.ctx, "a")).Granted, 2)
		w.commit("a", keep.SetPaused{Paused: true})
		w.same("granted still", get[keep.Workflow](w)(w.Workflow(w.ctx, "a")).Granted, 2)
	}},
	{"a grant is given with the deploy that it is for, or neither is", func(w *world) {
		d := keep.Deployment{Workflow: "a", Version: keep.Version{Major: 1}, Hash: "h", Entry: "a.js", Code: []byte("x"), CreatedAt: w.now(),
			Definition: keep.Definition{Name: "a", Topics: []keep.TopicName{}}}
		w.refuse("a", isStale, keep.Deploy{Deployment: d}, keep.PutGrant{Grant: w.grant("a", 2)})
		_, err := w.Workflow(w.ctx, "a")
		w.fails("the workflow", err, isNotFound)
		w.commit("a", keep.Deploy{Deployment: d}, keep.PutGrant{Grant: w.grant("a", 1)})
		w.same("granted", get[keep.Workflow](w)(w.Workflow(w.ctx, "a")).Granted, 1)
	}},
	{"a grant that says nothing sound is refused", func(w *world) {
		w.deploy("a")
		for _, wrong := range []func(*keep.Grant){
			func(g *keep.Grant) { g.Tools = []keep.GrantedTool{{Tool: "x"}} },
			func(g *keep.Grant) { g.Tools = []keep.GrantedTool{{Tool: "*.x"}} },
			func(g *keep.Grant) { g.TakenBy = "somebody" },
			func(g *keep.Grant) { g.Workflow = "b" },
			func(g *keep.Grant) { g.TakenBy, g.TakenAt, g.Tools = "x", oddTime, []keep.GrantedTool{{Tool: "x.y"}} },
		} {
			g := w.grant("a", 1)
			wrong(&g)
			w.refuse("a", func(err error) bool { return err != nil }, keep.PutGrant{Grant: g})
		}
	}},
	{"no call is recorded under a grant that another one replaced", func(w *world) {
		w.deploy("a", "t")
		w.commit("a", keep.PutGrant{Grant: w.grant("a", 1, keep.GrantedTool{Tool: "svc.create"})})
		r := w.newRun("a")
		m := w.newMutation(r)
		record := []keep.Change{keep.PutRun{Run: r}, keep.UnderGrant{N: 1}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", m.State)}}}
		w.commit("a", keep.PutGrant{Grant: w.grant("a", 2)})
		w.refuse("a", isStale, record...)
		_, err := w.Mutation(w.ctx, m.Key)
		w.fails("the record", err, isNotFound)
		record[1] = keep.UnderGrant{N: 2}
		w.commit("a", record...)
	}},
	{"no call is recorded that was approved for another version", func(w *world) {
		w.deploy("a", "t")
		r := w.newRun("a")
		m := w.newMutation(r)
		record := []keep.Change{keep.PutRun{Run: r}, keep.UnderGrant{Version: keep.Version{Major: 2}}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", m.State)}}}
		w.refuse("a", isStale, record...)
		record[1] = keep.UnderGrant{Version: keep.Version{Major: 1}}
		w.commit("a", record...)
	}},
	{"a version that waits is not deployed, until a person agrees", func(w *world) {
		w.deploy("a", "t")
		p := w.proposal("a", 2)
		w.commit("a", keep.PutProposal{Proposal: p}, keep.OpenEscalation{Escalation: w.grantQuestion(p)})
		w.same("current", get[keep.Workflow](w)(w.Workflow(w.ctx, "a")).Version, keep.Version{Major: 1})
		p.CreatedAt, p.Code = kept(p.CreatedAt), []byte{0, 1, 255}
		w.same("one", get[keep.Proposal](w)(w.Proposal(w.ctx, "a", p.Version)), p)
		bare := p
		bare.Code, bare.Map = nil, nil
		w.same("all", get[[]keep.Proposal](w)(w.Proposals(w.ctx, "a")), []keep.Proposal{bare})
		other := w.proposal("a-first", 1) // of a workflow that does not exist
		other.Over = keep.Version{}
		w.commit("a-first", keep.PutProposal{Proposal: other}, keep.OpenEscalation{Escalation: w.grantQuestion(other)})
		w.same("of one", get[[]keep.Proposal](w)(w.Proposals(w.ctx, "a")), []keep.Proposal{bare})
		var names []keep.WorkflowName
		for _, p := range get[[]keep.Proposal](w)(w.Proposals(w.ctx, "")) {
			names = append(names, p.Workflow)
		}
		w.same("of all", names, []keep.WorkflowName{"a-first", "a"})
		_, err := w.Deployment(w.ctx, "a", p.Version)
		w.fails("its deployment", err, isNotFound)

		w.refuse("a", isStale, keep.Deploy{Deployment: p.Deployment})
		d := p.Deployment
		d.Version.Major = 3
		w.refuse("a", isStale, keep.Deploy{Deployment: d})
		w.refuse("a", isStale, keep.PutProposal{Proposal: w.proposal("a", 3)})
		w.refuse("a", isStale, keep.EndProposal{Version: keep.Version{Major: 3}, State: keep.ProposalApproved})
		before := p
		p = w.proposal("a", 4)
		w.commit("a", keep.EndProposal{Version: before.Version, State: keep.ProposalReplaced}, keep.CloseEscalation{ID: before.Question},
			keep.PutProposal{Proposal: p}, keep.OpenEscalation{Escalation: w.grantQuestion(p)})
		w.same("replaced", get[keep.Proposal](w)(w.Proposal(w.ctx, "a", before.Version)).State, keep.ProposalReplaced)
		w.refuse("a", isStale, keep.EndProposal{Version: p.Version, State: keep.ProposalRejected}, keep.Deploy{Deployment: p.Deployment})

		w.commit("a", keep.EndProposal{Version: p.Version, State: keep.ProposalApproved}, keep.Deploy{Deployment: p.Deployment}, keep.CloseEscalation{ID: p.Question})
		w.same("current", get[keep.Workflow](w)(w.Workflow(w.ctx, "a")).Version, p.Version)
		ended := get[keep.Proposal](w)(w.Proposal(w.ctx, "a", p.Version))
		w.same("state", ended.State, keep.ProposalApproved)
		w.same("ended", ended.EndedAt.IsZero(), false)
		w.refuse("a", isStale, keep.EndProposal{Version: p.Version, State: keep.ProposalRejected})
	}},
	{"a version that was refused keeps its number, and is never deployed", func(w *world) {
		p := w.proposal("new", 1) // of a workflow that does not exist
		p.Over = keep.Version{}
		w.commit("new", keep.PutProposal{Proposal: p}, keep.OpenEscalation{Escalation: w.grantQuestion(p)})
		_, err := w.Workflow(w.ctx, "new")
		w.fails("the workflow", err, isNotFound)
		w.commit("new", keep.EndProposal{Version: p.Version, State: keep.ProposalRejected}, keep.CloseEscalation{ID: p.Question})
		w.refuse("new", isStale, keep.Deploy{Deployment: p.Deployment})
		w.refuse("new", isStale, keep.PutProposal{Proposal: p})
		p.Deployment.Version.Major = 2
		w.commit("new", keep.Deploy{Deployment: p.Deployment})
		w.same("current", get[keep.Workflow](w)(w.Workflow(w.ctx, "new")).Version, keep.Version{Major: 2})
		w.refuse("new", isStale, keep.PutProposal{Proposal: w.proposal("new", 2)})
		w.refuse("new", isStale, keep.PutProposal{Proposal: w.proposal("new", 3)}) // over 1.0
	}},
	{"a version that was refused leaves the minor numbers before it", func(w *world) {
		w.deploy("a", "t")
		major := w.proposal("a", 2)
		w.commit("a", keep.PutProposal{Proposal: major}, keep.OpenEscalation{Escalation: w.grantQuestion(major)})
		minor := w.proposal("a", 1)
		minor.Deployment.Version.Minor, minor.Question = 1, "esc_minor"
		ask := []keep.Change{keep.PutProposal{Proposal: minor}, keep.OpenEscalation{Escalation: w.grantQuestion(minor)}}
		w.refuse("a", isStale, ask...) // the major one waits
		w.commit("a", keep.EndProposal{Version: major.Version, State: keep.ProposalRejected}, keep.CloseEscalation{ID: major.Question})
		w.commit("a", ask...)
		again := w.proposal("a", 2)
		again.Question = "esc_again"
		w.refuse("a", isStale, append([]keep.Change{keep.EndProposal{Version: minor.Version, State: keep.ProposalReplaced}}, keep.PutProposal{Proposal: again})...)
		var list []keep.Version
		for _, p := range get[[]keep.Proposal](w)(w.Proposals(w.ctx, "a")) {
			list = append(list, p.Version)
		}
		w.same("the latest version first", list, []keep.Version{major.Version, minor.Version})
		w.refuse("a", isStale, keep.EndProposal{Version: major.Version, State: keep.ProposalApproved})
		w.commit("a", keep.EndProposal{Version: minor.Version, State: keep.ProposalApproved}, keep.Deploy{Deployment: minor.Deployment}, keep.CloseEscalation{ID: minor.Question})
		w.same("current", get[keep.Workflow](w)(w.Workflow(w.ctx, "a")).Version, minor.Version)
		w.refuse("a", isStale, keep.Deploy{Deployment: major.Deployment})
		major.Deployment.Version.Major = 3
		w.commit("a", keep.Deploy{Deployment: major.Deployment})
	}},
}

// proposal returns a version that waits, over version 1.0.
func (w *world) proposal(name keep.WorkflowName, major int) keep.Proposal {
	return keep.Proposal{
		Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: major}, Hash: "h", Entry: "a.js", Code: []byte{0, 1, 255}, CreatedAt: oddTime,
			Definition: keep.Definition{Name: name, Topics: []keep.TopicName{"t"}, Intent: odd}},
		Over: keep.Version{Major: 1}, Tools: []keep.GrantedTool{{Tool: "x.y", When: odd}}, By: odd, From: "api",
		Question: keep.EscalationID(fmt.Sprintf("esc_%s_%d", name, major)), State: keep.ProposalWaiting,
	}
}

// grantQuestion returns the question about a proposal.
func (w *world) grantQuestion(p keep.Proposal) keep.Escalation {
	return keep.Escalation{ID: p.Question, Kind: keep.AskGrant, Workflow: p.Workflow, Question: odd, CreatedAt: w.now(),
		Choices: []keep.Choice{{Action: keep.Approve}, {Action: keep.Reject}}}
}
