package notify_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/notify"
)

// The example that Standard Webhooks publishes: its libraries check themselves
// against it.
const (
	exampleSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestSignatureOfTheStandard(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	defer srv.Close()
	m := notify.Message{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", At: time.Unix(1614265330, 0), Body: []byte(`{"test": 2432232314}`)}
	if err := webhook(t, srv.URL).Deliver(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if sig := (<-got).Get("webhook-signature"); sig != exampleSignature {
		t.Errorf("webhook-signature = %s, want %s", sig, exampleSignature)
	}
}

func webhook(t *testing.T, url string) *notify.Webhook {
	t.Helper()
	key, err := notify.ParseSecret(exampleSecret)
	if err != nil {
		t.Fatal(err)
	}
	h, err := notify.NewWebhook(url, key)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// hmacSHA256 is RFC 2104 by hand, so that the signature is not checked by the code
// that makes it.
func hmacSHA256(key, text []byte) []byte {
	var inner, outer [sha256.BlockSize]byte
	copy(inner[:], key)
	copy(outer[:], key)
	for i := range inner {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	sum := sha256.Sum256(append(inner[:], text...))
	sum = sha256.Sum256(append(outer[:], sum[:]...))
	return sum[:]
}

// A receiver answers each request in another way.
type receiver struct {
	*testing.T
	mu      sync.Mutex // protects the fields below
	answers []http.HandlerFunc
	bodies  []string
	ids     []string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.Error(err)
	}
	h := req.Header
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(exampleSecret, "whsec_"))
	want := "v1," + base64.StdEncoding.EncodeToString(hmacSHA256(key, []byte(h.Get("webhook-id")+"."+h.Get("webhook-timestamp")+"."+string(body))))
	if got := h.Get("webhook-signature"); got != want {
		r.Errorf("webhook-signature = %s, want %s", got, want)
	}
	r.mu.Lock()
	r.ids, r.bodies = append(r.ids, h.Get("webhook-id")), append(r.bodies, string(body))
	answer := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	if len(r.answers) > 0 {
		answer, r.answers = r.answers[0], r.answers[1:]
	}
	r.mu.Unlock()
	answer(w, req)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
	}
}

// reset closes the connection so that the sender gets a reset.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

func cutOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// A receiver may fail in every way; the question is sent again, with the same id
// and the same body, until it is taken.
func TestAReceiverThatFails(t *testing.T) {
	t.Parallel()
	rec := &receiver{T: t, answers: []http.HandlerFunc{status(500), reset, cutOff, hang, status(302), status(404), status(503)}}
	srv := httptest.NewServer(rec)
	defer srv.Close()
	w := newWorld(t, "esc_1")
	hook := &noting{Webhook: webhook(t, srv.URL), limit: 5 * time.Second, done: make(chan error, 100)}
	n := w.notifier(20, time.Millisecond, hook)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.Run(ctx) })
	var errs []string
	for err := receive(t, hook.done); err != nil; err = receive(t, hook.done) {
		errs = append(errs, err.Error())
	}
	cancel()
	wg.Wait()
	if len(rec.ids) != 8 || len(errs) != 7 {
		t.Fatalf("%d requests and %d failures, want 8 and 7: %q", len(rec.ids), len(errs), errs)
	}
	for i := range rec.ids {
		if rec.ids[i] != "esc_1" || rec.bodies[i] != rec.bodies[0] {
			t.Errorf("attempt %d has id %s and body %s, want those of the first", i+1, rec.ids[i], rec.bodies[i])
		}
	}
	for i, part := range []string{"answered 500", "no answer: ", "no answer: ", "took longer than", "answered 302", "answered 404", "answered 503"} {
		if !strings.Contains(errs[i], part) {
			t.Errorf("failure %d is %q, want it to say %q", i+1, errs[i], part)
		}
		if strings.Contains(errs[i], srv.URL) {
			t.Errorf("failure %d quotes the URL: %s", i+1, errs[i])
		}
	}
	if n := w.notice1(notify.SinkWebhook); n.Status != keep.NoticeDelivered || n.Attempts != 8 {
		t.Errorf("notice = %+v, want delivered at the 8th attempt", n)
	}
}

// noting is a webhook with little patience that tells how each delivery went.
type noting struct {
	*notify.Webhook
	limit time.Duration
	done  chan error
}

func (n *noting) Deliver(ctx context.Context, m notify.Message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.limit, &keep.TimeoutError{Op: "test", After: n.limit})
	defer cancel()
	err := n.Webhook.Deliver(ctx, m)
	n.done <- err
	return err
}

// notice1 returns the record of telling a sink of esc_1.
func (w world) notice1(sink keep.Sink) keep.Notice {
	w.Helper()
	all, err := w.store.Notices(w.Context(), "esc_1")
	if err != nil || len(all) != 1 || all[0].Sink != sink {
		w.Fatalf("Notices = %+v, %v, want one of %s", all, err, sink)
	}
	return all[0]
}

// What a receiver asks for is respected, up to a day.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]time.Duration{"7200": 2 * time.Hour, "100000": 24 * time.Hour, "99999999999999999999": 24 * time.Hour} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		defer srv.Close()
		w := newWorld(t, "esc_1")
		w.notifier(5, time.Millisecond, webhook(t, srv.URL)).Flush(t.Context())
		if wait := time.Until(w.notice1(notify.SinkWebhook).NextAt); wait < want-10*time.Minute || wait > want {
			t.Errorf("%s: the next attempt is in %s, want about %s", after, wait, want)
		}
	}
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	for secret, want := range map[string]string{
		exampleSecret:                         "",
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":    "does not begin with whsec_",
		"whsec_hunter2!":                      "is not base64",
		"whsec_c2hvcnQ=":                      "has 5 bytes",
		"whsec_" + strings.Repeat("QUFB", 22): "has 66 bytes",
		"whsec_" + strings.Repeat("QUFB", 8):  "",
		"":                                    "does not begin with whsec_",
	} {
		_, err := notify.ParseSecret(secret)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("ParseSecret(%q) = %v, want %q", secret, err, want)
		case err != nil && secret != "" && strings.Contains(err.Error(), strings.TrimPrefix(secret, "whsec_")):
			t.Errorf("ParseSecret quotes the secret: %v", err)
		}
	}
	for _, url := range []string{"", "example.com", "ftp://example.com", "http://", "https://ex ample"} {
		if _, err := notify.NewWebhook(url, nil); err == nil {
			t.Errorf("NewWebhook(%q) has no error", url)
		}
	}
	if _, err := notify.New(notify.Config{}); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("New without Encode = %v, want an error", err)
	}
}
