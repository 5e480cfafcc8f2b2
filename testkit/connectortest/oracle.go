package connectortest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Fault is what an Oracle does wrong with one change. The zero Fault does
// nothing wrong.
type Fault struct {
	Skip   bool          // the effect does not happen
	Late   bool          // the effect happens at the next Settle
	Delay  time.Duration // the effect happens after that time, without an answer before it
	Answer Answer

	// Status, if set, is answered instead of 201, with Body and RetryAfter
	// (seconds; 0: no header). The effect happens unless Skip says otherwise.
	Status     int
	Body       string
	RetryAfter int
}

// An Answer is how an Oracle answers a change.
type Answer string

const (
	Whole     Answer = ""          // as it should
	Lost      Answer = "lost"      // the connection ends without an answer
	Reset     Answer = "reset"     // the connection is reset
	Truncated Answer = "truncated" // the body ends before its Content-Length
	Stalled   Answer = "stalled"   // nothing comes until the client leaves
	WrongBody Answer = "wrong"     // 201, but the body isn't what was promised
)

// An Effect is one change that happened, in the words of the service.
type Effect struct {
	ID     string          `json:"id"`  // the target
	Ref    string          `json:"ref"` // token of the request; empty: it had none
	Fields json.RawMessage `json:"fields"`

	visible bool // to the search
}

// An Oracle is an HTTP service with a log of the truth. Its changes append an
// effect for the id in the body:
//
//	POST /keyed     level A: honours Idempotency-Key and replays its answer
//	POST /marked    level C: keeps Idempotency-Key as ref
//	POST /plain     level D
//	GET  /effects?ref=…  {"data": […]}, the search by mark
//	GET  /effects/{id}   the first effect on a target, or 404
//	GET  /effects        a list
//	GET  /echo           status 418 and the request's headers, as text
//
// It is safe for concurrent use.
type Oracle struct {
	server *http.Server
	ln     net.Listener
	wait   sync.WaitGroup

	mu       sync.Mutex // protects the fields below
	effects  []*Effect
	late     []*Effect
	answers  map[string]json.RawMessage // of /keyed by key
	script   []Fault
	hide     bool
	requests map[string]int
}

// NewOracle starts an Oracle on a free port of the loopback. Close ends it.
func NewOracle() (*Oracle, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &Oracle{ln: ln, answers: map[string]json.RawMessage{}, requests: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{kind}", o.change)
	mux.HandleFunc("GET /effects", o.search)
	mux.HandleFunc("GET /effects/{id}", o.one)
	mux.HandleFunc("GET /echo", o.echo)
	o.server = &http.Server{Handler: mux}
	o.wait.Go(func() { o.server.Serve(ln) })
	return o, nil
}

// Addr returns host:port.
func (o *Oracle) Addr() string { return o.ln.Addr().String() }

// URL returns the base URL.
func (o *Oracle) URL() string { return "http://" + o.Addr() }

// Close ends the service and its connections.
func (o *Oracle) Close() {
	o.server.Close()
	o.wait.Wait()
}

// Script sets the faults of the next changes, in their order. Later ones have
// none. Replays of /keyed take no fault, but may lose their answer too.
func (o *Oracle) Script(faults ...Fault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.script = slices.Clone(faults)
}

// LagSearch makes effects from now on invisible to the search until Settle.
func (o *Oracle) LagSearch() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hide = true
}

// Settle makes late effects happen and the search catch up.
func (o *Oracle) Settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.effects = append(o.effects, o.late...)
	o.late, o.hide = nil, false
	for _, e := range o.effects {
		e.visible = true
	}
}

// Effects returns how many effects a token had. Late ones count when they are.
func (o *Oracle) Effects(token string) int {
	return o.count(func(e *Effect) bool { return e.Ref == token })
}

// EffectsOn returns how many effects a target has had.
func (o *Oracle) EffectsOn(id string) int {
	return o.count(func(e *Effect) bool { return e.ID == id })
}

// Duplicates returns the tokens that had more than one effect, sorted.
func (o *Oracle) Duplicates() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	count := map[string]int{}
	for _, e := range o.effects {
		count[e.Ref]++
	}
	maps.DeleteFunc(count, func(ref string, n int) bool { return ref == "" || n < 2 })
	return slices.Sorted(maps.Keys(count))
}

// Requests returns how many requests for a change with that token came in,
// replays included. An empty token counts all of them.
func (o *Oracle) Requests(token string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if token != "" {
		return o.requests[token]
	}
	n := 0
	for _, count := range o.requests {
		n += count
	}
	return n
}

func (o *Oracle) count(is func(*Effect) bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, e := range o.effects {
		if is(e) {
			n++
		}
	}
	return n
}

// change handles one POST.
func (o *Oracle) change(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent struct {
		ID any `json:"id"`
	}
	if err != nil || json.Unmarshal(body, &sent) != nil || sent.ID == nil {
		http.Error(w, `{"error":"id is required"}`, http.StatusUnprocessableEntity)
		return
	}
	kind, token := r.PathValue("kind"), r.Header.Get("Idempotency-Key")
	e := &Effect{ID: fmt.Sprint(sent.ID), Ref: token, Fields: body}
	if kind == "plain" {
		e.Ref = ""
	}
	f, stored := o.take(kind, token, e)
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		<-timer.C // whether or not the client is still there
		o.land(e)
	}
	if stored != nil {
		w.Header().Set("Idempotent-Replayed", "true")
	} else {
		stored, _ = json.Marshal(map[string]any{"id": sent.ID, "ref": token}) // of JSON values
	}
	f.Reply(w, r, http.StatusCreated, stored)
}

// take counts the request, takes its fault from the script, and makes the effect
// happen, all under one lock. A replay returns what was answered first.
func (o *Oracle) take(kind, token string, e *Effect) (Fault, json.RawMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests[token]++
	var f Fault
	if len(o.script) > 0 {
		f, o.script = o.script[0], o.script[1:]
	}
	if kind == "keyed" && token != "" {
		if stored, ok := o.answers[token]; ok {
			return Fault{Answer: f.Answer}, stored
		}
		if !f.Skip {
			stored, _ := json.Marshal(map[string]any{"id": e.ID, "ref": token}) // of strings
			o.answers[token] = stored
		}
	}
	e.visible = !o.hide
	switch {
	case f.Skip, f.Delay > 0:
	case f.Late:
		o.late = append(o.late, e)
	default:
		o.effects = append(o.effects, e)
	}
	return f, nil
}

func (o *Oracle) land(e *Effect) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.effects = append(o.effects, e)
}

// Reply answers a change with that status and JSON, or as the fault says.
func (f Fault) Reply(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	if f.Status != 0 {
		status, body = f.Status, []byte(f.Body)
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	switch f.Answer {
	case Lost, Reset:
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			if tcp, ok := c.(*net.TCPConn); ok && f.Answer == Reset {
				tcp.SetLinger(0)
			}
			c.Close()
		}
	case Stalled:
		<-r.Context().Done()
	case Truncated:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)+10))
		w.WriteHeader(status)
		w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	case WrongBody:
		if status == http.StatusNoContent {
			status = http.StatusOK // the other has no body
		}
		w.WriteHeader(status)
		io.WriteString(w, "<html>Created!</html>")
	default:
		w.WriteHeader(status)
		w.Write(body)
	}
}

// seen returns the effects that the search can see.
func (o *Oracle) seen(is func(*Effect) bool) []Effect {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := []Effect{}
	for _, e := range o.effects {
		if e.visible && is(e) {
			out = append(out, *e)
		}
	}
	return out
}

func (o *Oracle) search(w http.ResponseWriter, r *http.Request) {
	if ref := r.FormValue("ref"); ref != "" {
		o.reply(w, http.StatusOK, map[string]any{"data": o.seen(func(e *Effect) bool { return e.Ref == ref })})
		return
	}
	o.reply(w, http.StatusOK, o.seen(func(*Effect) bool { return true }))
}

func (o *Oracle) one(w http.ResponseWriter, r *http.Request) {
	found := o.seen(func(e *Effect) bool { return e.ID == r.PathValue("id") })
	if len(found) == 0 {
		o.reply(w, http.StatusNotFound, map[string]string{"error": "not found"})
		return
	}
	o.reply(w, http.StatusOK, found[0])
}

func (o *Oracle) echo(w http.ResponseWriter, r *http.Request) {
	var b strings.Builder
	r.Header.Write(&b) // never fails
	o.reply(w, http.StatusTeapot, map[string]string{"you sent": b.String()})
}

func (o *Oracle) reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the client left
}
