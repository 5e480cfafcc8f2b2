package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// workflowsData is the list of workflows.
type workflowsData struct {
	Rows    []workflowRow
	Late    []view.Late
	Deploys bool // who looks may deploy one here
}

func (s *site) workflows(r *http.Request) (page, error) {
	p := page{Title: "Workflows", Section: "workflows", Watch: []feed.Kind{feed.Workflow, feed.Run, feed.Event, feed.Escalation}}
	o, err := view.ReadWorkflows(r.Context(), s.cfg.Store, time.Now())
	if err != nil {
		return p, err
	}
	over, err := s.overTime(r.Context(), "", waitsNow(o), time.Now())
	if err != nil {
		return p, err
	}
	p.Data = workflowsData{workflowRows(o, situationOf(o.Situation), over), o.Late(), s.cfg.Deployer != nil && mayWrite(r)}
	return p, nil
}

// mayWrite reports whether who looks may deploy scripts.
func mayWrite(r *http.Request) bool {
	who, _ := access.From(r.Context())
	return who.Role.Covers(access.Author)
}

// workflowData is one workflow.
type workflowData struct {
	keep.Workflow
	Deployed keep.Deployment // the current version, without its code
	Handlers []handlerRow
	Topics   []keep.TopicCount
	Standing *standing         // the run that matters most; nil: nothing under way
	Runs     []*standing       // the newest that are under way, oldest first
	Under    int               // how many are under way
	Versions []keep.Deployment // newest first
	Proposed []keep.Proposal   // that were not deployed, newest first
	Drawing  drawing
	Late     []view.Late
	Missing  []view.Missing // it, if no host can execute it
	Grants   []keep.Grant   // newest first; none: it was never given one
	Acts     []view.Act     // what people did with it and its producers and jobs, oldest first
	Compare  *compareForm   // nil: this host compares no versions
	Plans    bool           // this host plans it
}

// Grant returns what the workflow may do, nil if it was never given a grant.
func (d workflowData) Grant() *keep.Grant {
	if len(d.Grants) == 0 {
		return nil
	}
	return &d.Grants[0]
}

// OfAgents reports whether its calls are those of agents at a gateway: it has no script, and its handler reads no topic, as the
// consumer of a script does.
func (d workflowData) OfAgents() bool {
	return slices.ContainsFunc(d.Deployed.Definition.Handlers, func(h keep.Handler) bool { return h.Kind == keep.Consumer && len(h.Subscribe) == 0 })
}

// Before returns the grants that were replaced, newest first.
func (d workflowData) Before() []keep.Grant { return d.Grants[min(1, len(d.Grants)):] }

// PausedBy returns who paused it; nil: it is not paused, or that is in no record.
func (d workflowData) PausedBy() *view.Act { return view.PauseOf(d.Workflow, d.Acts) }

// A handlerRow is a handler with what the host remembers of it.
type handlerRow struct {
	view.Handler
	Schedule string // in words; empty for consumers
	Due      bool   // its time is over, and it waits for something else
}

// Startable reports whether a person can start the handler.
func (h handlerRow) Startable() bool { return h.Kind != keep.Consumer }

// Producer reports whether it has a checkpoint.
func (h handlerRow) Producer() bool { return h.Kind == keep.Producer }

// A notDeployedError says that no version of a workflow runs, and that one was proposed.
type notDeployedError struct{ name keep.WorkflowName }

// Error says so.
func (e *notDeployedError) Error() string {
	return fmt.Sprintf("no version of the workflow %s runs: what was proposed did not become current", e.name)
}

// link leads to what was proposed.
func (e *notDeployedError) link() string { return "/proposals" + query("workflow", string(e.name)) }

// workflowNamed reads a workflow that a page is about.
func (s *site) workflowNamed(ctx context.Context, name keep.WorkflowName) (keep.Workflow, error) {
	w, err := s.cfg.Store.Workflow(ctx, name)
	if !errors.Is(err, keep.ErrNotFound) {
		return w, err
	}
	proposed, readErr := s.cfg.Store.Proposals(ctx, name)
	switch {
	case readErr != nil:
		err = readErr
	case len(proposed) > 0:
		err = &notDeployedError{name}
	}
	return w, err
}

// workflow shows one workflow: what is under way first, then its script, grants and versions. Of the runs
// that are under way the newest are read, and Shown bounds the page.
func (s *site) workflow(r *http.Request) (page, error) {
	ctx := r.Context()
	w, err := s.workflowNamed(ctx, keep.WorkflowName(r.PathValue("name")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: string(w.Name), Section: "workflows", Of: w.Name,
		Watch: []feed.Kind{feed.Workflow, feed.Run, feed.Event, feed.Escalation, feed.Mutation}}
	d := workflowData{Workflow: w}
	st, err := s.situation(ctx, w.Name)
	if err != nil {
		return p, err
	}
	d.Standing, d.Runs = st.first(w.Name), st.runs[w.Name]
	if d.Under = len(d.Runs); d.Under == situationRuns { // there may be more
		counts, err := s.cfg.Store.CountRuns(ctx, keep.RunFilter{Workflow: w.Name, Open: true})
		if err != nil {
			return p, err
		}
		d.Under = sum(counts)
	}
	if d.Versions, err = s.cfg.Store.Deployments(ctx, w.Name); err != nil {
		return p, err
	}
	i := slices.IndexFunc(d.Versions, func(v keep.Deployment) bool { return v.Version == w.Version })
	if i < 0 {
		return p, &keep.NotFoundError{What: "version", ID: string(w.Name) + " " + w.Version.String()}
	}
	d.Deployed = d.Versions[i]
	if d.Grants, err = s.cfg.Store.GrantsBefore(ctx, w.Name); err != nil {
		return p, err
	}
	if d.Acts, err = view.ActsOfWorkflow(ctx, s.cfg.Store, w.Name, d.Deployed.Definition); err != nil {
		return p, err
	}
	if d.Proposed, err = s.cfg.Store.Proposals(ctx, w.Name); err != nil {
		return p, err
	}
	// An approved one is a version, and in that list.
	d.Proposed = slices.DeleteFunc(d.Proposed, func(p keep.Proposal) bool { return p.State == keep.ProposalApproved })
	d.Compare = s.compareFormOf(w.Name, d.Versions, d.Proposed)
	d.Plans = s.cfg.Planner != nil && !d.Deployed.Definition.Go
	states, err := s.cfg.Store.Handlers(ctx, w.Name)
	if err != nil {
		return p, err
	}
	v := view.WorkflowOf(w, d.Deployed, states, st.Runs[w.Name], time.Now())
	d.Handlers, d.Late = s.handlerRows(v), v.Late
	if d.Missing, err = s.cfg.Executors.Missing(ctx, s.cfg.Store, v); err != nil {
		return p, err
	}
	if d.Topics, err = s.cfg.Store.TopicCounts(ctx, w.Name); err != nil {
		return p, err
	}
	d.Drawing = draw(d)
	p.Data = d
	return p, nil
}

// Waits reports whether a run now would wait for an unfinished one.
func (d workflowData) Waits() bool {
	return slices.ContainsFunc(d.Runs, func(r *standing) bool { return r.Lane == keep.WorkflowLane })
}

// shownRuns is how many unfinished runs the page of a workflow shows.
const shownRuns = 10

// Shown returns the unfinished runs that the page shows.
func (d workflowData) Shown() []*standing { return d.Runs[:min(len(d.Runs), shownRuns)] }

// More is how many it does not.
func (d workflowData) More() int { return d.Under - len(d.Shown()) }

// handlerRows returns the handlers of a workflow with their schedules in words.
func (s *site) handlerRows(w view.Workflow) []handlerRow {
	var rows []handlerRow
	for _, h := range w.Handlers {
		row := handlerRow{Handler: h, Due: !h.Next().IsZero() && h.Next().Before(s.cfg.Clock())}
		if row.Startable() {
			row.Schedule = s.scheduleWords(h.Schedule)
		}
		rows = append(rows, row)
	}
	return rows
}

// scheduleWords says when a producer or job is due.
func (s *site) scheduleWords(sc keep.Schedule) string {
	switch {
	case sc.Cron != "" && sc.Timezone != "":
		return fmt.Sprintf("cron %s (%s)", sc.Cron, sc.Timezone)
	case sc.Cron != "":
		return fmt.Sprintf("cron %s (UTC)", sc.Cron)
	case sc.Interval > 0:
		return "every " + human(sc.Interval)
	}
	return "every " + human(s.policy.DefaultInterval) + ", and at start"
}

// versionData is the script of one version, compared with another.
type versionData struct {
	keep.Deployment
	Current bool
	Ended   keep.ProposalState // of one that was not deployed: waiting, rejected or replaced
	Against keep.Version       // zero: there is none to compare with
	Others  []keep.Version     // to compare with, newest first
	Files   []versionFile
	Compare *compareForm // nil: this host compares no versions
}

// A versionFile is one file of a script.
type versionFile struct {
	Name string
	Text string
	Diff []view.DiffLine // from the other version; nil: the same, or nothing to compare
	Size int             // bytes of the whole file
}

// Cut reports whether Text is the beginning of the file.
func (f versionFile) Cut() bool { return f.Size > maxPreview }

// version shows the script of one version, and what differs from another: from the one before, unless the
// address names one.
func (s *site) version(r *http.Request) (page, error) {
	ctx := r.Context()
	name := keep.WorkflowName(r.PathValue("name"))
	number, err := keep.ParseVersion(r.PathValue("version"))
	if err != nil {
		return page{}, refusef("%v", err)
	}
	d, err := s.versionOf(ctx, name, number)
	if err != nil {
		return page{}, err
	}
	p := page{Title: fmt.Sprintf("%s %s", name, number), Section: "workflows"}
	all, err := s.cfg.Store.Deployments(ctx, name)
	if err != nil {
		return p, err
	}
	for i, v := range all {
		if v.Version != number {
			d.Others = append(d.Others, v.Version)
		} else if i+1 < len(all) {
			d.Against = all[i+1].Version // the one before
		}
	}
	if d.Compare = s.compareFormOf(name, all, nil); d.Compare != nil {
		d.Compare.From, d.Compare.To, d.Compare.All = cmp.Or(d.Against, d.Compare.From), number, []keep.Version{number}
	}
	if text := r.URL.Query().Get("against"); text != "" {
		if d.Against, err = keep.ParseVersion(text); err != nil {
			return p, refusef("%v", err)
		}
	}
	p.Data, err = s.withFiles(ctx, d)
	return p, err
}

// versionOf reads a version that was deployed, or that waits or waited for a person. It is
// compared with the one that it was to replace.
func (s *site) versionOf(ctx context.Context, name keep.WorkflowName, number keep.Version) (d versionData, err error) {
	w, err := s.cfg.Store.Workflow(ctx, name)
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		return d, err
	}
	d.Current = err == nil && number == w.Version
	d.Deployment, err = s.cfg.Store.Deployment(ctx, name, number)
	if !errors.Is(err, keep.ErrNotFound) {
		return d, err
	}
	p, err := s.cfg.Store.Proposal(ctx, name, number)
	d.Deployment, d.Ended, d.Against = p.Deployment, p.State, p.Over
	return d, err
}

// withFiles reads the files of a version, and what differs.
func (s *site) withFiles(ctx context.Context, d versionData) (versionData, error) {
	var before view.Files
	if !d.Against.IsZero() {
		other, err := s.cfg.Store.Deployment(ctx, d.Workflow, d.Against)
		if err != nil {
			return d, err
		}
		before = filesOf(other)
	}
	files := d.Deployment.Sources()
	if d.Against.IsZero() {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			d.Files = append(d.Files, versionFile{Name: name, Text: cut(maxPreview, files[name]), Size: len(files[name])})
		}
		return d, nil
	}
	d.Files = filesBetween(before, filesOf(d.Deployment))
	return d, nil
}

// filesBetween returns files with what differs from those before, and those that are there no more.
func filesBetween(before, after view.Files) (list []versionFile) {
	for _, d := range view.DiffFiles(before, after) {
		list = append(list, versionFile{Name: d.Name, Text: cut(maxPreview, after.Texts[d.Name]), Diff: d.Lines, Size: len(after.Texts[d.Name])})
	}
	return list
}

// filesOf returns the files of a version.
func filesOf(d keep.Deployment) view.Files { return view.Files{Entry: d.Entry, Texts: d.Sources()} }

// pause stops a workflow after the call that is under way. The note is shown until it is resumed.
func (s *site) pause(r *http.Request) (to, did string, err error) {
	w, err := s.workflowOf(r)
	if err != nil {
		return "", "", err
	}
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	return "/workflows/" + string(w), "paused", s.cfg.Actor.PauseRunning(r.Context(), w, d)
}

// resume ends the pause that the page showed, by its note: who paused for another reason since is not passed over.
func (s *site) resume(r *http.Request) (to, did string, err error) {
	w, err := s.cfg.Store.Workflow(r.Context(), keep.WorkflowName(r.PathValue("name")))
	if err != nil {
		return "", "", err
	}
	d, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	if r.PostForm.Get("of") != noteMark(w.PauseNote) {
		return "", "", fmt.Errorf("%s is not paused with the note that was shown: %w", w.Name, keep.ErrStale)
	}
	return "/workflows/" + string(w.Name), "resumed", s.cfg.Actor.ResumePaused(r.Context(), w.Name, w.PauseNote, d)
}

// noteMark tells one note from another in a field that keeps no note as it is: browsers change the ends of its lines.
func noteMark(note string) string {
	sum := sha256.Sum256([]byte(note))
	return hex.EncodeToString(sum[:8])
}

// PauseMark is noteMark of the note of the pause.
func (d workflowData) PauseMark() string { return noteMark(d.PauseNote) }

// workflowOf looks the workflow of a path up, so that an unknown name is not found.
func (s *site) workflowOf(r *http.Request) (keep.WorkflowName, error) {
	w, err := s.cfg.Store.Workflow(r.Context(), keep.WorkflowName(r.PathValue("name")))
	return w.Name, err
}

// trigger asks the host to run a producer or job before it is due. It returns before the run begins. A
// consumer cannot be started: it has no work without an event.
func (s *site) trigger(r *http.Request) (to, did string, err error) {
	w, err := s.cfg.Store.Workflow(r.Context(), keep.WorkflowName(r.PathValue("name")))
	if err != nil {
		return "", "", err
	}
	by, err := decisionOf(r)
	if err != nil {
		return "", "", err
	}
	d, err := s.cfg.Store.Deployment(r.Context(), w.Name, w.Version)
	if err != nil {
		return "", "", err
	}
	name := keep.HandlerName(r.PostForm.Get("handler"))
	h, ok := d.Definition.Handler(name)
	switch {
	case !ok:
		return "", "", &keep.NotFoundError{What: "handler", ID: string(w.Name) + "/" + cut(80, string(name))}
	case h.Kind == keep.Consumer:
		return "", "", refusef("%s is a consumer; it runs when an event comes", name)
	}
	return "/workflows/" + string(w.Name), "triggered", s.cfg.Actor.Trigger(r.Context(), w.Name, name, by)
}
