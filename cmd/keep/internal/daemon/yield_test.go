//go:build unix

package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
)

// A holder has a database as its host, without a socket at first.
type holder struct {
	cfg *config.Config
	env Env
	db  database.DB
}

func holdDatabase(t *testing.T) *holder {
	t.Helper()
	cfg, err := config.Load(config.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{cfg: cfg, env: Env{Log: slog.New(slog.DiscardHandler)}}
	if h.db, err = database.Open(t.Context(), cfg, database.ToHost); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.db.Close() })
	return h
}

// TestYieldIsAnswered has a gateway yield while it is asked: it has answered before its socket is closed.
func TestYieldIsAnswered(t *testing.T) {
	t.Parallel()
	h := holdDatabase(t)
	var end func()
	gone := make(chan struct{})
	end = h.env.serveSocket(t.Context(), h.cfg, &hub{h.cfg, newGate(nil, nil)}, func() { end(); close(gone) })
	if err := askToYield(t.Context(), SocketOf(h.cfg)); err != nil {
		t.Errorf("askToYield = %v, want nil", err)
	}
	<-gone
	if err := askToYield(t.Context(), SocketOf(h.cfg)); !errors.Is(err, errNoLink) {
		t.Errorf("askToYield of who is gone = %v, want errNoLink", err)
	}
}

// TestOpenHostAsksAgain has a host come while a gateway has the database, and has no socket yet.
func TestOpenHostAsksAgain(t *testing.T) {
	t.Parallel()
	h := holdDatabase(t)
	end := func() {}
	defer func() { end() }()
	var said []string
	come := Env{Log: h.env.Log, Say: func(format string, _ ...any) {
		said = append(said, format)
		if len(said) == 1 {
			end = h.env.serveSocket(t.Context(), h.cfg, &hub{h.cfg, newGate(nil, nil)}, func() { _ = h.db.Close() })
		}
	}}
	db, err := come.openHost(t.Context(), h.cfg)
	if err != nil {
		t.Fatalf("openHost = %v; it said %q", err, said)
	}
	_ = db.Close()
	if len(said) != 2 || !strings.Contains(said[0], "does not answer") || !strings.Contains(said[1], "lets it go") {
		t.Errorf("it said %q, want that nobody answers, and that the gateway lets it go", said)
	}
}

// TestOpenHostBelievesARefusal has a host come while another host has the database: it is told at once.
func TestOpenHostBelievesARefusal(t *testing.T) {
	t.Parallel()
	h := holdDatabase(t)
	defer h.env.serveSocket(t.Context(), h.cfg, &hub{h.cfg, newGate(nil, nil)}, nil)()
	come := Env{Log: h.env.Log, Say: func(format string, _ ...any) { t.Errorf("it said %q, want nothing", format) }}
	if db, err := come.openHost(t.Context(), h.cfg); !errors.Is(err, keep.ErrLocked) {
		t.Errorf("openHost = %v, %v, want ErrLocked", db, err)
	}
}

// TestOpenHostEndsToAsk has a host come while a process without a socket has the database.
func TestOpenHostEndsToAsk(t *testing.T) {
	t.Parallel()
	h := holdDatabase(t)
	asked := 0
	come := Env{Log: h.env.Log, Say: func(string, ...any) { asked++ }}
	if db, err := come.openHost(t.Context(), h.cfg); !errors.Is(err, keep.ErrLocked) || asked != 1 {
		t.Errorf("openHost = %v, %v, and it spoke %d times, want ErrLocked and once", db, err, asked)
	}
}
