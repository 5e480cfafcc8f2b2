package notify

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
)

// A Key is an idempotency key whose outcome nobody knows.
type Key struct {
	ID   string          // names this doubt about it; the same in each attempt
	At   time.Time       // since when
	Data json.RawMessage // the key as targets get it
}

// everyLook is how often a keyWorker looks for keys.
const everyLook = 5 * time.Second

// keyUnknown is the type of the message about a key.
const keyUnknown = "key.unknown"

// A keyWorker tells one target of keys. What it told is in memory: the records of keys
// are no part of commits. So a key that is still unknown is told again after a start, with
// the same id.
type keyWorker struct {
	unknown func(context.Context) ([]Key, error)
	target  Target
	retry   policy.Backoff
	timeout time.Duration
	now     func() time.Time
	log     *slog.Logger
	told    map[string]*telling // of the keys that are unknown
}

// A telling is how far a target was notified of a key.
type telling struct {
	attempts int
	done     bool      // taken, or given up
	next     time.Time // of the next attempt
}

// run tells of keys until ctx is done.
func (w *keyWorker) run(ctx context.Context) {
	timer := time.NewTicker(everyLook)
	defer timer.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// look tells of every key that is due, and forgets those that are known now.
func (w *keyWorker) look(ctx context.Context) {
	keys, err := w.unknown(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.log.ErrorContext(ctx, "read unknown keys", "err", err)
		}
		return
	}
	known := w.told
	w.told = make(map[string]*telling, len(keys))
	for _, k := range keys {
		t := known[k.ID]
		if t == nil {
			t = new(telling)
		}
		w.told[k.ID] = t
	}
	for _, k := range keys {
		if t := w.told[k.ID]; !t.done && !w.now().Before(t.next) && ctx.Err() == nil {
			w.tell(ctx, k, t)
		}
	}
}

// tell makes one attempt, which is finished although ctx ends.
func (w *keyWorker) tell(ctx context.Context, k Key, t *telling) {
	text, err := json.Marshal(body{Type: keyUnknown, Timestamp: k.At.UTC(), Data: k.Data})
	if err == nil {
		limited, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), w.timeout, &keep.TimeoutError{Op: "notify " + string(w.target.Sink()), After: w.timeout})
		err = w.target.Deliver(limited, Message{ID: k.ID, At: w.now(), Body: text})
		cancel()
	}
	t.attempts++
	switch {
	case err == nil:
		t.done = true
	case t.attempts > w.retry.Attempts:
		t.done = true
		w.log.ErrorContext(ctx, "gave up telling of an unknown key; see keep keys", "key", k.ID, "attempts", t.attempts, "err", truncate(err.Error(), maxError))
	default:
		t.next = w.now().Add(max(w.retry.Delay(t.attempts-1, retryAfter(err), 0.5), retryAfter(err)))
		w.log.WarnContext(ctx, "an unknown key was not told", "key", k.ID, "attempt", t.attempts, "err", truncate(err.Error(), maxError))
	}
}
