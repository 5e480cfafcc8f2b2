package main

import (
	"context"
	"errors"
	"io"
)

// errInputEnded is the cause of a context that ended with standard input.
var errInputEnded = errors.New("standard input ended")

// An untilDone reads from a terminal, and not longer than its context lasts: Ctrl-C at a question ends it. What still reads then ends
// with the process.
type untilDone struct {
	ctx context.Context
	in  io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(p []byte) (int, error) {
	type read struct {
		text []byte
		err  error
	}
	got := make(chan read, 1)
	go func() {
		text := make([]byte, len(p)) // p is the caller's again once Read returns
		n, err := u.in.Read(text)
		got <- read{text[:n], err}
	}()
	select {
	case r := <-got:
		return copy(p, r.text), r.err
	case <-u.ctx.Done():
		return 0, context.Cause(u.ctx)
	}
}

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
