package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// TestSuccessThatSaysItFailed is a service that answers what it refused with 200, as one of GraphQL does: the call is not done for that, and
// whether it is not is known to who says so with refused_if alone. Law: witnessed.
func TestSuccessThatSaysItFailed(t *testing.T) {
	t.Parallel()
	answer := &reply{status: 200, header: http.Header{"Content-Type": {"application/json"}}}
	conn := openTools(t, `
[tools.plain]
effect = "mutate"
path = "/orders"
identity = ["id"]

[tools.keyed]
effect = "mutate"
path = "/orders"
identity = ["id"]
idempotency_header = "Idempotency-Key"
deduplicates = true

[tools.believed]
effect = "mutate"
path = "/orders"
identity = ["id"]
applied_if = [{ status = [200] }]

[tools.refused]
effect = "mutate"
path = "/orders"
identity = ["id"]
refused_if = [{ path = "$.errors" }]
`, answer.ServeHTTP)
	for body, want := range map[string]keep.Class{
		`{"data":null,"errors":[{"message":"no stock"}]}`: keep.ClassUnknown,
		`{"success":false}`:                              keep.ClassUnknown,
		`{"ok":false,"error":"invalid_auth"}`:            keep.ClassUnknown,
		`{"error":{"code":7}}`:                           keep.ClassUnknown,
		`{"id":1,"error":null,"errors":[]}`:              "none",
		`{"id":1,"error":0,"errors":"0","success":true}`: "none",
		`{"id":1,"lines":[{"error":"x"}]}`:               "none", // of something within it
		`[{"error":"x"}]`:                                "none",
	} {
		answer.body = body
		_, err := mutate(t, conn, "plain", `{"id":1}`)
		if class(err) != want || want == keep.ClassUnknown && !strings.Contains(err.Error(), "refused_if") {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		a, err := reconcile(t, conn, "keyed", `{"id":1}`)
		if err != nil || (a.Verdict == connector.Happened) != (want == "none") {
			t.Errorf("%s, sent again: %q%s, %v", body, a.Verdict, a.Detail, err)
		}
		if _, err := mutate(t, conn, "believed", `{"id":1}`); err != nil {
			t.Errorf("%s, of which applied_if says that it is a success: %v", body, err)
		}
	}
	answer.body = `{"data":null,"errors":[{"message":"no stock"}]}`
	if _, err := mutate(t, conn, "refused", `{"id":1}`); class(err) != keep.ClassLogic {
		t.Errorf("what refused_if recognises: %v", err)
	}
}
