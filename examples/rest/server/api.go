package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A signup is a person who asked for an account.
type signup struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// A contact is an entry of the address book. Number says which effect made it.
type contact struct {
	Number  int    `json:"number"`
	Name    string `json:"name"`
	Email   string `json:"email"`
	Request string `json:"request,omitempty"` // X-Request-Id that it was made by
}

// A message is a mail that was sent.
type message struct {
	Number int    `json:"number"`
	To     string `json:"to"`
	Text   string `json:"text"`
}

// A mail is what the search of a mail service returns.
type mail struct {
	ID      string `json:"id"`
	From    string `json:"from"`
	Subject string `json:"subject"`
}

var signups = []signup{
	{"s1", "Ada", "ada@example.com"},
	{"s2", "Grace", "grace@example.com"},
	{"s3", "Linus", "linus@example.com"},
	{"s4", "Margaret", "margaret@example.com"},
	{"s5", "Zoë", "zoe@example.com"},
}

var mails = []mail{
	{"m1", "alice@example.com", "Invoice 12"},
	{"m2", "bob@example.com", "Minutes of Monday"},
	{"m3", "carol@example.com", "Invoice 13"},
}

// An api is the service. It does what it is asked to, and writes a line for each
// effect.
type api struct {
	http.Handler
	out io.Writer

	mu       sync.Mutex // protects what follows
	silent   int        // answers still to be withheld
	contacts []contact
	messages []message
	byKey    map[string]message // of Idempotency-Key
}

func newAPI(silent int, out io.Writer) *api {
	a := &api{out: out, silent: silent, contacts: []contact{}, messages: []message{}, byKey: map[string]message{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /signups", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, signups) })
	mux.HandleFunc("GET /mail", searchMail)
	mux.HandleFunc("GET /contacts", a.listContacts)
	mux.HandleFunc("POST /contacts", a.createContact)
	mux.HandleFunc("GET /messages", a.listMessages)
	mux.HandleFunc("POST /messages", a.sendMessage)
	a.Handler = mux
	return a
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that left needs no answer
}

func refuse(w http.ResponseWriter, status int, why string) {
	answer(w, status, map[string]string{"error": why})
}

// read decodes the body of a request, which is small.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not the JSON that was expected: "+err.Error())
		return false
	}
	return true
}

func searchMail(w http.ResponseWriter, r *http.Request) {
	found := []mail{}
	for _, m := range mails {
		if q := r.FormValue("query"); strings.HasPrefix(q, "newer_than:") || strings.Contains(m.Subject, q) {
			found = append(found, m)
		}
	}
	answer(w, http.StatusOK, found)
}

func (a *api) listContacts(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := slices.Clone(a.contacts)
	if id := r.FormValue("request"); id != "" {
		found = slices.DeleteFunc(found, func(c contact) bool { return c.Request != id })
	}
	answer(w, http.StatusOK, found)
}

func (a *api) createContact(w http.ResponseWriter, r *http.Request) {
	var c contact
	if !read(w, r, &c) {
		return
	}
	if c.Email == "" {
		refuse(w, http.StatusUnprocessableEntity, "email is required")
		return
	}
	a.mu.Lock()
	c.Number, c.Request = len(a.contacts)+1, r.Header.Get("X-Request-Id")
	a.contacts = append(a.contacts, c)
	quiet := a.effect("contact %d: %s", c.Number, c.Name)
	a.mu.Unlock()
	reply(w, r, quiet, c)
}

func (a *api) listMessages(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer(w, http.StatusOK, a.messages)
}

func (a *api) sendMessage(w http.ResponseWriter, r *http.Request) {
	var m message
	if !read(w, r, &m) {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	a.mu.Lock()
	if before, known := a.byKey[key]; known {
		a.mu.Unlock()
		w.Header().Set("Idempotent-Replayed", "true")
		answer(w, http.StatusCreated, before)
		return
	}
	m.Number = len(a.messages) + 1
	a.messages = append(a.messages, m)
	if key != "" {
		a.byKey[key] = m
	}
	quiet := a.effect("message %d: to %s", m.Number, m.To)
	a.mu.Unlock()
	reply(w, r, quiet, m)
}

// effect writes that something was done, and reports whether its answer is to be
// withheld. It is called with mu held, so that lines are in order.
func (a *api) effect(format string, args ...any) (quiet bool) {
	quiet = a.silent > 0
	line := fmt.Sprintf(format, args...)
	if quiet {
		a.silent--
		line += " (no answer)"
	}
	fmt.Fprintln(a.out, line)
	return quiet
}

// reply answers, or waits until the client has given up.
func reply(w http.ResponseWriter, r *http.Request, quiet bool, body any) {
	if quiet {
		_, _ = io.Copy(io.Discard, r.Body) // the server sees a client leave only after its body
		<-r.Context().Done()
		return
	}
	answer(w, http.StatusCreated, body)
}
