package web

import (
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
)

// repairsData is what was tried for scripts that failed, newest first.
type repairsData struct {
	Repairs []repairRow
	More    int // that are not shown
}

// A repairRow is a repair as a page has it.
type repairRow struct {
	api.Repair
	Began time.Time
	Spent int // tokens
	Tries []repairTry
}

// A repairTry is one conversation with the model.
type repairTry struct {
	api.RepairAttempt
	Began time.Time
	Spent int // tokens
}

func repairRowOf(r api.Repair) repairRow {
	row := repairRow{Repair: r, Began: time.Time(r.CreatedAt), Spent: int(r.Tokens)}
	for _, a := range r.Attempts {
		row.Tries = append(row.Tries, repairTry{a, time.Time(a.BeganAt), int(a.Tokens)})
	}
	return row
}

// repairs lists repairs, of one workflow if the query names it.
func (s *site) repairs(r *http.Request) (page, error) {
	p := page{Title: "Repairs", Section: "workflows", Watch: []feed.Kind{feed.Run, feed.Escalation, feed.Workflow}}
	all, err := api.ListRepairs(r.Context(), s.cfg.Store, keep.WorkflowName(r.URL.Query().Get("workflow")))
	d := repairsData{More: max(0, len(all)-maxShown)}
	for _, one := range all[:len(all)-d.More] {
		d.Repairs = append(d.Repairs, repairRowOf(one))
	}
	p.Data = d
	return p, err
}

// repairData is one repair.
type repairData struct {
	repairRow
	Diff    []diffLine // of the script that failed and the newest one that was proposed
	Compare bool       // this host can say what the version would have done otherwise, and who looks may ask
}

// repair shows what was tried for one failure.
func (s *site) repair(r *http.Request) (page, error) {
	shown, err := api.ShowRepair(r.Context(), s.cfg.Store, r.PathValue("id"))
	if err != nil {
		return page{}, err
	}
	d := repairData{repairRow: repairRowOf(shown)}
	if d.Source != "" {
		d.Diff = diff(d.BaseSource, d.Source)
	}
	who, _ := access.From(r.Context())
	d.Compare = s.cfg.Replayer != nil && d.Version != nil && who.Role.Covers(access.Author)
	return page{Title: "Repair of " + string(d.Workflow), Section: "workflows", Data: d,
		Watch: []feed.Kind{feed.Run, feed.Escalation, feed.Workflow}}, nil
}
