package hook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/room"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store"
)

// Prefix is where hooks are; the name of one follows.
const Prefix = "/hooks/"

// maxOpen is how many deliveries are read, verified and stored at once (law: bounded). Their bodies take at most
// MaxBodyLimit each as they arrive, 256 MiB in sum, and as much again while they grow.
const maxOpen = 256

// flushEvery is how often counts are written. A process that is killed loses the counts
// since then, and no event.
const flushEvery = time.Second

// A Publisher makes events; *operator.Operator and *host.Host are publishers.
type Publisher interface {
	Publish(ctx context.Context, p operator.Publication) (ev keep.Event, created bool, err error)
}

// A ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	// Publisher makes the events. Required.
	Publisher Publisher

	// Store keeps what came to each hook. Required.
	Store store.Hooks

	// Clock tells how old a signature is. If nil, time.Now.
	Clock func() time.Time

	// Logger receives why deliveries are refused. If nil, slog.Default().
	Logger *slog.Logger
}

// A Receiver answers requests below Prefix. It is safe for concurrent use.
type Receiver struct {
	cfg   ReceiverConfig
	log   *slog.Logger
	hooks atomic.Pointer[map[string]*Hook]
	open  *room.Room // has a place for each delivery that is under way

	mu     sync.Mutex
	counts map[string]keep.HookCount // not written yet
}

// NewReceiver returns a receiver that has no hooks yet.
func NewReceiver(cfg ReceiverConfig) *Receiver {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	r := &Receiver{cfg: cfg, log: cmp.Or(cfg.Logger, slog.Default()), open: room.New(maxOpen), counts: make(map[string]keep.HookCount)}
	r.Set(nil)
	return r
}

// Set replaces all hooks. Deliveries that are under way end with those that they began with.
func (r *Receiver) Set(hooks []*Hook) {
	byName := make(map[string]*Hook, len(hooks))
	for _, h := range hooks {
		byName[h.Name] = h
	}
	r.hooks.Store(&byName)
}

// Hooks returns the hooks in force, sorted by name.
func (r *Receiver) Hooks() []*Hook {
	m := *r.hooks.Load()
	out := make([]*Hook, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

// Counts writes what was not written yet, and returns the counts of all hooks.
func (r *Receiver) Counts(ctx context.Context) ([]keep.HookCount, error) {
	if err := r.flush(ctx); err != nil {
		return nil, err
	}
	return r.cfg.Store.HookCounts(ctx)
}

// Run writes counts until ctx is done, and once more then.
func (r *Receiver) Run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if err := r.flush(end); err != nil {
				r.log.WarnContext(ctx, "counts of hooks are lost", "err", err)
			}
			return
		case <-tick.C:
			if err := r.flush(ctx); err != nil && ctx.Err() == nil {
				r.log.WarnContext(ctx, "write counts of hooks", "err", err)
			}
		}
	}
}

// flush writes the counts that are not written. What cannot be written is kept.
func (r *Receiver) flush(ctx context.Context) error {
	r.mu.Lock()
	counts := r.counts
	r.counts = make(map[string]keep.HookCount)
	r.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if err := r.cfg.Store.CountHook(ctx, counts[name]); err != nil {
			r.count(counts[name])
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Receiver) count(c keep.HookCount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := r.counts[c.Name]
	sum.Name = c.Name
	r.counts[c.Name] = sum.Add(c)
}

// A refusal is why a delivery became no event, and how it is answered.
type refusal struct {
	status int
	kind   string
	detail string // for whoever sent it: it says nothing that helps to forge one
	why    string // for the owner of the hook
}

// ServeHTTP answers one delivery. The checks come in this order: method, name, size,
// signature, form, id.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		answer(w, refusal{status: http.StatusMethodNotAllowed, kind: "method", detail: "a hook takes POST"})
		return
	}
	h := (*r.hooks.Load())[strings.TrimPrefix(req.URL.Path, Prefix)]
	if h == nil {
		answer(w, refusal{status: http.StatusNotFound, kind: "not-found", detail: "there is no such hook"})
		return
	}
	place := r.open.EnterRequest(h.Name, w, req)
	if place == nil {
		tooMany(w)
		return
	}
	defer place.Leave()
	r.receive(w, req, h, place)
}

// tooMany answers a delivery that has no place.
func tooMany(w http.ResponseWriter) { unavailable(w, 1, "too many deliveries at once") }

// receive verifies a delivery and makes its event. It answers 2xx only after the event is
// on disk. Its place is lent until it is verified.
func (r *Receiver) receive(w http.ResponseWriter, req *http.Request, h *Hook, place *room.Place) {
	body, refused := readBody(w, req, h.BodyLimit)
	if place.Displaced() {
		w.Header().Set("Connection", "close") // the rest is not read
		tooMany(w)
		return
	}
	if refused != nil {
		r.refuse(w, req, h, *refused)
		return
	}
	if err := h.Check(req.Header, body, r.cfg.Clock()); err != nil {
		r.refuse(w, req, h, refusal{http.StatusUnauthorized, "unverified", "the delivery is not verified", err.Error()})
		return
	}
	if !place.Keep() {
		w.Header().Set("Connection", "close")
		tooMany(w)
		return
	}
	payload, err := payloadOf(req.Header, body)
	switch {
	case errors.Is(err, errMediaType):
		r.refuse(w, req, h, refusal{http.StatusUnsupportedMediaType, "media-type", err.Error(), err.Error()})
		return
	case errors.Is(err, errTooLarge):
		r.refuse(w, req, h, refusal{http.StatusRequestEntityTooLarge, "too-large", err.Error(), err.Error()})
		return
	case err != nil:
		r.refuse(w, req, h, refusal{http.StatusBadRequest, "bad-body", err.Error(), err.Error()})
		return
	}
	if challenge, ok := challengeIn(h, payload); ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, challenge) // the client is gone
		return
	}
	id, err := h.id.of(req.Header, body, payload)
	if err != nil {
		r.refuse(w, req, h, refusal{http.StatusBadRequest, "bad-id", err.Error(), err.Error()})
		return
	}
	r.publish(w, req, h, id, payload)
}

// publish makes the event of a verified delivery, and answers.
func (r *Receiver) publish(w http.ResponseWriter, req *http.Request, h *Hook, id keep.MessageID, payload json.RawMessage) {
	ev, created, err := r.cfg.Publisher.Publish(req.Context(), operator.Publication{
		Workflow: h.Workflow, Topic: h.Topic, MessageID: id, Payload: payload, By: keep.HookPublisher(h.Name),
	})
	now := r.cfg.Clock()
	switch {
	case errors.Is(err, keep.ErrNotFound):
		why := "not deployed yet: " + err.Error()
		r.count(keep.HookCount{Name: h.Name, Refused: 1, LastRefusedAt: now, LastRefusal: why})
		r.log.WarnContext(req.Context(), "hook has nowhere to put a delivery", "hook", h.Name, "err", err)
		unavailable(w, 60, "the workflow or the topic of the hook is not deployed yet")
		return
	case err != nil: // it may be on disk or not: the service sends it again
		r.log.ErrorContext(req.Context(), "store a delivery", "hook", h.Name, "err", err)
		unavailable(w, 5, "the delivery could not be stored now")
		return
	case !created && ofAnotherHook(ev.CreatedBy, h): // not what h delivered before: it would be lost without a word
		r.refuse(w, req, h, refusal{http.StatusConflict, "id-taken", fmt.Sprintf("another hook delivered an event with the id %q", id),
			fmt.Sprintf("%s delivered an event with the id %q; give each of the two hooks a topic of its own", ev.CreatedBy, id)})
		return
	}
	c := keep.HookCount{Name: h.Name, LastAt: now}
	switch {
	case created:
		c.Accepted = 1
	case h.differs(ev, payload):
		c.Refused, c.LastRefusedAt = 1, now
		c.LastRefusal = fmt.Sprintf("a second delivery with the id %q has another payload, and the first one was kept: the id in keep.toml (%s) must be different for each delivery", id, h.ID)
		r.log.WarnContext(req.Context(), "delivery dropped", "hook", h.Name, "why", c.LastRefusal)
	default:
		c.Repeated = 1
	}
	r.count(c)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(received{id, !created}) // the client is gone
}

// ofAnotherHook reports whether an event came by another hook than h. What scripts and people publish has the ids that
// they chose: they may well mean what h delivers.
func ofAnotherHook(by keep.Publisher, h *Hook) bool {
	return strings.HasPrefix(string(by), string(keep.HookPublisher(""))) && by != keep.HookPublisher(h.Name)
}

// differs reports whether a delivery has another payload than the event that h made of an earlier one with the same id. It looks only where keep.toml says
// what the id is, which may be the id of an object that is sent again whenever it changes. Where the scheme has the id, a service that sends a delivery
// again may change it, as Stripe does with pending_webhooks.
func (h *Hook) differs(ev keep.Event, payload json.RawMessage) bool {
	if h.ID == "" || ev.CreatedBy != keep.HookPublisher(h.Name) {
		return false
	}
	was, err := canonical.Held(ev.Payload)
	if err != nil {
		return false
	}
	is, err := canonical.Held(payload)
	return err == nil && !bytes.Equal(was, is)
}

// received is the answer to a delivery that is an event.
type received struct {
	MessageID keep.MessageID `json:"message_id"`
	Repeated  bool           `json:"repeated"`
}

// readBody reads a body of at most limit bytes. What is longer is refused before the rest
// of it is read.
func readBody(w http.ResponseWriter, req *http.Request, limit int) ([]byte, *refusal) {
	tooLarge := &refusal{http.StatusRequestEntityTooLarge, "too-large", "the body has more than " + strconv.Itoa(limit) + " bytes",
		"the body has more than body_limit allows"}
	if req.ContentLength > int64(limit) {
		w.Header().Set("Connection", "close")
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, int64(limit)))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, tooLarge
	}
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "bad-body", "the body could not be read", "the body was cut off"}
	}
	return body, nil
}

// challengeIn returns what Slack wants to hear when a URL is registered.
func challengeIn(h *Hook, payload json.RawMessage) (string, bool) {
	if h.Verify != Slack {
		return "", false
	}
	var v struct {
		Type      string `json:"type"`
		Challenge string `json:"challenge"`
	}
	if json.Unmarshal(payload, &v) != nil || v.Type != "url_verification" {
		return "", false
	}
	return v.Challenge, true
}

// refuse answers a delivery that is no event, and counts it.
func (r *Receiver) refuse(w http.ResponseWriter, req *http.Request, h *Hook, f refusal) {
	r.count(keep.HookCount{Name: h.Name, Refused: 1, LastRefusedAt: r.cfg.Clock(), LastRefusal: f.why})
	r.log.InfoContext(req.Context(), "delivery refused", "hook", h.Name, "status", f.status, "why", f.why)
	answer(w, f)
}

// unavailable says that the delivery should come again.
func unavailable(w http.ResponseWriter, seconds int, detail string) {
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	answer(w, refusal{status: http.StatusServiceUnavailable, kind: "unavailable", detail: detail})
}

// answer writes a problem of RFC 9457.
func answer(w http.ResponseWriter, f refusal) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(struct { // the client is gone
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{idempotency.ProblemBase + f.kind, http.StatusText(f.status), f.status, f.detail})
}
