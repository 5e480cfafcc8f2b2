package httpapi_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// What was meant to be a param, or the host's key, is an error of the configuration: a
// lookup that cannot find what was sent would prove every absence.
func TestMisspeltTemplates(t *testing.T) {
	lookup := func(path string) httpapi.Tool {
		return httpapi.Tool{Effect: connector.Mutate, Path: "/things", Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key",
			Reconcile: &httpapi.Reconcile{Path: path}}
	}
	for name, tt := range map[string]struct {
		tool httpapi.Tool
		want string // empty: it is right
	}{
		"colon":          {httpapi.Tool{Effect: connector.Get, Path: "/orders/:id"}, "{id}"},
		"colon deeper":   {httpapi.Tool{Effect: connector.Get, Path: "/orders/{id}/items/:item"}, "{item}"},
		"a time":         {httpapi.Tool{Effect: connector.Get, Path: "/at/12:30"}, ""},
		"an action":      {httpapi.Tool{Effect: connector.Get, Path: "/orders/{id}:cancel"}, ""},
		"letter missing": {lookup("/things?key={tokn}"), "did you mean {token}?"},
		"another case":   {lookup("/things?key={Token}"), "did you mean {token}?"},
		"one too many":   {lookup("/things?key={tokens}"), "did you mean {token}?"},
		"wrong letter":   {lookup("/things?key={taken}"), "did you mean {token}?"},
		"right":          {lookup("/things?key={token}"), ""},
		"a param":        {lookup("/things/{id}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := httpapi.New("svc", httpapi.Config{BaseURL: "http://127.0.0.1:1", Tools: map[string]httpapi.Tool{"x": tt.tool}})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
