package config

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/llm"
)

// A repairTable is [repair] as it is written.
type repairTable struct {
	Provider string        `toml:"provider"` // which [llm.NAME] is asked; empty: nothing is repaired
	Model    string        `toml:"model"`    // as the service names it
	Attempts int           `toml:"attempts"` // conversations about one failure
	Tokens   int           `toml:"tokens"`   // of one failure, in all attempts
	Cost     float64       `toml:"cost"`     // of one failure, in the currency of the service's price; 0: no limit
	Activate string        `toml:"activate"` // ask: a person agrees to each repair; safe: one that is proved to change nothing that was done needs nobody
	PerDay   int           `toml:"per_day"`  // repairs of one workflow that begin within 24 hours
	Replay   time.Duration `toml:"replay"`   // how old the runs are, at most, that a proposal is compared with
}

// A Repair says who repairs scripts that fail.
type Repair struct {
	LLM      llm.Config // whom to ask; valid
	Model    string
	Limits   repair.Limits
	Activate repair.Activate
	Replay   time.Duration
}

// The bounds of [repair] (law: bounded).
const (
	maxRepairAttempts = 10
	maxRepairTokens   = 100_000_000
	maxRepairPerDay   = 1000
	maxRepairReplay   = 90 * 24 * time.Hour
)

// repair checks [repair] and returns what it means; nil: nothing is repaired.
//
// Without the table nothing is wrong; with one that names no provider there is a warning, so that nobody
// believes that scripts are repaired. A limit of money needs a price: otherwise what was spent is
// always zero, and the limit never holds.
func (b *binder) repair(t repairTable, root *node, known map[string]llm.Config) *Repair {
	n := root.table()["repair"]
	if n == nil {
		return nil
	}
	wrong := len(b.problems)
	keys := n.table()
	say := func(key, format string, args ...any) {
		at := keys[key]
		if at == nil {
			at = n
		}
		b.addf(at, "repair."+key, format, args...)
	}
	service, ok := known[t.Provider]
	switch {
	case t.Provider == "":
		if len(keys) > 0 {
			p := b.problem(n, "repair", "nothing is repaired, since no provider is named")
			p.Fix = `write provider = "NAME" and a table [llm.NAME]`
			b.warnings = append(b.warnings, p)
		}
	case !ok:
		p := b.problem(keys["provider"], "repair.provider", "there is no [llm.%s]", t.Provider)
		p.Fix = suggest(t.Provider, slices.Sorted(maps.Keys(known)))
		b.problems = append(b.problems, p)
	case t.Model == "":
		say("model", "is missing; write the name that the service has for it")
	}
	if t.Attempts < 1 || t.Attempts > maxRepairAttempts {
		say("attempts", "must be from 1 to %d", maxRepairAttempts)
	}
	if t.Tokens < 1 || t.Tokens > maxRepairTokens {
		say("tokens", "must be from 1 to %d", maxRepairTokens)
	}
	if t.Cost < 0 || math.IsNaN(t.Cost) || math.IsInf(t.Cost, 0) {
		say("cost", "must not be negative; 0 is no limit")
	} else if t.Cost > 0 && ok && service.Price == (llm.Price{}) {
		say("cost", "has no effect without llm.%s.price", t.Provider)
	}
	if t.PerDay < 1 || t.PerDay > maxRepairPerDay {
		say("per_day", "must be from 1 to %d", maxRepairPerDay)
	}
	if t.Replay <= 0 || t.Replay > maxRepairReplay {
		say("replay", "must be more than zero, and 2160h (90 days) at most")
	}
	switch repair.Activate(t.Activate) {
	case repair.Ask, repair.WhenSafe:
	default:
		say("activate", `%q is none: want "ask" or "safe"`, t.Activate)
	}
	if t.Provider == "" || len(b.problems) > wrong {
		return nil
	}
	return &Repair{
		LLM: service, Model: t.Model, Activate: repair.Activate(t.Activate), Replay: t.Replay,
		Limits: repair.Limits{Attempts: t.Attempts, Tokens: int64(t.Tokens), Cost: t.Cost, PerDay: t.PerDay},
	}
}
