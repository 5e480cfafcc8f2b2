package hook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/hook"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// A world is a receiver behind a real server.
type world struct {
	t        *testing.T
	store    *memory.Store
	operator *operator.Operator
	receiver *hook.Receiver
	server   *httptest.Server
	broken   error // what the store says to commits; nil: it works
	mu       sync.Mutex
}

// Commit fails while the store is broken.
func (w *world) Commit(ctx context.Context, c keep.Commit) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	return w.store.Commit(ctx, c)
}

// brokenStore is the store of an operator, whose commits go through the world.
type brokenStore struct {
	*memory.Store
	w *world
}

func (s brokenStore) Commit(ctx context.Context, c keep.Commit) error { return s.w.Commit(ctx, c) }

func newWorld(t *testing.T, configs ...hook.Config) *world {
	t.Helper()
	w := &world{t: t, store: memory.New()}
	o, err := operator.New(brokenStore{w.store, w}, operator.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := keep.Deployment{Workflow: "shop", Version: keep.Version{Major: 1}, Hash: "h", Entry: "shop.js", Code: []byte("x"), CreatedAt: noon,
		Definition: keep.Definition{Name: "shop", Topics: []keep.TopicName{"paid"}}}
	if err := w.store.Commit(t.Context(), keep.Commit{Workflow: "shop", At: noon, Changes: []keep.Change{keep.Deploy{Deployment: d}}}); err != nil {
		t.Fatal(err)
	}
	w.operator = o
	w.receiver = hook.NewReceiver(hook.ReceiverConfig{Publisher: o, Store: w.store, Clock: func() time.Time { return noon }, Logger: slog.New(slog.DiscardHandler)})
	w.set(configs...)
	w.server = httptest.NewServer(w.receiver)
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) set(configs ...hook.Config) {
	w.t.Helper()
	var hooks []*hook.Hook
	for _, c := range configs {
		if c.Workflow == "" {
			c.Workflow, c.Topic = "shop", "paid"
		}
		h, err := hook.New(c)
		if err != nil {
			w.t.Fatal(err)
		}
		hooks = append(hooks, h)
	}
	w.receiver.Set(hooks)
}

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// send delivers a body with headers, given as name and value.
func (w *world) send(method, name, body string, header ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+hook.Prefix+name, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			r.Header.Del(header[i])
			continue
		}
		r.Header.Add(header[i], header[i+1])
		if header[i] == "Content-Type" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

func (w *world) events() []keep.Event {
	w.t.Helper()
	list, _, err := w.store.Events(w.t.Context(), keep.EventFilter{}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func (w *world) count(name string) keep.HookCount {
	w.t.Helper()
	all, err := w.receiver.Counts(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	return keep.HookCount{}
}

func mac(key, message string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(message))
	return hex.EncodeToString(m.Sum(nil))
}

func standard(secret, id string, at time.Time, body string) []string {
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		panic(err)
	}
	sig, err := wh.Sign(id, at, []byte(body))
	if err != nil {
		panic(err)
	}
	return []string{"webhook-id", id, "webhook-timestamp", fmt.Sprint(at.Unix()), "webhook-signature", sig}
}

func stripe(secret string, at time.Time, body string) []string {
	return []string{"Stripe-Signature", fmt.Sprintf("t=%d,v1=%s,v0=%s", at.Unix(), mac(secret, fmt.Sprint(at.Unix())+"."+body), strings.Repeat("0", 64))}
}

func slack(secret string, at time.Time, body string) []string {
	return []string{"X-Slack-Request-Timestamp", fmt.Sprint(at.Unix()), "X-Slack-Signature", "v0=" + mac(secret, fmt.Sprintf("v0:%d:%s", at.Unix(), body))}
}

func github(secret, id, body string) []string {
	return []string{"X-GitHub-Delivery", id, "X-Hub-Signature-256", "sha256=" + mac(secret, body)}
}

// A true delivery of each scheme is one event; one of another key, another body or another
// time is none, and its answer doesn't say why.
func TestSchemes(t *testing.T) {
	const body = `{"id": "evt_1", "event_id": "Ev1", "n": 1}`
	stale, early := noon.Add(-6*time.Minute), noon.Add(6*time.Minute)
	for _, tt := range []struct {
		scheme           hook.Scheme
		secret           string
		id               keep.MessageID
		good             []string
		bad              map[string][]string
		cfgID, cfgHeader string
	}{
		{scheme: hook.StandardWebhooks, secret: whsec, id: "msg_1", good: standard(whsec, "msg_1", noon, body), bad: map[string][]string{
			"key": standard("whsec_"+strings.Repeat("A", 32), "msg_1", noon, body), "body": standard(whsec, "msg_1", noon, body+" "),
			"stale": standard(whsec, "msg_1", stale, body), "early": standard(whsec, "msg_1", early, body),
			"id": append([]string{"webhook-id", "msg_2"}, standard(whsec, "msg_1", noon, body)[2:]...), "nothing": nil,
			"two ids": append([]string{"webhook-id", "msg_2"}, standard(whsec, "msg_1", noon, body)...),
			"version": append(standard(whsec, "msg_1", noon, body)[:4], "webhook-signature", strings.Replace(standard(whsec, "msg_1", noon, body)[5], "v1,", "v2,", 1)),
		}},
		{scheme: hook.GitHub, secret: "gh", id: "d-1", good: github("gh", "d-1", body), bad: map[string][]string{
			"key": github("other", "d-1", body), "body": github("gh", "d-1", body+" "), "nothing": {"X-GitHub-Delivery", "d-1"},
			"sha1": {"X-GitHub-Delivery", "d-1", "X-Hub-Signature", "sha1=" + mac("gh", body)}, "hex": {"X-GitHub-Delivery", "d-1", "X-Hub-Signature-256", "sha256=zz"},
		}},
		{scheme: hook.Stripe, secret: "whsec_stripe", id: "evt_1", good: stripe("whsec_stripe", noon, body), bad: map[string][]string{
			"key": stripe("other", noon, body), "body": stripe("whsec_stripe", noon, body+" "), "stale": stripe("whsec_stripe", stale, body),
			"early": stripe("whsec_stripe", early, body), "nothing": nil, "v0 only": {"Stripe-Signature", fmt.Sprintf("t=%d,v0=%s", noon.Unix(), mac("whsec_stripe", fmt.Sprint(noon.Unix())+"."+body))},
			"two times": {"Stripe-Signature", stripe("whsec_stripe", noon, body)[1] + ",t=1"}, "no time": {"Stripe-Signature", "v1=" + mac("whsec_stripe", "."+body)},
		}},
		{scheme: hook.Slack, secret: "sl", id: "Ev1", good: slack("sl", noon, body), bad: map[string][]string{
			"key": slack("other", noon, body), "body": slack("sl", noon, body+" "), "stale": slack("sl", stale, body), "early": slack("sl", early, body), "nothing": nil,
		}},
		{scheme: hook.Token, secret: "tok", id: "evt_1", cfgID: "$.id", good: []string{"Authorization", "Bearer tok"}, bad: map[string][]string{
			"key": {"Authorization", "Bearer tok2"}, "empty": {"Authorization", "Bearer "}, "basic": {"Authorization", "Basic tok"}, "bare": {"Authorization", "tok"}, "nothing": nil,
			"two": {"Authorization", "Bearer tok", "Authorization", "Bearer tok"},
		}},
		{scheme: hook.Token, secret: "tok", id: "evt_1", cfgID: "$.id", cfgHeader: "X-Hook-Token", good: []string{"X-Hook-Token", "tok"}, bad: map[string][]string{
			"key": {"X-Hook-Token", "Tok"}, "another header": {"Authorization", "Bearer tok"},
		}},
	} {
		t.Run(string(tt.scheme)+tt.cfgHeader, func(t *testing.T) {
			w := newWorld(t, hook.Config{Name: "h", Verify: tt.scheme, Secrets: []string{tt.secret}, ID: tt.cfgID, Header: tt.cfgHeader})
			var said string
			for name, header := range tt.bad {
				got := w.send("POST", "h", body, header...)
				if got.status != 401 || got.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(got.body, "unverified") {
					t.Errorf("%s: %d %s, want 401 unverified", name, got.status, got.body)
				}
				if said == "" {
					said = got.body
				} else if got.body != said {
					t.Errorf("%s: the answer %s differs from %s", name, got.body, said)
				}
			}
			if n := len(w.events()); n != 0 {
				t.Fatalf("%d events of what was refused", n)
			}
			first, again := w.send("POST", "h", body, tt.good...), w.send("POST", "h", body, tt.good...)
			if want := fmt.Sprintf(`{"message_id":%q,"repeated":false}`, tt.id); first.status != 200 || strings.TrimSpace(first.body) != want {
				t.Errorf("first: %d %s, want 200 %s", first.status, first.body, want)
			}
			if again.status != 200 || !strings.Contains(again.body, `"repeated":true`) {
				t.Errorf("again: %d %s", again.status, again.body)
			}
			events := w.events()
			if len(events) != 1 || events[0].MessageID != tt.id || string(events[0].Payload) != body || events[0].CreatedBy != "hook:h" {
				t.Errorf("events: %+v", events)
			}
			if c := w.count("h"); c.Accepted != 1 || c.Repeated != 1 || int(c.Refused) != len(tt.bad) || c.LastRefusal == "" || !c.LastAt.Equal(noon) {
				t.Errorf("counts: %+v, want 1, 1, %d", c, len(tt.bad))
			}
		})
	}
}

// The vectors that the services publish.
func TestPublishedVectors(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg    hook.Config
		at     time.Time
		body   string
		header []string
	}{
		// github.com/standard-webhooks: the example of its libraries.
		"standard-webhooks": {hook.Config{Verify: hook.StandardWebhooks, Secrets: []string{whsec}}, time.Unix(1614265330, 0), `{"test": 2432232314}`,
			[]string{"webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp", "1614265330", "webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}},
		// docs.github.com: validating webhook deliveries, "testing the webhook payload validation".
		"github": {hook.Config{Verify: hook.GitHub, Secrets: []string{"It's a Secret to Everybody"}}, noon, `Hello, World!`,
			[]string{"X-GitHub-Delivery", "d", "X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}},
		// docs.slack.dev: verifying requests from Slack.
		"slack": {hook.Config{Verify: hook.Slack, Secrets: []string{"8f742231b10e8888abcd99yyyzzz85a5"}, ID: "$.trigger_id"}, time.Unix(1531420618, 0),
			`token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c`,
			[]string{"X-Slack-Request-Timestamp", "1531420618", "X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503", "Content-Type", "application/x-www-form-urlencoded"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.cfg.Name, tt.cfg.Workflow, tt.cfg.Topic, tt.cfg.Tolerance = "h", "shop", "paid", time.Minute
			h, err := hook.New(tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{}
			for i := 0; i < len(tt.header); i += 2 {
				header.Set(tt.header[i], tt.header[i+1])
			}
			if err := h.Check(header, []byte(tt.body), tt.at); err != nil {
				t.Errorf("the published vector is refused: %v", err)
			}
			if err := h.Check(header, []byte(tt.body+"x"), tt.at); err == nil {
				t.Error("another body is verified")
			}
			_ = w
		})
	}
}

// What a delivery must be, in the order of the checks.
func TestAnswers(t *testing.T) {
	token := []string{"Authorization", "Bearer tok"}
	w := newWorld(t, hook.Config{Name: "h", Verify: hook.Token, Secrets: []string{"tok"}, ID: "$.a.list[1].id", BodyLimit: 64},
		hook.Config{Name: "later", Workflow: "soon", Topic: "t", Verify: hook.Token, Secrets: []string{"tok"}, ID: "$.id"},
		hook.Config{Name: "header", Verify: hook.Token, Secrets: []string{"tok"}, ID: "header:X-Id"})
	with := func(more ...string) []string { return append(append([]string{}, token...), more...) }
	for _, tt := range []struct {
		name, method, hook, body string
		header                   []string
		status                   int
		kind                     string
	}{
		{"method first", "PUT", "none", "", nil, 405, "method"},
		{"a look", "GET", "h", "", nil, 405, "method"},
		{"name before size", "POST", "none", strings.Repeat("x", 100), nil, 404, "not-found"},
		{"below a hook", "POST", "h/x", "", token, 404, "not-found"},
		{"size before signature", "POST", "h", strings.Repeat("x", 65), nil, 413, "too-large"},
		{"signature before form", "POST", "h", "not json", nil, 401, "unverified"},
		{"not JSON", "POST", "h", "not json", token, 400, "bad-body"},
		{"two values", "POST", "h", `{} {}`, token, 400, "bad-body"},
		{"empty", "POST", "h", ``, token, 400, "bad-body"},
		{"not UTF-8", "POST", "h", "{\"a\": \"\xff\"}", token, 400, "bad-body"},
		{"one name twice", "POST", "h", `{"id": 1, "a": {"id": 1, "id": 2}}`, token, 400, "bad-body"},
		{"very deep", "POST", "header", strings.Repeat("[", 101) + strings.Repeat("]", 101), with("X-Id", "deep"), 400, "bad-body"},
		{"deep", "POST", "header", strings.Repeat("[", 100) + strings.Repeat("]", 100), with("X-Id", "deep"), 200, ""},
		{"another type", "POST", "h", `{}`, with("Content-Type", "text/plain"), 415, "media-type"},
		{"compressed", "POST", "h", "\x1f\x8b", with("Content-Encoding", "gzip"), 415, "media-type"},
		{"not compressed", "POST", "header", `1`, with("Content-Encoding", "identity", "X-Id", "i5"), 200, ""},
		{"a bad type", "POST", "h", `{}`, with("Content-Type", "a/b/c;;"), 415, "media-type"},
		{"no id", "POST", "h", `{"a": {"list": [1]}}`, token, 400, "bad-id"},
		{"null", "POST", "h", `null`, token, 400, "bad-id"},
		{"id is an object", "POST", "h", `{"a": {"list": [1, {"id": {}}]}}`, token, 400, "bad-id"},
		{"id is half a number", "POST", "h", `{"a": {"list": [1, {"id": 1.5}]}}`, token, 400, "bad-id"},
		{"id is empty", "POST", "h", `{"a": {"list": [1, {"id": ""}]}}`, token, 400, "bad-id"},
		{"id is half a character", "POST", "h", `{"a": {"list": [1, {"id": "\ud800"}]}}`, token, 400, "bad-id"},
		{"no header", "POST", "header", `{}`, token, 400, "bad-id"},
		{"a long id", "POST", "header", `{}`, with("X-Id", strings.Repeat("x", 513)), 400, "bad-id"},
		{"not deployed", "POST", "later", `{"id": 1}`, token, 503, "unavailable"},
		{"fine", "POST", "h", `{"a": {"list": [1, {"id": 12345678901234567890}]}}`, token, 200, ""},
		{"no type", "POST", "header", `[1]`, with("X-Id", "i1", "Content-Type", ""), 200, ""},
		{"another JSON", "POST", "header", `1`, with("X-Id", "i2", "Content-Type", "application/cloudevents+json; charset=utf-8"), 200, ""},
		{"a form", "POST", "header", `a=1&b=x+y&a=2`, with("X-Id", "i3", "Content-Type", "application/x-www-form-urlencoded"), 200, ""},
		{"no form", "POST", "header", `a=%zz`, with("X-Id", "i4", "Content-Type", "application/x-www-form-urlencoded"), 400, "bad-body"},
	} {
		got := w.send(tt.method, tt.hook, tt.body, tt.header...)
		if got.status != tt.status || tt.kind != "" && !strings.Contains(got.body, "/"+tt.kind+`"`) {
			t.Errorf("%s: %d %s, want %d %s", tt.name, got.status, got.body, tt.status, tt.kind)
		}
		if tt.status == 503 && got.header.Get("Retry-After") == "" || tt.status == 405 && got.header.Get("Allow") != "POST" {
			t.Errorf("%s: headers %v", tt.name, got.header)
		}
	}
	for body, want := range map[string]string{
		`{"id": 1, "a": {"id": 1, "id": 2}}`: `at a: two members have the name \"id\"`,
		`{"id": 1,`:                          "unexpected end of JSON input, at byte 9 of 9",
		"\xff":                               "bytes that are not UTF-8",
	} {
		if got := w.send("POST", "h", body, token...); !strings.Contains(got.body, want) {
			t.Errorf("%s: %s, want %q", body, got.body, want)
		}
	}
	// As curl -d sends it.
	if got := w.send("POST", "h", `{"a": {"list": [1, {"id": 1}]}}`, with("Content-Type", "application/x-www-form-urlencoded")...); !strings.Contains(got.body, "at $.a.list[1].id, ") || !strings.Contains(got.body, "have application/json sent") {
		t.Errorf("JSON as a form: %s", got.body)
	}
	payloads := map[keep.MessageID]string{}
	for _, e := range w.events() {
		payloads[e.MessageID] = string(e.Payload)
	}
	for id, want := range map[keep.MessageID]string{"12345678901234567890": `{"a": {"list": [1, {"id": 12345678901234567890}]}}`, "i1": "[1]", "i2": "1", "i5": "1", "i3": `{"a":["1","2"],"b":"x y"}`} {
		if payloads[id] != want {
			t.Errorf("payload of %s is %s, want %s", id, payloads[id], want)
		}
	}
	if c := w.count("later"); c.Refused != 1 || !strings.Contains(c.LastRefusal, "soon") {
		t.Errorf("of what is not deployed: %+v", c)
	}
}

// A body of unknown length is not read beyond its limit.
func TestLongBodyIsNotRead(t *testing.T) {
	w := newWorld(t, hook.Config{Name: "h", Verify: hook.Token, Secrets: []string{"tok"}, ID: "$.id", BodyLimit: 10})
	body := &endless{}
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", hook.Prefix+"h", body)
	r.ContentLength = -1
	w.receiver.ServeHTTP(rec, r)
	if rec.Code != 413 || body.read > 64<<10 {
		t.Errorf("%d after %d bytes", rec.Code, body.read)
	}
}

type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	if e.read > 1<<30 {
		return 0, io.EOF
	}
	return len(p), nil
}

// What the store did not take is not answered with 2xx, and its repetition is one event.
// TestFormBecomesNoMoreThanAnEventHolds: the text of a form is longer as JSON.
func TestFormBecomesNoMoreThanAnEventHolds(t *testing.T) {
	w := newWorld(t, hook.Config{Name: "h", Verify: hook.Token, Secrets: []string{"tok"}, ID: "$.id"})
	form := []string{"Authorization", "Bearer tok", "Content-Type", "application/x-www-form-urlencoded"}
	for id, c := range map[string]struct {
		text   string
		status int
	}{"page": {strings.Repeat("<", 1_000_000), 200}, "controls": {strings.Repeat("%01", 330_000), 413}} {
		if got := w.send("POST", "h", "id="+id+"&text="+c.text, form...); got.status != c.status {
			t.Errorf("%s: %d %.200s, want %d", id, got.status, got.body, c.status)
		}
	}
	for _, ev := range w.events() {
		if n := len(ev.Payload); n > hook.MaxBodyLimit {
			t.Errorf("event %s has %d bytes, more than %d", ev.MessageID, n, hook.MaxBodyLimit)
		}
	}
}

func TestStoreDown(t *testing.T) {
	w := newWorld(t, hook.Config{Name: "h", Verify: hook.Token, Secrets: []string{"tok"}, ID: "$.id"})
	w.broken = errors.New("disk full")
	got := w.send("POST", "h", `{"id": "a"}`, "Authorization", "Bearer tok")
	if got.status != 503 || got.header.Get("Retry-After") == "" || strings.Contains(got.body, "disk") {
		t.Errorf("%d %v %s, want 503 that says nothing of the disk", got.status, got.header, got.body)
	}
	if n := len(w.events()); n != 0 {
		t.Errorf("%d events", n)
	}
	w.broken = nil
	if got := w.send("POST", "h", `{"id": "a"}`, "Authorization", "Bearer tok"); got.status != 200 || !strings.Contains(got.body, `"repeated":false`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Both secrets are good while one replaces the other; then only the new one.
func TestTwoSecrets(t *testing.T) {
	cfg := hook.Config{Name: "h", Verify: hook.StandardWebhooks, Secrets: []string{whsec, "whsec_" + strings.Repeat("B", 32)}}
	w := newWorld(t, cfg)
	for i, secret := range cfg.Secrets {
		id := fmt.Sprint("m", i)
		if got := w.send("POST", "h", "{}", standard(secret, id, noon, "{}")...); got.status != 200 {
			t.Errorf("secret %d: %d %s", i, got.status, got.body)
		}
	}
	// A service that signs with both sends both signatures.
	both := standard(cfg.Secrets[1], "m9", noon, "{}")
	both[5] = "v1a,AAAA " + both[5] + " " + standard("whsec_"+strings.Repeat("C", 32), "m9", noon, "{}")[5]
	if got := w.send("POST", "h", "{}", both...); got.status != 200 {
		t.Errorf("both: %d %s", got.status, got.body)
	}
	cfg.Secrets = cfg.Secrets[:1]
	w.set(cfg)
	if got := w.send("POST", "h", "{}", standard("whsec_"+strings.Repeat("B", 32), "m1", noon, "{}")...); got.status != 401 {
		t.Errorf("the old secret: %d %s, want 401", got.status, got.body)
	}
}

func TestSlackChallenge(t *testing.T) {
	w := newWorld(t, hook.Config{Name: "h", Verify: hook.Slack, Secrets: []string{"sl"}})
	const body = `{"token": "t", "challenge": "3eZbrw1aB", "type": "url_verification"}`
	if got := w.send("POST", "h", body, slack("other", noon, body)...); got.status != 401 || strings.Contains(got.body, "3eZ") {
		t.Errorf("unsigned: %d %s", got.status, got.body)
	}
	got := w.send("POST", "h", body, slack("sl", noon, body)...)
	if got.status != 200 || got.body != "3eZbrw1aB" || !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain") || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	if n := len(w.events()); n != 0 {
		t.Errorf("%d events", n)
	}
}

// A hundred deliveries of one event over five connections: one event, and one answer that
// it is new.
func TestOneEvent(t *testing.T) {
	w := newWorld(t, hook.Config{Name: "h", Verify: hook.Token, Secrets: []string{"tok"}, ID: "$.id"})
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh := 0
	for range 5 {
		wg.Go(func() {
			for range 20 {
				got := w.send("POST", "h", `{"id": "a"}`, "Authorization", "Bearer tok")
				mu.Lock()
				if got.status != 200 {
					t.Errorf("%d %s", got.status, got.body)
				}
				if strings.Contains(got.body, `"repeated":false`) {
					fresh++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if c := w.count("h"); len(w.events()) != 1 || fresh != 1 || c.Accepted != 1 || c.Repeated != 99 {
		t.Errorf("%d events, %d new, %+v", len(w.events()), fresh, c)
	}
}

// An order is delivered whenever it changes, under its own id: only the first delivery becomes an event, and the owner of the hook sees that the others did not.
func TestIDOfAThing(t *testing.T) {
	w := newWorld(t, hook.Config{Name: "h", Verify: hook.Token, Secrets: []string{"tok"}, ID: "$.id"},
		hook.Config{Name: "native", Verify: hook.Stripe, Secrets: []string{"whsec_x"}})
	send := func(body, says string) {
		t.Helper()
		if got := w.send("POST", "h", body, "Authorization", "Bearer tok"); got.status != 200 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s, want %s", body, got.status, got.body, says)
		}
	}
	send(`{"id": 1, "state": "new"}`, `"repeated":false`)
	send(`{"state": "new", "id": 1}`, `"repeated":true`)
	if c := w.count("h"); c.Repeated != 1 || c.Refused != 0 {
		t.Errorf("of an equal delivery: %+v", c)
	}
	send(`{"id": 1, "state": "paid"}`, `"repeated":true`)
	if c := w.count("h"); c.Accepted != 1 || c.Repeated != 1 || c.Refused != 1 || !strings.Contains(c.LastRefusal, `the id "1" has another payload, and the first one was kept`) || !strings.Contains(c.LastRefusal, "$.id") {
		t.Errorf("of one that says something else: %+v", c)
	}
	if events := w.events(); len(events) != 1 || !strings.Contains(string(events[0].Payload), "new") {
		t.Errorf("%d events, want the first alone", len(events))
	}
	for _, tries := range []string{"1", "2"} { // its id is of the delivery, also where a field counts the tries
		body := `{"id": "evt_1", "pending_webhooks": ` + tries + `}`
		if got := w.send("POST", "native", body, stripe("whsec_x", noon, body)...); got.status != 200 {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if c := w.count("native"); c.Accepted != 1 || c.Repeated != 1 || c.Refused != 0 {
		t.Errorf("of a service's own id: %+v", c)
	}
}

// Two shops number their orders alike. The second order is not taken for the first one, and its owner sees that.
func TestIDOfAnotherHook(t *testing.T) {
	de := hook.Config{Name: "de", Verify: hook.Token, Secrets: []string{"tok"}, ID: "$.id"}
	fr := de
	fr.Name = "fr"
	w := newWorld(t, de, fr)
	send := func(name, body string, status int, says string) {
		t.Helper()
		if got := w.send("POST", name, body, "Authorization", "Bearer tok"); got.status != status || !strings.Contains(got.body, says) {
			t.Errorf("%s of %s: %d %s, want %d %s", body, name, got.status, got.body, status, says)
		}
	}
	send("de", `{"id": 1, "of": "de"}`, 200, `"repeated":false`)
	send("fr", `{"id": 1, "of": "fr"}`, 409, "/id-taken")
	send("de", `{"id": 1, "of": "de"}`, 200, `"repeated":true`)
	send("fr", `{"id": 2, "of": "fr"}`, 200, `"repeated":false`)
	if c := w.count("fr"); c.Accepted != 1 || c.Repeated != 0 || c.Refused != 1 || !strings.Contains(c.LastRefusal, "hook:de") || !strings.Contains(c.LastRefusal, `"1"`) {
		t.Errorf("of the second shop: %+v", c)
	}
	// What a script or a person published under an id that a hook delivers is the same event: they chose the id.
	for id, by := range map[keep.MessageID]keep.Publisher{"3": keep.PersonPublisher("ann"), "4": "run_1"} {
		p := operator.Publication{Workflow: "shop", Topic: "paid", MessageID: id, Payload: []byte(`{}`), By: by}
		if _, _, err := w.operator.Publish(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		send("fr", fmt.Sprintf(`{"id": %s}`, id), 200, `"repeated":true`)
	}
}

func TestConfig(t *testing.T) {
	good := hook.Config{Name: "h", Workflow: "w", Topic: "t", Verify: hook.Token, Secrets: []string{"s"}, ID: "$.id"}
	for name, tt := range map[string]struct {
		change func(*hook.Config)
		field  string
	}{
		"name":            {func(c *hook.Config) { c.Name = "a/b" }, "name"},
		"workflow":        {func(c *hook.Config) { c.Workflow = "" }, "workflow"},
		"topic":           {func(c *hook.Config) { c.Topic = "" }, "topic"},
		"scheme":          {func(c *hook.Config) { c.Verify = "none" }, "verify"},
		"no secret":       {func(c *hook.Config) { c.Secrets = nil }, "secret"},
		"empty secret":    {func(c *hook.Config) { c.Secrets = []string{"a", ""} }, "secret"},
		"bare secret":     {func(c *hook.Config) { c.Verify, c.Secrets = hook.StandardWebhooks, []string{"abc"} }, "secret"},
		"base64":          {func(c *hook.Config) { c.Verify, c.Secrets = hook.StandardWebhooks, []string{"whsec_!"} }, "secret"},
		"empty key":       {func(c *hook.Config) { c.Verify, c.Secrets = hook.StandardWebhooks, []string{"whsec_"} }, "secret"},
		"no id":           {func(c *hook.Config) { c.ID = "" }, "id"},
		"bad id":          {func(c *hook.Config) { c.ID = "id" }, "id"},
		"bad path":        {func(c *hook.Config) { c.ID = "$.a..b" }, "id"},
		"whole":           {func(c *hook.Config) { c.ID = "$" }, "id"},
		"bad header":      {func(c *hook.Config) { c.ID = "header:a b" }, "id"},
		"header of other": {func(c *hook.Config) { c.Verify, c.Header = hook.GitHub, "X" }, "header"},
		"tolerance":       {func(c *hook.Config) { c.Tolerance = 48 * time.Hour }, "tolerance"},
		"limit":           {func(c *hook.Config) { c.BodyLimit = 2 << 20 }, "body_limit"},
	} {
		c := good
		tt.change(&c)
		_, err := hook.New(c)
		if e, ok := errors.AsType[*hook.FieldError](err); !ok || e.Field != tt.field {
			t.Errorf("%s: %v, want one about %s", name, err, tt.field)
		}
	}
	if _, err := hook.New(good); err != nil {
		t.Error(err)
	}
}

// Without the key nothing is verified, whatever the headers say; nothing panics.
func FuzzVerify(f *testing.F) {
	for _, s := range hook.Schemes() {
		f.Add(string(s), "v1,AAAA", "1795262400", "sha256=00", []byte("{}"))
		f.Add(string(s), "t=1795262400,v1=00", "99999999999999999999", "", []byte{})
	}
	f.Fuzz(func(t *testing.T, scheme, signature, at, other string, body []byte) {
		secret := "a secret that is long enough"
		if scheme == string(hook.StandardWebhooks) {
			secret = whsec
		}
		h, err := hook.New(hook.Config{Name: "h", Workflow: "w", Topic: "t", Verify: hook.Scheme(scheme), Secrets: []string{secret}, ID: "$.id"})
		if err != nil {
			return
		}
		header := http.Header{"Webhook-Id": {other}, "Webhook-Timestamp": {at}, "Webhook-Signature": {signature}, "X-Hub-Signature-256": {signature},
			"Stripe-Signature": {signature}, "X-Slack-Request-Timestamp": {at}, "X-Slack-Signature": {other}, "Authorization": {signature}}
		if h.Check(header, body, noon) == nil && !strings.Contains(signature, secret) {
			t.Errorf("%s verified %q %q %q %q", scheme, signature, at, other, body)
		}
	})
}

// What a verified delivery holds is an event with an id, or refused; nothing panics, and
// a payload is JSON.
func FuzzMessage(f *testing.F) {
	f.Add("application/json", "$.a[0].b", []byte(`{"a": [{"b": 1}]}`))
	f.Add("application/x-www-form-urlencoded", "$.a", []byte(`a=1&b=%C3%A9`))
	f.Add("", "header:X", []byte(`[[[[`))
	f.Fuzz(func(t *testing.T, contentType, id string, body []byte) {
		h, err := hook.New(hook.Config{Name: "h", Workflow: "w", Topic: "t", Verify: hook.Token, Secrets: []string{"s"}, ID: id})
		if err != nil {
			return
		}
		got, payload, err := h.Message(http.Header{"Content-Type": {contentType}, "X": {contentType}}, body)
		if err != nil {
			return
		}
		if got.Validate() != nil || !json.Valid(payload) {
			t.Errorf("id %q, payload %q", got, payload)
		}
		if contentType == "application/json" && !bytes.Equal(payload, body) {
			t.Errorf("payload %q of body %q", payload, body)
		}
	})
}
