package view_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/view"
)

// A workflow in Go is missing if hosts are there and none of them has its version: not without any
// host, nor while it is paused.
func TestMissing(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	db := memory.New()
	deploy := func(name keep.WorkflowName, inGo bool) {
		d := keep.Deployment{Workflow: name, Version: keep.Version{Major: 1}, Hash: "hash of " + string(name), CreatedAt: now,
			Code: []byte(`{"program":"example.com/mail","build":"0123456789abcdef"}`), Definition: keep.Definition{Name: name, Go: inGo}}
		if err := db.Commit(t.Context(), keep.Commit{Workflow: name, At: now, Changes: []keep.Change{keep.Deploy{Deployment: d}}}); err != nil {
			t.Fatal(err)
		}
	}
	deploy("inGo", true)
	deploy("script", false)
	there, gone := now.Add(time.Second), now
	has := []string{"another", "hash of inGo"}
	for name, test := range map[string]struct {
		hosts []keep.Host
		want  int
	}{
		"no host":                  {nil, 0},
		"a host that is gone":      {[]keep.Host{{Until: gone}}, 0},
		"a host without it":        {[]keep.Host{{Until: there, InGo: []string{"another"}}}, 1},
		"a host with it":           {[]keep.Host{{Until: there}, {Until: there, InGo: has}}, 0},
		"one with it that is gone": {[]keep.Host{{Until: there}, {Until: gone, InGo: has}}, 1},
		"one with it that drains":  {[]keep.Host{{Until: there}, {Until: there, InGo: has, Draining: true}}, 1},
	} {
		by := view.Executors(func(context.Context) ([]keep.Host, time.Time, error) { return test.hosts, now, nil })
		got, err := by.MissingOfAll(t.Context(), db)
		if err != nil || len(got) != test.want {
			t.Errorf("%s: %v, %v; want %d", name, got, err, test.want)
		}
		for _, m := range got {
			if s := m.Sentence(); m.Workflow != "inGo" || !strings.Contains(s, "version 1.0 of workflow inGo") || !strings.Contains(s, "start the program example.com/mail (build 0123456789ab)") {
				t.Errorf("%s: %q", name, s)
			}
		}
	}
	alone := view.Alone(func() []string { return nil })
	for name, want := range map[keep.WorkflowName]int{"inGo": 1, "script": 0, "unknown": 0} {
		if got, err := alone.MissingOf(t.Context(), db, name); err != nil || len(got) != want {
			t.Errorf("of %s: %v, %v; want %d", name, got, err, want)
		}
	}
	if err := db.Commit(t.Context(), keep.Commit{Workflow: "inGo", At: now, Changes: []keep.Change{keep.SetPaused{Paused: true}}}); err != nil {
		t.Fatal(err)
	}
	if got, err := alone.MissingOfAll(t.Context(), db); err != nil || len(got) != 0 {
		t.Errorf("paused: %v, %v", got, err)
	}
	broken := errors.New("no route to host")
	if _, err := view.Executors(func(context.Context) ([]keep.Host, time.Time, error) { return nil, now, broken }).MissingOfAll(t.Context(), db); err != nil {
		t.Errorf("hosts were asked for though nothing is missing: %v", err)
	}
	if got, err := view.Executors(nil).MissingOfAll(t.Context(), db); err != nil || got != nil {
		t.Errorf("nobody knows of hosts: %v, %v", got, err)
	}
}
