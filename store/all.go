package store

import (
	"context"
	"iter"

	"github.com/keep-run/keep"
)

// All yields what a list selects, newest first, page after page, which p says how to read. What its caller does with a page is done
// before the next one is read. An error is the last that it yields.
func All[F, T any](ctx context.Context, list func(context.Context, F, keep.Page) ([]T, string, error), filter F, p keep.Page) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			some, next, err := list(ctx, filter, p)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, v := range some {
				if !yield(v, nil) {
					return
				}
			}
			if p.After = next; next == "" {
				return
			}
		}
	}
}
