package httpapi_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// asking are tools whose lookups ask in other places than path and query, by other values than
// texts, or compare with nothing of the call.
const asking = `
[tools.byBody]
effect = "mutate"
path = "/contacts"
identity = ["email"]
reconcile = { method = "POST", path = "/contacts/search", fixed = { filter = { email = "{email}" } } }

[tools.bodyList]
effect = "mutate"
path = "/contacts"
identity = ["email"]
reconcile = { method = "POST", path = "/contacts/search", items = "$.data", since = "{sent_at:unix}", fixed = { email = "{email}" } }

[tools.inside]
effect = "mutate"
path = "/contacts"
identity = ["owner"]
reconcile = { path = "/contacts", query = ["owner={owner.id}"] }

[tools.each]
effect = "mutate"
path = "/contacts"
identity = ["tags"]
reconcile = { path = "/contacts", query = ["tag={tags}"] }

[tools.object]
effect = "mutate"
path = "/contacts"
identity = ["account", "owner"]
reconcile = { method = "POST", path = "/accounts/{account}/search", fixed = { owner = "{owner}" } }

[tools.fixedMatch]
effect = "mutate"
path = "/contacts"
identity = ["id"]
reconcile = { path = "/contacts/{id}", match = { state = "done" } }

[tools.fixedMatchIn]
effect = "mutate"
path = "/contacts"
identity = ["id"]
reconcile = { path = "/contacts?id={id}", items = "$.data", complete = true, match = { state = "done" } }

[tools.started]
effect = "mutate"
path = "/drafts/{start}/send"
identity = ["id"]
start = { path = "/drafts", id = "$.id", keep = { thread = "$.thread" }, gone = { path = "/drafts/{start}" } }
reconcile = { path = "/threads/{start.thread}" }
`

// TestWhatWasAskedComesBack holds lookups to the law wherever and by whatever they ask: a record
// that holds nothing of the question is not ours.
func TestWhatWasAskedComesBack(t *testing.T) {
	t.Parallel()
	answer := &reply{status: 200}
	conn := openTools(t, asking, answer.ServeHTTP)
	for _, c := range []struct {
		tool string
		body string
		want connector.Verdict
	}{
		{"byBody", `{"id":99,"email":"17@x"}`, connector.Happened},
		{"byBody", `{"results":[{"email":"17@x"}]}`, connector.Happened},
		{"byBody", `{"results":[],"took":3}`, connector.Retry},
		{"byBody", `{"results":[],"criteria":{"email":"17@x"}}`, connector.Retry},
		{"byBody", `{"status":"maintenance"}`, connector.Retry},
		{"byBody", `[]`, connector.Unwitnessed},
		{"bodyList", `{"data":[{"email":"18@x"},{"email":"17@x"}]}`, connector.Happened},
		{"bodyList", `{"data":[{"email":"18@x"}]}`, connector.Retry},
		{"inside", `[{"owner":"o-17"}]`, connector.Happened},
		{"inside", `[{"owner":"o-18"}]`, connector.Retry},
		{"each", `[{"tags":["b-17","c","a-17"]}]`, connector.Happened},
		{"each", `[{"tags":["a-17"]}]`, connector.Retry},
		{"each", `[{"id":17}]`, connector.Retry},
		{"object", `[{"account":"acc","owner":{"id":"o-18"}}]`, connector.Retry},
		{"object", `[{"account":"acc","owner":{"id":"o-17"}}]`, connector.Retry}, // an object is not looked for
		{"fixedMatch", `{"id":17,"state":"done"}`, connector.Happened},
		{"fixedMatch", `{"id":17,"state":"open"}`, connector.Retry},
		{"fixedMatch", `{"state":"done"}`, connector.Retry},
		{"fixedMatchIn", `{"data":[{"id":17,"state":"done"}]}`, connector.Happened},
		{"fixedMatchIn", `{"data":[{"id":17,"state":"open"}]}`, connector.Retry}, // ours perhaps
		{"fixedMatchIn", `{"data":[]}`, connector.Absent},
	} {
		answer.body = c.body
		if a, err := reconcile(t, conn, c.tool, string(sent("17"))); err != nil || a.Verdict != c.want {
			t.Errorf("%s answered %s: %q%s, %v; want %q", c.tool, c.body, a.Verdict, a.Detail, err, c.want)
		}
	}
	answer.body = `[{"email":"18@x","owner":{},"tags":[]}]`
	if a, err := reconcile(t, conn, "each", `{"id":17,"tags":[]}`); err != nil || a.Verdict != connector.Retry {
		t.Errorf("a search for an empty list: %q%s, %v; want retry", a.Verdict, a.Detail, err)
	}
	for _, payload := range []string{`{"id":17,"owner":{}}`, `{"id":17,"owner":{"id":null}}`, `{"id":17}`} {
		if a, err := reconcile(t, conn, "inside", payload); class(err) != keep.ClassLogic {
			t.Errorf("a search without its value, %s: %q, %v; want a logic failure", payload, a.Verdict, err)
		}
		if _, err := mutate(t, conn, "inside", payload); class(err) != keep.ClassLogic {
			t.Errorf("a call that could not be asked for, %s: %v; want a logic failure", payload, err)
		}
	}
}

// TestWhatWasStartedComesBack is a lookup by what was made before the call, which is a mark.
func TestWhatWasStartedComesBack(t *testing.T) {
	t.Parallel()
	answer := &reply{status: 200}
	conn := openTools(t, asking, answer.ServeHTTP)
	m := mutation(`{"id":17}`)
	m.Pin = json.RawMessage(`{"claim":"{\"\":\"d-7\",\"thread\":\"t-9\"}"}`)
	counter := tool(t, conn, "started").(interface {
		Control(ctx context.Context, known keep.Mutation) (bool, error)
	})
	for body, want := range map[string]bool{`{"thread":"t-9"}`: true, `{"thread":"t-8"}`: false, `{"status":"ok"}`: false} {
		answer.body = body
		if found, err := counter.Control(t.Context(), m); err != nil || found != want {
			t.Errorf("%s: found = %t, %v; want %t", body, found, err, want)
		}
	}
}

// TestLookupMustAskForTheCall refuses lookups that would take any record for ours, and
// says of the others whether they find the target or the call.
func TestLookupMustAskForTheCall(t *testing.T) {
	t.Parallel()
	const head = "[tools.x]\neffect = \"mutate\"\npath = \"/x\"\nidentity = [\"id\"]\nidempotency_header = \"X-Ref\"\n"
	for lookup, byTarget := range map[string]bool{
		`method = "POST", path = "/x", fixed = { q = "{id}" }`:                   true,
		`method = "POST", path = "/x", fixed = { q = ["{id.of}"] }`:              true,
		`method = "POST", path = "/x", fixed = { ref = "{token}" }`:              false,
		`path = "/x/{id}", match = { state = "done" }`:                           true,
		`path = "/x/{id}", match = { state = "done", at = "{sent_at}" }`:         true,
		`path = "/x", since = "{sent_at:unix}", match = ["id"]`:                  false,
		`path = "/x", since = "{sent_at:unix}", match = { state = "{id.b}" }`:    false,
		`path = "/x", since = "{sent_at:unix}", contains = { note = "{token}" }`: false,
	} {
		conn, err := parseTools(head+"reconcile = { "+lookup+" }", "http://127.0.0.1:1")
		if err != nil || conn.Tools[0].Spec().ByTarget != byTarget {
			t.Errorf("%s: %v, want it by target: %t", lookup, err, byTarget)
		}
	}
	for _, lookup := range []string{
		`path = "/x", items = "$.data"`,
		`path = "/x", since = "{sent_at:unix}", items = "$.data"`,
		`path = "/x", query = ["from={sent_at}", "to={created_at:rfc3339}"], complete = true`,
		`method = "POST", path = "/x", fixed = { after = "{sent_at:rfc3339}" }`,
		`method = "POST", path = "/x", fixed = { state = "done" }`,
		`path = "/x", since = "{sent_at:unix}", match = { state = "done" }`,
		`path = "/x", match = { state = "done", at = "{created_at:rfc3339}" }`,
	} {
		_, err := parseTools(head+"reconcile = { "+lookup+" }", "http://127.0.0.1:1")
		const want = "tools.x.reconcile: asks for nothing of the call, so it would take other records for it"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", lookup, err, want)
		}
	}
}

// TestLookupAsksForTheWholeIdentity refuses lookups that take what another call made for the effect of this one.
func TestLookupAsksForTheWholeIdentity(t *testing.T) {
	t.Parallel()
	const head = "[tools.x]\neffect = \"mutate\"\npath = \"/x\"\nidentity = [\"customer\", \"invoice\"]\nidempotency_header = \"X-Ref\"\n"
	for lookup, missing := range map[string]string{
		`path = "/x?customer={customer}"`:                                    "invoice",
		`path = "/x", match = { invoice = "{invoice}" }`:                     "customer",
		`path = "/x", match = { state = "{state}" }`:                         "customer, invoice",
		`path = "/x?customer={customer}", match = { invoice = "{invoice}" }`: "",
		`path = "/x/{customer.id}/{invoice}"`:                                "",
		`path = "/x?customer={customer}", match = { ref = "{token}" }`:       "",
	} {
		_, err := parseTools(head+"reconcile = { "+lookup+" }", "http://127.0.0.1:1")
		want := "tools.x.reconcile: does not ask for " + missing + ", which is in identity"
		if missing == "" && err != nil || missing != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want one for %q", lookup, err, missing)
		}
	}
}
