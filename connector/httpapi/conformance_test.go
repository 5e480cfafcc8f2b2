package httpapi_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/testkit/connectortest"
)

// levels are the ways in which the service of the suite can be configured.
var levels = map[string]func(*httpapi.Tool){
	"level A": func(t *httpapi.Tool) { t.Path, t.Deduplicates = "/keyed", true },
	"level C by token": func(t *httpapi.Tool) {
		t.Path = "/marked"
		t.Reconcile = &httpapi.Reconcile{Path: "/effects", Query: []string{"ref={token}"}, Items: "/data", Match: []string{"id", "ref={token}"}}
	},
	"level C by target": func(t *httpapi.Tool) {
		t.Path, t.NotExecuted = "/marked", []int{503}
		t.Reconcile = &httpapi.Reconcile{Path: "/effects/{id}"}
	},
	"level D": func(t *httpapi.Tool) { t.Path = "/plain" },
}

func TestConformance(t *testing.T) {
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connectortest.Run(t, func(tb testing.TB) *connectortest.Bench { return bench(tb, level) })
		})
	}
}

// bench returns the service behind a proxy.
func bench(tb testing.TB, level func(*httpapi.Tool)) *connectortest.Bench {
	tb.Helper()
	o, err := connectortest.NewOracle()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(o.Close)
	p, err := connectortest.NewProxy(o.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	tool := httpapi.Tool{Effect: connector.Mutate, Identity: []string{"id"}, IdempotencyHeader: "Idempotency-Key"}
	level(&tool)
	const secret = "hunter2-hunter2"
	conn, err := httpapi.New("svc", httpapi.Config{
		BaseURL: "http://" + p.Addr(), Headers: map[string]string{"Authorization": "Bearer " + secret},
		Tools: map[string]httpapi.Tool{
			"change": tool,
			"list":   {Effect: connector.List, Path: "/effects"},
			"echo":   {Effect: connector.Get, Path: "/echo"},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return &connectortest.Bench{
		Connection: conn,
		Tool:       "change",
		Params:     func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"id":"c%d","text":"x"}`, n)) },
		Effects:    func(n int) int { return o.EffectsOn(fmt.Sprint("c", n)) },
		Refused:    []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`[]`)},
		Secrets:    []string{secret},
		Troubles:   connectortest.HTTPTroubles(p, o),
		Settle:     o.Settle,
	}
}
