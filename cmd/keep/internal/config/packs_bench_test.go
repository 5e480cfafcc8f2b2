package config_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/internal/twin"
)

// handWritten is the tool updatePage of the pack notion, as somebody writes it who has no pack.
const handWritten = `[connections.svc]
connector = "http"
base_url  = "http://%s/v1"
headers   = { Authorization = "Bearer ${secret:svc}", Notion-Version = "2022-06-28" }
[connections.svc.tools.updatePage]
effect   = "mutate"
method   = "PATCH"
path     = "/pages/{page_id}"
identity = ["page_id"]
`

// BenchmarkPack compares a call of a pack's tool with one of a tool that was written by hand, in
// turns: rounds of 100 calls of each, and the medians of their processor time. That of the
// service, which is in this process, counts for both.
func BenchmarkPack(b *testing.B) {
	calls := map[string]func(){}
	for name, toml := range map[string]string{
		"pack": "[connections.svc]\nconnector = \"notion\"\nbase_url = \"http://%s/v1\"\nsecret = \"${secret:svc}\"\n",
		"hand": handWritten,
	} {
		service, err := twin.Start(new(twin.Notion))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(service.Close)
		conn := openPack(b, fmt.Sprintf(toml, service.Addr()), service.Secret)
		i := slices.IndexFunc(conn.Tools, func(t connector.Tool) bool { return t.Spec().Name == "updatePage" })
		m := keep.Mutation{Token: "t", Attempts: 1, Payload: json.RawMessage(`{"page_id":"p1","properties":{"S":{"number":1}}}`)}
		calls[name] = func() {
			for range 100 {
				if _, err := conn.Tools[i].(connector.Mutator).Mutate(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	took := map[string][]float64{}
	for b.Loop() {
		for _, name := range []string{"pack", "hand"} {
			start := cputime.Used()
			calls[name]()
			took[name] = append(took[name], float64((cputime.Used()-start).Microseconds())/100)
		}
	}
	for name, rounds := range took {
		slices.Sort(rounds)
		b.ReportMetric(rounds[len(rounds)/2], name+"-µs/call")
	}
}
