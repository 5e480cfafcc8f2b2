package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/internal/port"
)

// crm is a CRM at each level.
const crm = `
connector = "http"
base_url  = "%s/api"
headers   = { Authorization = "Bearer s3cr3t-value", X-Key = "nr-key-of-the-crm", Accept = "application/json" }

[tools.find]
effect = "list"
method = "GET"
path   = "/contacts"
query  = ["q"]

[tools.one]
effect  = "get"
path    = "/contacts/{id}"
null_on = [404]

[tools.create]
effect   = "mutate"
method   = "POST"
path     = "/contacts"
identity = ["id"]
timeout  = "10s"
settle_after = "2s"
idempotency_header = "Idempotency-Key"
deduplicates = false
not_executed = [503]
payload_ignore = ["note"]
[tools.create.reconcile]
method  = "GET"
path    = "/contacts/{id}"
applied = [200]
failed  = [404]

[tools.keyed]
effect   = "mutate"
method   = "PUT"
path     = "/contacts/{id}"
identity = ["id"]
idempotency_header = "Idempotency-Key"
deduplicates = true

[tools.marked]
effect   = "mutate"
path     = "/notes"
identity = ["id"]
approve  = "always"
idempotency_header = "X-Ref"
[tools.marked.reconcile]
path  = "/notes?ref={token}"
query = { kind = "n-{id}" }
items = "/data"
match = ["email", "ref={token}"]

[tools.plain]
effect   = "mutate"
method   = "DELETE"
path     = "/contacts/{id}"
identity = ["id"]
idempotency_header = "Idempotency-Key"
`

// open returns the connection whose services answers with h.
func open(t testing.TB, h http.HandlerFunc) *connector.Connection {
	t.Helper()
	return openAt(t, newServer(t, h))
}

// newServer returns the URL of a service that answers with h.
func newServer(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func openAt(t testing.TB, base string) *connector.Connection {
	t.Helper()
	var cfg httpapi.Config
	d := toml.NewDecoder(strings.NewReader(fmt.Sprintf(crm, base))).DisallowUnknownFields()
	if err := d.Decode(&cfg); err != nil {
		t.Fatal(err)
	}
	conn, err := httpapi.New("crm", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func tool(t testing.TB, conn *connector.Connection, name string) connector.Tool {
	t.Helper()
	for _, tool := range conn.Tools {
		if tool.Spec().Name == name {
			return tool
		}
	}
	t.Fatalf("no tool %q", name)
	return nil
}

func mustRead(t testing.TB, conn *connector.Connection, name, params string) (string, error) {
	t.Helper()
	raw, err := tool(t, conn, name).(connector.Reader).Read(t.Context(), json.RawMessage(params))
	return string(raw), err
}

func mutate(t testing.TB, conn *connector.Connection, name, params string) (connector.Receipt, error) {
	t.Helper()
	return tool(t, conn, name).(connector.Mutator).Mutate(t.Context(), mutation(params))
}

func reconcile(t testing.TB, conn *connector.Connection, name, params string) (connector.Answer, error) {
	t.Helper()
	return tool(t, conn, name).(connector.Reconciler).Reconcile(t.Context(), mutation(params))
}

func mutation(params string) keep.Mutation {
	return keep.Mutation{Token: "tok-1", Payload: json.RawMessage(params)}
}

// class returns the class of err as the host reads it.
func class(err error) keep.Class {
	var f *keep.Failure
	if errors.As(err, &f) {
		return f.Class
	}
	if err != nil {
		return keep.ClassUnknown
	}
	return "none"
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

// TestStatuses states the table of the package comment a second time.
func TestStatuses(t *testing.T) {
	mutates := map[keep.Class][]int{
		"none":                 {200, 201, 202, 204},
		keep.ClassLogic:        {400, 404, 405, 409, 410, 413, 415, 422, 501},
		keep.ClassPermission:   {401, 403},
		keep.ClassTransient:    {429, 503},
		keep.ClassUnknown:      {203, 299, 301, 302, 304, 307, 308, 402, 406, 408, 411, 412, 414, 418, 423, 425, 428, 431, 451, 500, 502, 504, 505, 599},
		keep.ClassInternal:     nil,
		keep.ClassPrecondition: nil,
	}
	reads := map[keep.Class][]int{
		"none":               {200, 204},
		keep.ClassLogic:      {301, 302, 304, 307, 400, 404, 405, 409, 410, 413, 422, 425, 451},
		keep.ClassPermission: {401, 403},
		keep.ClassTransient:  {408, 429, 500, 501, 502, 503, 504, 599},
	}
	var code int
	conn := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
	})
	for want, codes := range mutates {
		for _, code = range codes {
			if _, err := mutate(t, conn, "create", `{"id":1}`); class(err) != want {
				t.Errorf("mutate answered %d: class %q, want %q", code, class(err), want)
			}
		}
	}
	for want, codes := range reads {
		for _, code = range codes {
			if _, err := mustRead(t, conn, "find", `{"q":"x"}`); class(err) != want {
				t.Errorf("read answered %d: class %q, want %q", code, class(err), want)
			}
		}
	}
	for code, want := range map[int]string{401: keep.CodeUnauthenticated, 403: keep.CodeForbidden, 400: "http-400"} {
		_, err := mutate(t, open(t, status(code, `{}`)), "create", `{"id":1}`)
		if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Code != want {
			t.Errorf("answered %d: %+v, want the code %s", code, f, want)
		}
	}
	code = 503
	if _, err := mutate(t, conn, "keyed", `{"id":1}`); class(err) != keep.ClassUnknown {
		t.Errorf("503 without not_executed: class %q, want unknown", class(err))
	}
	code = 404
	if got, err := mustRead(t, conn, "one", `{"id":1}`); got != "null" || err != nil {
		t.Errorf("null_on 404 = %q, %v, want null", got, err)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	var header, date string
	conn := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", header)
		w.Header().Set("Date", date)
		w.WriteHeader(429)
	})
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	date = now.Format(http.TimeFormat)
	for h, want := range map[string]time.Duration{
		"7": 7 * time.Second, "": 0, "soon": 0, "-3": 0, "99999999": 24 * time.Hour, "99999999999": 24 * time.Hour, strings.Repeat("9", 40): 24 * time.Hour,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
	} {
		header = h
		_, err := mutate(t, conn, "create", `{"id":1}`)
		var f *keep.Failure
		if !errors.As(err, &f) || f.RetryAfter != want || f.Class != keep.ClassTransient {
			t.Errorf("Retry-After %q: %+v, want %s", h, f, want)
		}
	}
}

func TestNothingSentIsTransient(t *testing.T) {
	closed := "http://" + port.Addr(t)
	plain := httptest.NewServer(status(200, "{}"))
	defer plain.Close()
	tls := httptest.NewUnstartedServer(status(200, "{}"))
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	for name, base := range map[string]string{
		"refused":             closed,
		"unknown host":        "http://no-such-host.invalid",
		"plain text for TLS":  strings.Replace(plain.URL, "http:", "https:", 1),
		"untrusted authority": tls.URL,
	} {
		conn := openAt(t, base)
		if _, err := mutate(t, conn, "create", `{"id":1}`); class(err) != keep.ClassTransient {
			t.Errorf("%s: mutate: %v, want transient", name, err)
		}
		if _, err := mustRead(t, conn, "find", `{}`); class(err) != keep.ClassTransient {
			t.Errorf("%s: read: %v, want transient", name, err)
		}
	}
}

func TestRequestHoldsWhatTheScriptPassed(t *testing.T) {
	var got struct {
		line, body string
		header     http.Header
	}
	conn := open(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got.line, got.body, got.header = r.Method+" "+r.RequestURI, string(b), r.Header
		io.WriteString(w, `{"id":9007199254740993}`)
	})
	receipt, err := mutate(t, conn, "create", `{"id":9007199254740993,"email":"a<b@x","n":1.10,"subkey":"s"}`)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"email":"a<b@x","id":9007199254740993,"n":1.10}`; got.body != want {
		t.Errorf("body %s, want %s", got.body, want)
	}
	if string(receipt.Result) != `{"id":9007199254740993}` {
		t.Errorf("result %s is not the body", receipt.Result)
	}
	for name, want := range map[string]string{
		"Idempotency-Key": "tok-1", "Authorization": "Bearer s3cr3t-value",
		"Content-Type": "application/json", "Accept-Encoding": "",
	} {
		if got.header.Get(name) != want {
			t.Errorf("header %s = %q, want %q", name, got.header.Get(name), want)
		}
	}
	for params, want := range map[string]string{
		`{"id":"a b/c?d#e%2f"}`:       "DELETE /api/contacts/a%20b%2Fc%3Fd%23e%252f",
		`{"id":12345678901234567890}`: "DELETE /api/contacts/12345678901234567890",
		`{"id":"…"}`:                  "DELETE /api/contacts/%E2%80%A6",
	} {
		if _, err := mutate(t, conn, "plain", params); err != nil || got.line != want {
			t.Errorf("params %s sent %q (%v), want %q", params, got.line, err, want)
		}
	}
	for _, params := range []string{
		`{"id":".."}`, `{"id":"."}`, `{"id":""}`, `{"id":"a/../b"}`, `{"id":"..\\x"}`, `{"id":null}`, `{"id":{}}`, `{}`, `[]`, `null`, `"x"`,
	} {
		got.line = ""
		if _, err := mutate(t, conn, "plain", params); class(err) != keep.ClassLogic || got.line != "" {
			t.Errorf("params %s: %v and sent %q, want a logic failure and nothing sent", params, err, got.line)
		}
	}
	if _, err := mustRead(t, conn, "find", `{"q":["a","b&c"]}`); err != nil || got.line != "GET /api/contacts?q=a&q=b%26c" {
		t.Errorf("array in query sent %q, %v", got.line, err)
	}
	if _, err := mustRead(t, conn, "find", `{"q":null}`); err != nil || got.line != "GET /api/contacts" {
		t.Errorf("null in query sent %q, %v", got.line, err)
	}
	if _, err := mustRead(t, conn, "find", `{"x":1}`); class(err) != keep.ClassLogic {
		t.Errorf("param without a place: %v, want logic", err)
	}
}

func TestBodies(t *testing.T) {
	var kind, body string
	conn := open(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // a server that closes on unread bytes resets the connection
		w.Header()["Content-Type"] = []string{kind}
		io.WriteString(w, body)
	})
	const j = "application/json"
	big := `"` + strings.Repeat("x", 1<<20) + `"`
	for _, c := range []struct{ name, kind, body, want, warning string }{
		{"JSON", j, ` {"a":1} `, `{"a":1}`, ""},
		{"JSON of a problem type", "application/problem+json; charset=utf-8", `[1]`, `[1]`, ""},
		{"object as text", "text/plain", `{"a":1}`, `{"a":1}`, ""},
		{"JSON behind the mark of UTF-8", j, "\ufeff" + `{"a":1}`, `{"a":1}`, ""}, // which readers may pass over (RFC 8259, 8.1), and some services write
		{"nothing", j, "", "", ""},
		{"the mark alone", j, "\ufeff", "", ""},
		{"null", j, "null", "", ""},
		{"text", "text/csv", "a,b", `{"status":200,"text":"a,b","type":"text/csv"}`, ""},
		{"bytes", "image/png", "\xff\x00", `{"base64":"/wA=","status":200,"type":"image/png"}`, ""},
		{"invalid UTF-8 in JSON", j, "{\"a\":\"\xff\"}", `{"base64":"eyJhIjoi/yJ9","status":200,"type":"application/json"}`, "not UTF-8"},
		{"JSON in Latin-1", j + "; charset=ISO-8859-1", "{\"a\":\"M\xfcller\"}", `{"a":"Müller"}`, ""},
		{"JSON that is not in its charset", j + "; charset=utf-8", "{\"a\":\"\xff\"}", `{"base64":"eyJhIjoi/yJ9","status":200,"type":"application/json"}`, "not UTF-8"},
		{"JSON that is not ASCII", j + "; charset=us-ascii", "{\"a\":\"\xff\"}", `{"base64":"eyJhIjoi/yJ9","status":200,"type":"application/json"}`, "not UTF-8"},
		{"text that is not in its charset", "text/csv; charset=utf-8", "\xff\x00", `{"base64":"/wA=","status":200,"type":"text/csv"}`, ""},
		{"text in Latin-1", "text/plain; charset=iso-8859-1", "M\xfcller", `{"status":200,"text":"Müller","type":"text/plain"}`, ""},
		{"a number that nobody can compute with", j, `{"a":1e999999}`, "", "exponent"},
	} {
		kind, body = c.kind, c.body
		r, err := mutate(t, conn, "create", `{"id":1}`)
		if err != nil || string(r.Result) != c.want || (r.Warning == "") != (c.warning == "") || !strings.Contains(r.Warning, c.warning) {
			t.Errorf("%s: receipt %s, %q, %v; want %s, %q", c.name, r.Result, r.Warning, err, c.want, c.warning)
		}
	}
	for _, kind = range []string{j, j + "; charset=utf-8", j + "; charset=us-ascii"} {
		body = "{\"a\":\"M\xfcller\"}"
		if _, err := mustRead(t, conn, "find", `{}`); class(err) != keep.ClassPrecondition {
			t.Errorf("read of Latin-1 as %s: %v, want precondition", kind, err)
		}
	}
	kind = j
	for _, body = range []string{`{"a":1e999999}`, "{}{}", "<html>"} {
		if _, err := mustRead(t, conn, "find", `{}`); class(err) != keep.ClassPrecondition {
			t.Errorf("read of %s: %v, want precondition", body, err)
		}
	}
	kind, body = j, big
	r, err := mutate(t, conn, "create", `{"id":1}`)
	if err != nil || !strings.Contains(r.Warning, "1 MiB") || !json.Valid(r.Result) || len(r.Result) > 1<<20 {
		t.Errorf("big answer: %d bytes, %q, %v; want applied with a cut result", len(r.Result), r.Warning, err)
	}
	if _, err := mustRead(t, conn, "find", `{}`); class(err) != keep.ClassLogic {
		t.Errorf("big read: %v, want logic", err)
	}
}

func TestSecretsStayOutOfMessages(t *testing.T) {
	const secret = "s3cr3t-value"
	var code int
	conn := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		fmt.Fprintf(w, "you sent %s, that is %s", r.Header.Get("Authorization"), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	})
	for _, code = range []int{400, 401, 429, 500, 302} {
		_, errM := mutate(t, conn, "create", `{"id":1}`)
		_, errR := mustRead(t, conn, "find", `{}`)
		_, errC := reconcile(t, conn, "create", `{"id":1}`)
		_, errK := reconcile(t, conn, "keyed", `{"id":1}`)
		for _, err := range []error{errM, errR, errC, errK} {
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("status %d: %v, want an error without the secret", code, err)
			}
		}
	}
}

// TestSecretsStayOutOfRecords has a service return what it was sent, in answers that become
// results, and a lookup whose path and query hold secrets. What a record keeps of them
// is read by everybody who may see the history.
func TestSecretsStayOutOfRecords(t *testing.T) {
	const key, hook = "k3y/with+odd&chars", "T00-hook-s3cret"
	service := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"id":1,"ref":"tok-1","a":%q,"b":%q,"c":%q}`, r.RequestURI, html.EscapeString(key), strings.ToUpper(hook))
	})
	conn, err := httpapi.New("crm", httpapi.Config{BaseURL: service, Secrets: []string{key, hook}, Tools: map[string]httpapi.Tool{
		"get": {Effect: connector.Get, Path: "/" + hook + "/x"},
		"make": {Effect: connector.Mutate, Path: "/" + hook + "/x", Identity: []string{"id"}, IdempotencyHeader: "X-Ref",
			Reconcile: &httpapi.Reconcile{Path: "/" + hook + "/x?key=" + url.QueryEscape(key), Query: []string{"ref={token}"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := reconcile(t, conn, "make", `{"id":1}`)
	if err != nil || a.Verdict != connector.Happened {
		t.Fatalf("lookup: %+v, %v", a, err)
	}
	receipt, err := mutate(t, conn, "make", `{"id":1}`)
	if err != nil {
		t.Fatal(err)
	}
	read, err := mustRead(t, conn, "get", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"detail": a.Detail, "found": string(a.Result), "result": string(receipt.Result), "read": read,
	} {
		text = strings.ToLower(text)
		for _, secret := range []string{key, hook, url.QueryEscape(key), html.EscapeString(key)} {
			if strings.Contains(text, strings.ToLower(secret)) {
				t.Errorf("%s holds a secret: %s", name, text)
			}
		}
	}
	if want := "GET /[hidden]/x?key&ref={token} answered 200 OK"; a.Detail != want {
		t.Errorf("detail is %q, want %q", a.Detail, want)
	}
}

// A cutter is a service that may close the connection after it has read a
// request.
type cutter struct {
	mu       sync.Mutex
	cut      bool
	requests int
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	if c.cut {
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Close()
		return
	}
	io.WriteString(w, "{}")
}

// arm makes the next request the first of the count; it is cut off.
func (c *cutter) arm(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut, c.requests = cut, 0
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// TestTransportNeverResends closes a kept-alive connection after it has read a
// request, which net/http would answer by sending again.
func TestTransportNeverResends(t *testing.T) {
	service := new(cutter)
	srv := httptest.NewServer(service)
	defer srv.Close()

	// The control: this is what net/http does.
	usual := &http.Client{Transport: new(http.Transport)}
	for _, cut := range []bool{false, true} {
		service.arm(cut)
		req, _ := http.NewRequestWithContext(t.Context(), "POST", srv.URL, strings.NewReader("{}"))
		req.Header.Set("Idempotency-Key", "k")
		if resp, err := usual.Do(req); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	if n := service.count(); n < 2 {
		t.Errorf("net/http sent %d requests; this test proves nothing any more", n)
	}

	conn := openAt(t, srv.URL)
	for _, name := range []string{"create", "keyed", "plain"} {
		service.arm(false)
		for range 3 {
			if _, err := mutate(t, conn, name, `{"id":1}`); err != nil {
				t.Fatal(err)
			}
		}
		service.arm(true)
		if _, err := mutate(t, conn, name, `{"id":1}`); class(err) != keep.ClassUnknown || service.count() != 1 {
			t.Errorf("%s: %v after %d requests, want unknown after 1", name, err, service.count())
		}
	}
	service.arm(false)
	mustRead(t, conn, "find", `{}`)
	service.arm(true)
	if _, err := mustRead(t, conn, "find", `{}`); class(err) != keep.ClassTransient || service.count() != 1 {
		t.Errorf("read: %v after %d requests, want transient after 1", err, service.count())
	}
}

func TestReadsShareAConnection(t *testing.T) {
	conns := map[string]bool{}
	conn := open(t, func(w http.ResponseWriter, r *http.Request) {
		conns[r.RemoteAddr] = true
		io.WriteString(w, "[]")
	})
	for range 5 {
		if _, err := mustRead(t, conn, "find", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	// A connection is kept for a second only, which a busy machine may take.
	if len(conns) == 5 {
		t.Errorf("5 reads used %d connections, want fewer", len(conns))
	}
}

func TestLevels(t *testing.T) {
	conn := open(t, status(200, "{}"))
	for name, want := range map[string]struct {
		level    keep.Level
		byTarget bool
	}{
		"create": {keep.LevelWitness, true}, "keyed": {keep.LevelKey, false},
		"marked": {keep.LevelWitness, false}, "plain": {keep.LevelNone, false},
	} {
		tl := tool(t, conn, name)
		if s := tl.Spec(); s.Level != want.level || s.ByTarget != want.byTarget {
			t.Errorf("%s: level %s, by target %t; want %+v", name, s.Level, s.ByTarget, want)
		}
		if _, ok := tl.(connector.Reconciler); ok != (want.level != keep.LevelNone) {
			t.Errorf("%s: can be asked: %t", name, ok)
		}
	}
	m := tool(t, conn, "create").(connector.Comparer)
	for _, c := range []struct {
		a, b string
		want connector.Difference
	}{
		{`{"id":1,"n":1.0}`, `{"n":1,"id":1}`, connector.Equivalent},
		{`{"id":1,"note":"a"}`, `{"id":1}`, connector.Minor},
		{`{"id":9007199254740993}`, `{"id":9007199254740992}`, connector.Significant},
	} {
		if got := m.ComparePayload(json.RawMessage(c.a), json.RawMessage(c.b)); got != c.want {
			t.Errorf("ComparePayload(%s, %s) = %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

func TestConfigReportsEverythingAtOnce(t *testing.T) {
	const bad = `
connector = "sql"
base_url = "ftp://user:hunter2@x"
headers = { "a b" = "x", Connection = "close", X = "a\nb" }
[tools.a]
effect = "list"
path = "contacts"
method = "DELETE"
identity = ["x"]
null_on = [500]
[tools.b]
effect = "mutate"
path = "/x/{token}/../{y"
deduplicates = true
not_executed = [200]
approve = "never"
payload_ignore = ["x"]
[tools.b.reconcile]
method = "PUT"
path = "/{y"
applied = [200, 404]
match = ["a="]
items = "data"
[tools."c d"]
effect = "change"
path = "/"
[tools.e]
effect = "mutate"
path = "/{id}"
identity = ["id", "subkey"]
timeout = "-1s"
[tools.e.params]
type = "objekt"
[tools.e.params.properties.x]
type = "string"
`
	var cfg httpapi.Config
	if err := toml.Unmarshal([]byte(bad), &cfg); err != nil {
		t.Fatal(err)
	}
	_, err := httpapi.New("crm", cfg)
	var ce *connector.ConfigError
	if !errors.As(err, &ce) {
		t.Fatalf("error is %v", err)
	}
	for _, want := range []string{
		"connections.crm.connector", "connections.crm.base_url", "connections.crm.headers.a b",
		"connections.crm.headers.Connection", "connections.crm.headers.X",
		"connections.crm.tools.a.path", "connections.crm.tools.a.method", "connections.crm.tools.a.identity",
		"connections.crm.tools.a.null_on", "connections.crm.tools.b.path", "connections.crm.tools.b.identity",
		"connections.crm.tools.b.idempotency_header", "connections.crm.tools.b.not_executed",
		"connections.crm.tools.b.approve", "connections.crm.tools.b.reconcile.method",
		"connections.crm.tools.b.reconcile.path", "connections.crm.tools.b.reconcile.failed",
		"connections.crm.tools.b.reconcile.items", "connections.crm.tools.c d",
		"connections.crm.tools.c d.effect", "connections.crm.tools.e.identity", "connections.crm.tools.e.timeout",
		"connections.crm.tools.e.params", "connections.crm.tools.e.params.properties",
	} {
		if !strings.Contains("\n"+err.Error(), "\n"+want+": ") {
			t.Errorf("no problem at %s", want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the error quotes a password")
	}
	if t.Failed() {
		t.Log(err)
	}
}
