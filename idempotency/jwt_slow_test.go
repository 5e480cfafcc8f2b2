package idempotency_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Made-up key ids at a slow issuer hold up nobody whose key is known, and are asked about once.
func TestSlowIssuer(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	known, err := http.Get(i.url)
	must(t, err)
	defer known.Body.Close()
	synctest.Test(t, func(t *testing.T) {
		asked, release := 0, make(chan struct{})
		client := &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			if asked++; asked == 1 {
				return known, nil
			}
			<-release
			return nil, errors.New("it is down")
		})}
		who := idempotency.ByJWTSubject(&idempotency.JWKS{URL: "https://issuer.example", Client: client})
		as := func(id string) (caller string, err error) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Authorization", "Bearer "+i.token(t, "EdDSA", id, map[string]any{"iss": "i", "sub": "ada"}))
			return who(r)
		}
		ada, err := as("ed")
		must(t, err)
		time.Sleep(time.Minute)
		refused := make(chan error, 2)
		for _, id := range []string{"made-up", "another"} {
			go func() {
				_, err := as(id)
				refused <- err
			}()
			synctest.Wait()
		}
		if again, err := as("ed"); err != nil || again != ada { // it would wait, and no time pass
			t.Errorf("beside made-up keys: %q, %v", again, err)
		}
		if len(refused) > 0 || asked != 2 {
			t.Errorf("%d refused before the issuer answered, which was asked %d times, want 0 and 2", len(refused), asked)
		}
		close(release)
		for range 2 {
			if err := <-refused; !errors.Is(err, idempotency.ErrCallerUnavailable) {
				t.Errorf("a made-up key while the issuer is down: %v", err)
			}
		}
	})
}
