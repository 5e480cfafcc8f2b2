package pgtest

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// StartGerman starts a server of a test's own that says in German what is wrong. It stops when the test ends. The test is skipped where there is
// no Postgres, or none with German messages.
func StartGerman(tb testing.TB) *Server {
	tb.Helper()
	tb.Setenv("LANGUAGE", "de") // which counts in every locale but C
	s, err := Start("", "lc_messages=C.utf8")
	if err != nil {
		tb.Skipf("pgtest: %v", err)
	}
	tb.Cleanup(s.Stop)
	conn, err := pgx.Connect(tb.Context(), s.URL("postgres"))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(tb.Context())
	_, err = conn.Exec(tb.Context(), "SELECT 1 / 0")
	refused, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		tb.Fatal(err)
	case refused.Severity == refused.SeverityUnlocalized:
		tb.Skipf("pgtest: the server has no German messages: %v", err)
	}
	return s
}
