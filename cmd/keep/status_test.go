package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/web"
)

// opened opens the database beside the host.
func (d *serving) opened() *sqlite.DB {
	d.t.Helper()
	db := sqlite.New(filepath.Join(d.dir, "keep.db"), sqlite.Config{})
	if err := db.Open(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { db.Close() })
	return db
}

// The command, the API and the home page say the same about what is late, what fails
// and what needs a person; a handler that the version in force does not have is late
// nowhere, and neither is a paused workflow.
func TestStatusAgrees(t *testing.T) {
	t.Parallel()
	d := newServing(t)
	db := d.opened()
	now := time.Now()
	due := now.Add(-time.Hour).Truncate(time.Millisecond)
	commit := func(w keep.WorkflowName, changes ...keep.Change) {
		t.Helper()
		if err := db.Commit(t.Context(), keep.Commit{Workflow: w, At: now, Changes: changes}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []keep.WorkflowName{"late", "paused", "retried", "stopped"} {
		def := keep.Definition{Name: name, Handlers: []keep.Handler{{Name: "poll", Kind: keep.Producer}}}
		commit(name, keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: 1}, Entry: "w.js", Code: []byte("x"), Definition: def, CreatedAt: now}},
			keep.PutHandler{State: keep.HandlerState{Workflow: name, Handler: "poll", Kind: keep.Producer, NextAt: due}},
			keep.PutHandler{State: keep.HandlerState{Workflow: name, Handler: "removed", Kind: keep.Producer, NextAt: due}})
	}
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "retried", Version: keep.Version{Major: 1}, Handler: "poll", Kind: keep.Producer, Phase: keep.Running,
		Status: keep.StatusTransient, RetryAt: due, Error: keep.Failf(keep.ClassTransient, "http-503", "busy"), CreatedAt: due, UpdatedAt: due}
	commit("retried", keep.PutRun{Run: run})
	commit("paused", keep.SetPaused{Paused: true})
	run.ID, run.Chain, run.Workflow, run.Status, run.RetryAt = "run_2", "run_2", "stopped", keep.StatusPerson, time.Time{}
	commit("stopped", keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_1", Kind: keep.AskRetries, Workflow: "stopped", Run: run.ID,
		Question: "Should poll be tried again?", CreatedAt: now}})

	served, err := api.ReadStatus(t.Context(), db, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	served.KeysUnknown = new(int) // the database keeps keys, and has none
	var late []string
	for _, l := range served.Late {
		late = append(late, string(l.Workflow)+": "+l.What)
	}
	if want := []string{"late: poll", "retried: retry of run run_1"}; !slices.Equal(late, want) {
		t.Errorf("late in the API: %q, want %q", late, want)
	}
	var printed api.Status
	if err := json.Unmarshal([]byte(d.keep("status", "--json")), &printed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(prettyJSON(t, served), prettyJSON(t, printed)); diff != "" {
		t.Errorf("keep status (-API +command):\n%s", diff)
	}
	home := homePage(t, db)
	for part, want := range map[string][]string{
		"h-needs": {"/inbox/esc_1"}, "h-failing": {"/runs/run_1"}, "h-late": {"/workflows/late", "/runs/run_1"},
	} {
		if got := titles(home, part); !slices.Equal(got, want) {
			t.Errorf("%s on the home page: %q, want %q", part, got, want)
		}
	}
	text := d.keep("status")
	const whether = "is a host running"
	for _, want := range []string{"Needs you: 1", "Failing: 1", "Late: 2", whether} {
		if !strings.Contains(text, want) {
			t.Errorf("keep status does not say %q:\n%s", want, text)
		}
	}
	// A host that works on it, and cannot load the script, is there.
	d.start()
	if text := d.keep("status"); !strings.Contains(text, "Late: ") || strings.Contains(text, whether) {
		t.Errorf("while a host runs keep status says\n%s", text)
	}
}

// A question about a secret is of no workflow; it is shown like any other, and counts for --exit-code.
func TestStatusOfNoWorkflow(t *testing.T) {
	t.Parallel()
	d := newServing(t)
	db := d.opened()
	now := time.Now()
	for _, id := range []keep.EscalationID{"esc_1", "esc_2"} {
		q := keep.Escalation{ID: id, Kind: keep.AskPermission, Title: "secret:bank", Question: "Is it the same user?", CreatedAt: now}
		if err := db.Commit(t.Context(), keep.Commit{At: now, Changes: []keep.Change{keep.OpenEscalation{Escalation: q}}}); err != nil {
			t.Fatal(err)
		}
		want := "Needs you: 1\n  permission: keep inbox show esc_1\n"
		if id == "esc_2" {
			want = "Needs you: 2\n  2 × permission: keep inbox, such as keep inbox show esc_2\n"
		}
		if text := d.keep("status"); !strings.HasPrefix(text, want) {
			t.Errorf("keep status says %q, want %q first", text, want)
		}
	}
	if home := homePage(t, db); !strings.Contains(home, `<p class="sub">asked `) {
		t.Errorf("the home page: %s", home)
	}
	cmd := exec.CommandContext(t.Context(), d.bin, "status", "--exit-code")
	cmd.Dir, cmd.Env = d.dir, d.env
	err := cmd.Run()
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != exit.NeedsPerson {
		t.Errorf("keep status --exit-code: %v, want exit code %d", err, exit.NeedsPerson)
	}
}

// What ends keep status --exit-code with 1 is said, also where there is no workflow.
func TestStatusSaysWhatIsWrongWithoutWorkflows(t *testing.T) {
	t.Parallel()
	reason := "keep.toml:3:1: no such thing"
	for name, s := range map[string]api.Status{
		"config":   {Config: &api.Settings{Refused: &api.RefusedSetting{Reason: reason}}},
		"database": {Refusal: &api.Refusal{Reason: reason}},
		"people":   {NotTold: []api.NotTold{{Sink: "webhook", Error: reason}}},
	} {
		out, talk := new(strings.Builder), new(strings.Builder)
		if err := newApp(out, talk).printStatus(s); err != nil || statusCode(s) == nil || !strings.Contains(out.String(), reason) {
			t.Errorf("%s: %v, status %v: it says %q %q", name, err, statusCode(s), out, talk)
		}
	}
	out, talk := new(strings.Builder), new(strings.Builder)
	if err := newApp(out, talk).printStatus(api.Status{}); err != nil || out.Len() > 0 || !strings.Contains(talk.String(), "no workflows yet") {
		t.Errorf("nothing is wrong: %v, %q %q", err, out, talk)
	}
}

// prettyJSON returns v as lines that can be compared.
func prettyJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// homePage returns the first page over a database.
func homePage(t *testing.T, db *sqlite.DB) string {
	t.Helper()
	actor, err := operator.New(db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := web.New(web.Config{Store: db, Actor: actor})
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	pages.ServeHTTP(rec, httptest.NewRequestWithContext(access.With(t.Context(), access.Identity{Name: "ada", Role: access.Viewer}), http.MethodGet, "/", nil))
	return rec.Body.String()
}

var title = regexp.MustCompile(`<a class="title" href="([^"]*)"`)

// titles returns where the rows of a section of a page lead.
func titles(page, section string) (links []string) {
	_, rest, _ := strings.Cut(page, `aria-labelledby="`+section+`"`)
	rest, _, _ = strings.Cut(rest, "</section>")
	for _, m := range title.FindAllStringSubmatch(rest, -1) {
		links = append(links, m[1])
	}
	return links
}

// A call that could have been tried a while ago is tried when one is due, and not at a time that is over.
func TestNextCall(t *testing.T) {
	a := newApp(io.Discard, io.Discard)
	at := func(d time.Duration) *api.Time { v := api.Time(time.Now().Add(d)); return &v }
	if got := a.nextCall(nil); got != "-" {
		t.Errorf("nextCall(nil) = %q", got)
	}
	if got := a.nextCall(at(-time.Minute)); got != "when one is due" {
		t.Errorf("nextCall of a minute ago = %q", got)
	}
	if got := a.nextCall(at(time.Hour)); !strings.Contains(got, "in ") {
		t.Errorf("nextCall in an hour = %q", got)
	}
}
