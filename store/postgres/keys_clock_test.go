package postgres_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/law/key"
)

// Keys go by the server's clock: a proxy whose machine's clock is an hour off takes no living owner for dead, and no dead one for living, and a person decides by
// the same clock.
func TestKeysOfAnotherClock(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"behind": -time.Hour, "ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.SchemaURL(t)
			exec(t, url, `CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
				$$SELECT pg_catalog.clock_timestamp() + interval '`+ahead.String()+`'$$`)
			k, _ := open(t, url+",pg_catalog")
			runs := 0
			g, err := idempotency.New(k, idempotency.Config{Rules: []idempotency.Rule{{AfterCrash: idempotency.AfterCrashRetry}}})
			if err != nil {
				t.Fatal(err)
			}
			var lease time.Time
			h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				runs++
				rec, err := k.Read(r.Context(), key.NewID("example.com", "", r.Header.Get("Idempotency-Key")))
				if err != nil {
					t.Error(err)
				}
				lease = rec.LeaseUntil
			}))
			send := func(name string) int {
				r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
				r.Header.Set("Idempotency-Key", name)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			at, err := k.Now(t.Context())
			if err != nil || at.Sub(time.Now().Add(ahead)).Abs() > 10*time.Minute {
				t.Fatalf("the server's time is %s, %v", at, err)
			}
			if code := send("mine"); code != 200 || runs != 1 || lease.Sub(at) < 20*time.Second || lease.Sub(at) > 10*time.Minute {
				t.Errorf("%d after %d executions, with a lease until %s; the server's time was %s", code, runs, lease, at)
			}
			for _, other := range []struct {
				key     string
				begun   time.Time
				code, n int
			}{{"lives", at.Add(10 * time.Minute), 409, 1}, {"died", at.Add(-10 * time.Minute), 200, 2}} {
				rec, err := k.Read(t.Context(), key.NewID("example.com", "", "mine"))
				if err != nil {
					t.Fatal(err)
				}
				claim := key.Claim{ID: key.NewID("example.com", "", other.key), Host: rec.Host, Key: other.key, Method: rec.Method, Path: rec.Path, Fingerprint: rec.Fingerprint, TTL: time.Hour}
				rec, err = key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 7, Claim: claim, Lease: 30 * time.Second}, other.begun)
				if err == nil {
					err = k.Write(t.Context(), rec)
				}
				if err != nil {
					t.Fatal(err)
				}
				if code := send(other.key); code != other.code || runs != other.n {
					t.Errorf("whose owner %s: %d after %d executions, want %d after %d", other.key, code, runs, other.code, other.n)
				}
			}
			v, err := idempotency.NewKeys(k).Resolve(t.Context(), key.NewID("example.com", "", "lives").String(), idempotency.Resolution{By: "ann"}, time.Now())
			if err == nil {
				t.Errorf("a person decides what became of a request that is being executed: %s", v.State)
			}
		})
	}
}
