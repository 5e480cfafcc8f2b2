package postgres_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// A server that is older than what the tests run on is refused before anything is
// made on it.
func TestOldServer(t *testing.T) {
	t.Parallel()
	server := pgtest.StartRelease(t, 13)
	for _, cfg := range []postgres.Config{{}, {Host: true}, {ReadOnly: true}} {
		db := postgres.New(server.URL("postgres"), cfg)
		err := db.Open(t.Context())
		if err == nil || !strings.HasSuffix(err.Error(), "the server is PostgreSQL 13.23, and Keep needs 14 or newer: upgrade the server") {
			t.Errorf("%+v: Open = %v", cfg, err)
		}
	}
	var tables int
	if err := connect(t, server.URL("postgres")).QueryRow(t.Context(),
		`SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables afterwards, %v", tables, err)
	}
}
