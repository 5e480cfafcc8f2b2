package prove

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/schema"
)

// MinCalls is the least budget of a tool: below it nothing can be compared.
const MinCalls = 6

// A Plan is one tool and the params of its calls.
type Plan struct {
	Tool   connector.Mutator
	Params json.RawMessage // in its texts, {n} stands for something new in each call
	Calls  int             // that change something, at most; at least MinCalls
	Run    string          // is in place of {n}, with a number, and in all marks; empty: Try chooses it

	// Doubts reports whether a call that was refused may have made something all the same. Nil: none may.
	Doubts func(err error) bool
}

// NewRun returns a name for Plan.Run that no other trials have.
func NewRun() string { return strings.ToLower(rand.Text()[:6]) }

// Call returns a call that nobody made yet, of a connection.
func (p Plan) Call(connection, n string) keep.Mutation {
	now, spec := time.Now(), p.Tool.Spec()
	m := keep.Mutation{
		Key: keep.MutationKey("prove-" + p.Run + "-" + n), Token: "prove-" + p.Run + "-" + strings.ToLower(rand.Text()), Tool: keep.ToolName(connection + "." + spec.Name),
		Payload: p.params(p.Run + "-" + n), Attempts: 1, CreatedAt: now, CallDeadline: now.Add(cmp.Or(spec.Timeout, connector.DefaultTimeout)),
	}
	m.Target = p.Tool.Target(m.Payload)
	return m
}

// Check returns why the params of p can't be sent.
//
// They are checked against the tool's own schema before anything is sent: a service that refuses every call
// shows nothing.
func (p Plan) Check() error {
	spec := p.Tool.Spec()
	if len(p.Params) == 0 {
		return fmt.Errorf("%s has no example; give --params", spec.Name)
	}
	doc, err := schema.Value(p.params("x"))
	if err != nil {
		return fmt.Errorf("%s: params: %w", spec.Name, err)
	}
	if spec.Params == nil {
		return nil
	}
	s, err := schema.Compile(spec.Params)
	if err != nil {
		return err
	}
	if err := s.Validate(doc); err != nil {
		return fmt.Errorf("%s: params: %w", spec.Name, err)
	}
	return nil
}

// params returns the params with {n} replaced.
func (p Plan) params(n string) json.RawMessage {
	return json.RawMessage(strings.ReplaceAll(string(p.Params), "{n}", n))
}

// How long a prover waits, and how often it looks.
const (
	callLasts   = 30 * time.Second // of a lookup
	firstPause  = 20 * time.Millisecond
	longPause   = 5 * time.Second
	maxRefusals = 3 // of calls one after the other; then the params are wrong
)

// A trial is one change that was asked for.
type trial struct {
	what    string
	m       keep.Mutation
	result  json.RawMessage // of the first confirmed call
	err     error           // of the first call
	found   bool
	shown   int           // effects at the end; -1: not counted
	ended   time.Time     // the call, and
	missed  time.Duration // for how long it was then looked for and not found; zero: it was found, or is not looked for
	decides bool          // that a repeat has no second effect holds only if the count at the end shows one
}

// keyless returns the result without the key of the call, which a service may repeat in its answer: in another case, encoded, or in
// part, as the last characters of one are shown. A hash of the key is taken for what the service made: it may be.
func (tr *trial) keyless() []byte {
	key := tr.m.Token
	text := withoutParts(canonical(tr.result), key, 4, 0)
	text = withoutParts(text, hex.EncodeToString([]byte(key)), 6, 1)
	for pad := range 3 { // bytes before it in a longer text
		text = withoutParts(text, base64.StdEncoding.EncodeToString(append(make([]byte, pad), key...)), 6, 1)
	}
	return text
}

// withoutParts returns a text without what it has of a key in pieces of n or more characters, in any case, and so many characters on
// each side of one.
func withoutParts(text []byte, key string, n, beside int) []byte {
	parts := make(map[string]bool)
	for i := range len(key) - n + 1 {
		parts[strings.ToLower(key[i:i+n])] = true
	}
	hidden := make([]bool, len(text))
	for i := range max(0, len(text)-n+1) {
		if !parts[strings.ToLower(string(text[i:i+n]))] {
			continue
		}
		for j := max(0, i-beside); j < min(len(text), i+n+beside); j++ {
			hidden[j] = true
		}
	}
	var out []byte
	for i, c := range text {
		if !hidden[i] {
			out = append(out, c)
		}
	}
	return out
}

// A prover tries one tool.
type prover struct {
	plan    Plan
	conn    string
	wait    time.Duration
	spec    connector.Spec
	trials  []*trial
	one     *trial // the one that is repeated
	lags    []time.Duration
	longest time.Duration // that an effect may have taken that was seen at the end only
	took    time.Duration // of the first call

	mu    sync.Mutex // protects calls
	calls int

	faults []string
	repeat string
	keyed  bool // shown: a repeat has no second effect
	unsure bool // nothing shows what a repeat did
	blind  bool // the lookup is wrong or too slow
	fatal  bool // no further call makes sense
}

// Try tries one tool of a connection and returns what was found out. Wait is how long an
// effect may take to show.
//
// A step that finds that no further call makes sense ends the trials: each would be one more thing to remove.
func Try(ctx context.Context, connection string, p Plan, wait time.Duration) Tool {
	p.Run = cmp.Or(p.Run, NewRun())
	t := &prover{plan: p, conn: connection, wait: wait, spec: p.Tool.Spec()}
	for _, step := range []func(context.Context){t.unsent, t.once, t.again, t.atOnce, t.brokenOff, t.lost, t.count} {
		if step(ctx); t.fatal || ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		t.faultf("it was stopped before the end")
	}
	return t.report()
}

// faultf notes what lowers the grade.
func (t *prover) faultf(format string, args ...any) {
	if f := fmt.Sprintf(format, args...); !slices.Contains(t.faults, f) {
		t.faults = append(t.faults, f)
	}
}

// left returns how many calls the budget still has.
func (t *prover) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.plan.Calls - t.calls
}

// spend takes n calls from the budget, or none.
func (t *prover) spend(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.plan.Calls-t.calls < n {
		return false
	}
	t.calls += n
	return true
}

// begin makes a mutation that nobody sent yet. Same params are those of another trial.
func (t *prover) begin(ctx context.Context, what string, same *trial) *trial {
	tr := &trial{what: what, shown: -1, m: t.plan.Call(t.conn, fmt.Sprint(len(t.trials)+1))}
	if same != nil {
		tr.m.Payload, tr.m.Target = same.m.Payload, same.m.Target
	}
	if s, ok := t.plan.Tool.(connector.Starter); ok {
		tr.err = s.Start(ctx)
	}
	if c, ok := t.plan.Tool.(connector.Claimer); ok && tr.err == nil {
		var id string
		if id, tr.err = c.Claim(ctx, tr.m); tr.err == nil {
			tr.m.Pin, _ = json.Marshal(keep.SentAs{Claim: id}) // of strings
		}
	}
	return tr
}

// timeout returns how long a call may take.
func (t *prover) timeout() time.Duration {
	return cmp.Or(t.spec.Timeout, connector.DefaultTimeout)
}

// send makes the call of a trial, once more or for the first time.
func (t *prover) send(ctx context.Context, tr *trial) (json.RawMessage, error) {
	if tr.err != nil && tr.m.Attempts == 1 && len(tr.m.Pin) == 0 {
		if _, claims := t.plan.Tool.(connector.Claimer); claims {
			return nil, tr.err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout())
	defer cancel()
	r, err := t.plan.Tool.Mutate(ctx, tr.m)
	return r.Result, err
}

// first makes the first call of a trial and keeps what came of it.
func (t *prover) first(ctx context.Context, tr *trial) {
	t.trials = append(t.trials, tr)
	tr.result, tr.err = t.send(ctx, tr)
}

// passes reports whether a refusal says nothing of the call itself, as that there were too many.
func passes(err error) bool {
	f, ok := errors.AsType[*keep.Failure](err)
	return ok && f.Class == keep.ClassTransient
}

// MayHaveMade reports whether a call that ended with err may have made something.
func (p Plan) MayHaveMade(err error) bool {
	return !Refused(err) || p.Doubts != nil && p.Doubts(err)
}

// Refused reports whether an error says that nothing was done.
func Refused(err error) bool {
	f, ok := errors.AsType[*keep.Failure](err)
	return ok && f.Class != keep.ClassUnknown
}
