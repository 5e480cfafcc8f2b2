package notify

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/link"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store"
)

// A Store has the questions, and keeps who was notified of them.
type Store interface {
	store.Committer
	store.Notices
}

// A Target is one way to tell people.
type Target interface {
	// Sink returns the name under which deliveries are recorded. It must stay the
	// same from one start to the next.
	Sink() keep.Sink

	// Deliver tells of one question. Nil means that the target took it; after any
	// error it may have reached its target. It returns soon after ctx ends. The text of
	// the error holds no secrets.
	Deliver(ctx context.Context, m Message) error
}

// A Message is a question on its way to a target.
type Message struct {
	ID   string    // the same in each attempt
	At   time.Time // of this attempt
	Body []byte    // JSON, the same in each attempt
	Code string    // in Body: who has it may answer the question; empty: none
}

// Limits of deliveries (law: bounded).
const (
	// DefaultTimeout is the longest that one delivery may take.
	DefaultTimeout = 10 * time.Second

	// maxError bounds what is recorded of a failure, in bytes.
	maxError = 1000

	// batch is how many questions are read at once.
	batch = 100

	// maxRounds bounds one pass: a store that forgets what was recorded must not
	// make us tell the same thing forever.
	maxRounds = 100
)

// DefaultRetry spaces the attempts to reach a target: 5 s, doubling to 2 h, for
// about a day.
func DefaultRetry() policy.Backoff {
	return policy.Backoff{First: 5 * time.Second, Max: 2 * time.Hour, Attempts: 20}
}

// Config configures a Notifier.
type Config struct {
	// Store has the questions. A host takes its own if it is nil and that can.
	Store Store

	// Targets are notified of every question. If empty, there is nothing to do.
	Targets []Target

	// Encode returns a question as targets get it, in JSON. It is required.
	Encode func(keep.Escalation) (json.RawMessage, error)

	// Links makes the links with which people answer without a login. If nil, a
	// message has none.
	Links *link.Links

	// Unknown returns the idempotency keys whose outcome nobody knows. If
	// nil, nobody is notified of them.
	Unknown func(ctx context.Context) ([]Key, error)

	// Retry spaces attempts; its Attempts are repeats after the first one. If
	// zero, DefaultRetry().
	Retry policy.Backoff

	// Timeout is the longest that one delivery may take. If zero, DefaultTimeout.
	Timeout time.Duration

	// Now is the time that deliveries are recorded with, and planned by: that of the
	// database, if several hosts share one. If nil, time.Now.
	Now func() time.Time

	// Logger receives what a person should know. If nil, slog.Default().
	Logger *slog.Logger
}

// A Notifier tells targets of open questions. Create one with New and drive it
// with Run, or with Flush before a program ends. A nil Notifier tells nobody.
type Notifier struct {
	workers []*worker
	keys    []*keyWorker
}

// New returns a notifier. It starts nothing.
func New(cfg Config) (*Notifier, error) {
	if cfg.Encode == nil || cfg.Store == nil {
		return nil, errors.New("notify: Config.Store and Config.Encode are required")
	}
	return newNotifier(cfg), nil
}

// NewForKeys returns a notifier that tells of idempotency keys alone: it needs no store.
func NewForKeys(cfg Config) *Notifier {
	n := newNotifier(cfg)
	n.workers = nil
	return n
}

func newNotifier(cfg Config) *Notifier {
	if cfg.Retry == (policy.Backoff{}) {
		cfg.Retry = DefaultRetry()
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	log := cmp.Or(cfg.Logger, slog.Default())
	n := &Notifier{}
	for _, t := range cfg.Targets {
		if cfg.Unknown != nil {
			n.keys = append(n.keys, &keyWorker{
				unknown: cfg.Unknown, target: t, retry: cfg.Retry, timeout: cfg.Timeout, now: cfg.Now,
				log: log.With("sink", string(t.Sink())), told: make(map[string]*telling),
			})
		}
		n.workers = append(n.workers, &worker{
			store: cfg.Store, target: t, encode: cfg.Encode, links: cfg.Links, retry: cfg.Retry, timeout: cfg.Timeout, now: cfg.Now,
			log: log.With("sink", string(t.Sink())), wake: make(chan struct{}, 1),
		})
	}
	return n
}

// Run tells of questions until ctx is done. A delivery that is under way then is
// finished and recorded, within Config.Timeout.
func (n *Notifier) Run(ctx context.Context) {
	if n == nil {
		return
	}
	var wg sync.WaitGroup
	for _, w := range n.workers {
		wg.Go(func() { w.run(ctx) })
	}
	for _, w := range n.keys {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
}

// Flush tries every target once with each question that is due now, and returns
// when that is done or ctx ends.
func (n *Notifier) Flush(ctx context.Context) {
	if n == nil {
		return
	}
	var wg sync.WaitGroup
	for _, w := range n.workers {
		wg.Go(func() {
			if _, err := w.pass(ctx); err != nil {
				w.log.ErrorContext(ctx, "tell of questions", "err", err)
			}
		})
	}
	wg.Wait()
}

// Wake makes the notifier look for new questions.
func (n *Notifier) Wake() {
	if n == nil {
		return
	}
	for _, w := range n.workers {
		select {
		case w.wake <- struct{}{}:
		default: // it will look
		}
	}
}

// A worker tells one target, one question after another, so that a target that
// hangs delays no other.
type worker struct {
	store   Store
	target  Target
	encode  func(keep.Escalation) (json.RawMessage, error)
	links   *link.Links // nil: none
	retry   policy.Backoff
	timeout time.Duration
	now     func() time.Time
	log     *slog.Logger
	wake    chan struct{} // has a value when there may be something new
}

// afterError is how long a worker waits when the store failed.
const afterError = 5 * time.Second

// run makes one pass after another until ctx is done.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		next, err := w.pass(ctx)
		if err != nil && ctx.Err() == nil {
			w.log.ErrorContext(ctx, "tell of questions", "err", err)
			next = w.now().Add(afterError)
		}
		w.wait(ctx, next)
	}
}

// wait returns at that time, when something may be new, or when ctx is done. The
// zero time never comes. It looks at least once a minute: another host may have
// left something, and the clock may be set back.
func (w *worker) wait(ctx context.Context, next time.Time) {
	d := time.Minute
	if !next.IsZero() {
		d = min(d, next.Sub(w.now()))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-w.wake:
	case <-timer.C:
	}
}

// pass tries the target with all that is due, and returns when the next of the
// others is; zero if there is none.
func (w *worker) pass(ctx context.Context) (next time.Time, err error) {
	for range maxRounds {
		owed, err := w.store.Owed(ctx, w.target.Sink(), batch)
		if err != nil {
			return time.Time{}, fmt.Errorf("read what is owed: %w", err)
		}
		tried := 0
		next = time.Time{}
		for _, o := range owed {
			if w.waits(o.Notice) {
				if next.IsZero() {
					next = o.Notice.NextAt // of those after it none is earlier
				}
				continue
			}
			if err := context.Cause(ctx); err != nil {
				return time.Time{}, err
			}
			if err := w.tell(ctx, o); err != nil {
				return time.Time{}, err
			}
			tried++
		}
		if tried == 0 {
			return next, nil
		}
	}
	return w.now().Add(afterError), nil
}

// ahead is how far from now an attempt may be dated: a later one was recorded by a clock that was ahead, and its next one waits
// for nothing.
const ahead = time.Minute

// waits reports whether the next attempt is not due yet.
func (w *worker) waits(n keep.Notice) bool {
	now := w.now()
	return n.NextAt.After(now) && !n.UpdatedAt.After(now.Add(ahead))
}

// tell makes one attempt. The record that it begins is on disk before it does,
// with the time of the next one, should nobody be left to say how it ended.
func (w *worker) tell(ctx context.Context, o keep.Owed) error {
	ctx = context.WithoutCancel(ctx) // what has begun is finished
	n, now := o.Notice, w.now().UTC()
	if n.Attempts > w.retry.Attempts {
		n.Error = cmp.Or(n.Error, "the host ended during the last attempt")
		return w.end(ctx, o, n, keep.NoticeGivenUp)
	}
	n.Status, n.NextAt, n.UpdatedAt = keep.NoticePending, now.Add(w.timeout+w.pause(n.Attempts, 0)), now
	n.Attempts++
	if ok, err := w.put(ctx, o, n); !ok {
		return err
	}
	n.Rev++
	failure := w.deliver(ctx, o.Escalation, now)
	if failure == nil {
		n.Error = ""
		return w.end(ctx, o, n, keep.NoticeDelivered)
	}
	n.Error = truncate(failure.Error(), maxError)
	if n.Attempts > w.retry.Attempts {
		return w.end(ctx, o, n, keep.NoticeGivenUp)
	}
	n.UpdatedAt = w.now().UTC()
	n.NextAt = n.UpdatedAt.Add(w.pause(n.Attempts-1, retryAfter(failure)))
	w.log.WarnContext(ctx, "a question was not delivered", logAttrs(o.Escalation, "attempt", n.Attempts,
		"next", n.NextAt.Format(time.RFC3339), "err", n.Error)...)
	_, err := w.put(ctx, o, n)
	return err
}

// deliver tells the target, within the timeout.
func (w *worker) deliver(ctx context.Context, q keep.Escalation, now time.Time) error {
	data, err := w.encode(q)
	if err != nil {
		return fmt.Errorf("write the question: %w", err)
	}
	to, err := w.links.To(ctx, q, w.target.Sink())
	if err != nil {
		return fmt.Errorf("make the link to the question: %w", err)
	}
	body, err := json.Marshal(body{Type: opened, Timestamp: q.CreatedAt.UTC(), Data: data, Link: to.URL})
	if err != nil {
		return fmt.Errorf("write the message: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, &keep.TimeoutError{Op: "notify " + string(w.target.Sink()), After: w.timeout})
	defer cancel()
	return w.target.Deliver(ctx, Message{ID: string(q.ID), At: now, Body: body, Code: to.Code})
}

// opened is the type of the one message that there is.
const opened = "question.opened"

// A body is what targets get.
type body struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"` // when the question was asked
	Data      json.RawMessage `json:"data"`
	Link      string          `json:"link,omitempty"` // to answer without a login; empty: none
}

// end records that nothing more is to be tried.
func (w *worker) end(ctx context.Context, o keep.Owed, n keep.Notice, status keep.NoticeStatus) error {
	n.Status, n.NextAt, n.UpdatedAt = status, time.Time{}, w.now().UTC()
	if status == keep.NoticeGivenUp {
		w.log.ErrorContext(ctx, "gave up telling of a question; see keep inbox",
			logAttrs(o.Escalation, "attempts", n.Attempts, "err", n.Error)...)
	}
	_, err := w.put(ctx, o, n)
	return err
}

// logAttrs are the attributes of every line that is about a question; more follow them.
func logAttrs(q keep.Escalation, more ...any) []any {
	list := []any{"question", string(q.ID), "workflow", string(q.Workflow)}
	if q.Run != "" {
		list = append(list, "run", string(q.Run))
	}
	if q.Mutation != "" {
		list = append(list, "mutation", string(q.Mutation))
	}
	return append(list, more...)
}

// put writes a notice. It reports false if it was not written because somebody
// else moved it or the question was closed, which is no error.
func (w *worker) put(ctx context.Context, o keep.Owed, n keep.Notice) (bool, error) {
	err := w.store.Commit(ctx, keep.Commit{Workflow: o.Escalation.Workflow, At: n.UpdatedAt, Changes: []keep.Change{keep.PutNotice{Notice: n}}})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, keep.ErrStale), errors.Is(err, keep.ErrDecided):
		return false, nil
	}
	return false, fmt.Errorf("record what became of question %s: %w", o.Escalation.ID, err)
}

// pause returns how long to wait after done repeats.
func (w *worker) pause(done int, floor time.Duration) time.Duration {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return w.retry.Delay(done, floor, float64(binary.LittleEndian.Uint32(b[:]))/(math.MaxUint32+1))
}

// retryAfter returns the least wait that a target asked for, at most a day.
func retryAfter(err error) time.Duration {
	if f, ok := errors.AsType[*keep.Failure](err); ok {
		return min(f.RetryAfter, 24*time.Hour)
	}
	return 0
}

// truncate returns at most n bytes of s.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return keep.CutTitle(s[:n])
}
