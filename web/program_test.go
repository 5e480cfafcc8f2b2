package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/view"
	"github.com/keep-run/keep/web"
)

// A workflow in Go that no host can execute is said to be one, on the first page and on its own, and
// not when a host has it.
func TestPagesSayWhichProgramIsMissing(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UTC()
	d := keep.Deployment{Workflow: "ingo", Version: keep.Version{Major: 1}, Hash: "hash", Entry: "ingo.go.json", Code: []byte(`{"program":"example.com/mail","build":"1"}`),
		Definition: keep.Definition{Name: "ingo", Go: true}, CreatedAt: now}
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "ingo", At: now, Changes: []keep.Change{keep.Deploy{Deployment: d}}}))
	for has, want := range map[string]bool{"another": true, "hash": false} {
		w.site.Close()
		w.serve(web.Config{Store: w.db, Actor: w.host, Executors: view.Alone(func() []string { return []string{has} })})
		for _, page := range []string{"/", "/workflows/ingo"} {
			const text = "version 1.0 of workflow ingo is written in Go, and no host that is there has its handlers: start the program example.com/mail (build 1)"
			if got := strings.Contains(w.as("ada", access.Viewer).get(page).body, text); got != want {
				t.Errorf("%s, of a host that has %s: %t that it says so, want %t", page, has, got, want)
			}
		}
	}
}
