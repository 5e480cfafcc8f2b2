package chaos_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// A service takes contacts at three levels, and knows the truth about them:
//
//	GET  /feed       the contacts that are to be made
//	POST /a          honours Idempotency-Key (level A)
//	POST /c          can be searched by Idempotency-Key (level C)
//	GET  /c/{token}  that search
//	POST /d          neither (level D)
type service struct {
	*httptest.Server

	mu      sync.Mutex // protects the fields below
	feed    []contact
	effects []effect
	plan    plan
}

// A contact is what the service takes.
type contact struct {
	ID string `json:"id"`
}

// An effect is a contact that was made.
type effect struct{ ID, Token string }

// A plan decides what becomes of one request that arrived as a whole. It is
// called by the goroutine of the request, without a lock; level is "feed" or
// "search" for those that change nothing. What a search finds is decided before.
type plan func(level, id string) step

// A step is what becomes of a request. The zero step does as it should.
type step struct {
	Lose   bool   // there is no effect
	Then   func() // called after the effect; nil: nothing
	Silent bool   // no answer: the connection ends
}

// well is the plan in which nothing goes wrong.
func well(string, string) step { return step{} }

// startService returns a service that is to make these contacts.
func startService(ids ...string) *service {
	s := &service{plan: well, feed: []contact{}}
	s.add(ids...)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /feed", s.serveFeed)
	mux.HandleFunc("POST /{level}", s.create)
	mux.HandleFunc("GET /c/{token}", s.search)
	s.Server = httptest.NewServer(mux)
	return s
}

// add appends contacts to the feed.
func (s *service) add(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.feed = append(s.feed, contact{id})
	}
}

// follow sets the plan.
func (s *service) follow(p plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = p
}

// ask asks the plan.
func (s *service) ask(level, id string) step {
	s.mu.Lock()
	p := s.plan
	s.mu.Unlock()
	return p(level, id)
}

// count returns how many effects there are of which that is true.
func (s *service) count(is func(effect) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.effects {
		if is(e) {
			n++
		}
	}
	return n
}

// effectsOf returns how often a contact was made.
func (s *service) effectsOf(id string) int {
	return s.count(func(e effect) bool { return e.ID == id })
}

func (s *service) serveFeed(w http.ResponseWriter, _ *http.Request) {
	if s.ask("feed", "").Silent {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, http.StatusOK, s.feed)
}

func (s *service) search(w http.ResponseWriter, r *http.Request) {
	token := r.PathValue("token")
	found := s.count(func(e effect) bool { return e.Token == token })
	if s.ask("search", "").Silent {
		panic(http.ErrAbortHandler)
	}
	if found == 0 {
		answer(w, http.StatusNotFound, map[string]string{"error": "no such token"})
		return
	}
	answer(w, http.StatusOK, effect{Token: token})
}

// create makes a contact. Half a request makes none.
func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var c contact
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		answer(w, http.StatusBadRequest, nil)
		return
	}
	level := r.PathValue("level")
	next := s.ask(level, c.ID)
	if !next.Lose {
		s.make(level, effect{c.ID, r.Header.Get("Idempotency-Key")})
	}
	if next.Then != nil {
		next.Then()
	}
	if next.Silent || next.Lose {
		panic(http.ErrAbortHandler)
	}
	answer(w, http.StatusCreated, c)
}

// make lets the effect happen, unless it is level A and did already.
func (s *service) make(level string, e effect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(other effect) bool { return other.Token == e.Token }
	if level != "a" || !slices.ContainsFunc(s.effects, same) {
		s.effects = append(s.effects, e)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone
}
