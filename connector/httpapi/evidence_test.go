package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// A reply is what a service or a gateway before it answers.
type reply struct {
	status int
	kind   string // empty: JSON
	body   string
	header http.Header
}

// ServeHTTP answers each request so.
func (r *reply) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.kind != "" {
		w.Header().Set("Content-Type", r.kind)
	}
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.status)
	fmt.Fprint(w, r.body)
}

// ask returns what a tool makes of an answer to its lookup.
func ask(t *testing.T, tools, name string, r reply) connector.Answer {
	t.Helper()
	conn := openTools(t, tools, r.ServeHTTP)
	a, err := reconcile(t, conn, name, `{"id":17,"email":"ada@x"}`)
	if err != nil {
		a = connector.Answer{Verdict: connector.Retry, Detail: err.Error()}
	}
	return a
}

// openTools returns a connection with the given tools to a service that answers with h.
func openTools(t testing.TB, tools string, h http.HandlerFunc) *connector.Connection {
	t.Helper()
	conn, err := parseTools(tools, newServer(t, h))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// parseTools makes a connection of TOML.
func parseTools(tools, base string) (*connector.Connection, error) {
	var cfg httpapi.Config
	d := toml.NewDecoder(strings.NewReader("base_url = \"" + base + "\"\n" + tools)).DisallowUnknownFields()
	if err := d.Decode(&cfg); err != nil {
		return nil, err
	}
	return httpapi.New("crm", cfg)
}

// lookups are tools whose lookups ask in different ways.
const lookups = `
[tools.byToken]
effect = "mutate"
path = "/payments"
identity = ["id"]
idempotency_header = "X-Ref"
reconcile = { path = "/payments?ref={token}" }

[tools.byID]
effect = "mutate"
path = "/payments"
identity = ["id"]
reconcile = { path = "/payments/{id}" }

[tools.list]
effect = "mutate"
path = "/payments"
identity = ["id"]
token = { metadata = "keep_id" }
reconcile = { path = "/payments", items = "$.data", match = { "metadata.keep_id" = "{token}" } }

[tools.complete]
effect = "mutate"
path = "/payments"
identity = ["id"]
token = { metadata = "keep_id" }
reconcile = { path = "/payments", items = "$.data", complete = true, match = { "metadata.keep_id" = "{token}" } }

[tools.filtered]
effect = "mutate"
path = "/payments"
identity = ["id"]
idempotency_header = "X-Ref"
reconcile = { path = "/payments", query = ["ref={token}"], complete = true }

[tools.marker]
effect = "mutate"
path = "/comments"
identity = ["id"]
token = { append = { param = "email", text = "\n<!-- keep:{token} -->" } }
reconcile = { path = "/comments", contains = { body = "keep:{token}" } }

[tools.known]
effect = "mutate"
path = "/payments"
identity = ["id"]
reconcile = { path = "/payments/{id}", absent_if = { path = "$.error.type", equals = "not_found" } }

[tools.sheet]
effect = "mutate"
path = "/rows"
identity = ["id"]
token = { metadata = "keep_id" }
reconcile = { path = "/rows", items = "$.data", complete = true, match = { "metadata.keep_id" = "{token}" }, empty_if = { path = "$.count" } }

[tools.fields]
effect = "mutate"
path = "/payments"
identity = ["id"]
reconcile = { path = "/payments", items = "$.data", complete = true, match = { email = "{email}", n = "{id}" } }

[tools.both]
effect = "mutate"
path = "/payments"
identity = ["id", "email"]
reconcile = { path = "/payments?id={id}&email={email}" }

[tools.state]
effect = "mutate"
path = "/payments"
identity = ["id"]
idempotency_header = "X-Ref"
reconcile = { path = "/payments", items = "$.data", complete = true, match = { ref = "{token}", state = "paid" } }

[tools.comments]
effect = "mutate"
path = "/comments"
identity = ["id"]
token = { append = { param = "email", text = "\nkeep:{token}" } }
reconcile = { path = "/comments", complete = true, contains = { body = "keep:{token}" } }

[tools.header]
effect = "mutate"
path = "/payments"
identity = ["id"]
reconcile = { path = "/payments/{id}", absent_if = { status = [404, 410], header = "X-Request-Id" } }
`

// utf16 encodes a text of ASCII.
func utf16(s string) string {
	return "\xff\xfe" + strings.Join(strings.Split(s, ""), "\x00") + "\x00"
}

// TestWitnessed holds lookups to the law: only a record of the service that holds our
// mark, or what was sent, shows an effect, and only the service's own words show that
// there is none.
func TestWitnessed(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html><p>17 tok-1 ada@x</p>"
	for _, c := range []struct {
		tool   string
		status int
		body   string
		want   connector.Verdict
	}{
		{"byToken", 200, `{"ref":"tok-1","n":1}`, connector.Happened},
		{"byToken", 200, `[{"n":1},{"meta":{"ref":"tok-1"}}]`, connector.Happened},
		{"byToken", 200, `{"data":[{"ref":"tok-1"}]}`, connector.Happened},
		{"byToken", 200, page, connector.Retry},
		{"byToken", 200, `null`, connector.Retry},
		{"byToken", 200, ``, connector.Retry},
		{"byToken", 200, `{"data":null,"total":0}`, connector.Retry},
		{"byToken", 200, `{"hits":{"hits":[]}}`, connector.Retry},
		{"byToken", 200, `{"found":false}`, connector.Retry},
		{"byToken", 200, `[{"ref":"tok-2"},{"ref":"tok-11"}]`, connector.Retry},
		{"byToken", 200, `{"query":{"ref":"tok-1"},"data":null}`, connector.Retry},
		{"byToken", 200, `{"self":"tok-1"}`, connector.Retry},
		{"byToken", 200, `{"error":{"ref":"tok-1"}}`, connector.Retry},
		{"byToken", 200, `{"ref":"tok-1","found":false}`, connector.Retry},
		{"byToken", 200, `{"note":"no payment tok-1"}`, connector.Retry},
		{"byToken", 200, `"tok-1"`, connector.Retry},
		{"byToken", 200, `{"ref":"tok-1"`, connector.Retry},
		{"byToken", 200, `{"ref":"tok-1","n":1e999999}`, connector.Retry},
		{"byToken", 200, `[]`, connector.Unwitnessed},
		{"byToken", 202, `{"ref":"tok-1"}`, connector.Retry},
		{"byToken", 404, ``, connector.Unwitnessed},
		{"byToken", 404, `404 page not found`, connector.Unwitnessed},
		{"byToken", 404, page, connector.Retry},
		{"byToken", 410, ``, connector.Retry},
		{"byToken", 401, ``, connector.Retry},
		{"byToken", 503, ``, connector.Retry},
		{"byID", 200, `{"contact":{"number":"17"}}`, connector.Happened},
		{"byID", 200, `{"id":17}`, connector.Happened},
		{"byID", 200, `{"id":170}`, connector.Retry},
		{"byID", 200, `{}`, connector.Retry},
		{"byID", 200, `{"id":17,"total":0}`, connector.Retry},
		{"byID", 200, page, connector.Retry},
		{"byID", 404, `{}`, connector.Unwitnessed},
		{"list", 200, `{"data":[{"metadata":{"keep_id":"tok-0"}},{"metadata":{"keep_id":"tok-1"}}]}`, connector.Happened},
		{"list", 200, `{"data":[{"metadata":{"keep_id":"tok-0"}}]}`, connector.Retry},
		{"list", 200, `{"data":[{"keep_id":"tok-1"}]}`, connector.Retry},
		{"list", 200, `{"data":[]}`, connector.Unwitnessed},
		{"list", 200, `{"data":null}`, connector.Retry},
		{"list", 200, `{"data":{"metadata":{"keep_id":"tok-1"}}}`, connector.Retry},
		{"list", 200, `{}`, connector.Retry},
		{"complete", 200, `{"data":[]}`, connector.Absent},
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"tok-0"}}]}`, connector.Absent},
		{"complete", 200, `{"data":null}`, connector.Retry},
		{"complete", 404, ``, connector.Unwitnessed},
		{"sheet", 200, `{"count":0}`, connector.Absent},
		{"sheet", 200, `{"count":1,"data":[{"metadata":{"keep_id":"tok-1"}}]}`, connector.Happened},
		{"sheet", 200, `{"count":1,"data":null}`, connector.Retry},
		{"sheet", 200, `{"count":null}`, connector.Retry},
		{"sheet", 200, `{}`, connector.Retry},
		{"sheet", 404, `{"count":0}`, connector.Unwitnessed},
		{"filtered", 200, `[]`, connector.Absent},
		{"filtered", 200, `[{"id":17,"ref":"tok-1"}]`, connector.Happened},
		{"filtered", 200, `[{"id":17,"request":"tok-1"}]`, connector.Happened},
		{"filtered", 200, `[{"id":17,"self":"tok-1"}]`, connector.Retry},
		{"filtered", 200, "\ufeff" + `[{"id":17,"ref":"tok-1"}]`, connector.Happened},
		{"complete", 200, "\ufeff" + `{"data":[]}`, connector.Absent},
		// what counts nothing in an answer is a sum of money in an entry; what is not found or failed there denies it
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"tok-1"},"total":0,"count":0}]}`, connector.Happened},
		{"filtered", 200, `[{"ref":"tok-1","total":0}]`, connector.Happened},
		{"filtered", 200, `[{"ref":"tok-1","found":false}]`, connector.Retry},
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"tok-1"},"success":false}]}`, connector.Retry},
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"tok-1"},"exists":false}]}`, connector.Retry},
		{"filtered", 200, `[{"id":17}]`, connector.Retry}, // ours perhaps: it was asked for by our token
		{"byToken", 200, `{"request":"tok-1","rows":[]}`, connector.Retry},
		// an empty search that repeats the question under a name of its own
		{"byToken", 200, `{"results":null,"criteria":{"ref":"tok-1"}}`, connector.Retry},
		{"byToken", 200, `{"criteria":{"ref":"tok-1"},"hits":{"hits":[]}}`, connector.Retry},
		{"byToken", 200, `{"criteria":{"ref":"tok-1"},"page":{"items":null}}`, connector.Retry},
		{"byToken", 200, `{"payment":{"ref":"tok-1","tags":[],"note":null}}`, connector.Happened},
		{"byToken", 200, `{"data":{"ref":"tok-1","note":null}}`, connector.Happened},
		// a list that says that it failed, or that there is more
		{"complete", 200, `{"data":[],"errors":[{"message":"timeout"}]}`, connector.Retry},
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"tok-0"}}],"error":"shard 2 is down"}`, connector.Retry},
		{"complete", 200, `{"data":[],"ok":false}`, connector.Retry},
		{"complete", 200, `{"data":[],"timed_out":true}`, connector.Retry},
		{"complete", 200, `{"data":[],"errors":[],"ok":true,"timed_out":false}`, connector.Absent},
		{"list", 200, `{"data":[],"errors":[{"message":"timeout"}]}`, connector.Retry},
		{"complete", 200, `{"data":[],"has_more":true}`, connector.Retry},
		{"complete", 200, `{"data":[],"offset":"itr1/rec1"}`, connector.Retry},
		{"complete", 200, `{"data":[],"offset":0,"limit":10}`, connector.Absent},
		{"complete", 200, `{"data":[],"response_metadata":{"next_cursor":"dXNlcg=="}}`, connector.Retry},
		{"complete", 200, `{"data":[],"response_metadata":{"next_cursor":""}}`, connector.Absent},
		{"complete", 200, `{"data":[],"pageInfo":{"hasNextPage":true}}`, connector.Retry},
		{"complete", 200, `{"data":[],"paging":{"next":{"after":"100"}}}`, connector.Retry},
		{"complete", 200, `{"data":[],"next":null,"prev":"/x"}`, connector.Absent},
		{"complete", 200, `{"data":[],"meta":{"has_more":false},"links":{"next":"/x?after=1"}}`, connector.Absent},
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"tok-0"},"next":"tok-2","has_more":true}]}`, connector.Absent},
		{"filtered", 200, `[]`, connector.Absent},
		// what was sent, of two records of others together
		{"both", 200, `{"id":17,"email":"ada@x"}`, connector.Happened},
		{"both", 200, `{"results":[{"id":5,"email":"ada@x"},{"id":17,"email":"ada@x"}]}`, connector.Happened},
		{"both", 200, `{"customer":{"email":"ada@x"},"payments":[{"id":5},{"id":17}]}`, connector.Happened},
		{"both", 200, `{"results":[{"id":5,"email":"ada@x"},{"id":17,"email":"bob@x"}]}`, connector.Retry},
		{"both", 200, `{"data":{"results":[{"id":5,"email":"ada@x"}],"also":[{"id":17}]}}`, connector.Retry},
		{"both", 200, `[{"id":5,"email":"ada@x"},{"id":17,"email":"bob@x"}]`, connector.Retry},
		// an entry that may be ours, in another spelling or another state
		{"complete", 200, `{"data":[{"metadata":{"keep_id":"TOK-1"}}]}`, connector.Retry},
		{"complete", 200, `{"data":[{"metadata":{"keep_id":" tok-1"}}]}`, connector.Retry},
		{"fields", 200, `{"data":[{"email":"ada@x","n":17}]}`, connector.Happened},
		{"fields", 200, `{"data":[{"email":"Ada@X","n":17}]}`, connector.Retry},
		{"fields", 200, `{"data":[{"email":"ada@x","n":"17"}]}`, connector.Retry},
		{"fields", 200, `{"data":[{"email":"ada@x","n":"17.0"}]}`, connector.Retry},
		{"fields", 200, `{"data":[{"email":"ada&#64;x","n":17}]}`, connector.Retry},
		{"fields", 200, `{"data":[{"email":"\uff41da@x","n":17}]}`, connector.Retry},
		{"fields", 200, `{"data":[{"email":"ada@x","n":18}]}`, connector.Absent},
		{"fields", 200, `{"data":[{"email":"bob@x","n":17}]}`, connector.Absent},
		// entries that show nothing of a param by which ours would be recognised
		{"fields", 200, `{"data":[{"email":"bob@x"}]}`, connector.Unwitnessed},
		{"fields", 200, `{"data":[{"email":"ada@x"}]}`, connector.Unwitnessed},
		{"fields", 200, `{"data":[{"email":"bob@x"},{"email":"eve@x","n":null}]}`, connector.Absent},
		{"fields", 200, `{"data":[]}`, connector.Absent},
		{"complete", 200, `{"data":[{"id":5}]}`, connector.Absent}, // others lack our mark
		{"state", 200, `{"data":[{"ref":"tok-1","state":"pending"}]}`, connector.Retry},
		{"state", 200, `{"data":[{"ref":"tok-1","state":"paid"}]}`, connector.Happened},
		{"state", 200, `{"data":[{"ref":"tok-2","state":"paid"}]}`, connector.Absent},
		{"comments", 200, `[{"body":"x KEEP:TOK-1"}]`, connector.Retry},
		{"comments", 200, `[{"body":"xkeep:tok-1"}]`, connector.Retry},
		{"comments", 200, `[{"body":"keep&#58;tok-1"}]`, connector.Retry},
		{"comments", 200, `[{"body":"keep:tok-2"}]`, connector.Absent},
		{"marker", 200, `[{"body":"hello\n<!-- keep:tok-1 -->"}]`, connector.Happened},
		{"marker", 200, `[{"body":"hello\n<!-- keep:tok-12 -->"}]`, connector.Retry},
		{"marker", 200, `[{"title":"keep:tok-1"}]`, connector.Retry},
		{"known", 404, `{"error":{"type":"not_found"}}`, connector.Absent},
		{"known", 404, `{"error":{"type":"no_route"}}`, connector.Retry},
		{"known", 404, ``, connector.Retry},
		{"known", 500, `{"error":{"type":"not_found"}}`, connector.Retry},
		{"header", 404, ``, connector.Retry},
		// another alphabet than that of JSON, a redirect, and more than is read
		{"byToken", 200, utf16(`{"ref":"tok-1"}`), connector.Retry},
		{"complete", 200, utf16(`{"data":[]}`), connector.Retry},
		{"byToken", 200, "{\"ref\":\"tok-1\",\"name\":\"Andr\xe9\"}", connector.Happened},
		{"complete", 200, "{\"data\":[],\"name\":\"Andr\xe9\"}", connector.Absent},
		{"byToken", 302, `{"ref":"tok-1"}`, connector.Retry},
		{"complete", 302, `{"data":[]}`, connector.Retry},
		{"known", 307, `{"error":{"type":"not_found"}}`, connector.Retry},
		{"complete", 200, `{"data":[` + strings.Repeat(`{"id":1},`, 200_000) + `{"id":1}]}`, connector.Retry},
		{"filtered", 200, `[` + strings.Repeat(` `, 2<<20) + `]`, connector.Retry},
	} {
		if got := ask(t, lookups, c.tool, reply{status: c.status, body: c.body}); got.Verdict != c.want {
			t.Errorf("%s answered %d %.100q: %q%s, want %q", c.tool, c.status, c.body, got.Verdict, got.Detail, c.want)
		}
	}
	for _, status := range []int{404, 410} {
		r := reply{status: status, header: http.Header{"X-Request-Id": {"r-1"}}}
		if got := ask(t, lookups, "header", r); got.Verdict != connector.Absent {
			t.Errorf("%d with the service's header: %q, want absent", status, got.Verdict)
		}
	}
}

// TestLookupNeedsItsParams refuses a call that could not be asked about later.
func TestLookupNeedsItsParams(t *testing.T) {
	t.Parallel()
	var line string
	conn := open(t, func(w http.ResponseWriter, r *http.Request) {
		line = r.Method + " " + r.RequestURI
		status(200, `{"data":[{"email":"x","ref":"tok-1"}]}`)(w, r)
	})
	if a, err := reconcile(t, conn, "marked", `{"id":1,"email":"x"}`); err != nil || a.Verdict != connector.Happened {
		t.Errorf("lookup: %+v, %v", a, err)
	}
	if want := "GET /api/notes?ref=tok-1&kind=n-1"; line != want {
		t.Errorf("lookup was %q, want %q", line, want)
	}
	if _, err := mutate(t, conn, "marked", `{"id":1}`); class(err) != keep.ClassLogic {
		t.Errorf("a call that could not be asked for later: %v, want logic", err)
	}
}

// calls are tools whose answers say more than their status.
const calls = `
[tools.plain]
effect = "mutate"
path = "/x"
identity = ["id"]

[tools.text]
effect = "mutate"
path = "/x"
identity = ["id"]
answer = "text"

[tools.shaped]
effect = "mutate"
path = "/x"
identity = ["id"]
result = { type = "object", required = ["id"] }

[tools.says]
effect = "mutate"
path = "/x"
identity = ["id"]
statuses = { 402 = "logic", 404 = "unknown" }
applied_if = [{ path = "$.ok", equals = true }]
refused_if = [
  { path = "$.error", in = ["fatal_error", "internal_error"], class = "unknown" },
  { path = "$.error", equals = "ratelimited", class = "transient" },
  { path = "$.ok", equals = false },
  { status = [403], header = "Retry-After", class = "transient" },
]

[tools.read]
effect = "list"
path = "/x"
refused_if = [{ path = "$.ok", equals = false, class = "unknown" }]
result = { type = "object" }
`

func TestAnswerToTheCall(t *testing.T) {
	t.Parallel()
	const html = "text/html; charset=utf-8"
	for _, c := range []struct {
		tool string
		reply
		want keep.Class
	}{
		{"plain", reply{200, "", `{"id":1}`, nil}, "none"},
		{"plain", reply{200, html, `{"id":1}`, nil}, "none"},
		{"plain", reply{200, "", `null`, nil}, "none"},
		{"plain", reply{204, "", ``, nil}, "none"},
		{"plain", reply{200, "text/plain", `ok`, nil}, "none"},
		{"plain", reply{200, html, `<p>Welcome</p>`, nil}, keep.ClassUnknown},
		{"plain", reply{200, html, `Please log in`, nil}, keep.ClassUnknown},
		{"plain", reply{201, "", ` <!DOCTYPE html><title>502</title>`, nil}, keep.ClassUnknown},
		{"plain", reply{200, "", `{"id":`, nil}, keep.ClassUnknown},
		{"plain", reply{200, "", `{}{}`, nil}, keep.ClassUnknown},
		{"plain", reply{203, "", ``, nil}, keep.ClassUnknown},
		{"text", reply{200, html, `<p>Done</p>`, nil}, "none"},
		{"text", reply{500, html, `<p>Done</p>`, nil}, keep.ClassUnknown},
		{"shaped", reply{200, "", `{"id":1}`, nil}, "none"},
		{"shaped", reply{200, "", `{"other":1}`, nil}, "none"}, // applied with a warning of the host
		{"shaped", reply{204, "", ``, nil}, "none"},
		{"shaped", reply{200, "text/plain", `ok`, nil}, keep.ClassUnknown},
		{"shaped", reply{200, "", `null`, nil}, keep.ClassUnknown},
		{"says", reply{200, "", `{"ok":true}`, nil}, "none"},
		{"says", reply{200, "", `{"ok":false,"error":"channel_not_found"}`, nil}, keep.ClassLogic},
		{"says", reply{200, "", `{"ok":false,"error":"fatal_error"}`, nil}, keep.ClassUnknown},
		{"says", reply{200, "", `{"ok":false,"error":"ratelimited"}`, nil}, keep.ClassTransient},
		{"says", reply{200, "", `{"ok":"true"}`, nil}, keep.ClassUnknown},
		{"says", reply{200, "", `{}`, nil}, keep.ClassUnknown},
		{"says", reply{200, "", ``, nil}, keep.ClassUnknown},
		{"says", reply{200, "application/json; charset=utf-16", utf16(`{"ok":true}`), nil}, keep.ClassUnknown},
		{"says", reply{200, "application/json; charset=iso-8859-1", "{\"ok\":true,\"name\":\"Andr\xe9\"}", nil}, "none"},
		{"says", reply{302, "", `{"ok":true}`, nil}, keep.ClassUnknown},
		{"says", reply{200, "", `{"ok":true,"more":"` + strings.Repeat("x", 2<<20) + `"}`, nil}, keep.ClassUnknown},
		{"says", reply{402, "", `{}`, nil}, keep.ClassLogic},
		{"says", reply{404, "", `{}`, nil}, keep.ClassUnknown},
		{"says", reply{403, "", `{}`, nil}, keep.ClassPermission},
		{"says", reply{403, "", `{}`, http.Header{"Retry-After": {"3"}}}, keep.ClassTransient},
	} {
		conn := openTools(t, calls, c.ServeHTTP)
		if _, err := mutate(t, conn, c.tool, `{"id":1}`); class(err) != c.want {
			t.Errorf("%s answered %d %s %.100q: %v, want %s", c.tool, c.status, c.kind, c.body, err, c.want)
		}
	}
	for body, want := range map[string]keep.Class{
		`{"ok":true}`: "none", `{"ok":false}`: keep.ClassTransient, `<html>`: keep.ClassTransient,
	} {
		conn := openTools(t, calls, (&reply{status: 200, body: body}).ServeHTTP)
		if _, err := mustRead(t, conn, "read", `{}`); class(err) != want {
			t.Errorf("read answered %s: %v, want %s", body, err, want)
		}
	}
}

// resends are tools at level A.
const resends = `
[tools.keyed]
effect = "mutate"
path = "/x"
identity = ["id"]
idempotency_header = "Idempotency-Key"
deduplicates = true
key_lasts = "1h"

[tools.blocked]
effect = "mutate"
path = "/x"
identity = ["id"]
token = { header = "Idempotency-Key" }
deduplicates = true
on_resend = { happened = [409], then = "lookup" }
reconcile = { path = "/x/{id}" }

[tools.silent]
effect = "mutate"
path = "/x"
identity = ["id"]
token = { header = "Idempotency-Key" }
deduplicates = true
deduplicates_for = "1h"
on_resend = { happened = [409] }

[tools.listed]
effect = "mutate"
path = "/x"
identity = ["id"]
token = { header = "Idempotency-Key" }
deduplicates = true
reconcile = { path = "/none", items = "$.data", complete = true, match = { "metadata.keep_id" = "{id}" } }
`

// TestResend holds level A to the law: a refusal settles the request that was refused,
// and not the first one.
func TestResend(t *testing.T) {
	t.Parallel()
	answer := &reply{status: 200, header: http.Header{}}
	requests, lookups := 0, 0
	conn := openTools(t, resends, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			lookups++
			body := `{"id":1,"made":"earlier"}`
			if r.URL.Path == "/none" {
				body = `{"data":[]}`
			}
			(&reply{status: 200, body: body}).ServeHTTP(w, r)
			return
		}
		requests++
		if r.Header.Get("Idempotency-Key") != "tok-1" {
			t.Errorf("resend has the key %q", r.Header.Get("Idempotency-Key"))
		}
		answer.ServeHTTP(w, r)
	})
	for _, c := range []struct {
		tool  string
		codes []int
		body  string
		want  connector.Verdict // empty: an error
	}{
		{"keyed", []int{200, 201, 204}, "", connector.Happened},
		{"keyed", []int{200}, "<html>", connector.Retry},
		{"keyed", []int{400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 425, 429, 500, 501, 503, 302}, "", ""},
		{"blocked", []int{409, 404, 422}, "", connector.Happened},
		{"silent", []int{409}, "", connector.Happened},
		{"silent", []int{404, 422}, "", ""},
		{"listed", []int{404, 422}, "", connector.Absent},
		{"listed", []int{500, 502, 503, 504}, "", connector.Retry}, // this one may have its effect yet
	} {
		for _, answer.status = range c.codes {
			answer.body = c.body
			for _, mark := range []string{"", "true"} {
				answer.header.Set("Idempotent-Replayed", mark)
				a, err := reconcile(t, conn, c.tool, `{"id":1}`)
				if a.Verdict != c.want || (err == nil) != (c.want != "") {
					t.Errorf("%s: resend answered %d %q: %q, %v; want %q", c.tool, answer.status, mark, a.Verdict, err, c.want)
				}
			}
		}
	}
	answer.status = 409
	a, _ := reconcile(t, conn, "blocked", `{"id":1}`)
	if string(a.Result) != `{"id":1,"made":"earlier"}` {
		t.Errorf("the result of an earlier request is %s", a.Result)
	}
	if a, _ := reconcile(t, conn, "silent", `{"id":1}`); a.Result != nil || a.Warning == "" {
		t.Errorf("without a lookup: result %s, warning %q", a.Result, a.Warning)
	}
	if _, err := mutate(t, conn, "silent", `{"id":1}`); class(err) != keep.ClassLogic {
		t.Errorf("409 to a first request: %v, want logic", err)
	}
	again := mutation(`{"id":1}`)
	again.Attempts = 2
	if _, err := tool(t, conn, "silent").(connector.Mutator).Mutate(t.Context(), again); err != nil {
		t.Errorf("409 to a second request: %v", err)
	}
	forgotten(t, conn, &requests, answer)
}

// forgotten tries keys that the service may have forgotten, which are not sent again.
func forgotten(t *testing.T, conn *connector.Connection, requests *int, answer *reply) {
	t.Helper()
	answer.status = 200
	before := *requests
	m := mutation(`{"id":1}`)
	m.CreatedAt = time.Now().Add(-time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"keyed", "silent"} {
		_, err := tool(t, conn, name).(connector.Reconciler).Reconcile(ctx, m)
		if class(err) != keep.ClassPrecondition || *requests != before {
			t.Errorf("%s with an old key: %v after %d requests, want a precondition failure and none", name, err, *requests-before)
		}
	}
}

// TestLookupMustFindWhatWasSent refuses tools whose lookup could never find anything, or
// finds what somebody else did.
func TestLookupMustFindWhatWasSent(t *testing.T) {
	t.Parallel()
	const head = "[tools.x]\neffect = \"mutate\"\npath = \"/x\"\nidentity = [\"id\"]\n"
	for extra, want := range map[string]string{
		`reconcile = { path = "/x?ref={token}" }`:                          "tools.x.reconcile: looks for {token}, which the call never sends",
		`reconcile = { path = "/x", match = ["ref={token}"] }`:             "tools.x.reconcile: looks for {token}, which the call never sends",
		`reconcile = { path = "/x" }`:                                      "tools.x.reconcile: asks for nothing of the call",
		`reconcile = { path = "/x/{id}", method = "HEAD" }`:                "tools.x.reconcile.method: is HEAD",
		`reconcile = { path = "/x", contains = { body = "{id}" } }`:        "tools.x.reconcile.contains: must contain {token}",
		`reconcile = { path = "/x/{id}", absent_if = { status = [404] } }`: "tools.x.reconcile.absent_if: needs path or header",
		`start = { path = "/d", id = "$.id", gone_means = "applied", gone = { path = "/d/{start}", absent_if = { status = [404] } } }`: "tools.x.start.gone.absent_if: needs path or header",
		`start = { path = "/d", id = "$.id", gone_means = "applied", gone = { path = "/d/{start}", absent_if = {} } }`:                 "tools.x.start.gone.absent_if: needs path or header",
		`reconcile = { path = "/x/{id}", absent_if = {} }`:                                                                             "tools.x.reconcile.absent_if: needs path or header",
		`reconcile = { path = "/x/{id}", empty_if = { path = "$.n" } }`:                                                                "tools.x.reconcile.empty_if: is for a list at items",
		`reconcile = { path = "/x/{id}", empty_if = { status = [200] } }`:                                                              "tools.x.reconcile.empty_if: needs path or header",
		`reconcile = { path = "/x/{id}", absent_if = { path = "error" } }`:                                                             "tools.x.reconcile.absent_if.path: is \"error\", want",
		`token = { metadata = "keep_id" }` + "\ndeduplicates = true":                                                                   "tools.x.token: is required with deduplicates",
		`token = { format = "sha1", header = "K" }`:                                                                                    "tools.x.token.format: is \"sha1\"",
		`token = { append = { param = "id", text = "x" } }`:                                                                            "tools.x.token.append.text: must hold {token}",
		`key_lasts = "1h"`:                 "tools.x.key_lasts: needs deduplicates",
		`on_resend = { happened = [409] }`: "tools.x.on_resend: needs deduplicates",
		`answer = "xml"`:                   "tools.x.answer: is \"xml\"",
		`statuses = { 402 = "applied" }`:   "tools.x.statuses.402: is \"applied\"",
		`refused_if = [{ path = "$.ok", equals = false, class = "applied" }]`:   "tools.x.refused_if[0].class: is \"applied\"",
		`refused_if = [{ path = "$.ok[", equals = false }]`:                     "tools.x.refused_if[0].path",
		`token = { header = "K", body = "a.b", query = "k", format = "hex32" }`: "",
	} {
		_, err := parseTools(head+extra, "http://127.0.0.1:1")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", extra, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", extra, err, want)
		}
	}
}

// TestFoundInAnotherEncoding: an effect that is found in an answer that is not UTF-8, and names no other encoding, comes with a
// warning, since its result is not as the service sent it.
func TestFoundInAnotherEncoding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, body string
		warned     bool
	}{
		{"", "{\"ref\":\"tok-1\",\"name\":\"Andr\xe9\"}", true},
		{"", "[{\"ref\":\"tok-1\",\"name\":\"Andr\xe9\"}]", true},
		{"", "[{\"ref\":\"tok-1\",\"name\":\"Ada\"},{\"name\":\"Andr\xe9\"}]", false},
		{"application/json; charset=iso-8859-1", "{\"ref\":\"tok-1\",\"name\":\"Andr\xe9\"}", false},
		{"", "{\"ref\":\"tok-1\",\"name\":\"André \uFFFD\"}", false},
	} {
		a := ask(t, lookups, "byToken", reply{status: 200, kind: c.kind, body: c.body})
		if a.Verdict != connector.Happened || strings.Contains(a.Warning, "U+FFFD") != c.warned {
			t.Errorf("%q of %q: %q with the warning %q", c.body, c.kind, a.Verdict, a.Warning)
		}
	}
}

// TestAShortPageThatSaysMore holds a lookup to the law where the service gives fewer entries to a page than it was
// asked for: what it says of more pages counts, and so does a page that says that it failed.
func TestAShortPageThatSaysMore(t *testing.T) {
	t.Parallel()
	const tools = `
[tools.paged]
effect = "mutate"
path = "/payments"
identity = ["id"]
token = { metadata = "keep_id" }
[tools.paged.reconcile]
path = "/payments"
complete = true
match = { "metadata.keep_id" = "{token}" }
pages = { style = "page", items = "$.data", param = "page", size = 2, size_param = "n" }
`
	const other, ours = `{"metadata":{"keep_id":"tok-0"}}`, `{"metadata":{"keep_id":"tok-1"}}`
	for _, c := range []struct {
		pages []string // the last one again and again
		link  string
		want  connector.Verdict
	}{
		{[]string{`{"data":[` + other + `],"has_more":true}`}, "", connector.Retry},
		{[]string{`{"data":[` + other + `]}`}, `</payments?page=2>; rel="next"`, connector.Retry},
		{[]string{`{"data":[` + other + `],"has_more":false}`}, "", connector.Absent},
		{[]string{`{"data":[` + other + `],"next":null}`, `{"detail":"Invalid page."}`}, "", connector.Absent},
		// one that says nothing is not known to be the last: services cap how many they give
		{[]string{`{"data":[` + other + `]}`, `{"data":[` + ours + `]}`, `{"data":[]}`}, "", connector.Happened},
		{[]string{`{"data":[` + other + `]}`, `{"data":[]}`}, "", connector.Absent},
		{[]string{`{"data":[` + other + `]}`, `{"data":[{"metadata":{"keep_id":"tok-2"}}]}`, `{"data":[]}`}, "", connector.Absent},
		{[]string{`{"data":[` + other + `]}`, `{"detail":"Invalid page."}`}, "", connector.Retry},
		{[]string{`{"data":[` + other + `]}`}, "", connector.Retry}, // the same page again and again
		{[]string{`{"data":[` + other + `,` + other + `],"has_more":true}`, `{"data":[],"has_more":false}`}, "", connector.Absent},
		{[]string{`{"data":[` + other + `,` + other + `],"errors":["half of it"]}`, `{"data":[]}`}, "", connector.Retry},
		{[]string{`{"data":[` + other + `,` + other + `],"errors":["half of it"]}`, `{"data":[` + ours + `]}`}, "", connector.Happened},
	} {
		conn := openTools(t, tools, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.FormValue("page"))
			page := c.pages[min(n, len(c.pages))-1]
			h := http.Header{}
			if c.link != "" {
				h.Set("Link", c.link)
			}
			(&reply{status: 200, body: page, header: h}).ServeHTTP(w, r)
		})
		if got, err := reconcile(t, conn, "paged", `{"id":17}`); err != nil || got.Verdict != c.want {
			t.Errorf("%q with the link %q: %q%s, %v; want %q", c.pages, c.link, got.Verdict, got.Detail, err, c.want)
		}
	}
}
