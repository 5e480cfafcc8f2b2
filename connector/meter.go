package connector

import "context"

// A Meter lets in the requests of one call of a tool, as the limits of its connection
// allow.
type Meter interface {
	// Next waits until the next request of the call may begin. The first one may at
	// once: the host waited for it before it recorded the call. An error means that the
	// request must not be sent.
	Next(ctx context.Context) error
}

type meterKey struct{}

// WithMeter returns a context whose calls are let in by m.
func WithMeter(ctx context.Context, m Meter) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}

// Admit waits until the next request of the call of ctx may begin. A connector calls it
// before each request that it sends, if a call may take several; so all of them count. A
// connector that never calls it sends one request a call. An error means that the request
// must not be sent, and is a *keep.Failure.
func Admit(ctx context.Context) error {
	if m, ok := ctx.Value(meterKey{}).(Meter); ok {
		return m.Next(ctx)
	}
	return nil
}
