package idempotency

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep/law/key"
)

// InstancePath and a reference are where the caller of a request asks what became of
// it: the instance of a problem. The path is the guard's; a handler never sees it.
const InstancePath = "/.well-known/idempotency-keys/"

// A Status says to a caller what became of its request.
type Status struct {
	Reference string `json:"reference"`
	State     string `json:"state"` // "running", "done", "unknown" or "released"

	// Answer is the one that retries get; nil if there is none, if whoever asks may be
	// another one than the caller (see Rule.CallerVerified), or if there is no memory for
	// it now. A retry gets it then.
	Answer *StoredAnswer `json:"answer"`
}

// A StoredAnswer is an answer that retries get.
type StoredAnswer struct {
	Status int                 `json:"status"`
	Header map[string][]string `json:"header"`
	Body   *string             `json:"body"` // null: not kept, or not text
}

// instance answers a caller who asks about his request. One who is another caller
// gets what one gets who asks about nothing.
func (g *Guard) instance(w http.ResponseWriter, r *http.Request, reference string) {
	rec, rt, proved, err := g.recordFor(r, reference)
	if errors.Is(err, ErrCallerUnavailable) {
		problemOfCaller(w, err).ServeHTTP(w, r)
		return
	}
	if err != nil {
		g.cfg.Logger.ErrorContext(r.Context(), "idempotency store: not available", "err", err)
		Problem{Kind: KindStoreUnavailable, Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
			Detail: "What became of the request cannot be read now. Ask again."}.ServeHTTP(w, r)
		return
	}
	if rt == nil {
		Problem{Kind: KindUnknownReference, Status: http.StatusNotFound, Detail: "No request of yours has this reference, or it was forgotten."}.ServeHTTP(w, r)
		return
	}
	c := g.newExchange(w, r, rt)
	defer c.memory.Leave()
	_, here := g.executing.Load(rec.Fence) // whatever others say of it
	if rec.State == key.Unknown && !here && rt.Probe != nil {
		if answer, err := c.probe(rec); answer == found && err == nil {
			rec = c.moved(rec)
		}
	}
	s := statusOfRecord(rec, g.clock.now())
	if here && s.State == "unknown" {
		s.State = "running"
	}
	if !proved {
		s.Answer = nil
	}
	text, _ := json.Marshal(s) // it has nothing that could fail
	if s.Answer != nil && !(c.memory.Keep() && c.hold(int64(len(text)))) {
		s.Answer = nil
		text, _ = json.Marshal(s)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	c.send(append(text, '\n'))
}

// moved returns the record that rec became, or rec if that cannot be read now.
func (c *exchange) moved(rec key.Record) key.Record {
	ctx, done := c.g.inTime(c.r.Context(), "read idempotency key")
	defer done()
	if now, err := c.g.store.Read(ctx, rec.ID); err == nil {
		return now
	}
	return rec
}

// recordFor returns the record of a reference and its route, if whoever asks names its
// caller, and whether he proved to be that; nil if not. A record that is over is as one that was swept:
// "released" would say that nothing was done. An error says that the store cannot tell, whoever asks.
func (g *Guard) recordFor(r *http.Request, reference string) (rec key.Record, rt *route, proved bool, err error) {
	id, err := key.ParseID(reference)
	if err != nil {
		return rec, nil, false, nil
	}
	ctx, done := g.inTime(r.Context(), "read idempotency key")
	defer done()
	if err = g.follow(ctx); err == nil {
		rec, err = g.store.Read(ctx, id)
	}
	if err != nil || rec.Rev == 0 || rec.Expired(g.clock.now()) {
		return rec, nil, false, err
	}
	if rec.Version > 1 && rec.Host != shownHost(key.Host(g.hostOf(r))) {
		return rec, nil, false, nil
	}
	was := r.Clone(r.Context())
	was.Method = rec.Method
	if was.URL, err = url.ParseRequestURI(rec.Path); err != nil {
		return rec, nil, false, nil
	}
	if rt = g.route(was); rt == nil {
		return rec, nil, false, nil
	}
	caller, err := rt.Caller(r)
	if errors.Is(err, ErrCallerUnavailable) {
		g.callerUnavailable(r.Context(), rt, err)
		return rec, nil, false, err
	}
	if err != nil || hashCaller(caller) != rec.Caller {
		return rec, nil, false, nil
	}
	return rec, rt, caller != "" && (rt.CallerVerified || rt.callerMayChange), nil
}

// statusOfRecord returns the status of a record at now.
func statusOfRecord(rec key.Record, now time.Time) Status {
	s := Status{Reference: rec.ID.String(), State: "released"}
	switch {
	case key.Free(rec, now):
	case rec.State == key.InProgress && now.Before(rec.LeaseUntil):
		s.State = "running"
	case rec.State == key.InProgress, rec.State == key.Unknown:
		s.State = "unknown"
	default:
		s.State = "done"
		s.Answer = &StoredAnswer{Status: rec.Answer.Status, Header: make(map[string][]string)}
		if fields, err := key.DecodeFields(rec.Answer.Header); err == nil {
			for _, f := range fields {
				s.Answer.Header[f.Name] = append(s.Answer.Header[f.Name], f.Value)
			}
		}
		if text := string(rec.Answer.Body); rec.State == key.Done && utf8.ValidString(text) {
			s.Answer.Body = &text
		}
	}
	return s
}

// asksInstance returns the reference that a request asks about, if it does.
func asksInstance(r *http.Request) (string, bool) {
	if r.Method != http.MethodGet {
		return "", false
	}
	return strings.CutPrefix(r.URL.Path, InstancePath)
}
