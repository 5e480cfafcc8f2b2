package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// A mail is what the desk received.
type mail struct {
	ID      string `json:"id"`
	From    string `json:"from"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// An order is one that was not paid.
type order struct {
	ID     string `json:"id"`
	Who    string `json:"who"`
	Amount int    `json:"amount"`
}

// A desk is the service that the workflows of the tests speak to. It does what it
// is asked to, and loses answers when a test says so.
type desk struct {
	*httptest.Server

	mu      sync.Mutex // protects what follows
	mails   []mail
	orders  []order
	letters []order
	lose    map[string]bool // answers to calls of these paths are lost
	refuse  map[string]bool // calls of these paths are refused
	blind   bool            // lookups are not answered
	effects map[string]int  // by path
	tokens  []string        // of archive calls
}

func newDesk(tb testing.TB) *desk {
	tb.Helper()
	d := &desk{mails: []mail{}, orders: []order{}, letters: []order{}, lose: make(map[string]bool), refuse: make(map[string]bool), effects: make(map[string]int)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /mails", func(w http.ResponseWriter, _ *http.Request) { d.answer(w, func() any { return d.mails }) })
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, _ *http.Request) { d.answer(w, func() any { return d.orders }) })
	mux.HandleFunc("GET /letters", func(w http.ResponseWriter, _ *http.Request) { d.answer(w, func() any { return d.letters }) })
	mux.HandleFunc("GET /down", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /archive", d.lookUp)
	for _, path := range []string{"/replies", "/archive", "/reminders", "/refunds"} {
		mux.HandleFunc("POST "+path, d.effect)
	}
	d.Server = httptest.NewServer(mux)
	tb.Cleanup(d.Close)
	return d
}

func (d *desk) answer(w http.ResponseWriter, f func() any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(f())
}

// effect happens, and its answer may be lost: then the connection ends.
func (d *desk) effect(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	if d.refuse[r.URL.Path] {
		d.mu.Unlock()
		http.Error(w, "the box of that person is full", http.StatusUnprocessableEntity)
		return
	}
	d.effects[r.URL.Path]++
	d.tokens = append(d.tokens, r.Header.Get("X-Token"))
	lost := d.lose[r.URL.Path]
	d.mu.Unlock()
	if lost {
		panic(http.ErrAbortHandler)
	}
	d.answer(w, func() any { return map[string]any{"ok": true} })
}

func (d *desk) lookUp(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	blind := d.blind
	found := slices.Contains(d.tokens, r.FormValue("token"))
	d.mu.Unlock()
	switch {
	case blind:
		http.Error(w, "the index is being built", http.StatusServiceUnavailable)
	case found:
		d.answer(w, func() any { return []any{map[string]any{"token": r.FormValue("token")}} })
	default:
		d.answer(w, func() any { return []any{} })
	}
}

// set changes what the desk does.
func (d *desk) set(f func(d *desk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// done returns how often the desk did something.
func (d *desk) done(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.effects[path]
}

// connection returns the desk's tools.
func (d *desk) connection(tb testing.TB) connector.Connection {
	tb.Helper()
	settle := connector.Duration(time.Millisecond)
	c, err := httpapi.New("desk", httpapi.Config{BaseURL: d.URL, Tools: map[string]httpapi.Tool{
		"mails":   {Effect: connector.List, Path: "/mails", Description: "the mails of today"},
		"orders":  {Effect: connector.List, Path: "/orders"},
		"letters": {Effect: connector.List, Path: "/letters"},
		"down":    {Effect: connector.List, Path: "/down"},
		"reply": {Effect: connector.Mutate, Path: "/replies", Identity: []string{"to", "subject"},
			VerifyByHand: "Look in the sent folder of the desk."},
		"archive": {Effect: connector.Mutate, Path: "/archive", Identity: []string{"id"}, IdempotencyHeader: "X-Token", SettleAfter: &settle,
			Reconcile: &httpapi.Reconcile{Path: "/archive", Query: []any{"token={token}"}, Complete: true}},
		"remind": {Effect: connector.Mutate, Path: "/reminders", Identity: []string{"order"}},
		"refund": {Effect: connector.Mutate, Path: "/refunds", Identity: []string{"to"}, Approve: "always"},
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return *c
}
