package main

import (
	"context"
	"errors"
	"io"
)

// errInputEnded is the cause of a context that ended with standard input.
var errInputEnded = errors.New("standard input ended")

// untilEOF returns a context that ends when r does. A process that holds the
// other end of a pipe so takes those that it started with it, however it ends:
// the system closes its end of the pipe.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, err := io.Copy(io.Discard, r)
		cancel(errors.Join(errInputEnded, err))
	}()
	return ctx
}
