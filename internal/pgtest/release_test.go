package pgtest

import (
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// Tests run on the version that the environment asks for.
func TestWanted(t *testing.T) {
	want, err := wanted()
	if err != nil || want == 0 {
		want, err = 18, os.Setenv(versionEnv, "18")
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), SchemaURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var num string
	if err := conn.QueryRow(t.Context(), `SHOW server_version_num`).Scan(&num); err != nil {
		t.Fatal(err)
	}
	if got, err := strconv.Atoi(num); err != nil || got/10000 != want {
		t.Errorf("the server is %s, want %d", num, want)
	}
}
