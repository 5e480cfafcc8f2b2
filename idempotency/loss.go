package idempotency

import (
	"context"
	"errors"
	"sync"

	"github.com/keep-run/keep"
)

// A loss is that the database was removed or replaced under the guard (keep.ErrReplaced). The store
// still reads what it wrote itself, but who starts next, on what is there now, finds none of it:
// whatever is executed from then on may be executed again. It stays so if the file is put
// back, since another process may have worked on the other one meanwhile.
type loss struct {
	once    sync.Once
	noticed chan struct{} // closed when the loss is known
	err     error         // set before noticed is closed
}

// notice takes what the store answered, and remembers a loss.
func (g *Guard) notice(ctx context.Context, err error) {
	if !errors.Is(err, keep.ErrReplaced) {
		return
	}
	g.loss.once.Do(func() {
		g.cfg.Logger.ErrorContext(ctx, "idempotency store: removed or replaced; nothing is executed any more: end this process", "err", err)
		g.loss.err = err
		close(g.loss.noticed)
	})
}

// lost returns keep.ErrReplaced, with what happened, once that is known.
func (g *Guard) lost() error {
	select {
	case <-g.loss.noticed:
		return g.loss.err
	default:
		return nil
	}
}

// errUnkept says that a handler's answer is recorded where nobody will look.
var errUnkept = errors.New("idempotency: the record of an executed request is lost with the database")
