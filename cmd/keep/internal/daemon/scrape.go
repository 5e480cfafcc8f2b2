package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// What a monitor asks has no secrets and no titles, and a scraper has no login: with
// server.metrics_listen it has an address of its own, where there is nothing else.

// watched adds what monitors ask to mux.
func (s *Server) watched(mux *http.ServeMux, v *Session) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { ready(w, r, v, s.check) })
	mux.Handle("GET /metrics", s.metrics)
}

// openScrape binds the address of monitors; empty: they come to the one of the pages.
func (s *Server) openScrape(ctx, base context.Context, addr string, v *Session) error {
	if addr == "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return exit.Misusef("server.metrics_listen: %w; want an address that is free, such as 127.0.0.1:9464", err)
	}
	mux := http.NewServeMux()
	s.watched(mux, v)
	s.scrape, s.scraped = s.env.newHTTP(base, mux), l
	return nil
}
