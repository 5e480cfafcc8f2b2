package once_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/once"
	"github.com/keep-run/keep/internal/port"
)

// losing is a service that acts on each request, and loses the answer to the second.
func losing(t *testing.T) (url string, acted *atomic.Int32) {
	acted = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if acted.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(s.Close)
	return s.URL, acted
}

// send sends a change, and reads all of the answer.
func send(t *testing.T, c *http.Client, method, url, body string) error {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "k1")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// A client of net/http sends a request with a key again, on a connection that was used before, and says nothing of it. This
// is why there is the other one.
func TestOnce(t *testing.T) {
	for name, c := range map[string]struct {
		transport http.RoundTripper // nil: NewClient's
		acted     int32
	}{
		"net/http": {&http.Transport{}, 3},
		"changes":  {nil, 2},
		"reads":    {once.NewTransport(true), 2},
	} {
		for _, body := range []string{`{"id":"A"}`, ""} {
			client := once.NewClient()
			if c.transport != nil {
				client = &http.Client{Transport: c.transport}
			}
			url, acted := losing(t)
			if err := send(t, client, "POST", url, body); err != nil {
				t.Fatal(err)
			}
			err := send(t, client, "POST", url, body)
			if lost := c.acted == 2; (err != nil) != lost || errors.Is(err, once.ErrNotSent) || acted.Load() != c.acted {
				t.Errorf("%s, body %q: the service acted %d times, want %d; %v", name, body, acted.Load(), c.acted, err)
			}
			client.CloseIdleConnections()
		}
	}
}

// A redirect may lead a change to where nobody meant it.
func TestNoRedirect(t *testing.T) {
	var acted atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		acted.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	if err := send(t, once.NewClient(), "POST", s.URL, "{}"); err != nil || acted.Load() != 1 {
		t.Errorf("%d requests, %v; want the redirect", acted.Load(), err)
	}
}

// Where nothing was sent the error says so, by its class too.
func TestNotSent(t *testing.T) {
	nobody := "http://" + port.Addr(t)
	over, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	url, acted := losing(t)
	for name, c := range map[string]struct {
		ctx context.Context
		url string
	}{"refused": {t.Context(), nobody}, "over": {over, url}} {
		req, err := http.NewRequestWithContext(c.ctx, "POST", c.url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = once.NewClient().Do(req)
		f, ok := errors.AsType[*keep.Failure](err)
		if !errors.Is(err, once.ErrNotSent) || !ok || f.Class != keep.ClassTransient || acted.Load() != 0 {
			t.Errorf("%s: %v, want a transient failure of a request that was not sent", name, err)
		}
	}
}
