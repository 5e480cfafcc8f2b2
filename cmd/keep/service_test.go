package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// A service is a small CRM that fails as it is told, and counts what happened.
type service struct {
	*httptest.Server

	creating sync.RWMutex // held while a creation has arrived and is not done; lookups wait for it

	mu      sync.Mutex // protects the fields below
	mode    string     // how the next creations go; see create
	feed    []contact
	created map[string]int  // creations by id
	tokens  map[string]bool // Idempotency-Keys whose creation happened
	calls   chan struct{}   // gets a value for each creation that was asked for

	// reached is called at each point of a request, without the lock: "feed",
	// "lookup", "arrived", "done" and "answered". Nil: nothing is called.
	reached func(point string)
}

// A contact is what the CRM keeps.
type contact struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// startService returns a service with one contact in its feed.
func startService() *service {
	s := &service{
		mode: "ok", feed: []contact{{"c1", "Ada"}},
		created: make(map[string]int), tokens: make(map[string]bool), calls: make(chan struct{}, 10_000),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /feed", s.serveFeed)
	mux.HandleFunc("GET /by-token/{token}", s.byToken)
	mux.HandleFunc("GET /contacts/{id}", s.byID)
	mux.HandleFunc("POST /contacts", s.create)
	mux.HandleFunc("POST /keyed", s.createOnce)
	s.Server = httptest.NewServer(mux)
	return s
}

// set changes how creations go from now on.
func (s *service) set(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
}

// fill makes a feed of n contacts.
func (s *service) fill(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed = nil
	s.add(n)
}

// add adds contacts. The caller holds mu.
func (s *service) add(n int) {
	for range n {
		i := len(s.feed) + 1
		s.feed = append(s.feed, contact{fmt.Sprintf("c%d", i), fmt.Sprintf("Person %d", i)})
	}
}

// more adds n contacts to the feed.
func (s *service) more(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(n)
}

// effects returns how often the contact was created.
func (s *service) effects(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.created[id]
}

// tell calls f at each point from now on.
func (s *service) tell(f func(point string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached = f
}

// at tells of a point. The caller does not hold mu.
func (s *service) at(point string) {
	s.mu.Lock()
	reached := s.reached
	s.mu.Unlock()
	if reached != nil {
		reached(point)
	}
}

func (s *service) serveFeed(w http.ResponseWriter, _ *http.Request) {
	s.at("feed")
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, http.StatusOK, s.feed)
}

func (s *service) byToken(w http.ResponseWriter, r *http.Request) {
	s.at("lookup")
	s.creating.Lock() // settle_after = "0s" promises it: what has arrived is done, or shows at once
	defer s.creating.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode == "mute" {
		answer(w, http.StatusInternalServerError, nil)
		return
	}
	if !s.tokens[r.PathValue("token")] {
		answer(w, http.StatusNotFound, map[string]string{"error": "no such token"})
		return
	}
	answer(w, http.StatusOK, map[string]string{"found": r.PathValue("token")})
}

// byID returns a contact that was created; in the mode gone there is none, and in the
// mode odd it has another shape.
func (s *service) byID(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.PathValue("id")
	switch {
	case s.mode == "gone" || s.created[id] == 0:
		answer(w, http.StatusNotFound, map[string]string{"error": "no such contact"})
	case s.mode == "odd":
		answer(w, http.StatusOK, map[string]int{"id": 7})
	default:
		answer(w, http.StatusOK, contact{id, "Ada"})
	}
}

// create makes a contact, or what the mode says:
//
//	ok      it is created, and the caller is told
//	drop    it is created, and the line is cut
//	lose    it is not created, and the line is cut
//	mute    as drop, and nobody can ask
//	hang    it is created, and no answer comes until the caller goes away
//	NNN     it is not created, and the answer has that status
func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var c contact
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	s.creating.RLock()
	s.at("arrived")
	s.mu.Lock()
	mode := s.mode
	if mode == "ok" || mode == "drop" || mode == "mute" || mode == "hang" {
		s.created[c.ID]++
		s.tokens[r.Header.Get("Idempotency-Key")] = true
	}
	s.mu.Unlock()
	s.creating.RUnlock()
	s.at("done")
	s.calls <- struct{}{}
	switch mode {
	case "ok":
		answer(w, http.StatusCreated, c)
		s.at("answered")
	case "hang":
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case "drop", "lose", "mute":
		panic(http.ErrAbortHandler)
	default:
		var status int
		fmt.Sscan(mode, &status)
		answer(w, status, map[string]string{"error": strings.ToLower(http.StatusText(status))})
	}
}

// createOnce makes a contact, unless the key was used already: level A.
func (s *service) createOnce(w http.ResponseWriter, r *http.Request) {
	var c contact
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	s.at("arrived")
	s.mu.Lock()
	if key := r.Header.Get("Idempotency-Key"); !s.tokens[key] {
		s.created[c.ID]++
		s.tokens[key] = true
	}
	s.mu.Unlock()
	s.at("done")
	answer(w, http.StatusCreated, c)
	s.at("answered")
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
