package connector_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

type contact struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

// A reader of a Go function decodes params and encodes the result; params that do not fit are the
// workflow's fault, and the function is not called.
func TestNewReader(t *testing.T) {
	r := connector.NewReader(connector.Spec{Name: "get"}, func(_ context.Context, p contact) (contact, error) {
		return contact{p.ID, p.ID + "@example.com"}, nil
	})
	if r.Spec().Effect != connector.Get {
		t.Errorf("effect %q, want get", r.Spec().Effect)
	}
	out, err := r.Read(t.Context(), []byte(`{"id":"ada"}`))
	if err != nil || string(out) != `{"id":"ada","email":"ada@example.com"}` {
		t.Errorf("Read = %s, %v", out, err)
	}
	for what, result := range map[string]any{"NaN": math.NaN(), `email: the text "caf\xe9"`: contact{Email: "caf\xe9"}} {
		r := connector.NewReader(connector.Spec{Name: "get"}, func(context.Context, contact) (any, error) { return result, nil })
		_, err := r.Read(t.Context(), nil)
		if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Class != keep.ClassLogic || !strings.Contains(f.Message, what) {
			t.Errorf("a result with %s: %v, want a logic failure", what, err)
		}
	}
	_, err = r.Read(t.Context(), []byte(`{"id":7}`))
	if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Class != keep.ClassLogic {
		t.Errorf("params that do not fit: %v, want a logic failure", err)
	}
}

// A mutator of a Go function gives it the key of the record, asks with the same key, and reports
// what it does not know as unknown. Without Find it is no Reconciler, so that the first doubt
// stops the run.
func TestNewMutator(t *testing.T) {
	made := map[string]contact{}
	lost := errors.New("connection reset")
	change := connector.Change[contact, contact]{
		Do: func(_ context.Context, key string, p contact) (contact, error) {
			made[key] = p
			return contact{}, lost
		},
		Find: func(_ context.Context, key string, _ contact) (contact, bool, error) {
			c, ok := made[key]
			return c, ok, nil
		},
		Target: func(p contact) string { return "contact " + p.ID },
	}
	m := connector.NewMutator(connector.Spec{Name: "create", SettleAfter: time.Second}, change)
	rec := keep.Mutation{Token: "k1", Payload: []byte(`{"id":"ada","email":"a@b"}`)}
	if s := m.Spec(); s.Effect != connector.Mutate || s.Level != keep.LevelWitness || !s.Marked || m.Target(rec.Payload) != "contact ada" {
		t.Errorf("spec %+v, target %q", s, m.Target(rec.Payload))
	}
	asker := m.(connector.Reconciler)
	if a, err := asker.Reconcile(t.Context(), rec); err != nil || a.Verdict != connector.Absent {
		t.Errorf("before the call: %+v, %v; want absent", a, err)
	}
	if _, err := m.Mutate(t.Context(), rec); !errors.Is(err, lost) {
		t.Errorf("Mutate: %v, want the error of the function", err)
	}
	if a, err := asker.Reconcile(t.Context(), rec); err != nil || a.Verdict != connector.Happened || string(a.Result) != `{"id":"ada","email":"a@b"}` {
		t.Errorf("after it: %+v, %v; want happened with its result", a, err)
	}
	rec.Token = "k2"
	if a, _ := asker.Reconcile(t.Context(), rec); a.Verdict != connector.Absent {
		t.Errorf("with another key: %s, want absent", a.Verdict)
	}
	change.Find = nil
	blind := connector.NewMutator(connector.Spec{Name: "create"}, change)
	if _, asks := blind.(connector.Reconciler); asks || blind.Spec().Level != keep.LevelNone {
		t.Errorf("without Find: asks %t, level %s; want level D", asks, blind.Spec().Level)
	}
}

// A call whose time is over does not reach the function.
func TestNewMutatorTooLate(t *testing.T) {
	done := 0
	m := connector.NewMutator(connector.Spec{Name: "do"}, connector.Change[contact, int]{Do: func(context.Context, string, contact) (int, error) {
		done++
		return done, nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Mutate(ctx, keep.Mutation{Payload: []byte(`{"id":"ada"}`)})
	if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Class != keep.ClassTransient || done != 0 {
		t.Errorf("%v after %d calls, want a transient failure", err, done)
	}
}

// A condition on params compares names as they are written, and package json does not: a name in another case is refused before it
// reaches the function.
func TestNamesOfParamsAreExact(t *testing.T) {
	type inner struct {
		IBAN string `json:"iban"`
	}
	type common struct {
		Note string `json:"note"`
	}
	type params struct {
		common
		AmountCents int              `json:"amountCents"`
		To          []inner          `json:"to"`
		By          map[string]inner `json:"by"`
		At          time.Time        `json:"at"`
		Free        any              `json:"free"`
		Secret      string           `json:"-"`
		Plain       string
	}
	reached := 0
	pay := connector.NewMutator(connector.Spec{Name: "pay", Identity: []string{"amountCents"}}, connector.Change[params, struct{}]{
		Do: func(context.Context, string, params) (struct{}, error) { reached++; return struct{}{}, nil },
	})
	look := connector.NewReader(connector.Spec{Name: "look"}, func(context.Context, params) (struct{}, error) { reached++; return struct{}{}, nil })
	for text, want := range map[string]string{
		`{"amountCents":1,"amountcents":100000}`: `there is no param "amountcents": write "amountCents"`,
		`{"AmountCents":1}`:                      `write "amountCents"`,
		`{"to":[{"iban":"a"},{"IBAN":"b"}]}`:     `write "iban"`,
		`{"by":{"IBAN":{"Iban":"b"}}}`:           `write "iban"`,
		`{"NOTE":"x"}`:                           `write "note"`,
		`{"plain":"x","PLAIN":"y"}`:              `"Plain" is there twice`,
		`{"plain":"x"}`:                          "",
		`{"amountCents":1,"note":"x","to":[{"iban":"a"}],"by":{"IBAN":{"iban":"b"}},"at":"2026-11-30T00:00:00Z","free":{"AMOUNTCENTS":1},"Plain":"x","secret":"y","other":{}}`: "",
	} {
		for name, call := range map[string]func() error{
			"pay": func() error {
				_, err := pay.Mutate(t.Context(), keep.Mutation{Payload: json.RawMessage(text)})
				return err
			},
			"look": func() error { _, err := look.Read(t.Context(), json.RawMessage(text)); return err },
		} {
			before := reached
			err := call()
			f, failed := errors.AsType[*keep.Failure](err)
			if want == "" && err != nil || want != "" && (!failed || f.Class != keep.ClassLogic || !strings.Contains(f.Message, want) || reached != before) {
				t.Errorf("%s with %s: %v after %d calls, want %q", name, text, err, reached-before, want)
			}
		}
	}
}
