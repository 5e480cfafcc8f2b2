package proxy_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep/idempotency/proxy"
)

// A retry that could not be sent says of itself that it did nothing, and not of the attempt before it, which is in doubt.
func TestNotSentAfterADoubt(t *testing.T) {
	t.Parallel()
	var effects, dials atomic.Int64
	back := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		effects.Add(1)
		w.Header().Set("Connection", "close")
		w.WriteHeader(502) // a gateway's, after it passed the request on
	})
	clients, _, _ := front(t, back.URL, func(c *proxy.Config) {
		c.Routes = []proxy.Route{{AfterCrash: "retry"}}
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				return nil, errors.New("connection refused")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	if resp, said := post(t, clients.URL, "k", "x"); resp.StatusCode != 502 || !strings.Contains(said, "outcome-unknown") {
		t.Errorf("the first attempt got %s %s", resp.Status, said)
	}
	resp, said := post(t, clients.URL, "k", "x")
	if resp.StatusCode != 502 || !strings.Contains(said, "not-sent") || strings.Contains(said, "nothing was done. ") || effects.Load() != 1 {
		t.Errorf("the retry that could not be sent got %s %s, after %d effects", resp.Status, said, effects.Load())
	}
}
