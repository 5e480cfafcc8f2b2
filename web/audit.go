package web

import (
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// auditData is what people did, newest first.
type auditData struct {
	Workflow keep.WorkflowName
	Global   bool
	Rows     []auditRow
	Pager    pager
}

// An auditRow is one thing that a person did.
type auditRow struct {
	keep.Decided
	Did string
}

// audit lists what people did. Answers to questions are in the inbox.
func (s *site) audit(r *http.Request) (page, error) {
	p := page{Title: "Audit", Section: "settings", Watch: []feed.Kind{feed.Credential, feed.Workflow}}
	q := r.URL.Query()
	d := auditData{Workflow: keep.WorkflowName(q.Get("workflow")), Global: q.Get("global") != ""}
	list, next, err := s.cfg.Store.Decisions(r.Context(), keep.DecisionFilter{Workflow: d.Workflow, Global: d.Global}, keep.Page{Limit: pageSize, After: q.Get("after")})
	for _, one := range list {
		d.Rows = append(d.Rows, auditRow{one, view.Act{Decision: one.Decision}.Did()})
	}
	d.Pager = pagerOf("/audit", q.Get("after"), next, "workflow", string(d.Workflow), "global", q.Get("global"))
	p.Data = d
	return p, err
}
