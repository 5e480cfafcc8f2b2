package config_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
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

// BenchmarkPack compares a call of a pack's tool with one of a tool that was written by hand.
func BenchmarkPack(b *testing.B) {
	for name, toml := range map[string]string{
		"pack": "[connections.svc]\nconnector = \"notion\"\nbase_url = \"http://%s/v1\"\nsecret = \"${secret:svc}\"\n",
		"hand": handWritten,
	} {
		b.Run(name, func(b *testing.B) {
			service, err := twin.Start(new(twin.Notion))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(service.Close)
			conn := openPack(b, fmt.Sprintf(toml, service.Addr()), service.Secret)
			i := slices.IndexFunc(conn.Tools, func(t connector.Tool) bool { return t.Spec().Name == "updatePage" })
			m := keep.Mutation{Token: "t", Attempts: 1, Payload: json.RawMessage(`{"page_id":"p1","properties":{"S":{"number":1}}}`)}
			for b.Loop() {
				if _, err := conn.Tools[i].(connector.Mutator).Mutate(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
