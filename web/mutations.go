package web

import (
	"bytes"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// mutationsData is the ledger.
type mutationsData struct {
	period
	Filter    keep.MutationFilter
	Workflows []keep.WorkflowName
	States    []keep.MutationState
	Found     view.Found[keep.MutationState] // by the filter without state
	Rows      []keep.Mutation
	Pager     pager
	Export    string // the filter, for the links of downloads
}

// parseMutationFilter reads the filter of the list and of both exports, so that a file has the
// records that the list showed when its link was pressed.
func parseMutationFilter(q url.Values) (keep.MutationFilter, period, error) {
	f := keep.MutationFilter{Workflow: keep.WorkflowName(q.Get("workflow")), State: keep.MutationState(q.Get("state")),
		Tool: keep.ToolName(q.Get("tool")), Error: q.Get("error"), Text: q.Get("q")}
	p, made, err := periodOf(q)
	if err != nil {
		return f, p, err
	}
	f.Made = made
	return f, p, checkFilter(f.Text, f.State, keep.MutationStates())
}

// mutations lists the ledger. Its rows are bare, since a list never reads payloads.
func (s *site) mutations(r *http.Request) (page, error) {
	ctx, q := r.Context(), r.URL.Query()
	p := page{Title: "Mutations", Section: "mutations", Watch: []feed.Kind{feed.Mutation}}
	f, made, err := parseMutationFilter(q)
	if err != nil {
		return p, err
	}
	p.Of = f.Workflow
	d := mutationsData{period: made, Filter: f, States: keep.MutationStates()}
	if d.Workflows, err = s.names(ctx); err != nil {
		return p, err
	}
	every := f
	every.State = ""
	by, err := s.cfg.Store.CountMutations(ctx, every)
	if err != nil {
		return p, err
	}
	d.Found = view.FoundOf(f.Bounded(), by)
	var next string
	if d.Rows, next, err = s.cfg.Store.Mutations(ctx, f, keep.Page{Limit: pageSize, After: q.Get("after"), Bare: true}); err != nil {
		return p, err
	}
	pairs := []string{"q", f.Text, "workflow", string(f.Workflow), "state", string(f.State), "tool", string(f.Tool),
		"error", f.Error, "since", d.Since, "until", d.Until}
	d.Pager = pagerOf("/mutations", q.Get("after"), next, pairs...)
	d.Export = query(pairs...)
	p.Data = d
	return p, nil
}

// mutationData is one record of the ledger.
type mutationData struct {
	keep.Mutation
	Moves    []keep.Move // oldest first
	Identity payload
	Payload  payload
	Result   payload
	ItemLink string // empty: it is of no item
}

// mutation shows one record of the ledger with all that Keep knows of it: what was sent, what came back,
// and each move with its evidence.
func (s *site) mutation(r *http.Request) (page, error) {
	m, err := s.cfg.Store.Mutation(r.Context(), keep.MutationKey(r.PathValue("key")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: string(m.Tool) + " on " + cut(80, m.Target), Section: "mutations", Of: m.Workflow, Watch: []feed.Kind{feed.Mutation}}
	d := mutationData{Mutation: m,
		Identity: payloadOf("Identity: what is changed", m.Identity, ""),
		Payload:  payloadOf("Payload: as it was sent", m.Payload, mutationPath(m.Key)+"/payload"),
		Result:   payloadOf("Result: "+whose(m), m.Result, mutationPath(m.Key)+"/result")}
	if m.Item != "" {
		d.ItemLink = "/item" + itemQuery(m.Workflow, m.Item)
	}
	if d.Moves, err = s.cfg.Store.History(r.Context(), m.Key); err != nil {
		return p, err
	}
	p.Data = d
	return p, nil
}

func (s *site) payloadFile(w http.ResponseWriter, r *http.Request) error {
	m, err := s.cfg.Store.Mutation(r.Context(), keep.MutationKey(r.PathValue("key")))
	if err != nil {
		return err
	}
	return download(w, "payload.json", m.Payload)
}

func (s *site) resultFile(w http.ResponseWriter, r *http.Request) error {
	m, err := s.cfg.Store.Mutation(r.Context(), keep.MutationKey(r.PathValue("key")))
	if err != nil {
		return err
	}
	return download(w, "result.json", m.Result)
}

// asFile makes an answer a download that no browser runs.
func asFile(w http.ResponseWriter, name, kind string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	// What a service sent could be HTML: a browser that shows it in spite of the disposition gives
	// it neither scripts nor the origin of the pages, where the reader is logged in.
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cache-Control", "no-store")
}

// download writes JSON as a file; what is not there is null.
func download(w http.ResponseWriter, name string, raw []byte) error {
	asFile(w, name, "application/json")
	if len(raw) == 0 {
		raw = []byte("null")
	}
	// With a request of its own, which has no Range and no condition: a download is all of it.
	http.ServeContent(w, &http.Request{Method: http.MethodGet}, "", time.Time{}, bytes.NewReader(raw))
	return nil
}

// exported is the name of a file of the ledger, from the time of the export.
func exported(now time.Time, ext string) string {
	return "mutations-" + now.UTC().Format("20060102-150405") + "." + ext
}

func itoa(n int) string { return strconv.Itoa(n) }

// whose says where the result of a call comes from.
func whose(m keep.Mutation) string {
	switch m.ResolvedBy {
	case "call", "reconcile", "":
		return "what the service answered"
	}
	return "resolved by " + m.ResolvedBy
}

// mutationPath is the page of a mutation.
func mutationPath(key keep.MutationKey) string { return "/mutations/" + pathEscape(string(key)) }
