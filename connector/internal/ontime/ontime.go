// Package ontime makes connections that send nothing after the end of the call they
// were made for. The end of a context does not prevent that: a process that was
// stopped just before it writes does so when it resumes, and notices the end a moment
// later. By then another host may have the workflow, and may have asked the service.
//
// It is the one part of a connector that reads the clock: right before each write, and for
// signatures.
package ontime

import (
	"context"
	"errors"
	"net"
	"time"
)

// ErrLate is returned by Write when the time for the call is over. Nothing of what
// was to be written was sent.
var ErrLate = errors.New("the time for the call was over before it was sent")

// ends is the key of the time in a context.
type ends struct{}

// WithEnd returns a context whose connections write until its deadline and no longer,
// even if they are dialed under a context without the deadline.
func WithEnd(ctx context.Context) context.Context {
	if end, ok := ctx.Deadline(); ok {
		return context.WithValue(ctx, ends{}, end)
	}
	return ctx
}

// A Dialer dials as the net.Dialer does.
type Dialer struct{ net.Dialer }

// DialContext dials a connection that writes until the end that WithEnd gave ctx.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, addr)
	return until(ctx, c, err)
}

// Dialing returns dial with connections that write until the end that WithEnd gave the context. Nil is that of a net.Dialer.
func Dialing(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return until(ctx, c, err)
	}
}

// until returns a connection that was dialed, which writes until the end of ctx.
func until(ctx context.Context, c net.Conn, err error) (net.Conn, error) {
	end, ok := ctx.Value(ends{}).(time.Time)
	if err != nil || !ok {
		return c, err
	}
	if err := c.SetWriteDeadline(end); err != nil { // ends a write that blocks
		c.Close()
		return nil, err
	}
	return &conn{Conn: c, end: end, clock: time.Now}, nil
}

// Over reports whether the deadline of ctx has passed, also where nobody was told yet.
func Over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && passed(end, time.Now())
}

// passed reports whether it is too late by either clock: while a machine sleeps the monotonic one does not advance, and the
// other one may be set.
func passed(end, now time.Time) bool {
	return !now.Before(end) || !now.Round(0).Before(end.Round(0))
}

// Now is the time of the machine, for what a service compares with its own clock.
func Now() time.Time { return time.Now() }

type conn struct {
	net.Conn
	end   time.Time
	clock func() time.Time
}

// Write writes p, unless it is too late.
func (c *conn) Write(p []byte) (int, error) {
	if passed(c.end, c.clock()) {
		return 0, ErrLate
	}
	return c.Conn.Write(p)
}
