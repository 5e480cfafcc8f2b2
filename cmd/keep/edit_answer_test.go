//go:build unix

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/idempotency"
)

// An edit whose answer a daemon refuses leaves the files as they were. They are written if it is not known
// what became of the answer: the version may be current.
func TestEditAnswer(t *testing.T) {
	type between = func(http.ResponseWriter, *http.Request, http.Handler)
	answers := func(status int, kind api.Kind, detail string) func(*place) between {
		return func(*place) between {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method != http.MethodPost {
					next.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(status)
				if err := json.NewEncoder(w).Encode(map[string]any{"type": idempotency.ProblemBase + string(kind), "detail": detail}); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for name, c := range map[string]struct {
		answer func(*place) between // nil: what the daemon says
		says   string               // empty: it is accepted
		writes bool
	}{
		"accepted":  {nil, "", true},
		"dies":      {(*place).diesAtWork, "", true}, // and the answer is given again
		"fails":     {answers(http.StatusInternalServerError, api.KindInternal, "the disk is full"), "the disk is full", true},
		"refused":   {answers(http.StatusConflict, api.KindRefused, "version 3.0 is current by now"), "version 3.0 is current by now", false},
		"forbidden": {answers(http.StatusForbidden, api.KindForbidden, "that needs another role"), "that needs another role", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := newPlaces(t)
			d, files := p.quietEdit()
			if c.answer != nil {
				p.between = c.answer(p)
			}
			err := d.store(p.dir, files, func() error { return d.accept(t.Context()) })
			if (err == nil) != (c.says == "") || err != nil && (exit.Of(err) != exit.Failed || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("it ended with %v, want %q", err, c.says)
			}
			text, readErr := os.ReadFile(filepath.Join(p.dir, "quiet.js"))
			if written := string(text) == d.Source; readErr != nil || written != c.writes {
				t.Errorf("the file is written: %v, want %v; %v", written, c.writes, readErr)
			}
			if said := err != nil && strings.Contains(err.Error(), "The files are as they were"); said != !c.writes {
				t.Errorf("it says %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(p.dir, ".keep-pending.json")); len(left) > 0 {
				t.Errorf("there is %v", left)
			}
		})
	}
}

// quietEdit proposes a change of a workflow, and returns it as keep edit has it before the person answers.
func (p *place) quietEdit() (*authoredDraft, []project.File) {
	p.t.Helper()
	p.t.Chdir(p.dir)
	a := newApp(p.t.Output(), p.t.Output())
	a.Clock = func() time.Time { return p.now }
	cfg, err := a.LoadConfig(".")
	if err != nil {
		p.t.Fatal(err)
	}
	before := remoteProject["quiet.js"]
	d := &authoredDraft{author: &author{app: a, cfg: cfg}, report: new(authored), file: "quiet.js", change: new(editing)}
	d.Source = strings.Replace(before, "tick(ctx) {", `tick(ctx) { ctx.log("edited"); `, 1)
	err = a.client().Call(p.t.Context(), cfg, a.opening(database.ToDecide), func(c *api.Client) error {
		now, err := c.Propose(p.t.Context(), "quiet", api.NewProposal{Script: api.Script{File: "quiet.js", Source: d.Source}, Origin: keep.OriginEdit})
		if err != nil {
			return err
		}
		d.report.Version, d.report.Question, d.report.Proposal = &now.Waiting.Version, &now.Waiting.Question, &now.Waiting.Proposal
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return d, []project.File{{Name: "quiet.js", Text: d.Source, Was: project.Hash(before)}}
}
