package config

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/llm"
)

// A writeTable is [write] as it is written. Which keys were written counts, too: the others are taken from
// [repair] where it has the same.
type writeTable struct {
	Provider  string        `toml:"provider"`  // which [llm.NAME] writes; empty: that of [repair], or the only one there is
	Model     string        `toml:"model"`     // as the service names it; empty: that of [repair]
	Questions int           `toml:"questions"` // that a person is asked, at most
	Attempts  int           `toml:"attempts"`  // conversations about one intent
	Tokens    int           `toml:"tokens"`    // of one intent, in all attempts; empty: as in [repair]
	Cost      float64       `toml:"cost"`      // of one intent, in the currency of the service's price; 0: no limit; empty: as in [repair]
	Time      time.Duration `toml:"time"`      // of one intent, without the time that a person thinks
}

// A Write says who writes workflows: keep write and keep edit.
type Write struct {
	Provider  string     // name of the service; empty: none is named, and there is not exactly one
	LLM       llm.Config // of the provider; valid
	Model     string     // empty: none is named
	Limits    repair.Limits
	Questions int
	Time      time.Duration
}

// The bounds of [write] (law: bounded).
const (
	maxWriteQuestions = 3
	maxWriteAttempts  = 10
	maxWriteTokens    = 100_000_000
	maxWriteTime      = 2 * time.Hour
)

// write checks [write] and returns what it means. What it does not say is as [repair] has it.
//
// A model goes with its provider: that of [repair] is taken only if the provider is the same. No
// provider is no error here: keep write and keep edit need one, and say so.
func (b *binder) write(t writeTable, r repairTable, root *node, known map[string]llm.Config) Write {
	n := root.table()["write"]
	keys := n.table()
	if t.Provider == "" || t.Provider == r.Provider {
		t.Provider, t.Model = r.Provider, cmp.Or(t.Model, r.Model)
	}
	if keys["tokens"] == nil {
		t.Tokens = r.Tokens
	}
	if keys["cost"] == nil {
		t.Cost = r.Cost
	}
	say := func(key, format string, args ...any) {
		at := keys[key]
		if at == nil {
			at = n
		}
		b.addf(at, "write."+key, format, args...)
	}
	provider := t.Provider
	if provider == "" && len(known) == 1 {
		provider = slices.Collect(maps.Keys(known))[0]
	}
	service, ok := known[provider]
	if keys["provider"] != nil && !ok {
		p := b.problem(keys["provider"], "write.provider", "there is no [llm.%s]", t.Provider)
		p.Fix = suggest(t.Provider, slices.Sorted(maps.Keys(known)))
		b.problems = append(b.problems, p)
	}
	if t.Questions < 0 || t.Questions > maxWriteQuestions {
		say("questions", "must be from 0 to %d", maxWriteQuestions)
	}
	if t.Attempts < 1 || t.Attempts > maxWriteAttempts {
		say("attempts", "must be from 1 to %d", maxWriteAttempts)
	}
	if t.Tokens < 1 || t.Tokens > maxWriteTokens {
		say("tokens", "must be from 1 to %d", maxWriteTokens)
	}
	if t.Cost < 0 || math.IsNaN(t.Cost) || math.IsInf(t.Cost, 0) {
		say("cost", "must not be negative; 0 is no limit")
	} else if keys["cost"] != nil && t.Cost > 0 && ok && service.Price == (llm.Price{}) {
		say("cost", "has no effect without llm.%s.price", provider)
	}
	if t.Time <= 0 || t.Time > maxWriteTime {
		say("time", "must be more than zero, and 2h at most")
	}
	return Write{Provider: provider, LLM: service, Model: t.Model, Questions: t.Questions, Time: t.Time,
		Limits: repair.Limits{Attempts: t.Attempts, Tokens: int64(t.Tokens), Cost: t.Cost}}
}
