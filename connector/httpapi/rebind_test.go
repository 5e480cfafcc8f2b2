package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

const bankLookup = "/payments?ref={token}"

func bank(t *testing.T, base string, change func(*httpapi.Config, *httpapi.Tool)) connector.Tool {
	t.Helper()
	tool := httpapi.Tool{Effect: connector.Mutate, Path: "/payments", Identity: []string{"id"}, IdempotencyHeader: "X-Ref", Deduplicates: true,
		Reconcile: &httpapi.Reconcile{Path: bankLookup, Items: "$.data", Match: []any{"ref={token}"}}}
	cfg := httpapi.Config{BaseURL: base, Headers: map[string]string{"Authorization": "Bearer s3cret", "Account": "17"}, Secrets: []string{"s3cret"},
		References: map[string]string{"Authorization": "Bearer ${secret:bank}"}}
	if change != nil {
		change(&cfg, &tool)
	}
	cfg.Tools = map[string]httpapi.Tool{"pay": tool}
	c, err := httpapi.New("bank", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.Tools[0]
}

// A call that was sent to a place that is not configured any more is looked for there, and
// never sent again.
func TestRebind(t *testing.T) {
	var asked []string
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Account"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"data":[{"ref":%q,"id":1}]}`, r.URL.Query().Get("ref"))
	}))
	defer old.Close()
	pin := bank(t, old.URL, nil).(connector.Pinner).Pin()
	now := bank(t, "http://127.0.0.1:1", func(c *httpapi.Config, _ *httpapi.Tool) { c.Headers["Account"] = "18" })
	tool, err := now.(connector.Rebinder).Rebind(pin)
	if err != nil {
		t.Fatal(err)
	}
	if tool.Spec().Level != keep.LevelWitness {
		t.Errorf("level %s, want C: it must not send", tool.Spec().Level)
	}
	ans, err := tool.(connector.Reconciler).Reconcile(t.Context(), keep.Mutation{Token: "11111111-2222-8333-8444-555555555555", Payload: []byte(`{"id":1}`)})
	if err != nil || ans.Verdict != connector.Happened {
		t.Errorf("Reconcile = %+v, %v, want happened", ans, err)
	}
	if len(asked) != 1 || !strings.HasPrefix(asked[0], "GET /payments?ref=") || !strings.HasSuffix(asked[0], " 17") {
		t.Errorf("asked %q, want one lookup as account 17", asked)
	}
	of := func(account string) connector.Tool {
		return bank(t, old.URL, func(c *httpapi.Config, _ *httpapi.Tool) { c.References["account"], c.Headers = account, nil })
	}
	if _, err := of("shop2").(connector.Rebinder).Rebind(of("shop").(connector.Pinner).Pin()); err == nil {
		t.Error("another account was asked")
	}
	if _, err := now.(connector.Rebinder).Rebind(bank(t, old.URL, func(_ *httpapi.Config, tool *httpapi.Tool) { tool.Reconcile = nil }).(connector.Pinner).Pin()); err == nil {
		t.Error("a tool without a lookup was bound again")
	}
}
