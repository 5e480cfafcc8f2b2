package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/approval"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/view"
)

// A card is a question with its evidence.
type card struct {
	keep.Escalation
	Mutation *keep.Mutation // nil: it is not about one
	Moves    []keep.Move    // what happened to it, oldest first
	Edits    []string       // where two payloads differ; nil: nothing to compare
	Reason   string         // Why without the edits
	Payload  *payload       // what was or would be sent; nil: nothing
	Sent     *sent          // the same as a person reads it; nil: its tool does not say how
	Note     string         // id of the field for a note
	Waiting  []keep.RunID   // for the connection that it is about
	Proposal *keep.Proposal // the version that is asked about; nil: none
	Changes  *scriptChanges // of that version; nil: a list, which reads no scripts
	Reader   access.Role    // of who sees it; empty: it is not known
	Account  bool           // the run stopped because the account of its connection cannot be used
}

// A sent is what was sent, as a person reads it.
type sent struct {
	Kind  keep.ViewKind
	Lines []approval.Line
}

// sentOf reads a call by the view that its tool declares today; nil: it declares none.
func (s *site) sentOf(m keep.Mutation) *sent {
	for _, c := range s.cfg.Connections {
		for _, t := range c.Tools {
			if spec := t.Spec(); spec.View.Kind != keep.ViewFields && keep.ToolName(c.Name+"."+spec.Name) == m.Tool {
				return &sent{spec.View.Kind, approval.Read(keep.Approval{Tool: m.Tool, Payload: m.Payload, View: spec.View})}
			}
		}
	}
	return nil
}

// kindWord is what a question is about, in a word or two.
func kindWord(k keep.EscalationKind) string {
	switch k {
	case keep.AskUnknownOutcome:
		return "Outcome unknown"
	case keep.AskPermission:
		return "Permission"
	case keep.AskPrecondition:
		return "Something is missing"
	case keep.AskRetries:
		return "Failed too often"
	case keep.AskLogic:
		return "Script failed"
	case keep.AskInternal:
		return "Internal failure"
	case keep.AskApproval:
		return "Approval"
	case keep.AskItem:
		return "Item changed"
	case keep.AskAlreadyDone:
		return "Already done"
	case keep.AskReconnect:
		return "Connect again"
	case keep.AskConnection:
		return "Service down"
	case keep.AskGrant:
		return "More than granted"
	case keep.AskProposal:
		return "Version proposed"
	case keep.AskBudget:
		return "Budget spent"
	case keep.AskBreaker:
		return "Calls stopped"
	case keep.AskToolChanged:
		return "Tool changed"
	}
	return word(k)
}

// A button is an action that a question offers. Safe ones have a key and come first;
// one that may send something again has none, and needs a second press.
type button struct {
	keep.Choice
	Key     int // 0: none
	Primary bool
	Confirm bool
}

// listShows is how much a list shows of what a question is about, in bytes.
const listShows = 2000

// Reconnects is the account that a person is asked to connect again; empty: another question.
func (c card) Reconnects() string { return account.Asked(c.ID) }

// needs returns the role that an answer needs beyond that of who answers questions; empty: none.
func (c card) needs(a keep.Action) access.Role {
	if a == keep.Raise {
		return access.Admin
	}
	return api.DecidesAs(c.Kind, c.Proposal != nil && c.Proposal.IsRepair())
}

// mayNot reports whether who sees the card lacks the role for an answer.
func (c card) mayNot(a keep.Action) bool {
	need := c.needs(a)
	return need != "" && c.Reader != "" && !c.Reader.Covers(need)
}

// Withheld are the answers that the question offers, and not to who sees it.
func (c card) Withheld() []withheld {
	var out []withheld
	for _, choice := range c.Choices {
		if c.mayNot(choice.Action) {
			out = append(out, withheld{choice.Label, c.needs(choice.Action)})
		}
	}
	return out
}

// A withheld is an answer that needs a role.
type withheld struct {
	Label string
	Needs access.Role
}

// Deploys reports whether a corrected version is what the question waits for.
func (c card) Deploys() bool {
	return c.Kind == keep.AskLogic && c.Workflow != "" && c.ClosedAt.IsZero()
}

// Hidden reports whether a list hides part of what an answer agrees to: the script of a version, or what is too long.
func (c card) Hidden() bool { return c.OfVersion() || c.Long() }

// OfVersion reports whether the question is about a version, whose script no list shows.
func (c card) OfVersion() bool { return c.Kind == keep.AskGrant || c.Kind == keep.AskProposal }

// Long reports whether a list shows the beginning alone of what an answer agrees to: a call that is made, a grant, or a tool as it is
// now. The call of a doubt is shown with its payload.
func (c card) Long() bool {
	return slices.ContainsFunc([]keep.Action{keep.Approve, keep.Allow, keep.DoAgain, keep.Reprocess}, c.Allows) && len(c.attempted()) > listShows
}

// unseen says why an answer in a list is refused.
func (c card) unseen() string {
	if c.OfVersion() {
		return "the list does not show the script of the version; answer it on the page of the question"
	}
	return "the list does not show all of what was or would be sent; answer it on the page of the question"
}

// agreesAtOnce reports whether an answer, for which there is no second press that shows it whole, agrees to a call.
func agreesAtOnce(a keep.Action) bool { return vouches(a) && !a.NeedsConfirmation() }

// OfTool reports whether the question is about a tool that its server changed, of which no script says anything.
func (c card) OfTool() bool { return c.Kind == keep.AskToolChanged }

// Says is what the script says of the call; empty: nothing.
func (c card) Says() string {
	if c.OfTool() { // its title is the name of the tool
		return ""
	}
	return c.Title
}

// AttemptedName is what Attempted has.
func (c card) AttemptedName() string {
	switch {
	case c.OfTool():
		return "What changed"
	case c.OfVersion():
		return "It asks for"
	}
	return "Attempted"
}

// Shown is Attempted as a page has it: for a repair it names a command that says what the page says itself.
func (c card) Shown() string {
	if c.Proposal != nil && c.Proposal.IsRepair() {
		return ""
	}
	return c.Attempted
}

// attempted is what the question is about, with all of a call that is to be approved: after a doubt a question has its beginning.
func (c card) attempted() string {
	if c.Approval == nil || strings.Contains(c.Attempted, string(c.Approval.Payload)) {
		return c.Attempted
	}
	return c.Attempted + "\n\nall of what would be sent now: " + string(c.Approval.Payload)
}

// Whole is all of what was or would be sent, as the question's page shows it.
func (c card) Whole() payload {
	all := c.attempted()
	return payload{Name: c.AttemptedName() + ", as Keep saw it", Text: cut(maxPreview, all), Size: len(all), Cut: len(all) > maxPreview,
		Link: "/inbox/" + url.PathEscape(string(c.ID)) + "/attempted"}
}

// Buttons are the actions of the question. A list does not offer to agree to what it
// hides part of.
//
// from is the page: "question" shows all of it.
func (c card) Buttons(from string) []button {
	var safe, again []button
	elsewhere := 0 // offered on its page alone: a key means the same there and here
	for _, choice := range c.Choices {
		if c.mayNot(choice.Action) {
			continue
		}
		if agreesAtOnce(choice.Action) && c.Hidden() && from != "question" {
			elsewhere++
			continue
		}
		if choice.Action.NeedsConfirmation() {
			again = append(again, button{Choice: choice, Confirm: true})
			continue
		}
		n := elsewhere + len(safe) + 1
		b := button{Choice: choice, Key: n, Primary: n == 1 && choice.Action != keep.Skip}
		if choice.TakesResult() || choice.Action == keep.Raise { // it says something, which one key should not
			b.Key, b.Primary = 0, false
		}
		safe = append(safe, b)
	}
	return append(safe, again...)
}

// TakesResult reports whether an answer may carry the result of the call.
func (c card) TakesResult() bool { return slices.ContainsFunc(c.Choices, keep.Choice.TakesResult) }

// TakesLimit reports whether an answer may give a budget another limit.
func (c card) TakesLimit() bool { return c.Allows(keep.Raise) && !c.mayNot(keep.Raise) }

// NeedsResult reports whether "it happened", or that it was done already, is refused without a result.
func (c card) NeedsResult() bool {
	return slices.ContainsFunc(c.Choices, func(c keep.Choice) bool { return c.Result == keep.ResultRequired })
}

// Lookups is how often the service was asked about the call.
func (c card) Lookups() int { return ledger.Lookups(c.Moves) }

// Unsent reports whether nothing was sent in the last attempt of the call.
func (c card) Unsent() bool { return c.Mutation != nil && ledger.Unsent(*c.Mutation) }

// TimesSent says how often the call was sent.
func (c card) TimesSent() string { return lifecycle.TimesSent(*c.Mutation) }

// PerhapsUnsent reports whether the call in doubt may never have left.
func (c card) PerhapsUnsent() bool {
	return c.AboutDoubt() && len(c.Moves) > 0 && !ledger.Sent(c.Moves)
}

// Letter is the call as a person reads it; nil: the question is about none.
func (c card) Letter() []approval.Line {
	if c.Approval == nil {
		return nil
	}
	return approval.Read(*c.Approval)
}

// Marks say what of the call is not as it seems.
func (c card) Marks() []approval.Mark {
	if c.Approval == nil {
		return nil
	}
	return approval.Marks(*c.Approval)
}

// Claim is what the script says of the call.
func (c card) Claim() []approval.Line {
	if c.Approval == nil {
		return nil
	}
	return approval.ClaimOf(c.Approval.Claim).Lines()
}

// Now is what is there now, as JSON, or why that is not known; empty: the lines of the call
// have it, or nobody looked.
func (c card) Now() string {
	switch {
	case c.Approval == nil:
		return ""
	case c.Approval.NowWhy != "":
		return "could not be read: " + c.Approval.NowWhy
	case c.Approval.Now != nil:
		return approval.Visible(string(c.Approval.Now))
	}
	return ""
}

// Kind in words, for templates.
func (c card) Word() string { return kindWord(c.Kind) }

// DecidedLabel is what the button said that was pressed.
func (c card) DecidedLabel() string { return label(c.Escalation) }

// ItemLink is the page of the item that the question is about; empty: of none.
func (c card) ItemLink() string {
	if c.Item == "" {
		return ""
	}
	return "/item" + itemQuery(c.Workflow, c.Item)
}

// cardOf is a question without its mutation.
func cardOf(q keep.Escalation) card {
	c := card{Escalation: q, Reason: q.Why, Note: "note-" + string(q.ID)}
	if q.Kind == keep.AskItem {
		reason, edits, ok := strings.Cut(q.Why, "\n")
		if c.Reason = reason; ok {
			c.Edits = strings.Split(edits, "\n")
		}
	}
	return c
}

// cards reads what questions are about, without payloads.
//
// Calls and their moves are read for all of them together, and not once for each row.
func (s *site) cards(ctx context.Context, qs []keep.Escalation) ([]card, error) {
	var keys []keep.MutationKey
	for _, q := range qs {
		if q.Mutation != "" {
			keys = append(keys, q.Mutation)
		}
	}
	calls := make(map[keep.MutationKey]*keep.Mutation, len(keys))
	if len(keys) > 0 {
		list, err := s.cfg.Store.MutationsByKey(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i, m := range list {
			calls[m.Key] = &list[i]
		}
	}
	moves, err := s.cfg.Store.Histories(ctx, keys)
	if err != nil {
		return nil, err
	}
	who, _ := access.From(ctx)
	cards := make([]card, len(qs))
	for i, q := range qs {
		cards[i] = cardOf(q)
		cards[i].Mutation = calls[q.Mutation] // nil: it was to be made, and was not
		cards[i].Moves, cards[i].Reader = moves[q.Mutation], who.Role
		if cards[i].Proposal, err = s.proposal(ctx, q); err != nil {
			return nil, err
		}
	}
	return cards, s.addWaiting(ctx, cards)
}

// addWaiting adds to questions about connections the runs that wait for these. It reads
// nothing if there are none.
func (s *site) addWaiting(ctx context.Context, cards []card) error {
	if !slices.ContainsFunc(cards, func(c card) bool { return c.Connection != "" }) {
		return nil
	}
	waiting, err := view.WaitingFor(ctx, s.cfg.Store)
	for i := range cards {
		cards[i].Waiting = waiting[cards[i].Connection]
	}
	return err
}

// Named are those of the runs that wait for a connection that a page names.
func (c card) Named() []keep.RunID { return c.Waiting[:min(len(c.Waiting), listRuns)] }

// listRuns bounds the runs that a question names.
const listRuns = 20

// card reads what a question is about.
func (s *site) card(ctx context.Context, q keep.Escalation) (card, error) {
	c := cardOf(q)
	who, _ := access.From(ctx)
	c.Reader = who.Role
	var err error
	if c.Proposal, err = s.proposal(ctx, q); err != nil {
		return c, err
	}
	if c.Proposal != nil {
		if c.Changes, err = s.changesOf(ctx, c.Workflow, c.Proposal.Version); err != nil {
			return c, err
		}
	}
	if q.Kind == keep.AskPermission && q.ClosedAt.IsZero() {
		run, err := s.cfg.Store.Run(ctx, q.Run)
		if err != nil && !errors.Is(err, keep.ErrNotFound) {
			return c, err
		}
		c.Account = run.Error != nil && run.Error.Code == keep.CodeAccount
	}
	if q.Mutation == "" {
		one := []card{c}
		err := s.addWaiting(ctx, one)
		return one[0], err
	}
	m, err := s.cfg.Store.Mutation(ctx, q.Mutation)
	if errors.Is(err, keep.ErrNotFound) {
		return c, nil // it was to be made, and was not
	}
	if err != nil {
		return c, err
	}
	c.Mutation = &m
	what := "What was sent"
	if q.Kind == keep.AskAlreadyDone {
		what = "What was sent before, by another run"
	}
	p := payloadOf(what, m.Payload, mutationPath(m.Key)+"/payload")
	c.Payload, c.Sent = &p, s.sentOf(m)
	return c, nil
}

// question shows one question. Unlike a list it reads the payload of the call.
func (s *site) question(r *http.Request) (page, error) {
	ctx := r.Context()
	q, err := s.cfg.Store.Escalation(ctx, keep.EscalationID(r.PathValue("id")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: kindWord(q.Kind), Section: "inbox", Of: q.Workflow, Watch: []feed.Kind{feed.Escalation, feed.Mutation, feed.Run}}
	c, err := s.card(ctx, q)
	if err != nil {
		return p, err
	}
	if c.Mutation != nil {
		if c.Moves, err = s.cfg.Store.History(ctx, c.Mutation.Key); err != nil {
			return p, err
		}
	}
	p.Data = c
	return p, nil
}

// maxNote bounds what is recorded of a person's words, in characters, as the fields of forms do.
const maxNote = 4000

// noteOf returns the note of a form, in which a line ends as a browser counts it.
func noteOf(form url.Values) (string, error) {
	note := strings.ReplaceAll(strings.TrimSpace(form.Get("note")), "\r\n", "\n")
	if utf8.RuneCountInString(note) > maxNote {
		return "", refusef("a note has at most %d characters", maxNote)
	}
	return note, nil
}

// decide records an answer. If the question was already answered, the error names who
// answered it. An answer that may send something again needs a second press.
func (s *site) decide(r *http.Request) (to, did string, err error) {
	id := keep.EscalationID(r.PathValue("id"))
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	if d.Action == "" {
		return "", "", refusef("no action was chosen")
	}
	_, list, _ := strings.Cut(r.PostForm.Get("list"), "?")
	to = listOf(list)
	if r.PostForm.Get("from") == "question" {
		to = "/inbox/" + url.PathEscape(string(id))
	}
	if d.Action.NeedsConfirmation() && r.PostForm.Get("confirm") == "" {
		return confirmPath(id) + query("action", string(d.Action), "note", d.Note, "from", r.PostForm.Get("from"), "list", r.PostForm.Get("list")), "", nil
	}
	// The list has no such button; a form that was made by hand, or of a page from before, is refused.
	// A question that cannot be read, or is over, is left to Decide, which says so.
	if agreesAtOnce(d.Action) && r.PostForm.Get("from") != "question" {
		q, err := s.cfg.Store.Escalation(r.Context(), id)
		if err == nil && q.ClosedAt.IsZero() && cardOf(q).Hidden() {
			return "", "", refusef("%s", cardOf(q).unseen())
		}
	}
	if err := s.mayAnswer(r.Context(), id); err != nil {
		return "", "", err
	}
	if err := s.cfg.Actor.Decide(r.Context(), id, d); err != nil {
		return "", "", s.afterAnswer(r.Context(), id, err)
	}
	return to, "decided", nil
}

// mayAnswer refuses an answer by which somebody would give what his role may not give.
func (s *site) mayAnswer(ctx context.Context, id keep.EscalationID) error {
	who, _ := access.From(ctx)
	q, err := s.cfg.Store.Escalation(ctx, id)
	if err != nil {
		return err
	}
	needs, err := api.MayDecide(ctx, s.cfg.Store, q)
	if err == nil && needs != "" && !who.Role.Covers(needs) {
		err = &forbiddenError{needs}
	}
	return err
}

// proposal reads the version that a question is about, without its script; nil: it is about
// none.
func (s *site) proposal(ctx context.Context, q keep.Escalation) (*keep.Proposal, error) {
	if q.Kind != keep.AskGrant && q.Kind != keep.AskProposal {
		return nil, nil
	}
	all, err := s.cfg.Store.Proposals(ctx, q.Workflow)
	if i := slices.IndexFunc(all, func(p keep.Proposal) bool { return p.Question == q.ID }); i >= 0 {
		return &all[i], err
	}
	return nil, err
}

// attemptedFile is all of what a question is about, as a download.
func (s *site) attemptedFile(w http.ResponseWriter, r *http.Request) error {
	q, err := s.cfg.Store.Escalation(r.Context(), keep.EscalationID(r.PathValue("id")))
	if err != nil {
		return err
	}
	asFile(w, string(q.ID)+".txt", "text/plain; charset=utf-8")
	_, err = io.WriteString(w, cardOf(q).attempted())
	return err
}

func confirmPath(id keep.EscalationID) string {
	return "/inbox/" + url.PathEscape(string(id)) + "/confirm"
}

// confirmData is an answer that may send something again, with what that is.
type confirmData struct {
	card
	Choice keep.Choice
	Note   string
	From   string // the page that the answer was given on
	List   string // the list that it was, if it was one
}

// confirm asks for the second press, and shows what would be sent to whom.
func (s *site) confirm(r *http.Request) (page, error) {
	ctx, form := r.Context(), r.URL.Query()
	q, err := s.cfg.Store.Escalation(ctx, keep.EscalationID(r.PathValue("id")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Send again?", Section: "inbox", Of: q.Workflow}
	d := confirmData{Note: cut(4*maxNote, form.Get("note")), From: form.Get("from"), List: form.Get("list")}
	for _, c := range q.Choices {
		if string(c.Action) == form.Get("action") && c.Action.NeedsConfirmation() {
			d.Choice = c
		}
	}
	// Whoever comes late reads who answered before, and not only that it is no longer offered.
	if d.Choice.Action == "" || !q.ClosedAt.IsZero() {
		return p, s.afterAnswer(ctx, q.ID, refusef("the question does not offer %q now", cut(40, form.Get("action"))))
	}
	d.card, err = s.card(ctx, q)
	p.Data = d
	return p, err
}

// decisionOf reads a form with an action, a note and perhaps a result.
func decisionOf(r *http.Request) (keep.Decision, error) {
	if err := parseForm(r); err != nil {
		return keep.Decision{}, err
	}
	who, _ := access.From(r.Context())
	note, err := noteOf(r.PostForm)
	d := keep.Decision{Action: keep.Action(r.PostForm.Get("action")), By: who.Name, From: FromPages, Note: note}
	if err != nil {
		return d, err
	}
	// Other answers have no result, whatever a form sends.
	if result := strings.TrimSpace(r.PostForm.Get("result")); result != "" && (d.Action == keep.Happened || d.Action == keep.TreatAsDone) {
		d.Result = json.RawMessage(result)
	}
	if d.Action == keep.Raise {
		return withLimit(r, d, who)
	}
	return d, nil
}

// withLimit adds what raise gives to a budget.
func withLimit(r *http.Request, d keep.Decision, who access.Identity) (keep.Decision, error) {
	if !who.Role.Covers(access.Admin) {
		return d, &forbiddenError{access.Admin}
	}
	limit := strings.TrimSpace(r.PostForm.Get("limit"))
	if limit == "" {
		return d, refusef("to raise the limit needs the limit that the budget gets, more than 0")
	}
	n, err := strconv.ParseFloat(limit, 64)
	if err == nil {
		d.Limit, err = budget.FromFloat(n)
	}
	if err != nil || d.Limit == 0 {
		return d, refusef("the limit that the budget gets must be a number that is more than 0, such as 5000 or 99.5, and %q is none", cut(40, limit))
	}
	if hours := strings.TrimSpace(r.PostForm.Get("hours")); hours != "" {
		h, err := strconv.ParseFloat(hours, 64)
		// As long as budget.MaxPer: no budget looks further back, and a raise that outlives it is another
		// limit, which belongs into keep.toml.
		if err != nil || !(h > 0 && h <= 24*366) { // NaN is neither
			return d, refusef("the hours until the raise ends must be a number that is more than 0 and at most %d, such as 24 or 1.5, and %q is none", 24*366, cut(40, hours))
		}
		d.Until = time.Now().Add(time.Duration(h * float64(time.Hour))).UTC().Truncate(time.Millisecond)
	}
	return d, nil
}

// An answeredError says that the question was already answered. It is keep.ErrDecided.
type answeredError struct {
	id  keep.EscalationID
	by  keep.Escalation
	why string // nobody answered, and nobody can; empty: it is not known
}

// Error says who answered, and when.
func (e *answeredError) Error() string {
	at := e.by.ClosedAt.UTC().Format(exactTime)
	d := e.by.Decision
	if d == nil && e.why != "" {
		return e.why + "; your answer was not recorded"
	}
	if d == nil {
		return fmt.Sprintf("the question was closed at %s, since it no longer applied; your answer was not recorded", at)
	}
	return fmt.Sprintf("%s decided “%s” at %s; your answer was not recorded", d.By, label(e.by), at)
}

// Is makes it a keep.ErrDecided.
func (e *answeredError) Is(target error) bool { return target == keep.ErrDecided }

// afterAnswer returns err, or who answered the question before if that is why.
func (s *site) afterAnswer(ctx context.Context, id keep.EscalationID, err error) error {
	q, readErr := s.cfg.Store.Escalation(ctx, id)
	late, isLate := errors.AsType[*operator.AnsweredError](err)
	switch {
	case readErr != nil, q.ClosedAt.IsZero() && !isLate:
		return err
	case isLate:
		return &answeredError{id, q, late.Why}
	}
	return &answeredError{id: id, by: q}
}
