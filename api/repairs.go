package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/keep-run/keep"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/store"
)

// A Repair is what was done about a failure of a script, and about all that are alike.
type Repair struct {
	ID          string             `json:"id"`
	Workflow    keep.WorkflowName  `json:"workflow"`
	Handler     keep.HandlerName   `json:"handler"`
	Run         keep.RunID         `json:"run" doc:"that failed last"`
	Code        string             `json:"code" doc:"of the failure"`
	At          string             `json:"at" doc:"place in the script; empty: unknown"`
	BaseVersion string             `json:"base_version" doc:"that failed"`
	Version     *string            `json:"version" doc:"that the proposal is; null: there is none"`
	State       RepairState        `json:"state" enum:"judging,waiting,active,rejected,superseded"`
	Verdict     *string            `json:"verdict" enum:"safe,impactful,inconclusive,refused" doc:"of the newest proposal; null: there is none"`
	Reasons     []string           `json:"reasons" doc:"why that is not safe"`
	Attempt     int                `json:"attempt" doc:"how many began"`
	Attempts    []RepairAttempt    `json:"attempts"`
	Note        string             `json:"note" doc:"what the model says of its proposal; nobody checked it"`
	Why         string             `json:"why" doc:"why nothing is tried any more; empty: something is, or a version came of it"`
	Tokens      int64              `json:"tokens"`
	Cost        float64            `json:"cost"`
	Question    *keep.EscalationID `json:"question" doc:"open one about the version; null: none"`
	CreatedAt   Time               `json:"created_at"`
	Source      string             `json:"source,omitempty" doc:"that was proposed; when one repair is shown"`
	BaseSource  string             `json:"base_source,omitempty" doc:"that failed; when one repair is shown"`
}

// A RepairState says how far a repair came.
type RepairState string

const (
	RepairJudging    RepairState = "judging"    // attempts are made, or the version is about to be
	RepairWaiting    RepairState = "waiting"    // for a person
	RepairActive     RepairState = "active"     // its version became current
	RepairRejected   RepairState = "rejected"   // by the gate or by a person
	RepairSuperseded RepairState = "superseded" // another version came first
)

// A RepairAttempt is one conversation with the model.
type RepairAttempt struct {
	BeganAt Time    `json:"began_at"`
	EndedAt *Time   `json:"ended_at" doc:"null: it is under way, or its host died"`
	Verdict *string `json:"verdict" doc:"null: nothing was proposed"`
	Why     string  `json:"why" doc:"why it was not taken; empty: it was"`
	Tokens  int64   `json:"tokens"`
	Cost    float64 `json:"cost"`
}

// repairsStore has what repairs are shown from. It is wide because a repair has a record, a version and a base.
type repairsStore interface {
	store.RepairRecords
	store.Proposals
	store.Workflows
}

// repairedWorkflow is what is known of a workflow that repairs are about.
type repairedWorkflow struct {
	current  keep.Version
	proposed []keep.Proposal
}

func readRepaired(ctx context.Context, s repairsStore, name keep.WorkflowName) (repairedWorkflow, error) {
	proposed, err := s.Proposals(ctx, name)
	if err != nil {
		return repairedWorkflow{}, err
	}
	w, err := s.Workflow(ctx, name)
	return repairedWorkflow{w.Version, proposed}, err
}

// repairOf returns the object of a repair.
func repairOf(r keep.Repair, w repairedWorkflow) (Repair, error) {
	rec, err := law.ReadRecord(r)
	if err != nil {
		return Repair{}, err
	}
	i := slices.IndexFunc(w.proposed, func(p keep.Proposal) bool { return p.IsRepair() && p.By == r.ID })
	if i < 0 { // a host may have ended before it kept that another version came
		rec = rec.Under(w.current, r.CreatedAt)
	}
	sig, spent := rec.Signature, rec.Spent()
	out := Repair{
		ID: r.ID, Workflow: r.Workflow, Handler: sig.Handler, Run: rec.Run, Code: sig.Code, At: sig.At, BaseVersion: sig.Version.String(),
		State: RepairJudging, Reasons: []string{}, Attempt: spent.Attempts, Attempts: []RepairAttempt{}, Why: rec.Why,
		Tokens: spent.Tokens, Cost: spent.Cost, CreatedAt: Time(r.CreatedAt),
	}
	for _, a := range rec.Attempts {
		out.Attempts = append(out.Attempts, RepairAttempt{Time(a.BeganAt), timeOf(a.EndedAt), orNull(string(a.Verdict)), a.Why, a.Tokens, a.Cost})
		if a.Source != "" {
			out.Verdict, out.Note, out.Source = orNull(string(a.Verdict)), a.Note, a.Source
			out.Reasons = append([]string{}, a.Reasons...)
		}
	}
	switch rec.Stage {
	case law.Used:
		out.State = RepairRejected
	case law.Replaced:
		out.State = RepairSuperseded
	}
	if i < 0 {
		return out, nil
	}
	p := w.proposed[i]
	out.Version = orNull(p.Version.String())
	out.State = map[keep.ProposalState]RepairState{keep.ProposalWaiting: RepairWaiting, keep.ProposalApproved: RepairActive,
		keep.ProposalRejected: RepairRejected, keep.ProposalReplaced: RepairSuperseded}[p.State]
	switch p.State {
	case keep.ProposalWaiting:
		out.Question = &p.Question
	case keep.ProposalReplaced:
		out.Why = fmt.Sprintf("another version came before a person decided about %s", p.Version) // whatever a host kept of it
	}
	return out, nil
}

// ListRepairs returns the repairs of a workflow, or of all if w is empty, newest first.
func ListRepairs(ctx context.Context, s repairsStore, w keep.WorkflowName) ([]Repair, error) {
	all, err := s.Repairs(ctx, w, time.Time{})
	if err != nil {
		return nil, err
	}
	known := make(map[keep.WorkflowName]repairedWorkflow)
	out := make([]Repair, 0, len(all))
	for _, r := range all {
		if _, read := known[r.Workflow]; !read {
			if known[r.Workflow], err = readRepaired(ctx, s, r.Workflow); err != nil {
				return nil, err
			}
		}
		one, err := repairOf(r, known[r.Workflow])
		if err != nil {
			return nil, err
		}
		one.Source = ""
		out = append(out, one)
	}
	return out, nil
}

// ShowRepair returns one repair, with the script that was proposed.
func ShowRepair(ctx context.Context, s repairsStore, id string) (Repair, error) {
	r, err := s.Repair(ctx, id)
	if err != nil {
		return Repair{}, err
	}
	w, err := readRepaired(ctx, s, r.Workflow)
	if err != nil {
		return Repair{}, err
	}
	out, err := repairOf(r, w)
	if err != nil || out.Source == "" {
		return out, err
	}
	base, err := keep.ParseVersion(out.BaseVersion)
	if err != nil {
		return out, err
	}
	d, err := s.Deployment(ctx, r.Workflow, base)
	out.BaseSource = entrySource(d)
	return out, err
}

// entrySource returns the text of the file that declares a workflow, as its source map quotes it; empty: it is not
// kept.
func entrySource(d keep.Deployment) string {
	var m struct {
		Sources        []string `json:"sources"`
		SourcesContent []string `json:"sourcesContent"`
	}
	if json.Unmarshal(d.Map, &m) != nil {
		return ""
	}
	if i := slices.Index(m.Sources, d.Entry); i >= 0 && i < len(m.SourcesContent) {
		return m.SourcesContent[i]
	}
	return ""
}

// readRepairs registers what shows repairs.
func (s *Server) readRepairs() {
	get(s, "/repairs", "list-repairs", "Repairs of scripts that failed, newest first", func(ctx context.Context, in *repairsQuery) (Page[Repair], error) {
		all, err := ListRepairs(ctx, s.cfg.Store, in.Workflow)
		return paged(all, "", err)
	})
	get(s, "/repairs/{repair}", "show-repair", "One repair, with the script that was proposed", func(ctx context.Context, in *struct {
		Repair string `path:"repair"`
	}) (Repair, error) {
		return ShowRepair(ctx, s.cfg.Store, in.Repair)
	})
}

// A repairsQuery selects repairs.
type repairsQuery struct {
	Workflow keep.WorkflowName `query:"workflow" doc:"only of this one"`
}

// Repairs returns the repairs of a workflow, or of all if w is empty, newest first.
func (c *Client) Repairs(ctx context.Context, w keep.WorkflowName) ([]Repair, error) {
	p, err := ask[Page[Repair]](ctx, c, call{method: http.MethodGet, path: []string{"repairs"}, query: repairsQuery{w}})
	return p.Items, err
}

// Repair returns one repair, with the script that was proposed.
func (c *Client) Repair(ctx context.Context, id string) (Repair, error) {
	return ask[Repair](ctx, c, call{method: http.MethodGet, path: []string{"repairs", id}})
}
