package mcp

import (
	"context"
	"net/http"
	"time"

	"github.com/keep-run/keep/connector/internal/ontime"
)

// A serverClock is how far the clock of a server is behind that of this machine, as its answers tell.
type serverClock struct {
	behind time.Duration
	known  bool // an answer told the time
}

type clockKey struct{}

// withClock returns a context under which what answers tell of the time is noted.
func withClock(ctx context.Context, c *serverClock) context.Context {
	return context.WithValue(ctx, clockKey{}, c)
}

// noteClock notes what an answer tells of the time.
func noteClock(ctx context.Context, resp *http.Response) {
	c, asked := ctx.Value(clockKey{}).(*serverClock)
	if at, err := http.ParseTime(resp.Header.Get("Date")); asked && err == nil {
		c.behind, c.known = ontime.Now().Sub(at), true
	}
}
