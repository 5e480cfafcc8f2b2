//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// What is said of an item is of that one, also where another was named twice, and each is taken once.
func TestItemsThatAreNamedTwice(t *testing.T) {
	p, _ := newPlaces(t)
	out := p.must(0, "items", "reprocess", "remind", "a", "a", "..", "--yes", "--json")
	var plans []struct{ ID, Outcome string }
	if err := json.Unmarshal([]byte(out), &plans); err != nil || len(plans) != 2 || plans[0].ID != "a" || plans[1].ID != ".." || plans[0].Outcome != done || plans[1].Outcome != done {
		t.Errorf("reprocess says %+v, %v: %s", plans, err, out)
	}
}

// Who repeats a command that ended before it was through says as of when, and gets what was done since not once more.
func TestItemsAsTheyWere(t *testing.T) {
	_, p := newPlaces(t)
	p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		next.ServeHTTP(w, r)
	}
	since := p.now.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	if o := p.keep("items", "reprocess", "remind", "--all", "--yes"); o.Status == 0 || !strings.Contains(o.Talk, "--as-of "+since+" continues") {
		t.Errorf("ended early: %+v", o)
	}
	p.between = nil
	if o := p.keep("items", "reprocess", "remind", "a", "--yes", "--as-of", "2020-01-01T00:00:00Z"); o.Status != exit.Failed || !strings.Contains(o.Out, "it changed since, at ") {
		t.Errorf("what changed since: %+v", o)
	}
	if out := p.must(0, "items", "show", "remind", "a", "--json"); !strings.Contains(out, `"attempt": 1`) {
		t.Errorf("the item after it: %s", out)
	}
	if o := p.keep("items", "reprocess", "remind", "a", "--as-of", "yesterday"); o.Status != exit.Misused {
		t.Errorf("a time that is none: %+v", o)
	}
	if o := p.keep("items", "reprocess", "remind", "a", "--as-of", since); o.Status != 0 || !strings.Contains(o.Talk, "with --as-of "+since) {
		t.Errorf("preview: %+v", o)
	}
	p.must(0, "items", "reprocess", "remind", "a", "--yes", "--as-of", since)
	if out := p.must(0, "items", "show", "remind", "a", "--json"); !strings.Contains(out, `"attempt": 2`) {
		t.Errorf("the item after all: %s", out)
	}
}

// As of when is by the clock of the host, which dates what is done: on a machine that is ahead of it, all that was done would be done once more.
func TestItemsAsTheyWereByTheClockOfTheHost(t *testing.T) {
	_, p := newPlaces(t)
	host := p.now
	p.clock, p.now = func() time.Time { return host }, p.now.Add(time.Hour)
	since := host.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	if o := p.keep("items", "reprocess", "remind", "a"); o.Status != 0 || !strings.Contains(o.Talk, "with --as-of "+since) {
		t.Errorf("preview: %+v", o)
	}
	p.must(0, "items", "reprocess", "remind", "a", "--yes", "--as-of", since)
	if o := p.keep("items", "reprocess", "remind", "a", "--yes", "--as-of", since); o.Status != exit.Failed || !strings.Contains(o.Out, "it changed since, at ") {
		t.Errorf("the same once more: %+v", o)
	}
}

// An input with more events than are shown says so.
func TestInputWithManyEvents(t *testing.T) {
	_, p := newPlaces(t)
	inputs := decodeAll[struct{ ID string }](t, p.must(0, "inputs", "--json"))
	if len(inputs) == 0 {
		t.Fatal("there is no input")
	}
	if out := p.must(0, "inputs", "show", inputs[0].ID); strings.Contains(out, "older events") {
		t.Errorf("all are shown: %s", out)
	}
	p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			next.ServeHTTP(w, r)
			return
		}
		res := httptest.NewRecorder()
		next.ServeHTTP(res, r)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.Replace(res.Body.String(), `"next":null`, `"next":"c"`, 1))
	}
	if out := p.must(0, "inputs", "show", inputs[0].ID); !strings.Contains(out, "older events are not shown: these are the newest ") {
		t.Errorf("there are more: %s", out)
	}
}

// What is shown of an item is of one attempt: who leaves it, or takes it up again, does not decide about a later one that somebody began
// meanwhile, whose calls he did not see.
func TestItemsOfALaterAttempt(t *testing.T) {
	_, p := newPlaces(t)
	p.must(0, "items", "reprocess", "remind", "a", "--yes")
	for _, c := range []struct {
		action    string
		meanwhile []string
	}{{"skip", []string{"skip", "reprocess"}}, {"skip", nil}, {"unskip", []string{"reprocess", "skip"}}} {
		p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			for _, action := range c.meanwhile {
				if r.Method != http.MethodPost {
					break
				}
				other := r.Clone(r.Context())
				other.URL.Path = strings.TrimSuffix(r.URL.Path, c.action) + action
				other.Header.Del("Idempotency-Key")
				other.Body = io.NopCloser(strings.NewReader(`{"ids": ["a"], "confirm": true}`))
				other.ContentLength = -1
				res := httptest.NewRecorder()
				if next.ServeHTTP(res, other); !strings.Contains(res.Body.String(), `"done":true`) {
					t.Fatalf("%s of somebody else: %d %s", action, res.Code, res.Body.String())
				}
			}
			next.ServeHTTP(w, r)
		}
		want := 0
		if c.meanwhile != nil {
			want = exit.Failed
		}
		if o := p.keep("items", c.action, "remind", "a", "--yes"); o.Status != want || want != 0 && !strings.Contains(o.Out, "and what was shown is attempt") {
			t.Errorf("%s after %v: %+v", c.action, c.meanwhile, o)
		}
	}
}

// A command that confirms has what was said to the one that asked, and is about the key that was shown.
func TestConfirmationSaysAll(t *testing.T) {
	p, _ := newPlaces(t)
	var question string
	for _, q := range decodeAll[struct {
		ID       string
		Workflow string
		Kind     string
	}](t, p.must(0, "inbox", "--json")) {
		if q.Kind == "unknown_outcome" {
			question = q.ID
		}
	}
	o := p.keep("inbox", "do", question, "did-not-happen", "--note", "I'm sure; $HOME", "--config", filepath.Join(p.dir, "keep.toml"))
	want := "keep inbox do " + question + " did-not-happen --yes --config DIR/keep.toml --note " + `'I'\''m sure; $HOME'` + "\n"
	if o.Status != exit.Misused || !strings.Contains(o.Talk, want) {
		t.Errorf("inbox do says %q, want %q", o.Talk, want)
	}
	var ref string
	for _, k := range decodeAll[struct{ Reference, State string }](t, p.must(0, "keys", "--json")) {
		if k.State == "done" {
			ref = k.Reference
		}
	}
	if o = p.keep("keys", "forget", ref); o.Status != exit.Misused {
		t.Fatalf("forget: %+v", o)
	}
	_, command, _ := strings.Cut(o.Talk, "To confirm: keep ")
	again := strings.Fields(command)
	wrong := append([]string{}, again...)
	wrong[len(wrong)-1] = "1-1"
	if o = p.keep(wrong...); o.Status != exit.Failed || !strings.Contains(o.Talk, "not as it was shown") {
		t.Errorf("%q: %+v", wrong, o)
	}
	p.must(0, again...)
}

// decodeAll returns a list of JSON, whole or in a page.
func decodeAll[T any](t *testing.T, text string) (list []T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return list
}
