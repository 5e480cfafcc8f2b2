package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A trial is one check on one bench.
type trial struct {
	*Bench
	t      *testing.T
	tool   connector.Mutator
	claims map[int]string
	tries  map[int]int
}

func begin(t *testing.T, open func(testing.TB) *Bench) *trial {
	t.Helper()
	b := &trial{Bench: open(t), t: t, claims: map[int]string{}, tries: map[int]int{}}
	if b.Connection.Close != nil {
		t.Cleanup(func() {
			if err := b.Connection.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	b.use(b.Connection)
	return b
}

// use has the tool of a connection tried.
func (b *trial) use(c *connector.Connection) {
	b.t.Helper()
	b.tool = nil
	for _, tool := range c.Tools {
		if m, ok := tool.(connector.Mutator); ok && tool.Spec().Name == b.Tool {
			b.tool = m
		}
	}
	if b.tool == nil {
		b.t.Fatalf("the connection has no mutate tool %q", b.Tool)
	}
}

// reopen has the tool of another connection to the same service tried, as a host does that is started again: what the first one
// remembers is gone. It reports false if the bench opens none.
func (b *trial) reopen() bool {
	if b.Again == nil {
		return false
	}
	c := b.Again(b.t)
	if c.Close != nil {
		b.t.Cleanup(func() {
			if err := c.Close(); err != nil {
				b.t.Errorf("close: %v", err)
			}
		})
	}
	b.use(c)
	return true
}

// mutation is the record of the nth change.
func (b *trial) mutation(n int) keep.Mutation {
	now := time.Now()
	pin, err := json.Marshal(keep.SentAs{Connector: b.Connection.Connector, Claim: b.claims[n]})
	if err != nil {
		b.t.Fatal(err)
	}
	return keep.Mutation{
		Pin: pin,
		Key: keep.MutationKey(fmt.Sprint("key-", n)), Token: fmt.Sprint("token-", n), Payload: b.Params(n),
		Tool: keep.ToolName(b.Connection.Name + "." + b.Tool), Attempts: max(b.tries[n], 1),
		CreatedAt: now, CallDeadline: now.Add(callTimeout),
	}
}

// claim does what the host does before it records the nth change for the first time.
func (b *trial) claim(n int) error {
	c, ok := b.tool.(connector.Claimer)
	if !ok || b.claims[n] != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), callTimeout)
	defer cancel()
	id, err := c.Claim(ctx, b.mutation(n))
	if b.claims[n] = id; err != nil {
		b.noSecrets(err.Error())
	}
	return err
}

// mutate makes the nth change, within d.
func (b *trial) mutate(n int, d time.Duration) (connector.Receipt, error) {
	b.t.Helper()
	if err := b.claim(n); err != nil {
		b.t.Fatalf("Claim: %v", err)
	}
	b.tries[n]++
	ctx, cancel := context.WithTimeout(b.t.Context(), d)
	defer cancel()
	start := time.Now()
	r, err := b.tool.Mutate(ctx, b.mutation(n))
	if took := time.Since(start); took > d+grace {
		b.t.Errorf("Mutate returned %s after its deadline", took-d)
	}
	b.noSecrets(r.Warning)
	if err != nil {
		b.noSecrets(err.Error())
	}
	return r, err
}

// ask asks about the nth change, within d.
func (b *trial) ask(n int, d time.Duration) (connector.Answer, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), d)
	defer cancel()
	a, err := b.tool.(connector.Reconciler).Reconcile(ctx, b.mutation(n))
	b.noSecrets(a.Detail + a.Warning)
	if err != nil {
		b.noSecrets(err.Error())
	} else if !slices.Contains([]connector.Verdict{connector.Happened, connector.Absent, connector.Unwitnessed, connector.Retry}, a.Verdict) {
		b.t.Errorf("Reconcile answered %q", a.Verdict)
	}
	if err == nil && a.Verdict == connector.Unwitnessed {
		return b.witness(ctx, n, a)
	}
	return a, err
}

// witness does what the host does with an absence that nothing witnesses: it looks for
// another change, which is known to have happened, and then once more for the nth.
func (b *trial) witness(ctx context.Context, n int, a connector.Answer) (connector.Answer, error) {
	b.t.Helper()
	if !b.tool.Spec().NeedsControl {
		b.t.Errorf("Reconcile answered %q, but the tool's spec does not say so", a.Verdict)
	}
	c, ok := b.tool.(connector.Controller)
	if !ok || b.Effects(control) == 0 {
		a.Verdict = connector.Retry
		return a, nil
	}
	if found, err := c.Control(ctx, b.mutation(control)); err != nil || !found {
		a.Verdict = connector.Retry
		return a, err
	}
	a, err := b.tool.(connector.Reconciler).Reconcile(ctx, b.mutation(n))
	if err == nil && a.Verdict == connector.Unwitnessed {
		a.Verdict = connector.Absent
	}
	return a, err
}

// control is the change that is made before one that is tried, and so is known to have
// happened.
const control = 2

// answer asks until there is an answer.
func (b *trial) answer(n int) connector.Answer {
	b.t.Helper()
	var a connector.Answer
	var err error
	for range 5 {
		if a, err = b.ask(n, callTimeout); err == nil && a.Verdict != connector.Retry {
			return a
		}
	}
	if b.AbsenceIsAgain && err == nil && b.Effects(n) == 0 {
		return a
	}
	b.t.Errorf("Reconcile has no answer although the trouble is over: %+v, %v", a, err)
	return a
}

// reconcileAnother asks about a change that was made under another token, as in an attempt
// before: a tool that is Marked finds no effect of it, unless it has made one now.
func (b *trial) reconcileAnother() {
	if !b.asks() || !b.tool.Spec().Marked {
		b.t.Skip("the host does not believe that what it finds is of its call, in a later attempt")
	}
	if _, err := b.mutate(1, callTimeout); err != nil {
		b.t.Fatalf("Mutate: %v", err)
	}
	b.settle()
	another := b.mutation(1)
	another.Key, another.Token = "key-another", "token-another"
	ctx, cancel := context.WithTimeout(b.t.Context(), callTimeout)
	defer cancel()
	a, err := b.tool.(connector.Reconciler).Reconcile(ctx, another)
	if err == nil && a.Verdict == connector.Happened && !a.ByKey {
		b.t.Errorf("Reconcile of token-another found the effect of token-1: %s", a.Detail)
	}
}

func (b *trial) asks() bool { _, ok := b.tool.(connector.Reconciler); return ok }

func (b *trial) settle() {
	if b.Settle != nil {
		b.Settle()
	}
}

func (b *trial) noSecrets(s string) {
	b.t.Helper()
	for _, secret := range b.Secrets {
		if strings.Contains(s, secret) {
			b.t.Errorf("a secret is in the message %q", s)
		}
	}
}

// class returns the class of err as the host reads it.
func class(err error) keep.Class {
	var f *keep.Failure
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &f) && slices.Contains(keep.Classes(), f.Class):
		return f.Class
	default:
		return keep.ClassUnknown
	}
}
