package httpapi_test

import (
	"encoding/json"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

// FuzzPath checks that no param leaves the place that the template gives it,
// not even for a server that decodes first and splits afterwards.
func FuzzPath(f *testing.F) {
	f.Add("/contacts/{id}", "17")
	f.Add("/a/{id}/b?x={id}", "../..")
	f.Add("/a{id}{id}", ".")
	f.Add("/{id}/%2e%2e", "a/b\\c")
	f.Add("/{id", "%2e%2e")
	base := "http://keep.invalid"
	f.Fuzz(func(t *testing.T, template, value string) {
		c, err := httpapi.New("x", httpapi.Config{BaseURL: base + "/base", Tools: map[string]httpapi.Tool{
			"t": {Effect: connector.Get, Path: template},
		}})
		if err != nil {
			return
		}
		raw, _ := json.Marshal(map[string]string{"id": value})
		line, err := httpapi.RequestURL(c.Tools[0], raw)
		if err != nil {
			return
		}
		got, err := url.Parse(line)
		if err != nil {
			t.Fatalf("template %q with %q gives %q: %v", template, value, line, err)
		}
		if got.Host != "keep.invalid" || !strings.HasPrefix(path.Clean(got.Path), "/base") {
			t.Errorf("template %q with %q escapes to %q", template, value, line)
		}
		if want := strings.Count(strings.SplitN(template, "?", 2)[0], "/") + 1; strings.Count(got.EscapedPath(), "/") != want {
			t.Errorf("template %q with %q has another shape: %q", template, value, line)
		}
	})
}

// FuzzConfig checks that any configuration either is refused or makes tools
// that don't panic.
func FuzzConfig(f *testing.F) {
	f.Add(strings.ReplaceAll(crm, "%s", "http://127.0.0.1:1"))
	f.Add("base_url = \"http://h\"\n[tools.a]\neffect=\"mutate\"\npath=\"/\"\nidentity=[\"id\"]\n[tools.a.reconcile]\npath=\"/\"\nmatch=[\"a=\"]")
	f.Add("base_url = \"http://h\"\n[tools.a]\neffect=\"list\"\npath=\"/?=\"\n[tools.a.params]\n\"$ref\"=\"http://x\"")
	f.Fuzz(func(t *testing.T, text string) {
		var cfg httpapi.Config
		if toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&cfg) != nil {
			return
		}
		c, err := httpapi.New("x", cfg)
		if err != nil {
			return
		}
		for _, tl := range c.Tools {
			params := json.RawMessage(`{"id":1,"email":"x"}`)
			httpapi.RequestURL(tl, params)
			if m, ok := tl.(connector.Mutator); ok {
				m.Target(params)
				httpapi.Judge(tl, 200, "", `{"data":[{"id":1}]}`, keep.Mutation{Token: "t", Payload: params})
			}
		}
	})
}
