package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A rotating is an OAuth server that gives a new refresh token with each refresh, and
// revokes the whole family of tokens when one is used that was used before (RFC 9700
// §4.14.2). With grace the token before the current one is taken as long as the current
// one was not used, as Supabase and Okta do. It knows the truth about each request.
type rotating struct {
	*httptest.Server
	grace bool

	// at is called at the points of a request for new tokens, without the lock: it may end
	// the process that sent it. If it returns false, the request is not performed, or not
	// answered. Nil: nothing is called.
	at func(by string, p refreshPoint) bool

	// token returns the text of a token. Nil: a plain one.
	token func(kind string, family, n int) string

	mu     sync.Mutex // protects the fields below
	family int        // the newest family
	n      int        // of its current refresh token
	parent int        // what the current one was given for
	dead   bool       // the family is revoked
	spent  []spending
}

// A refreshPoint is a place in a request for new tokens, as the server sees it.
type refreshPoint string

const (
	refreshArrived  refreshPoint = "arrived"  // and not performed
	refreshDone     refreshPoint = "done"     // and not answered
	refreshAnswered refreshPoint = "answered" // the answer is written
)

// A spending is one use of a refresh token.
type spending struct {
	family, n int
	by        string // the client that used it
	done      bool   // new tokens were made
	refused   bool   // the family was revoked
	at        time.Time
}

// refreshLasts is how long its access tokens last, in seconds.
const refreshLasts = 3600

func newRotating(t *testing.T, grace bool) *rotating {
	s := &rotating{grace: grace}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /auth", s.authorize)
	mux.HandleFunc("POST /token", s.tokens)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// authorize is a person who allows everything at once.
func (s *rotating) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back := q.Get("redirect_uri") + "?" + url.Values{"code": {"a-code"}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back, http.StatusFound)
}

func (s *rotating) text(kind string, family, n int) string {
	if s.token != nil {
		return s.token(kind, family, n)
	}
	return fmt.Sprintf("%s-token-%d-%d", kind, family, n)
}

// tokens gives tokens for a code, or for a refresh token.
func (s *rotating) tokens(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("grant_type") == "authorization_code" {
		s.mu.Lock()
		s.family, s.n, s.parent, s.dead = s.family+1, 0, -1, false
		answer(w, http.StatusOK, s.issue())
		s.mu.Unlock()
		return
	}
	by := r.PostFormValue("client_id")
	if s.at != nil && !s.at(by, refreshArrived) {
		panic(http.ErrAbortHandler)
	}
	status, body := s.refresh(by, r.PostFormValue("refresh_token"))
	if s.at != nil && !s.at(by, refreshDone) {
		panic(http.ErrAbortHandler)
	}
	answer(w, status, json.RawMessage(body))
	_ = http.NewResponseController(w).Flush() // its client may be gone
	if s.at != nil {
		s.at(by, refreshAnswered)
	}
}

// issue returns the answer with the current tokens. The caller holds mu.
func (s *rotating) issue() json.RawMessage {
	body, _ := json.Marshal(map[string]any{ // of texts and a number
		"access_token": s.text("access", s.family, s.n), "refresh_token": s.text("refresh", s.family, s.n), "token_type": "Bearer", "expires_in": refreshLasts,
	})
	return body
}

// refresh uses a refresh token.
func (s *rotating) refresh(by, token string) (status int, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := spending{family: s.family, n: -1, by: by, at: time.Now()}
	for n := range s.n + 1 {
		if token == s.text("refresh", s.family, n) {
			use.n = n
		}
	}
	switch {
	case !s.dead && use.n == s.n, !s.dead && s.grace && use.n >= 0 && use.n == s.parent:
		s.parent, s.n, use.done = use.n, s.n+1, true
		status, body = http.StatusOK, s.issue()
	default:
		s.dead, use.refused = true, true
		status, body = http.StatusBadRequest, []byte(`{"error": "invalid_grant", "error_description": "the token was used before"}`)
	}
	s.spent = append(s.spent, use)
	return status, body
}

// refreshes returns how many of them gave new tokens.
func (s *rotating) refreshes() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, use := range s.spent {
		if use.done {
			n++
		}
	}
	return n
}
