package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// A Proposal is a version that somebody wrote who may not decide about it, and what became of it.
// A repair is one proposal with all that was tried for one failure, and for all that are alike.
type Proposal struct {
	ID          string             `json:"id" doc:"of the repair, or WORKFLOW@VERSION"`
	Origin      keep.Origin        `json:"origin" enum:"repair,write,edit,agent,deploy" doc:"who wrote it; deploy: a person who may not give what it calls"`
	Workflow    keep.WorkflowName  `json:"workflow"`
	Run         *keep.RunID        `json:"run" doc:"that failed last; null: no run did"`
	BaseVersion *string            `json:"base_version" doc:"that it is made from; null: the workflow is new"`
	Version     *string            `json:"version" doc:"that it is; null: there is none"`
	State       ProposalState      `json:"state" enum:"judging,waiting,active,rejected,superseded,spent"`
	Verdict     *string            `json:"verdict" enum:"safe,impactful,inconclusive,refused" doc:"null: nobody judged it"`
	Reasons     []string           `json:"reasons" doc:"why it is not safe"`
	Attempt     int                `json:"attempt" doc:"how many began"`
	Attempts    []ProposalAttempt  `json:"attempts" doc:"those of a repair"`
	Note        string             `json:"note" doc:"what its author says of it; nobody checked it"`
	Why         string             `json:"why" doc:"why nothing is tried any more; empty: something is, or a version came of it"`
	Failure     *ProposalFailure   `json:"failure" doc:"that a repair mends; null: no repair"`
	Replay      *ProposalReplay    `json:"replay" doc:"how many recorded runs would have been otherwise; null: nobody went through them"`
	Grants      []string           `json:"grants_added" doc:"tools that it calls and that were not granted"`
	By          string             `json:"proposed_by"`
	Tokens      int64              `json:"tokens"`
	Cost        float64            `json:"cost"`
	Question    *keep.EscalationID `json:"question" doc:"open one about the version; null: none"`
	CreatedAt   Time               `json:"created_at"`
	DecidedBy   *string            `json:"decided_by" doc:"who accepted or rejected it; null: nobody"`

	// When one is shown.
	Source     string         `json:"source,omitempty" doc:"of the file that declares the workflow; when one is shown"`
	BaseSource string         `json:"base_source,omitempty" doc:"of that file before; when one is shown"`
	Diff       []string       `json:"diff,omitempty" doc:"of all its files, by lines; when one is shown"`
	Blast      *ProposalBlast `json:"blast,omitempty" doc:"what would have been otherwise; when keep or an author shows one"`
}

// A ProposalState says how far a proposal came.
type ProposalState string

const (
	ProposalJudging    ProposalState = "judging"    // attempts are made, or the version is about to be
	ProposalWaiting    ProposalState = "waiting"    // for a person
	ProposalActive     ProposalState = "active"     // its version became current
	ProposalRejected   ProposalState = "rejected"   // by a person
	ProposalSuperseded ProposalState = "superseded" // another version came first
	ProposalSpent      ProposalState = "spent"      // no version came of it, and nothing is tried any more; see Proposal.Why
)

// ProposalStates returns every state.
func ProposalStates() []ProposalState {
	return []ProposalState{ProposalJudging, ProposalWaiting, ProposalActive, ProposalRejected, ProposalSuperseded, ProposalSpent}
}

// A ProposalFailure is the failure that a repair mends.
type ProposalFailure struct {
	Handler keep.HandlerName `json:"handler"`
	Code    string           `json:"code"`
	At      string           `json:"at" doc:"place in the script; empty: unknown"`
}

// A ProposalAttempt is one conversation with the model.
type ProposalAttempt struct {
	BeganAt Time    `json:"began_at"`
	EndedAt *Time   `json:"ended_at" doc:"null: it is under way, or its host died"`
	Verdict *string `json:"verdict" doc:"null: nothing was proposed"`
	Why     string  `json:"why" doc:"why it was not taken; empty: it was"`
	Tokens  int64   `json:"tokens"`
	Cost    float64 `json:"cost"`
}

// A ProposalReplay counts recorded runs by what would have become of them.
type ProposalReplay struct {
	Runs         int           `json:"runs"`
	Same         int           `json:"same"`
	Changed      int           `json:"changed"`
	Missing      int           `json:"missing"`
	Added        int           `json:"added"`
	Failed       int           `json:"failed"`
	Inconclusive int           `json:"inconclusive"`
	Table        []ComparedRun `json:"table,omitempty" doc:"when one is shown"`
}

// A ProposalBlast is what of the version before would have been otherwise.
type ProposalBlast struct {
	Runs      []keep.RunID       `json:"runs"`
	Inputs    []ComparedInput    `json:"inputs"`
	Mutations []ComparedMutation `json:"mutations"`
}

// proposalsStore has what proposals are shown from. It is wide because a proposal has a record, a version, a base and
// a decision.
type proposalsStore interface {
	store.RepairRecords
	store.Proposals
	store.Workflows
	store.Escalations
}

// replayOf counts the runs of a comparison.
func replayOf(counts map[string]int) *ProposalReplay {
	if counts == nil {
		return nil
	}
	r := &ProposalReplay{Same: counts["same"], Changed: counts["changed"], Missing: counts["missing"], Added: counts["added"],
		Failed: counts["failed"], Inconclusive: counts["inconclusive"]}
	r.Runs = r.Same + r.Changed + r.Missing + r.Added + r.Failed + r.Inconclusive
	return r
}

// With returns the proposal with what a comparison of its version says.
func (p Proposal) With(c Comparison) Proposal {
	p.Replay, p.Blast = replayOf(c.Counts), &ProposalBlast{Runs: []keep.RunID{}, Inputs: c.Inputs, Mutations: c.Mutations}
	if p.Replay == nil {
		p.Replay = &ProposalReplay{}
	}
	p.Replay.Table = c.Runs
	for _, r := range c.Runs {
		if r.Change != "same" {
			p.Blast.Runs = append(p.Blast.Runs, r.Run)
		}
	}
	if p.Verdict == nil {
		p.Verdict, p.Reasons = orNull(c.Impact), append(p.Reasons, c.Declared...)
	}
	return p
}

// versionStates are the states of proposals that have a version.
var versionStates = map[keep.ProposalState]ProposalState{keep.ProposalWaiting: ProposalWaiting, keep.ProposalApproved: ProposalActive,
	keep.ProposalRejected: ProposalRejected, keep.ProposalReplaced: ProposalSuperseded}

// proposalID returns the id of a version that no repair wrote.
func proposalID(p keep.Proposal) string { return string(p.Workflow) + "@" + p.Version.String() }

// proposalOf returns the object of a version that waits or waited.
func proposalOf(ctx context.Context, s proposalsStore, p keep.Proposal) (Proposal, error) {
	w := p.Definition.Writing
	out := Proposal{
		ID: proposalID(p), Origin: p.Origin(), Workflow: p.Workflow, Reasons: []string{}, Attempts: []ProposalAttempt{},
		Attempt: w.Attempts, Note: w.Note, Tokens: w.Tokens, Cost: w.Cost, Grants: []string{}, By: p.By, CreatedAt: Time(p.CreatedAt),
	}
	if !p.Over.IsZero() {
		out.BaseVersion = orNull(p.Over.String())
	}
	for _, t := range p.Tools {
		out.Grants = append(out.Grants, t.Tool)
	}
	err := out.settle(ctx, s, p)
	return out, err
}

// settle adds what became of the version.
func (out *Proposal) settle(ctx context.Context, s proposalsStore, p keep.Proposal) error {
	out.Version, out.State = orNull(p.Version.String()), versionStates[p.State]
	switch p.State {
	case keep.ProposalWaiting:
		out.Question = &p.Question
	case keep.ProposalReplaced:
		out.Why = fmt.Sprintf("another version came before a person decided about %s", p.Version) // whatever a host kept of it
	default:
		q, err := s.Escalation(ctx, p.Question)
		if errors.Is(err, keep.ErrNotFound) {
			return nil // it became current by itself
		}
		if err != nil {
			return err
		}
		if q.Decision != nil {
			out.DecidedBy = orNull(q.Decision.By)
		}
	}
	return nil
}

// repairOf returns the object of a repair. Version is the one of it; nil: there is none. Current is that of the
// workflow.
func repairOf(ctx context.Context, s proposalsStore, r keep.Repair, version *keep.Proposal, current keep.Version) (Proposal, error) {
	rec, err := law.ReadRecord(r)
	if err != nil {
		return Proposal{}, err
	}
	if version == nil { // a host may have ended before it kept that another version came
		rec = rec.Under(current, r.CreatedAt)
	}
	sig, spent := rec.Signature, rec.Spent()
	out := Proposal{
		ID: r.ID, Origin: keep.OriginRepair, Workflow: r.Workflow, Run: orNull(rec.Run), BaseVersion: orNull(sig.Version.String()),
		State: ProposalJudging, Reasons: []string{}, Attempt: spent.Attempts, Attempts: []ProposalAttempt{}, Why: rec.Why,
		Failure: &ProposalFailure{sig.Handler, sig.Code, sig.At}, Grants: []string{}, By: r.ID,
		Tokens: spent.Tokens, Cost: spent.Cost, CreatedAt: Time(r.CreatedAt),
	}
	for _, a := range rec.Attempts {
		out.Attempts = append(out.Attempts, ProposalAttempt{Time(a.BeganAt), timeOf(a.EndedAt), orNull(string(a.Verdict)), a.Why, a.Tokens, a.Cost})
		if a.Source != "" {
			out.Verdict, out.Note, out.Source = orNull(string(a.Verdict)), a.Note, a.Source
			out.Reasons, out.Replay = append([]string{}, a.Reasons...), replayOf(a.Replay)
		}
	}
	switch rec.Stage {
	case law.Used:
		out.State = ProposalSpent
	case law.Replaced:
		out.State = ProposalSuperseded
	}
	if version == nil {
		return out, nil
	}
	err = out.settle(ctx, s, *version)
	return out, err
}

// ListProposals returns a page of the proposals that q selects, newest first, without what only the show of one has, and the
// cursor of the next page. What became of a proposal is read for those alone that may be on the page.
func ListProposals(ctx context.Context, s proposalsStore, q ProposalQuery, p keep.Page) (page []Proposal, next string, err error) {
	list, err := proposed(ctx, s, q)
	if err != nil {
		return nil, "", err
	}
	if p.After != "" {
		after, err := parseProposed(p.After)
		if err != nil {
			return nil, "", err
		}
		list = list[sort.Search(len(list), func(i int) bool { return after.compare(list[i]) < 0 }):]
	}
	other := func(is ProposalState) bool { return q.Status != "" && is != "" && is != q.Status }
	for i, row := range list {
		if other(row.state) {
			continue
		}
		one, err := row.read()
		if err != nil {
			return nil, "", err
		}
		if other(one.State) {
			continue
		}
		if page = append(page, one); len(page) == p.Size() && i < len(list)-1 {
			return page, row.cursor(), nil
		}
	}
	return page, "", nil
}

// A proposedRow is a proposal of which is not read yet what became of it.
type proposedRow struct {
	at    int64 // when it was made, in milliseconds
	id    string
	state ProposalState // empty: read tells
	read  func() (Proposal, error)
}

// compare orders rows as lists have them: the newest first.
func (r proposedRow) compare(o proposedRow) int {
	return cmp.Or(cmp.Compare(o.at, r.at), cmp.Compare(o.id, r.id))
}

func (r proposedRow) cursor() string { return fmt.Sprintf("%d.%s", r.at, r.id) }

func parseProposed(cursor string) (r proposedRow, err error) {
	at, id, _ := strings.Cut(cursor, ".")
	if r.at, err = strconv.ParseInt(at, 10, 64); err != nil || id == "" {
		return r, fmt.Errorf("list proposals after %q: %w", cursor, keep.ErrBadCursor)
	}
	r.id = id
	return r, nil
}

// proposed returns the proposals of a workflow and an origin, as far as q names them, newest first.
func proposed(ctx context.Context, s proposalsStore, q ProposalQuery) ([]proposedRow, error) {
	versions, err := s.Proposals(ctx, q.Workflow)
	if err != nil {
		return nil, err
	}
	var list []proposedRow
	of := make(map[string]*keep.Proposal)
	for i, p := range versions {
		if p.IsRepair() {
			of[p.By] = &versions[i]
		} else if q.Origin == "" || p.Origin() == q.Origin {
			list = append(list, proposedRow{p.CreatedAt.UnixMilli(), proposalID(p), versionStates[p.State], func() (Proposal, error) { return proposalOf(ctx, s, p) }})
		}
	}
	if q.Origin == "" || q.Origin == keep.OriginRepair {
		repairs, err := s.Repairs(ctx, q.Workflow, time.Time{})
		if err != nil {
			return nil, err
		}
		current := currentVersions(ctx, s)
		for _, r := range repairs {
			list = append(list, proposedRow{r.CreatedAt.UnixMilli(), r.ID, "", func() (Proposal, error) {
				is, err := current(r.Workflow)
				if err != nil {
					return Proposal{}, err
				}
				one, err := repairOf(ctx, s, r, of[r.ID], is)
				one.Source = ""
				return one, err
			}})
		}
	}
	slices.SortFunc(list, proposedRow.compare)
	return list, nil
}

// currentVersions returns what reads the current version of a workflow, once.
func currentVersions(ctx context.Context, s store.Workflows) func(keep.WorkflowName) (keep.Version, error) {
	known := make(map[keep.WorkflowName]keep.Version)
	return func(name keep.WorkflowName) (keep.Version, error) {
		v, read := known[name]
		if read {
			return v, nil
		}
		w, err := s.Workflow(ctx, name)
		if err == nil {
			known[name] = w.Version
		}
		return w.Version, err
	}
}

// ShowProposal returns one proposal, with its script and what differs. The id is that of a repair, or
// WORKFLOW@VERSION.
func ShowProposal(ctx context.Context, s proposalsStore, id string) (Proposal, error) {
	w, version, isVersion := strings.Cut(id, "@")
	if !isVersion {
		return showRepair(ctx, s, id)
	}
	v, err := keep.ParseVersion(version)
	if err != nil {
		return Proposal{}, &keep.NotFoundError{What: "proposal", ID: id}
	}
	p, err := s.Proposal(ctx, keep.WorkflowName(w), v)
	if errors.Is(err, keep.ErrNotFound) {
		return Proposal{}, &keep.NotFoundError{What: "proposal", ID: id}
	}
	if err != nil {
		return Proposal{}, err
	}
	if p.IsRepair() {
		return showRepair(ctx, s, p.By)
	}
	out, err := proposalOf(ctx, s, p)
	if err != nil {
		return out, err
	}
	err = out.differ(ctx, s, p.Over, p.Deployment.Sources(), p.Entry)
	return out, err
}

// showRepair returns the proposal of a repair.
func showRepair(ctx context.Context, s proposalsStore, id string) (Proposal, error) {
	r, err := s.Repair(ctx, id)
	if errors.Is(err, keep.ErrNotFound) {
		return Proposal{}, &keep.NotFoundError{What: "proposal", ID: id}
	}
	if err != nil {
		return Proposal{}, err
	}
	versions, err := s.Proposals(ctx, r.Workflow)
	if err != nil {
		return Proposal{}, err
	}
	w, err := s.Workflow(ctx, r.Workflow)
	if err != nil {
		return Proposal{}, err
	}
	var version *keep.Proposal
	if i := slices.IndexFunc(versions, func(p keep.Proposal) bool { return p.IsRepair() && p.By == id }); i >= 0 {
		version = &versions[i]
	}
	out, err := repairOf(ctx, s, r, version, w.Version)
	if err != nil || out.Source == "" {
		return out, err
	}
	base, err := keep.ParseVersion(*out.BaseVersion)
	if err != nil {
		return out, err
	}
	err = out.differ(ctx, s, base, nil, "")
	return out, err
}

// differ adds the scripts and their differences. With no files, the source is another text of the file that declares
// the workflow.
func (out *Proposal) differ(ctx context.Context, s proposalsStore, base keep.Version, files map[string]string, entry string) error {
	var before view.Files
	if !base.IsZero() {
		d, err := s.Deployment(ctx, out.Workflow, base)
		if err != nil {
			return err
		}
		before, entry = view.Files{Entry: d.Entry, Texts: d.Sources()}, cmp.Or(entry, d.Entry)
		out.BaseSource = before.Texts[d.Entry]
	}
	if files == nil {
		files = maps.Clone(before.Texts)
		files[entry] = out.Source
	}
	out.Source, out.Diff = files[entry], []string{}
	after := view.Files{Entry: entry, Texts: files}
	if other := view.OtherEntry(before, after); other != "" {
		out.Diff = append(out.Diff, "=== "+other)
	}
	out.Diff = append(out.Diff, view.DiffText(before, after)...)
	return nil
}

// readProposals registers what shows proposals.
func (s *Server) readProposals() {
	get(s, "/proposals", "list-proposals", "Versions that a repair, a model, an agent or an author without the right to decide wrote, newest first", func(ctx context.Context, in *struct {
		ProposalQuery
		Paging
	}) (Page[Proposal], error) {
		return paged(ListProposals(ctx, s.cfg.Store, in.ProposalQuery, in.page()))
	})
	get(s, "/proposals/{proposal}", "show-proposal", "One proposal, with its script", func(ctx context.Context, in *struct {
		Proposal string `path:"proposal"`
	}) (Proposal, error) {
		return ShowProposal(ctx, s.cfg.Store, in.Proposal)
	})
}

// A ProposalQuery selects proposals.
type ProposalQuery struct {
	Workflow keep.WorkflowName `query:"workflow" doc:"only of this one"`
	Origin   keep.Origin       `query:"origin" enum:"repair,write,edit,agent,deploy"`
	Status   ProposalState     `query:"status" enum:"judging,waiting,active,rejected,superseded,spent"`
}

// Proposals returns a page of the proposals that a query selects, newest first.
func (c *Client) Proposals(ctx context.Context, q ProposalQuery, p Paging) (Page[Proposal], error) {
	return read[Page[Proposal]](ctx, c, queries{q, p}, "proposals")
}

// Proposal returns one proposal, with its script.
func (c *Client) Proposal(ctx context.Context, id string) (Proposal, error) {
	return read[Proposal](ctx, c, nil, "proposals", id)
}

// Judged returns one proposal with what its version would have done otherwise, if there is one.
func (c *Client) Judged(ctx context.Context, id string) (Proposal, error) {
	p, err := c.Proposal(ctx, id)
	if err != nil || p.Version == nil || p.BaseVersion == nil {
		return p, err
	}
	compared, err := c.Compare(ctx, p.Workflow, CompareRequest{From: *p.BaseVersion, Version: *p.Version})
	if no, ok := errors.AsType[*Problem](err); ok && (no.Status == http.StatusForbidden || no.Status == http.StatusNotImplemented) {
		return p, nil // who asks may not, or the host cannot
	}
	if err != nil {
		return p, err
	}
	return p.With(compared), nil
}

// DecidesAs returns the role that may answer a question of a kind about a version: who may deploy may have a repair
// deployed, which calls nothing that was not granted, and who may give grants may have any other. Empty: it is about none.
func DecidesAs(k keep.EscalationKind, repair bool) access.Role {
	switch {
	case k == keep.AskProposal && repair:
		return access.Author
	case k == keep.AskGrant, k == keep.AskProposal:
		return access.Admin
	}
	return ""
}

// MayDecide returns the role that may answer a question about a version; see DecidesAs.
func MayDecide(ctx context.Context, s store.Proposals, q keep.Escalation) (access.Role, error) {
	if q.Kind != keep.AskProposal {
		return DecidesAs(q.Kind, false), nil
	}
	all, err := s.Proposals(ctx, q.Workflow)
	return DecidesAs(q.Kind, slices.ContainsFunc(all, func(p keep.Proposal) bool { return p.Question == q.ID && p.IsRepair() })), err
}
