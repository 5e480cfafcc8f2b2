package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
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

// The way to the upstream leads nowhere else: a probe that is another service is asked there, and the keys of an issuer come from the issuer.
func TestDialIsOfTheUpstream(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path != "/acts/own" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "seen by the backend")
	}), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	go func() { _ = back.Serve(l) }()
	defer back.Close()
	jwks, token := issuerOf(t, "ada")
	ledger := upstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "seen by the ledger") })
	clients, _, _ := front(t, "http://backend.example", func(c *proxy.Config) {
		c.Routes = []proxy.Route{
			{Path: "/own", Caller: "none", Probe: "http://backend.example/acts/{key}"},
			{Caller: "jwt:sub", JWKS: jwks, Probe: ledger.URL + "/acts/{key}?by={caller}"},
		}
		c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	})
	for k, want := range map[string]string{"own": "seen by the backend", "other": "seen by the ledger"} {
		got := ""
		for range 2 {
			_, got = post(t, clients.URL+"/"+k, k, "act", "Authorization", token)
		}
		if got != want {
			t.Errorf("%s: the retry got %s, want %s", k, got, want)
		}
	}
}
