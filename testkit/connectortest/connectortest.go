package connectortest

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/schema"
)

// A Bench is a connection to a service of its own, in a known state, with the
// truth about the service beside it.
type Bench struct {
	Connection *connector.Connection

	// Again opens another connection to the same service, as after a restart of the host. Nil: what a connection
	// remembers of the tokens that it sent is taken for the service's.
	Again func(testing.TB) *connector.Connection

	// Tool is the mutate tool that is tried.
	Tool string

	// Params returns the params of the nth change. The service accepts them,
	// and no two of them change the same thing.
	Params func(n int) json.RawMessage

	// Effects returns how many effects the nth change has had, as the service
	// knows it without the connector.
	Effects func(n int) int

	// Refused are params that the tool's schema must refuse.
	Refused []json.RawMessage

	// Secrets must not be in any message.
	Secrets []string

	// Troubles are the ways in which a call to this service can go wrong.
	Troubles []Trouble

	// AbsenceIsAgain says that a lookup which does not find the effect answers
	// [connector.Retry], since something else may have changed the target after
	// it. An effect that is there must still be found.
	AbsenceIsAgain bool

	// NoMore says that an equal change under another token has no effect of its own, since the params say what
	// is to be, as those of a file that is written. Of a tool whose Spec says Sets that is known.
	NoMore bool

	// Settle makes everything happen that is still on its way. Nil: nothing is.
	Settle func()
}

// A Trouble breaks the next call.
type Trouble struct {
	Name string // as in "after {name}"
	Arm  func() // starts it
	End  func() // ends it; nil: it ends by itself

	// Want is the class that Mutate must return, or "none" if it must succeed.
	// Empty: any that is honest.
	Want keep.Class

	// Stalls says that the call ends only with its context.
	Stalls bool
}

// Limits of the suite's patience.
const (
	callTimeout  = 20 * time.Second
	stallTimeout = 150 * time.Millisecond
	grace        = 10 * time.Second // for a call to return after its deadline
)

// Run checks a connector. Each call of open returns a new Bench; the suite
// closes its connection.
func Run(t *testing.T, open func(tb testing.TB) *Bench) {
	for _, c := range []struct {
		promise string
		check   func(*trial)
	}{
		{"specs are complete and their schemas compile", (*trial).specs},
		{"the schema of params accepts good ones and no others", (*trial).schema},
		{"a target is stable, named, and costs no call", (*trial).target},
		{"a change has one effect and a result of the declared shape", (*trial).change},
		{"reconcile finds a change that happened", (*trial).reconcileHappened},
		{"reconcile does not find a change that was never begun", (*trial).reconcileAbsent},
		{"reconcile of a marked tool does not find an equal change under another token", (*trial).reconcileAnother},
		{"the same token has one effect at level A", (*trial).sameToken},
		{"an equal change under another token is made, or refused, at level A", (*trial).anotherToken},
		{"a call whose time is over changes nothing", (*trial).tooLate},
		{"bad params are a logic failure and change nothing", (*trial).badParams},
	} {
		t.Run(c.promise, func(t *testing.T) { c.check(begin(t, open)) })
	}
	first := begin(t, open)
	_, claims := first.tool.(connector.Claimer)
	for _, trouble := range first.Troubles {
		t.Run("no lie after "+trouble.Name, func(t *testing.T) {
			b := begin(t, open)
			for _, tr := range b.Troubles {
				if tr.Name == trouble.Name {
					b.trouble(tr)
				}
			}
		})
		if claims {
			t.Run("no effect of a claim after "+trouble.Name, func(t *testing.T) {
				b := begin(t, open)
				for _, tr := range b.Troubles {
					if tr.Name == trouble.Name {
						b.claimTrouble(tr)
					}
				}
			})
		}
	}
}

func (b *trial) specs() {
	names := map[string]bool{}
	for _, tool := range b.Connection.Tools {
		s := tool.Spec()
		if !connector.IsName(s.Name) || names[s.Name] {
			b.t.Errorf("tool name %q is bad or there twice", s.Name)
		}
		names[s.Name] = true
		compile(b.t, s.Name+" params", s.Params)
		compile(b.t, s.Name+" result", s.Result)
		m, mutates := tool.(connector.Mutator)
		_, reads := tool.(connector.Reader)
		if mutates != (s.Effect == connector.Mutate) || reads == mutates {
			b.t.Errorf("%s: effect %q is not what the tool implements", s.Name, s.Effect)
		}
		if mutates {
			b.mutatorSpec(m)
		} else if s.Level != "" || len(s.Identity) > 0 {
			b.t.Errorf("%s: a read has no level and no identity", s.Name)
		}
	}
}

func (b *trial) mutatorSpec(m connector.Mutator) {
	s := m.Spec()
	_, asks := m.(connector.Reconciler)
	if asks != (s.Level != keep.LevelNone) {
		b.t.Errorf("%s: level %q, but can be asked: %t", s.Name, s.Level, asks)
	}
	if s.Level == "" || s.ByTarget && s.Level != keep.LevelWitness {
		b.t.Errorf("%s: level %q, by target %t", s.Name, s.Level, s.ByTarget)
	}
	if len(s.Identity) == 0 {
		b.t.Errorf("%s: no identity", s.Name)
	}
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if s.Params != nil && json.Unmarshal(s.Params, &schema) == nil && schema.Properties != nil {
		for _, name := range s.Identity {
			if _, ok := schema.Properties[name]; !ok {
				b.t.Errorf("%s: identity %q is not in the schema", s.Name, name)
			}
		}
		if _, ok := schema.Properties["subkey"]; ok {
			b.t.Errorf("%s: subkey is the host's param", s.Name)
		}
	}
}

// compile returns nil if there is no schema or a bad one.
func compile(t *testing.T, name string, raw json.RawMessage) *jsonschema.Schema {
	t.Helper()
	if raw == nil {
		return nil
	}
	s, err := schema.Compile(raw)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return s
}

func (b *trial) schema() {
	s := compile(b.t, "params", b.tool.Spec().Params)
	if s == nil {
		return
	}
	if err := fits(s, b.Params(1)); err != nil {
		b.t.Errorf("good params %s: %v", b.Params(1), err)
	}
	for _, raw := range b.Refused {
		if fits(s, raw) == nil {
			b.t.Errorf("the schema accepts %s", raw)
		}
	}
}

// fits reports what in raw does not fit the schema.
func fits(s *jsonschema.Schema, raw json.RawMessage) error {
	v, err := schema.Value(raw)
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func (b *trial) target() {
	first := b.tool.Target(b.Params(1))
	if first == "" || first != b.tool.Target(b.Params(1)) {
		b.t.Errorf("Target = %q and %q", first, b.tool.Target(b.Params(1)))
	}
	for _, raw := range append(b.Refused, nil, json.RawMessage("null"), json.RawMessage("[")) {
		b.tool.Target(raw) // must not panic
	}
	if n := b.Effects(1); n != 0 {
		b.t.Errorf("Target made %d effects", n)
	}
}

func (b *trial) change() {
	r, err := b.mutate(1, callTimeout)
	if err != nil {
		b.t.Fatalf("Mutate: %v", err)
	}
	b.settle()
	if n := b.Effects(1); n != 1 {
		b.t.Errorf("%d effects, want 1", n)
	}
	if n := b.Effects(2); n != 0 {
		b.t.Errorf("another change has %d effects", n)
	}
	if r.Result == nil {
		r.Result = json.RawMessage("null")
	}
	if s := compile(b.t, "result", b.tool.Spec().Result); s != nil {
		if err := fits(s, r.Result); err != nil {
			b.t.Errorf("result %s: %v", r.Result, err)
		}
	}
	if c, ok := b.tool.(connector.Comparer); ok {
		if d := c.ComparePayload(b.Params(1), b.Params(1)); d != connector.Equivalent {
			b.t.Errorf("equal payloads are %q", d)
		}
		if d := c.ComparePayload(b.Params(1), b.Params(2)); d != connector.Significant {
			b.t.Errorf("another change's payload is %q", d)
		}
	}
}

func (b *trial) reconcileHappened() {
	if !b.asks() {
		b.t.Skip("level D")
	}
	if _, err := b.mutate(1, callTimeout); err != nil {
		b.t.Fatal(err)
	}
	b.settle()
	for range 2 {
		if a := b.answer(1); a.Verdict != connector.Happened {
			b.t.Errorf("Reconcile = %q, want happened", a.Verdict)
		}
	}
	if n := b.Effects(1); n != 1 {
		b.t.Errorf("%d effects after Reconcile, want 1", n)
	}
	// A lookup that was ended asked nobody, or did not hear the answer.
	ctx, cancel := context.WithCancel(b.t.Context())
	cancel()
	if a, err := b.tool.(connector.Reconciler).Reconcile(ctx, b.mutation(1)); err == nil && a.Verdict == connector.Absent {
		b.t.Errorf("Reconcile whose time is over says %q (%s), but the change happened", a.Verdict, a.Detail)
	}
}

func (b *trial) reconcileAbsent() {
	if !b.asks() {
		b.t.Skip("level D")
	}
	// Something else has been happening, so that tables and files exist.
	if _, err := b.mutate(control, callTimeout); err != nil {
		b.t.Fatal(err)
	}
	if err := b.claim(1); err != nil {
		b.t.Fatal(err)
	}
	b.settle()
	b.consistent(1, b.answer(1))
	// Under a key that the service honours a tool may learn the outcome by sending again.
	if n := b.Effects(1); n != 0 && b.tool.Spec().Level != keep.LevelKey {
		b.t.Errorf("Reconcile of a change that was never begun made %d effects: it may only look", n)
	}
}

// consistent compares an answer with the truth. At level A asking may have made
// the change, and then it has happened.
func (b *trial) consistent(n int, a connector.Answer) {
	b.t.Helper()
	b.settle()
	effects := b.Effects(n)
	if a.Verdict == connector.Happened && effects != 1 || a.Verdict == connector.Absent && effects != 0 {
		b.t.Errorf("Reconcile says %q (%s), but the service has %d effects", a.Verdict, a.Detail, effects)
	}
}

func (b *trial) sameToken() {
	if b.tool.Spec().Level != keep.LevelKey {
		b.t.Skip("not level A")
	}
	var first connector.Receipt
	for i := range 4 {
		if i == 3 && !b.reopen() {
			break
		}
		r, err := b.mutate(1, callTimeout)
		if err != nil {
			b.t.Fatal(err)
		}
		if i == 0 {
			first = r
		} else if !b.same(first.Result, r.Result) {
			b.t.Errorf("result %s, and before %s", r.Result, first.Result)
		}
	}
	b.settle()
	if n := b.Effects(1); n != 1 {
		b.t.Errorf("%d effects, want 1", n)
	}
}

// anotherToken makes an equal change under another token: the host records that as a call of its own. A tool that answers
// that it is made, and made none, as one whose key is made of the params, loses it in silence.
func (b *trial) anotherToken() {
	if s := b.tool.Spec(); s.Level != keep.LevelKey || s.Sets || b.NoMore {
		b.t.Skip("not level A, or a second call changes nothing more")
	}
	if _, err := b.mutate(1, callTimeout); err != nil {
		b.t.Fatal(err)
	}
	another := b.mutation(1)
	another.Key, another.Token = "key-another", "token-another"
	ctx, cancel := context.WithTimeout(b.t.Context(), callTimeout)
	defer cancel()
	_, err := b.tool.Mutate(ctx, another)
	if err != nil {
		b.noSecrets(err.Error())
	}
	b.settle()
	want := 1
	if c := class(err); c == "none" {
		want = 2
	} else if c == keep.ClassUnknown {
		b.t.Errorf("an equal change under another token: %v, want that it is made, or refused", err)
	}
	if n := b.Effects(1); n != want {
		b.t.Errorf("%d effects of two equal changes, each under a token of its own (%v), want %d; if params say what is to be, set Bench.NoMore", n, err, want)
	}
}

// same reports whether a call that was sent again has the result of the first. That of a
// tool which sets something is what the thing is by then: what the call named is the same,
// and the rest may differ.
func (b *trial) same(first, again json.RawMessage) bool {
	if bytes.Equal(first, again) || !b.tool.Spec().Sets {
		return bytes.Equal(first, again)
	}
	var params, before, now map[string]json.RawMessage
	if json.Unmarshal(b.Params(1), &params) != nil || json.Unmarshal(first, &before) != nil || json.Unmarshal(again, &now) != nil {
		return false
	}
	for name := range params {
		if !bytes.Equal(before[name], now[name]) {
			return false
		}
	}
	return true
}

func (b *trial) tooLate() {
	if err := b.claim(1); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	cancel()
	_, err := b.tool.Mutate(ctx, b.mutation(1))
	b.settle()
	if n := b.Effects(1); n != 0 || err == nil {
		b.t.Errorf("%d effects and error %v", n, err)
	}
	if c := class(err); c != keep.ClassTransient {
		b.t.Errorf("class %q, want transient: nothing was sent", c)
	}
}

func (b *trial) badParams() {
	for _, raw := range b.Refused {
		m := b.mutation(1)
		m.Payload = raw
		_, err := b.tool.Mutate(b.t.Context(), m)
		if c := class(err); c != keep.ClassLogic {
			b.t.Errorf("params %s: %v, want logic", raw, err)
		}
	}
	b.settle()
	if n := b.Effects(1); n != 0 {
		b.t.Errorf("%d effects", n)
	}
}

// trouble makes the change while something is wrong, and compares everything
// that is said about it afterwards with the truth.
func (b *trial) trouble(tr Trouble) {
	// Idle connections and tables are there before, as in a long life.
	if _, err := b.mutate(control, callTimeout); err != nil {
		b.t.Fatal(err)
	}
	if err := b.claim(1); err != nil {
		b.t.Fatal(err)
	}
	d := callTimeout
	if tr.Stalls {
		d = stallTimeout
	}
	tr.Arm()
	_, err := b.mutate(1, d)
	c := class(err)
	for tr.Stalls && c == keep.ClassTransient && c != tr.Want && d < callTimeout {
		// On a slow machine the time may be over before anything is sent, which is no
		// trouble of the service. A connector that only says so says it again.
		d *= 4
		if tr.End != nil {
			tr.End()
		}
		tr.Arm()
		_, err = b.mutate(1, d)
		c = class(err)
	}
	if tr.Want != "" && c != tr.Want {
		b.t.Errorf("class %q (%v), want %q", c, err, tr.Want)
	}
	if c != keep.ClassUnknown {
		b.definite(c, err)
	}
	if b.asks() {
		// A question while the trouble lasts may stay without an answer, but
		// what has happened cannot become undone.
		b.askInTrouble(d)
	}
	if tr.End != nil {
		tr.End()
	}
	b.settle()
	if effects := b.Effects(1); effects > 1 {
		b.t.Errorf("%d effects of one change", effects)
	}
	verdict := connector.Absent
	if b.asks() {
		a := b.answer(1)
		b.consistent(1, a)
		verdict = a.Verdict
	}
	b.again(c, verdict)
}

// askInTrouble looks the change up while the trouble lasts. What is not there yet, or not shown yet, may come
// until the service has settled.
func (b *trial) askInTrouble(d time.Duration) {
	b.t.Helper()
	made := b.Effects(1)
	a, err := b.ask(1, d)
	if err == nil && a.Verdict == connector.Absent && made > 0 {
		b.settle()
		a, err = b.ask(1, d)
	}
	if err == nil && (a.Verdict == connector.Happened || a.Verdict == connector.Absent && made > 0) {
		b.consistent(1, a)
	}
}

// definite compares an outcome that leaves no doubt with the truth.
func (b *trial) definite(c keep.Class, err error) {
	b.t.Helper()
	b.settle()
	want := 0
	if c == "none" {
		want = 1
	}
	if n := b.Effects(1); n != want {
		b.t.Errorf("class %q (%v), but the service has %d effects", c, err, n)
	}
}

// claimTrouble makes what comes before the change while something is wrong: that has no
// effect, whatever became of it, and the change is made with another.
func (b *trial) claimTrouble(tr Trouble) {
	c, ok := b.tool.(connector.Claimer)
	if !ok || tr.Stalls {
		return
	}
	tr.Arm()
	if _, err := c.Claim(b.t.Context(), b.mutation(1)); err != nil {
		b.noSecrets(err.Error())
	}
	if tr.End != nil {
		tr.End()
	}
	b.settle()
	if n := b.Effects(1); n != 0 {
		b.t.Errorf("%d effects of what comes before the change", n)
	}
	b.again(keep.ClassTransient, connector.Absent)
}

// again sends the change once more where the host would.
func (b *trial) again(c keep.Class, v connector.Verdict) {
	definite := c != "none" && c != keep.ClassUnknown
	if b.tool.Spec().Level != keep.LevelKey && !(definite || b.asks() && v == connector.Absent) {
		return
	}
	if v == connector.Happened && b.tool.Spec().Level != keep.LevelKey {
		return
	}
	_, err := b.mutate(1, callTimeout)
	kept := c == keep.ClassUnknown && v == connector.Happened && class(err) == keep.ClassUnknown // a service may give an answer of its own failure again for its key
	if err != nil && !kept {
		b.t.Errorf("sending again: %v", err)
	}
	b.settle()
	if n := b.Effects(1); n != 1 {
		b.t.Errorf("%d effects after sending again, want 1", n)
	}
}
