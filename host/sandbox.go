package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/keep-run/keep/script/sandbox"
)

// A runtimeOf is the sandbox of a host, which is opened when a script is loaded first: compiling its
// engine takes seconds, and workflows that are written in Go need none.
type runtimeOf struct {
	given *sandbox.Runtime // the caller's; nil: the host opens its own
	cfg   sandbox.Config

	mu     sync.Mutex // protects all below
	own    *sandbox.Runtime
	closed bool
}

// get returns the sandbox. Where it cannot be opened the next call tries again.
func (r *runtimeOf) get(ctx context.Context) (*sandbox.Runtime, error) {
	if r.given != nil {
		return r.given, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, sandbox.ErrClosed
	}
	if r.own == nil {
		rt, err := sandbox.Open(ctx, r.cfg)
		if err != nil {
			return nil, fmt.Errorf("open the sandbox: %w", err)
		}
		r.own = rt
	}
	return r.own, nil
}

// load loads a script.
func (r *runtimeOf) load(ctx context.Context, b *sandbox.Bundle) (*sandbox.Program, error) {
	rt, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	return rt.Load(ctx, b)
}

// close releases the sandbox, unless it is the caller's.
func (r *runtimeOf) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.own == nil {
		return nil
	}
	return r.own.Close()
}
