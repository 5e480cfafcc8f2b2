// Package pause waits, and not longer than somebody wants to.
package pause

import (
	"context"
	"time"
)

// For waits for d. If ctx ends before, it returns the cause at once.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
