package connector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/schema"
	"github.com/keep-run/keep/internal/utf8json"
)

// NewReader returns a tool that reads by a Go function. Params becomes Params from the JSON that a workflow
// passes, and Result becomes JSON. An error with a *keep.Failure has its class; any other is
// transient. Params that do not fit, or have the name of a tag in another case, and a Result that is not JSON or has text that is not UTF-8, are a logic failure.
func NewReader[Params, Result any](spec Spec, read func(ctx context.Context, p Params) (Result, error)) Reader {
	spec.Effect = cmp.Or(spec.Effect, Get)
	return reader[Params, Result]{spec, read}
}

type reader[P, R any] struct {
	spec Spec
	read func(context.Context, P) (R, error)
}

func (r reader[P, R]) check() error {
	if r.read == nil {
		return errors.New("its function is nil")
	}
	return nil
}

// Spec implements Tool.
func (r reader[P, R]) Spec() Spec { return r.spec }

// Read implements Reader.
func (r reader[P, R]) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	p, err := exactParams[P](params)
	if err != nil {
		return nil, err
	}
	result, err := r.read(ctx, p)
	if err != nil {
		return nil, err
	}
	raw, err := utf8json.Marshal(result)
	if err != nil {
		return nil, keep.Failf(keep.ClassLogic, "bad-result", "the result cannot be passed on as JSON: %v", err)
	}
	return raw, nil
}

// A Change is a Go function that changes something, and what else Keep must know of it.
type Change[Params, Result any] struct {
	// Do makes the change once, and stops at the end of ctx. Key is the same for every attempt at
	// this change, and another for every other change: give it to the service, so that
	// Find can look for it. An error says that the change may have happened, unless it has a
	// *keep.Failure of one of keep.Classes but keep.ClassUnknown.
	//
	// It must send nothing a second time. The client of net/http does so by itself, of a request with the header
	// Idempotency-Key: use that of package connector/once.
	Do func(ctx context.Context, key string, p Params) (Result, error)

	// Find asks the service for the change with that key, and changes nothing. If nil, nobody but
	// a person can say whether a change happened whose answer was lost, and the level is D.
	Find func(ctx context.Context, key string, p Params) (r Result, found bool, err error)

	// Target names for a person what is changed. If nil, the name of the tool.
	Target func(p Params) string
}

// NewMutator returns a tool that changes something by a Go function. With c.Find its level is C, and the effect
// that Find finds is that of the key (Spec.Marked); Spec.SettleAfter says how long Find may
// lag behind a change. A spec that names a level keeps it. Params that do not fit Spec.Params, and a call
// whose time is over, do not reach Do.
func NewMutator[Params, Result any](spec Spec, c Change[Params, Result]) Mutator {
	m := mutator[Params, Result]{spec: spec, change: c, said: cmp.Or(spec.Effect, Mutate), params: sync.OnceValues(func() (*jsonschema.Schema, error) {
		if spec.Params == nil {
			return nil, nil
		}
		return schema.Compile(spec.Params)
	})}
	m.spec.Effect = Mutate
	if c.Find == nil {
		m.spec.Level = cmp.Or(spec.Level, keep.LevelNone)
		return m
	}
	m.spec.Level, m.spec.Marked = cmp.Or(spec.Level, keep.LevelWitness), true
	return finder[Params, Result]{m}
}

type mutator[P, R any] struct {
	spec   Spec
	change Change[P, R]
	said   Effect // by the spec
	params func() (*jsonschema.Schema, error)
}

func (m mutator[P, R]) check() error {
	switch {
	case m.change.Do == nil:
		return errors.New("Do is nil")
	case len(m.spec.Identity) == 0:
		return errors.New("Identity is empty: name the params that say what is changed")
	case m.said != Mutate:
		return fmt.Errorf("effect %s of a mutator", m.said)
	}
	return nil
}

// Spec implements Tool.
func (m mutator[P, R]) Spec() Spec { return m.spec }

// Target implements Mutator.
func (m mutator[P, R]) Target(params json.RawMessage) string {
	p, err := paramsOf[P](params)
	if m.change.Target == nil || err != nil {
		return m.spec.Name
	}
	return m.change.Target(p)
}

// Mutate implements Mutator.
func (m mutator[P, R]) Mutate(ctx context.Context, rec keep.Mutation) (Receipt, error) {
	p, err := m.read(ctx, rec.Payload)
	if err != nil {
		return Receipt{}, err // nothing was sent
	}
	result, err := m.change.Do(ctx, rec.Token, p)
	if err != nil {
		return Receipt{}, err
	}
	return receiptOf(result), nil
}

// read returns params that fit the schema, while there is time for the call.
func (m mutator[P, R]) read(ctx context.Context, raw json.RawMessage) (p P, err error) {
	want, err := m.params()
	if err == nil && want != nil {
		var given any
		if given, err = schema.Value(raw); err == nil {
			err = want.Validate(given)
		}
	}
	if err != nil {
		return p, keep.Failf(keep.ClassLogic, "bad-params", "invalid params: %s", schema.Reasons(err))
	}
	if p, err = exactParams[P](raw); err == nil && ctx.Err() != nil {
		err = keep.Failf(keep.ClassTransient, "not-sent", "the time for the call was over before it was sent: %v", context.Cause(ctx))
	}
	return p, err
}

// A finder is a mutator that can be asked.
type finder[P, R any] struct{ mutator[P, R] }

// Reconcile implements Reconciler.
func (f finder[P, R]) Reconcile(ctx context.Context, rec keep.Mutation) (Answer, error) {
	p, err := paramsOf[P](rec.Payload)
	if err != nil {
		return Answer{}, err
	}
	result, found, err := f.change.Find(ctx, rec.Token, p)
	switch {
	case err != nil:
		return Answer{}, err
	case !found:
		return Answer{Verdict: Absent, Detail: "not found by its key"}, nil
	}
	return Answer{Verdict: Happened, Receipt: receiptOf(result), Detail: "found by its key"}, nil
}

// receiptOf returns what a change brought. It happened, whatever the result is.
func receiptOf(result any) Receipt {
	raw, err := utf8json.Marshal(result)
	if err != nil {
		return Receipt{Warning: "the result was left out: " + err.Error()}
	}
	return Receipt{Result: raw}
}

// Check reports what is wrong with a connection before anything is called: its name, tools that cannot work, and
// approvals that nobody would be asked for.
func Check(c Connection) error {
	if !IsName(c.Name) {
		return fmt.Errorf("the name of a connection is %q: it needs letters, digits and _, and begins with no digit", c.Name)
	}
	var errs []error
	for i, t := range c.Tools {
		if t == nil {
			errs = append(errs, fmt.Errorf("connection %s: tool %d is nil", c.Name, i))
			continue
		}
		name := t.Spec().Name
		if !IsName(name) {
			errs = append(errs, fmt.Errorf("connection %s: the name of a tool is %q", c.Name, name))
		}
		if own, ok := t.(interface{ check() error }); ok {
			if err := own.check(); err != nil {
				errs = append(errs, fmt.Errorf("tool %s.%s: %w", c.Name, name, err))
			}
		}
	}
	if len(errs) == 0 { // all tools have names
		for _, name := range slices.Sorted(maps.Keys(c.Approve)) {
			if err := CheckApprove(c, name); err != nil {
				errs = append(errs, fmt.Errorf("connection %s: approve.%s: %w", c.Name, name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// CheckApprove reports why nobody would be asked for what c.Approve says of the tool of a name. Whether it is a condition is
// not its matter.
func CheckApprove(c Connection, name string) error {
	i := slices.IndexFunc(c.Tools, func(t Tool) bool { return t.Spec().Name == name })
	switch {
	case i < 0:
		return fmt.Errorf("the connection %q has no such tool", c.Name)
	case c.Tools[i].Spec().Effect != Mutate:
		return fmt.Errorf("%s reads, and nobody is asked about that", name)
	case c.Approve[name] == "":
		return errors.New(`is empty; write "always", or a condition such as "params.amount > 500"`)
	}
	return nil
}

// Lacks says why none of conns has the tool of a full name, or none at all for "bank.*"; empty: one has it.
func Lacks(conns []Connection, tool string) string {
	conn, name, _ := strings.Cut(tool, ".")
	at := slices.IndexFunc(conns, func(c Connection) bool { return c.Name == conn })
	switch {
	case at < 0:
		return fmt.Sprintf("%s: there is no connection %q", tool, conn)
	case name == "*" || slices.ContainsFunc(conns[at].Tools, func(t Tool) bool { return t.Spec().Name == name }):
		return ""
	}
	return fmt.Sprintf("%s: the connection %q has no such tool", tool, conn)
}

// exactParams is paramsOf for what a workflow passes, whose names are as conditions know them.
func exactParams[P any](raw json.RawMessage) (p P, err error) {
	if err := exact(raw, reflect.TypeFor[P]()); err != nil {
		return p, keep.Failf(keep.ClassLogic, "bad-params", "invalid params: %v", err)
	}
	return paramsOf[P](raw)
}

// paramsOf reads params. The failure says that nothing was sent.
func paramsOf[P any](raw json.RawMessage) (p P, err error) {
	if len(raw) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, keep.Failf(keep.ClassLogic, "bad-params", "invalid params: %s", fmt.Sprint(err))
	}
	return p, nil
}
