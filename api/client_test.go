package api_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
)

// as makes each request somebody's.
type as string

func (who as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("As", string(who))
	return http.DefaultTransport.RoundTrip(r)
}

func (w *world) client(who string) *api.Client {
	return &api.Client{URL: w.server.URL + "/", Transport: as(who)}
}

// A client returns what the server shows, and its errors are those of package keep.
func TestClient(t *testing.T) {
	w := newWorld(t, nil)
	c, ctx := w.client("ann operator"), t.Context()
	run, err := c.Run(ctx, "run_1")
	if want, showErr := api.ShowRun(ctx, w.store, "run_1"); err != nil || showErr != nil || run.ID != want.ID || *run.WaitsFor != *want.WaitsFor {
		t.Errorf("Run = %+v, %v, want %+v, %v", run, err, want, showErr)
	}
	page, err := c.Items(ctx, api.ItemQuery{Workflow: "invoices", Status: keep.ItemFailed}, api.Paging{Limit: 1})
	if err != nil || len(page.Items) != 1 || page.Items[0].ID != "invoice:1" || page.Next != nil {
		t.Errorf("Items = %+v, %v", page, err)
	}
	full, err := c.Mutations(ctx, api.MutationQuery{}, api.Paging{Full: true})
	if err != nil || len(full.Items) != 1 || full.Items[0].Payload == nil {
		t.Errorf("Mutations = %+v, %v", full, err)
	}
	for _, note := range []string{"closed until Monday", ""} {
		if w, err := c.Pause(ctx, "invoices", note); err != nil || !w.Paused || (w.PauseNote == nil) != (note == "") || note != "" && *w.PauseNote != note {
			t.Errorf("Pause = %+v, %v, want the note %q", w, err, note)
		}
	}
	if w, err := c.PauseRunning(ctx, "invoices", "all"); !errors.Is(err, keep.ErrStale) {
		t.Errorf("PauseRunning of one that is paused = %+v, %v", w, err)
	}
	if w, err := c.Resume(ctx, "invoices", api.Resume{IfNote: new("all")}); !errors.Is(err, keep.ErrStale) {
		t.Errorf("ResumePaused of one with another note = %+v, %v", w, err)
	}
	if w, err := c.Resume(ctx, "invoices", api.Resume{IfNote: new("")}); err != nil || w.Paused {
		t.Errorf("ResumePaused = %+v, %v", w, err)
	}
	if w, err := c.PauseRunning(ctx, "invoices", "all"); err != nil || !w.Paused || w.PauseNote == nil || *w.PauseNote != "all" {
		t.Errorf("PauseRunning = %+v, %v", w, err)
	}
	if w, err := c.Resume(ctx, "invoices", api.Resume{}); err != nil || w.Paused || w.PauseNote != nil {
		t.Errorf("Resume = %+v, %v", w, err)
	}
	if ev, _, err := c.Publish(ctx, "invoices", "email.received", api.PublishRequest{MessageID: "caf\xe9", Payload: json.RawMessage(`1`)}); err == nil || !strings.Contains(err.Error(), `message_id: the text "caf\xe9" is not UTF-8`) {
		t.Errorf("Publish of an id that is not UTF-8 = %+v, %v; want an error that names it", ev, err)
	}
	if _, err := c.Decide(ctx, "esc_1", api.DecisionRequest{Action: keep.Skip, Note: "seen"}); err != nil {
		t.Errorf("Decide: %v", err)
	}
	for name, tt := range map[string]struct {
		err  error
		want error
		kind api.Kind
	}{
		"not there":      {second(c.Run(ctx, "none")), keep.ErrNotFound, api.KindNotFound},
		"no name":        {second(c.Run(ctx, "")), keep.ErrNotFound, api.KindNotFound},
		"a name of dots": {second(c.Item(ctx, "invoices", "..")), keep.ErrNotFound, api.KindNotFound},
		"decided":        {second(c.Decide(ctx, "esc_1", api.DecisionRequest{Action: keep.Skip, Note: ""})), keep.ErrDecided, api.KindDecided},
		"bad cursor":     {second(c.Runs(ctx, api.RunQuery{}, api.Paging{Cursor: "x"})), keep.ErrBadCursor, api.KindBadCursor},
		"run open":       {second(c.Trigger(ctx, "invoices", "poll", "")), keep.ErrRunOpen, api.KindRunOpen},
		"a consumer":     {second(c.Trigger(ctx, "invoices", "addRow", "")), nil, api.KindConsumer},
		"no role":        {second(w.client("ann viewer").Pause(ctx, "invoices", "")), nil, api.KindForbidden},
	} {
		p, ok := errors.AsType[*api.Problem](tt.err)
		if !ok || p.Kind != tt.kind || tt.want != nil && !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %#v, want %s and %v", name, tt.err, tt.kind, tt.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// What is wrong with a script comes with its places.
func TestClientDeploys(t *testing.T) {
	d := &deployer{}
	w := newWorld(t, func(c *api.Config) { c.Deployer = d })
	d.w = w
	c, ctx := w.client("ann author"), t.Context()
	_, err := c.Deploy(ctx, "invoices", api.Script{File: "C:\\a b.js", Source: "broken"}, "1.2")
	bad, ok := errors.AsType[*api.ScriptError](err)
	if want := []api.Mistake{{File: "C:\\a b.js", Line: 1, Column: 2, Message: "no"}}; !ok || cmp.Diff(want, bad.Mistakes) != "" {
		t.Errorf("a broken script: %v", err)
	}
	if _, err := c.Deploy(ctx, "invoices", api.Script{File: "a.js", Source: "x"}, "1.1"); !errors.Is(err, keep.ErrStale) {
		t.Errorf("another version: %v, want %v", err, keep.ErrStale)
	}
	if v, err := c.Deploy(ctx, "invoices", api.Script{File: "a.js", Source: "x"}, "1.2"); err != nil || v.Version != "2.0" {
		t.Errorf("deploy: %+v, %v", v, err)
	}
	if _, err := c.Deploy(ctx, "fresh", api.Script{File: "a.js", Source: "y"}, ""); err != nil {
		t.Errorf("deploy something new: %v", err)
	}
}

// A secret that the client made lets in, and only its hash came to the server.
func TestTokens(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	w := newWorld(t, func(c *api.Config) { c.Clock = func() time.Time { return now } })
	c, ctx := w.client("ann admin"), t.Context()
	_, id, hash := access.Make()
	made, err := c.AddToken(ctx, api.NewToken{ID: id, Hash: hex.EncodeToString(hash), Name: "bot", Role: access.Viewer, Life: 3600})
	if err != nil || made.ExpiresAt.String() != "2026-11-20T13:00:00.000Z" {
		t.Fatalf("AddToken = %+v, %v", made, err)
	}
	kept, err := w.store.Credential(ctx, id)
	if err != nil || string(kept.Hash) != string(hash) || kept.Kind != keep.CredentialToken || kept.Role != "viewer" {
		t.Errorf("kept is %+v, %v", kept, err)
	}
	if err := second(c.AddToken(ctx, api.NewToken{ID: id, Hash: hex.EncodeToString(hash), Name: "bot", Role: access.Viewer})); !errors.Is(err, keep.ErrStale) {
		t.Errorf("the same id again: %v", err)
	}
	session := keep.Credential{ID: "aaaaaaaaaa", Kind: keep.CredentialSession, Hash: hash, Name: "ann", Role: "admin", CreatedAt: now}
	if err := w.store.AddCredential(ctx, session); err != nil {
		t.Fatal(err)
	}
	if err := second(c.RevokeToken(ctx, session.ID)); !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("a session is revoked as a token: %v", err)
	}
	if err := second(c.RevokeToken(ctx, id)); err != nil {
		t.Errorf("RevokeToken: %v", err)
	}
	if page, err := c.Audit(ctx, api.AuditQuery{Global: true}, api.Paging{}); err != nil || len(page.Items) != 2 || page.Items[0].What != keep.Revoke || page.Items[1].What != keep.Issue ||
		page.Items[0].ID != id || page.Items[0].By != "ann" || *page.Items[0].Note != "viewer, of bot" {
		t.Errorf("the audit has %+v, %v", page, err)
	}
	for _, role := range []string{"viewer", "operator", "author"} {
		if _, err := w.client("bob "+role).Audit(ctx, api.AuditQuery{}, api.Paging{}); err == nil {
			t.Errorf("a %s sees the audit", role)
		}
	}
	if all, err := c.Tokens(ctx); err != nil || len(all) != 0 {
		t.Errorf("Tokens = %+v, %v", all, err)
	}
}

// An answer that is not the API's is quoted.
func TestClientOfSomethingElse(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	_, err := (&api.Client{URL: s.URL}).Run(t.Context(), "r")
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Status != 404 || p.Kind != "" || errors.Is(err, keep.ErrNotFound) {
		t.Errorf("%#v, want a problem of no kind", err)
	}
	s.Close()
	if _, err := (&api.Client{URL: s.URL}).Run(t.Context(), "r"); err == nil || errors.As(err, &p) {
		t.Errorf("nobody answers: %v, want an error of the network", err)
	}
}

// What a proxy says that gave up, or changed the answer, is not the server's word that it did nothing.
func TestClientBehindAProxy(t *testing.T) {
	for _, status := range []int{203, 204, 502, 503, 504} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			if status != http.StatusNoContent {
				_, _ = io.WriteString(w, `{"title":"upstream timed out"}`)
			}
		}))
		_, err := (&api.Client{URL: s.URL}).Pause(t.Context(), "w", "")
		if p, ok := errors.AsType[*api.Problem](err); ok || err == nil || !strings.Contains(err.Error(), "may have done it") {
			t.Errorf("%d: %v (%+v), want an error that is no problem", status, err, p)
		}
		s.Close()
	}
}

// An answer without any member of what was asked for is none of Keep, whatever its status: of a skip of all that match it would say that
// nothing is left.
func TestClientBelievesNoEmptyAnswer(t *testing.T) {
	for _, body := range []string{`{}`, `{"status":"ok"}`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}))
		c, ctx := &api.Client{URL: server.URL}, t.Context()
		if got, err := c.SkipAll(ctx, "cursor", ""); err == nil || !strings.Contains(err.Error(), "no answer of Keep, which may have done it") {
			t.Errorf("SkipAll = %+v, %v, of %s", got, err, body)
		}
		if got, err := c.Pause(ctx, "w", ""); err == nil {
			t.Errorf("Pause = %+v of %s", got, body)
		}
		server.Close()
	}
}

// A client is told that something changed of the kinds that it asks for, until the stream ends.
func TestClientChanges(t *testing.T) {
	w := newWorld(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	changes, err := w.client("ann viewer").Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.changes.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Item}})
	w.changes.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Event, feed.Run}})
	told := 0
	changes.Each(func() {
		switch told++; told {
		case 1:
			w.changes.Reset()
		case 2:
			leave()
		}
	}, feed.Run)
	if told != 2 {
		t.Errorf("told of %d changes, want 2", told)
	}
	if _, err := w.client("").Changes(t.Context()); err == nil {
		t.Error("a stream for nobody")
	}
}
