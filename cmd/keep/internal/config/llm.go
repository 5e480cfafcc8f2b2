package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep/llm"
)

// An llmTable is an [llm.NAME] as it is written.
type llmTable struct {
	API     string        `toml:"api"`      // protocol: anthropic (messages) or openai (chat completions, which many servers speak)
	BaseURL string        `toml:"base_url"` // of the service; empty: the public one
	Key     string        `toml:"key"`      // API key; empty: none is sent
	Timeout time.Duration `toml:"timeout"`  // how long the service may be silent; empty: 60s
	Price   priceTable    `toml:"price"`    // what a million tokens cost
}

type priceTable struct {
	In  float64 `toml:"in"`  // that are sent, in any currency
	Out float64 `toml:"out"` // that are answered
}

// llmName reports whether a name fits for a service of language models.
func llmName(name string) bool { return AccountName(name) }

// llms checks the services of language models and returns them by name; nil: there are none.
//
// Errors of llm.New begin with the key that they are about, which gives them their line. A service with
// mistakes stays in the map: a table that names it must not be told that it is not there.
func (b *binder) llms(tables map[string]llmTable, root *node) map[string]llm.Config {
	if len(tables) == 0 {
		return nil
	}
	out := make(map[string]llm.Config, len(tables))
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t, n, at := tables[name], root.table()["llm"].table()[name], dotted("llm", name)
		cfg := llm.Config{API: llm.API(t.API), BaseURL: t.BaseURL, Key: t.Key, Timeout: t.Timeout, Price: llm.Price(t.Price)}
		key := n.table()["key"]
		if isOpen(t.Key) { // reported as missing
			cfg.Key = ""
		}
		_, err := llm.New(cfg)
		switch {
		case !llmName(name):
			b.addf(n, at, "%q is no name: use letters, digits, dots, dashes and underscores", name)
		case t.API == "":
			b.addf(n, at+".api", `is missing; write "anthropic" or "openai"`)
		case isOpen(t.BaseURL): // reported as missing
		case err != nil:
			field, why, _ := strings.Cut(err.Error(), ": ")
			where := n.table()[field]
			if where == nil {
				where = n
			}
			b.addf(where, at+"."+field, "%s", why)
		case n.table()["timeout"] != nil && t.Timeout == 0:
			b.addf(n.table()["timeout"], at+".timeout", "must be more than zero")
		case insecure(t.BaseURL):
			p := b.problem(n.table()["base_url"], at+".base_url", "the key and all that is asked can be read on the way")
			p.Fix = "use https://"
			b.warnings = append(b.warnings, p)
		}
		if t.Key != "" && key.raw == "" && key.source == "" {
			p := b.problem(key, at+".key", "looks like a secret in plain text")
			p.Fix = `write "${secret:name}" and put the value into .secrets/name`
			b.warnings = append(b.warnings, p)
		}
		out[name] = cfg
	}
	return out
}
