package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A crowded store has its one place to write, or its last connection, taken by another until place is closed.
type crowded struct {
	*flaky
	begins atomic.Bool
	asked  chan struct{} // closed when a transaction is to begin
	place  chan struct{}
	wrote  chan struct{} // a record was written meanwhile
	open   atomic.Int64  // transactions
}

// newCrowded returns a world upon a crowded store.
func newCrowded(t *testing.T, cfg idempotency.Config, h http.HandlerFunc) (*world, *crowded) {
	var s *crowded
	w := newWorldOn(t, func(f *flaky) idempotency.Store {
		s = &crowded{flaky: f, asked: make(chan struct{}), place: make(chan struct{}), wrote: make(chan struct{}, 1)}
		return s
	}, cfg, h)
	return w, s
}

func (s *crowded) Begin(context.Context) (key.Tx, error) {
	s.begins.Store(true)
	close(s.asked)
	<-s.place
	s.open.Add(1)
	return &plainTx{s}, nil
}

func (s *crowded) Write(ctx context.Context, r key.Record) error {
	err := s.flaky.Write(ctx, r)
	if s.begins.Load() {
		select {
		case s.wrote <- struct{}{}:
		default:
		}
	}
	return err
}

type plainTx struct{ s *crowded }

func (*plainTx) Handle() any                                     { return "tx" }
func (t *plainTx) Write(ctx context.Context, r key.Record) error { return t.s.Write(ctx, r) }
func (t *plainTx) Commit(context.Context) error                  { t.s.open.Add(-1); return nil }
func (t *plainTx) Rollback() error                               { t.s.open.Add(-1); return nil }

// The lease of a handler that waits for its transaction is renewed: nobody executes the request beside it.
func TestLeaseWhileATransactionBegins(t *testing.T) {
	t.Parallel()
	w, s := newCrowded(t, idempotency.Config{Lease: 30 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
		if _, err := idempotency.Tx[string](r.Context()); err != nil {
			t.Error(err)
		}
		rw.WriteHeader(201)
	})
	done := make(chan int)
	go func() { done <- w.do(with("k")).Code }()
	<-s.asked
	select {
	case <-s.wrote:
	case <-time.After(10 * time.Second):
		t.Error("the lease was not renewed")
	}
	close(s.place)
	if code := <-done; code != 201 {
		t.Errorf("the owner answered %d", code)
	}
}

// A transaction that begins when its request is over is rolled back, and its handler gets an error.
func TestTransactionBegunTooLate(t *testing.T) {
	t.Parallel()
	var s *crowded
	late := make(chan error)
	w, s := newCrowded(t, idempotency.Config{}, func(rw http.ResponseWriter, r *http.Request) {
		go func() {
			_, err := idempotency.Tx[string](r.Context())
			late <- err
		}()
		<-s.asked
		rw.WriteHeader(201)
	})
	if code := w.do(with("k")).Code; code != 201 {
		t.Errorf("answered %d", code)
	}
	close(s.place)
	if err := <-late; !errors.Is(err, idempotency.ErrNotGuarded) || s.open.Load() != 0 {
		t.Errorf("%v, and %d transactions are open", err, s.open.Load())
	}
}
