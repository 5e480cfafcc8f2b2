package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// maxReads is the most calls of the store that a page makes.
const maxReads = 22

// A page makes as many reads of the store of much data as of little.
func TestReadsPerPage(t *testing.T) {
	little := readsOfPages(t, amount{inputs: 500, workflows: 2, waiting: 7, attempts: 1})
	much := readsOfPages(t, amount{inputs: 2400, workflows: 24, waiting: 7, attempts: 20})
	for path, n := range much {
		if n != little[path] {
			t.Errorf("%s makes %d reads of much data, and %d of little", path, n, little[path])
		}
		if n > maxReads {
			t.Errorf("%s makes %d reads, want at most %d", path, n, maxReads)
		}
	}
}

// readsOfPages returns how many reads each page makes of so much data.
func readsOfPages(t *testing.T, much amount) map[string]int64 {
	db := memory.New()
	fill(t, db, much)
	actor, err := operator.New(db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := &countReads{Reader: db}
	pages, err := web.New(web.Config{Store: store, Actor: actor, Connections: []connector.Connection{newDesk(t).connection(t)}})
	if err != nil {
		t.Fatal(err)
	}
	ins, _, err := db.Inputs(t.Context(), keep.InputFilter{Workflow: "bench1", Status: keep.InputDone}, keep.Page{Limit: 1})
	if err != nil || len(ins) == 0 {
		t.Fatal(len(ins), err)
	}
	open, err := db.OpenRuns(t.Context(), "bench1")
	if err != nil || len(open) == 0 {
		t.Fatal(open, err)
	}
	reads := make(map[string]int64)
	for name, path := range map[string]string{
		"home": "/", "inputs": "/inputs", "pending": "/inputs?status=pending", "of a workflow": "/inputs?workflow=bench1", "input": "/inputs/" + string(ins[0].ID),
		"skip all": "/skip-inputs?workflow=bench1", "inbox": "/inbox", "decided": "/inbox?show=decided", "question": "/inbox/esc_1",
		"runs": "/runs", "open runs": "/runs?open=1", "run": "/runs/" + string(open[0].ID), "workflows": "/workflows", "workflow": "/workflows/bench1",
		"version": "/workflows/bench1/versions/1.0", "checkpoint": "/workflows/bench1/checkpoint?handler=poll",
		"events": "/events?workflow=bench1", "topic": "/events?workflow=bench1&topic=mail", "unread": "/events?workflow=bench1&topic=log", "event": "/event?workflow=bench1&topic=mail&id=" + ins[0].ExternalID,
		"items": "/items", "item": "/item?workflow=bench1&id=i1", "mutations": "/mutations", "mutation": "/mutations/mut_item1",
		"connections": "/connections", "hooks": "/hooks", "budgets": "/budgets", "proposals": "/proposals", "settings": "/settings",
	} {
		store.reads.Store(0)
		r := httptest.NewRequestWithContext(access.With(t.Context(), access.Identity{Name: "ada", Role: access.Operator}), http.MethodGet, path, nil)
		rec := httptest.NewRecorder()
		pages.ServeHTTP(rec, r)
		if rec.Code != http.StatusOK {
			t.Fatalf("%s: %d: %s", path, rec.Code, rec.Body)
		}
		reads[name] = store.reads.Load()
		if n := store.doubts.Load(); n > 0 && name == "workflows" {
			t.Errorf("%s reads calls in doubt, and shows none", path)
		}
		store.doubts.Store(0)
		if says := strings.Contains(rec.Body.String(), "Nobody reads this topic"); says != (name == "unread") {
			t.Errorf("%s says that nobody reads the topic: %t", path, says)
		}
	}
	return reads
}
