package httpapi_test

import (
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// world is a connection with one tool.
const world = `
base_url = "https://a.example/api"
headers = { Authorization = "Bearer s3cr3t-value-1", X-Account = "17" }
[tools.pay]
effect = "mutate"
path = "/payments"
identity = ["id"]
idempotency_header = "X-Ref"
settle_after = "2s"
timeout = "3s"
reconcile = { path = "/payments?ref={token}", items = "/data" }
`

// TestPin holds what is kept with a call to what a re-send or a lookup depends on, and keeps
// secrets out of it (law: bound-to-its-world).
func TestPin(t *testing.T) {
	t.Parallel()
	pinOf := func(text string) string {
		var cfg httpapi.Config
		if err := toml.Unmarshal([]byte(text), &cfg); err != nil {
			t.Fatal(err)
		}
		cfg.References = map[string]string{"Authorization": "Bearer ${secret:bank}"}
		if strings.Contains(text, "# other account") {
			cfg.References["Authorization"] = "Bearer ${secret:other}"
		}
		conn, err := httpapi.New("bank", cfg)
		if err != nil {
			t.Fatal(err)
		}
		return string(tool(t, conn, "pay").(connector.Pinner).Pin())
	}
	was := pinOf(world)
	if strings.Contains(was, "s3cr3t") || !strings.Contains(was, "${secret:bank}") {
		t.Errorf("the pin is %s, want the name of the secret and not its value", was)
	}
	for _, same := range [][2]string{
		{"s3cr3t-value-1", "s3cr3t-value-2"}, {`settle_after = "2s"`, `settle_after = "9s"`}, {`timeout = "3s"`, `timeout = "9s"`},
		{"[tools.pay]", "[tools.other]\neffect = \"list\"\npath = \"/\"\n[tools.pay]\ndescription = \"pays\""},
		{`idempotency_header = "X-Ref"`, `token = { header = "X-Ref" }`},
	} {
		if now := pinOf(strings.Replace(world, same[0], same[1], 1)); now != was {
			t.Errorf("%q in place of %q changed the pin:\n%s\n%s", same[1], same[0], was, now)
		}
	}
	for _, other := range [][2]string{
		{"a.example", "b.example"}, {`X-Account = "17"`, `X-Account = "18"`}, {"[tools.pay]", "# other account\n[tools.pay]"},
		{`path = "/payments"`, `path = "/transfers"`}, {`path = "/payments"`, "path = \"/payments\"\nmethod = \"PUT\""},
		{`"X-Ref"`, `"X-Key"`}, {`"X-Ref"`, "\"X-Ref\"\ndeduplicates = true"}, {"?ref=", "?key="}, {`"/data"`, `"/items"`},
		{`["id"]`, `["id", "to"]`}, {`identity`, "fixed = { kind = \"x\" }\nidentity"},
	} {
		if now := pinOf(strings.Replace(world, other[0], other[1], 1)); now == was {
			t.Errorf("%q in place of %q did not change the pin %s", other[1], other[0], was)
		}
	}
}
