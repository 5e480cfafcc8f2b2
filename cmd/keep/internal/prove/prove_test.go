package prove_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/prove"
	"github.com/keep-run/keep/connector"
)

// A keyless service makes a new thing of every call, whatever its key.
type keyless struct {
	mu      sync.Mutex
	calls   int
	refuses int                             // the call that is refused as one of too many; zero: none
	answer  func(n int) string              // to the n-th call
	count   func(made int) (n int, e error) // nil: it cannot count
}

func (*keyless) Spec() connector.Spec {
	return connector.Spec{Name: "send", Effect: connector.Mutate, Level: keep.LevelKey, Identity: []string{"to"}}
}

func (*keyless) Target(json.RawMessage) string { return "x" }

func (k *keyless) Mutate(context.Context, keep.Mutation) (connector.Receipt, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.calls++; k.calls == k.refuses {
		return connector.Receipt{}, keep.Failf(keep.ClassTransient, "rate-limited", "too many")
	}
	return connector.Receipt{Result: json.RawMessage(k.answer(k.calls))}, nil
}

func (k *keyless) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	r, err := k.Mutate(ctx, m)
	return connector.Answer{Verdict: connector.Happened, Receipt: r}, err
}

// A counting service shows how often a call had its effect.
type counting struct{ *keyless }

func (c counting) Count(context.Context, keep.Mutation) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count(c.calls)
}

// An echoing service answers each call with its key, in a form of its own, and makes a new thing of each.
type echoing struct {
	*keyless
	form func(key string) string
}

func (e echoing) Mutate(_ context.Context, m keep.Mutation) (connector.Receipt, error) {
	return connector.Receipt{Result: json.RawMessage(fmt.Sprintf(`{"text":"created with key %s"}`, e.form(m.Token)))}, nil
}

func (e echoing) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	r, err := e.Mutate(ctx, m)
	return connector.Answer{Verdict: connector.Happened, Receipt: r}, err
}

// A fickle service makes one thing of two calls with one key, but not if they come at once. Its lookup shows only the first thing.
type fickle struct{ *keyless }

func (f fickle) Mutate(_ context.Context, m keep.Mutation) (connector.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls < 4 {
		return connector.Receipt{Result: json.RawMessage(fmt.Sprintf(`{"id":"%x"}`, sha256.Sum256([]byte(m.Token))))}, nil
	}
	return connector.Receipt{Result: json.RawMessage(fmt.Sprintf(`{"id":%d}`, f.calls))}, nil
}

func (f fickle) Count(context.Context, keep.Mutation) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count(f.calls)
}

// A repeat that was not answered, or came to a service that was busy, says nothing of keys.
func TestRepeatThatSaysNothing(t *testing.T) {
	tool := &keyless{refuses: 3, answer: func(int) string { return `{"ok":true}` }}
	got := prove.Try(t.Context(), "box", prove.Plan{Tool: tool, Params: json.RawMessage(`{"to":"{n}"}`), Calls: 8}, 1)
	if said := strings.Join(append(got.Faults, got.Advice...), "; "); got.Grade == keep.LevelKey || strings.Contains(said, "honoured") {
		t.Errorf("level %s, and it says: %s", got.Grade, said)
	}
}

// What was not shown is not believed: neither since a call was refused that came too soon, nor since the effects
// that were to decide could not be counted.
func TestKeyIsNotBelieved(t *testing.T) {
	ok := func(int) string { return `{"ok":true}` }
	other := func(n int) string { return fmt.Sprintf(`{"id":%d}`, n) }
	for name, tool := range map[string]connector.Mutator{
		"refused for a moment": &keyless{refuses: 4, answer: ok},
		"not counted at the end": counting{&keyless{answer: other, count: func(made int) (int, error) {
			if made < 8 {
				return min(made, 1), nil
			}
			return 0, fmt.Errorf("the lookup is down")
		}}},
		// its clock, which has no seconds, moved on before the call under another key, and stood still otherwise
		"its answers show the minute":                      &keyless{answer: func(n int) string { return fmt.Sprintf(`{"ok":true,"at":"12:%02d"}`, min(n/4, 1)) }},
		"its answers show the key":                         echoing{&keyless{}, func(key string) string { return key }},
		"its answers show the key in capitals":             echoing{&keyless{}, strings.ToUpper},
		"its answers show the key in base64":               echoing{&keyless{}, func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }},
		"its answers show the key in hex":                  echoing{&keyless{}, func(key string) string { return hex.EncodeToString([]byte(key)) }},
		"its answers show the key cut off":                 echoing{&keyless{}, func(key string) string { return key[:len(key)-6] + "…" }},
		"its answers show the end of the key":              echoing{&keyless{}, func(key string) string { return "…" + key[len(key)-8:] }},
		"its answers show the end in hex":                  echoing{&keyless{}, func(key string) string { return "…" + hex.EncodeToString([]byte(key[len(key)-6:])) }},
		"its answers show the key in base64 within a text": echoing{&keyless{}, func(key string) string { return base64.StdEncoding.EncodeToString([]byte("key=" + key + ";v=1")) }},
		"its answers show the middle in base64":            echoing{&keyless{}, func(key string) string { return base64.StdEncoding.EncodeToString([]byte("key=" + key))[12:36] }},
		"two at once were not counted": fickle{&keyless{count: func(made int) (int, error) {
			if made < 6 {
				return min(made, 1), nil
			}
			return 0, fmt.Errorf("the lookup is down")
		}}},
		"never seen": counting{&keyless{answer: other, count: func(int) (int, error) { return 0, nil }}},
	} {
		t.Run(name, func(t *testing.T) {
			got := prove.Try(t.Context(), "box", prove.Plan{Tool: tool, Params: json.RawMessage(`{"to":"{n}"}`), Calls: 8}, 1)
			if got.Grade == keep.LevelKey || strings.Contains(strings.Join(got.Advice, " "), "deduplicates = true") {
				t.Errorf("it is believed to honour keys: %+v", got)
			}
		})
	}
}

// A blind tool can neither be asked nor honours keys.
type blind struct{ service *keyless }

func (blind) Target(json.RawMessage) string { return "x" }

func (b blind) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	return b.service.Mutate(ctx, m)
}

func (blind) Spec() connector.Spec {
	return connector.Spec{Name: "send", Effect: connector.Mutate, Level: keep.LevelNone, Identity: []string{"to"}}
}

// A tool of which nothing can be known is repeated, and then left alone: whatever it makes beyond that shows nothing, and is to be removed.
func TestToolOfWhichNothingCanBeKnown(t *testing.T) {
	tool := blind{&keyless{answer: func(int) string { return `{"ok":true}` }}}
	got := prove.Try(t.Context(), "box", prove.Plan{Tool: tool, Params: json.RawMessage(`{"to":"{n}"}`), Calls: 20}, 1)
	if got.Grade != keep.LevelNone || got.Calls > 3 || len(got.Made) > 2 || got.Repeat == "" {
		t.Errorf("level %s after %d calls, %d made: %q", got.Grade, got.Calls, len(got.Made), got.Repeat)
	}
	if got := prove.Try(t.Context(), "box", prove.Plan{Tool: doubting{}, Params: json.RawMessage(`{"to":"{n}"}`), Calls: 20}, 1); got.Calls > 1 || !strings.Contains(strings.Join(got.Advice, " "), "no repeat was tried") {
		t.Errorf("a call in doubt is followed by %d others: %q", got.Calls-1, got.Advice)
	}
}

// A doubting tool never knows whether its call was made.
type doubting struct{ blind }

func (doubting) Mutate(context.Context, keep.Mutation) (connector.Receipt, error) {
	return connector.Receipt{}, keep.Failf(keep.ClassUnknown, "no-answer", "no answer")
}

// A slow index shows what was made of calls whose answers came at once, and of one that was broken off much later.
type slowIndex struct {
	settle time.Duration
	mu     sync.Mutex
	made   map[string]time.Time // when each shows, by its mark
}

func (s *slowIndex) Spec() connector.Spec {
	return connector.Spec{Name: "post", Effect: connector.Mutate, Level: keep.LevelWitness, SettleAfter: s.settle}
}

func (*slowIndex) Target(json.RawMessage) string { return "x" }

func (s *slowIndex) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	shows := time.Now().Add(time.Second)
	var err error
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		shows, err = time.Now().Add(5*time.Second), ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[m.Token] = shows
	return connector.Receipt{}, err
}

func (s *slowIndex) Count(_ context.Context, m keep.Mutation) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.made[m.Token]; ok && !time.Now().Before(at) {
		return 1, nil
	}
	return 0, nil
}

// An effect that shows after settle_after lowers the level also if nobody looked in the moment in which it showed: a host
// would have said that it is absent, and made the call again.
func TestEffectThatShowsLate(t *testing.T) {
	for settle, want := range map[time.Duration]keep.Level{500 * time.Millisecond: keep.LevelNone, time.Minute: keep.LevelWitness} {
		synctest.Test(t, func(t *testing.T) {
			tool := &slowIndex{settle: settle, made: make(map[string]time.Time)}
			got := prove.Try(t.Context(), "box", prove.Plan{Tool: tool, Params: json.RawMessage(`{"to":"{n}"}`), Calls: 8}, time.Minute)
			if got.Grade != want || got.Settle() < 5*time.Second {
				t.Errorf("settle_after %s: level %s, want %s; settle_after is to be %s: %v", settle, got.Grade, want, got.Settle(), got.Faults)
			}
		})
	}
}

// A stalled tool makes what it is asked for, and its lookup never answers from the given count on.
type stalled struct {
	*slowIndex
	asked, from int
}

func (s *stalled) Count(ctx context.Context, m keep.Mutation) (int, error) {
	if s.asked++; s.asked >= s.from { // the trials ask one after another
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	return s.slowIndex.Count(ctx, m)
}

// A lookup that never answers does not keep the trials from their end.
func TestLookupThatNeverAnswersEnds(t *testing.T) {
	for from := 1; from < 40; from++ {
		synctest.Test(t, func(t *testing.T) {
			tool := &stalled{&slowIndex{settle: time.Minute, made: make(map[string]time.Time)}, 0, from}
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			start := time.Now()
			prove.Try(ctx, "box", prove.Plan{Tool: tool, Params: json.RawMessage(`{"to":"{n}"}`), Calls: 8}, time.Minute)
			if took := time.Since(start); took > time.Hour {
				t.Errorf("with a lookup that answers %d times it takes %s", from-1, took)
			}
		})
	}
}

// A queue gives out what was put into it, oldest first: its lookup takes away what it shows.
type queue struct {
	mu   sync.Mutex
	jobs []string
}

func (q *queue) Spec() connector.Spec {
	return connector.Spec{Name: "put", Effect: connector.Mutate, Level: keep.LevelWitness, SettleAfter: time.Minute}
}

func (*queue) Target(json.RawMessage) string { return "x" }

func (q *queue) Mutate(_ context.Context, m keep.Mutation) (connector.Receipt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, m.Token)
	return connector.Receipt{}, nil
}

func (q *queue) Reconcile(_ context.Context, m keep.Mutation) (connector.Answer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) == 0 {
		return connector.Answer{Verdict: connector.Absent}, nil
	}
	job := q.jobs[0]
	q.jobs = q.jobs[1:]
	if job == m.Token {
		return connector.Answer{Verdict: connector.Happened}, nil
	}
	return connector.Answer{Verdict: connector.Absent}, nil
}

// A lookup that shows an effect once changes something: each doubt would take away what others wait for.
func TestLookupThatTakesAwayWhatItShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := prove.Try(t.Context(), "box", prove.Plan{Tool: new(queue), Params: json.RawMessage(`{"to":"{n}"}`), Calls: 8}, time.Minute)
		if got.Grade != keep.LevelNone || !strings.Contains(strings.Join(got.Faults, "; "), "found once, and not again") {
			t.Errorf("level %s: %q", got.Grade, got.Faults)
		}
	})
}
