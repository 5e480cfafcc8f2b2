package idempotency_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/idempotency"
)

// script is a transport that answers as it is told and notes keys and bodies.
type script struct {
	answers []func() (*http.Response, error)
	keys    []string
	bodies  []string
	at      []time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	s.at = append(s.at, time.Now())
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		s.bodies = append(s.bodies, string(b))
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	return next()
}

func answers(status int, header ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		rec := httptest.NewRecorder()
		for i := 0; i < len(header); i += 2 {
			rec.Header().Set(header[i], header[i+1])
		}
		rec.WriteHeader(status)
		_, _ = rec.WriteString("whole")
		return rec.Result(), nil
	}
}

func refused(p idempotency.Problem) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		rec := httptest.NewRecorder()
		p.ServeHTTP(rec, nil)
		return rec.Result(), nil
	}
}

func broken() (*http.Response, error) { return nil, errors.New("connection reset") }

func TestClient(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"one_key": clientOneKey,
		"limits":  clientLimits,
		"storm":   clientStorm,
	} {
		t.Run(name, test)
	}
}

func clientOneKey(t *testing.T) {
	t.Parallel()
	busy := refused(idempotency.Problem{Kind: idempotency.KindInProgress, Status: 409, RetryAfter: 3 * time.Second})
	unknown := func(status int) func() (*http.Response, error) {
		return refused(idempotency.Problem{Kind: idempotency.KindOutcomeUnknown, Status: status, RetryAfter: time.Second})
	}
	for name, test := range map[string]struct {
		answers []func() (*http.Response, error)
		status  int // 0: an error
		sent    int
		least   time.Duration
	}{
		"first works":             {[]func() (*http.Response, error){answers(201)}, 201, 1, 0},
		"no answer":               {[]func() (*http.Response, error){broken, broken, answers(201)}, 201, 3, 300 * time.Millisecond},
		"502 storm":               {[]func() (*http.Response, error){answers(502), answers(502), answers(200)}, 200, 3, 0},
		"in progress":             {[]func() (*http.Response, error){busy, answers(201)}, 201, 2, 3 * time.Second},
		"429 and 503":             {[]func() (*http.Response, error){answers(429, "Retry-After", "2"), answers(503), answers(200)}, 200, 3, 2 * time.Second},
		"asks for too long":       {[]func() (*http.Response, error){answers(429, "Retry-After", "60")}, 429, 1, 0},
		"conflict of the service": {[]func() (*http.Response, error){answers(409)}, 409, 1, 0},
		"unknown is not retried":  {[]func() (*http.Response, error){unknown(409)}, 409, 1, 0},
		"nor after a cut":         {[]func() (*http.Response, error){unknown(502)}, 502, 1, 0},
		"422":                     {[]func() (*http.Response, error){answers(422)}, 422, 1, 0},
		"500 is an answer":        {[]func() (*http.Response, error){answers(500)}, 500, 1, 0},
		"gives up":                {[]func() (*http.Response, error){broken, broken, broken, broken, broken}, 0, 5, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: test.answers}
				start := time.Now()
				r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://x/", strings.NewReader("order"))
				resp, err := (&http.Client{Transport: &idempotency.Client{Base: s}}).Do(r)
				if len(s.keys) != test.sent || (err == nil) != (test.status != 0) {
					t.Fatalf("sent %d times, %v; want %d", len(s.keys), err, test.sent)
				}
				if err == nil {
					b, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != test.status || len(b) == 0 {
						t.Errorf("status %d, body %q, want %d and a whole body", resp.StatusCode, b, test.status)
					}
				}
				for i, k := range s.keys {
					if k != s.keys[0] || len(k) < 20 || s.bodies[i] != "order" {
						t.Errorf("attempt %d: key %q, body %q", i, k, s.bodies[i])
					}
				}
				if took := time.Since(start); took < test.least || took > time.Minute {
					t.Errorf("it took %s, want at least %s", took, test.least)
				}
			})
		})
	}
}

func clientLimits(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func() (*http.Response, error){answers(200), answers(200), answers(502)}}
	c := &http.Client{Transport: &idempotency.Client{Base: s, MaxBody: 4}}
	r, _ := http.NewRequest("POST", "http://x/", nil)
	r.Header.Set("Idempotency-Key", "mine")
	_, err := c.Do(r)
	must(t, err)
	_, err = c.Get("http://x/")
	must(t, err)
	resp, err := c.Post("http://x/", "text/plain", strings.NewReader("longer than four"))
	must(t, err)
	if s.keys[0] != "mine" || s.keys[1] != "" || len(s.keys) != 3 || resp.StatusCode != 502 || s.bodies[len(s.bodies)-1] != "longer than four" {
		t.Errorf("keys %q, bodies %q", s.keys, s.bodies)
	}
}

func clientStorm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idempotency.Config{}, nil)
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if n.Add(1)%3 != 0 { // the answer is lost on its way
			w.h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		w.h.ServeHTTP(rw, r)
	}))
	defer s.Close()
	c := &http.Client{Transport: &idempotency.Client{FirstWait: time.Millisecond}}
	resp, err := c.Post(s.URL+"/orders", "text/plain", strings.NewReader("order"))
	must(t, err)
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 201 || string(b) != "made order" {
		t.Errorf("answer %d %q", resp.StatusCode, b)
	}
	w.ran(1)
}

// A request without a key may be executed each time that it is sent: it is sent once.
func TestClientWithoutAKey(t *testing.T) {
	t.Parallel()
	none := func(*http.Request) string { return "" }
	for name, test := range map[string]struct {
		newKey func(*http.Request) string
		header http.Header
		sent   int
	}{
		"no key":       {none, http.Header{}, 1},
		"an empty one": {nil, http.Header{"Idempotency-Key": {""}}, 1},
		"its own":      {none, http.Header{"X-Idempotency-Key": {"k"}}, 2},
	} {
		s := &script{answers: []func() (*http.Response, error){broken, answers(200)}}
		c := &idempotency.Client{Base: s, FirstWait: time.Nanosecond, NewKey: test.newKey}
		r := httptest.NewRequest("POST", "http://example.com/orders", strings.NewReader("order"))
		r.Header = test.header
		if resp, err := c.RoundTrip(r); (err == nil) != (test.sent == 2) || len(s.keys) != test.sent {
			t.Errorf("%s: sent %d times, then %v, %v; want %d", name, len(s.keys), resp, err, test.sent)
		}
	}
}

// A client that may try as often as it likes waits MaxWait at most, however often it has tried.
func TestClientThatTriesOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(script)
		for range 99 {
			s.answers = append(s.answers, broken)
		}
		s.answers = append(s.answers, answers(200))
		c := &idempotency.Client{Base: s, Attempts: 100}
		if _, err := c.RoundTrip(httptest.NewRequest("POST", "http://example.com/orders", strings.NewReader("order"))); err != nil {
			t.Error(err)
		}
		for i := range s.at[1:] {
			if wait := s.at[i+1].Sub(s.at[i]); wait > 10*time.Second || i > 6 && wait < 5*time.Second {
				t.Errorf("before attempt %d it waited %s", i+2, wait)
			}
		}
	})
}

// A server that asks for more than MaxWait gets no retry, also if it asks for more than any clock has.
func TestClientIsAskedToStayAway(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"11", "2147483648", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		s := &script{answers: []func() (*http.Response, error){answers(503, "Retry-After", after), answers(200)}}
		c := &idempotency.Client{Base: s, FirstWait: time.Nanosecond}
		resp, err := c.RoundTrip(httptest.NewRequest("POST", "http://example.com/orders", strings.NewReader("order")))
		if err != nil || resp.StatusCode != 503 || len(s.at) != 1 {
			t.Errorf("Retry-After %s: %d requests, %v", after, len(s.at), err)
		}
	}
}

// A header that is blank names no key, and is no leave to send the request again, which Go's transport takes it for.
func TestClientWithABlankKey(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		var runs atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header[name] == nil {
				t.Errorf("%s was not sent", name)
			}
			if runs.Add(1) != 2 {
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack() // it acted, and the answer is lost
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		}))
		base := new(http.Transport)
		c := &http.Client{Transport: &idempotency.Client{Base: base, FirstWait: time.Nanosecond}}
		for range 2 {
			r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, nil)
			must(t, err)
			r.Header.Set(name, "")
			if resp, err := c.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		}
		if got := runs.Load(); got != 2 {
			t.Errorf("two requests with a blank %s were executed %d times", name, got)
		}
		base.CloseIdleConnections()
		s.Close()
	}
}
