package config

import (
	"reflect"

	"github.com/keep-run/keep/law/limit"
)

// limitsTable is what a table of a connection or the file of a pack says of limits.
type limitsTable struct {
	Rate        string `toml:"rate"`        // calls within a time, such as "60/min"; all users of the connection share it
	Burst       int    `toml:"burst"`       // calls that may come at once within the rate
	Concurrency int    `toml:"concurrency"` // calls at a time

	rule limit.Rule
}

// limits takes out of a table what it says of limits: every kind of connection may.
//
// They are taken out, since the table is then bound to the Config of its connector, which has no such
// keys and would refuse them.
func (b *binder) limits(n *node, at string) limitsTable {
	some := map[string]*node{}
	for _, key := range []string{"rate", "burst", "concurrency"} {
		if v := n.table()[key]; v != nil {
			some[key] = v
			delete(n.table(), key)
		}
	}
	var t limitsTable
	before := len(b.problems)
	b.bind(reflect.ValueOf(&t).Elem(), &node{at: n.at, value: some}, at)
	if len(b.problems) > before {
		return limitsTable{}
	}
	key := func(name string) string {
		if at == "" {
			return name
		}
		return at + "." + name
	}
	t.rule = limit.Rule{Burst: t.Burst, Concurrency: t.Concurrency}
	if v := some["rate"]; v != nil {
		var err error
		if t.rule.Rates, err = limit.ParseRates(t.Rate); err != nil {
			b.addf(v, key("rate"), "%v", err)
		}
	}
	if v := some["burst"]; v != nil && t.Burst < 1 {
		b.addf(v, key("burst"), "must be more than zero")
	}
	if v := some["concurrency"]; v != nil && t.Concurrency < 1 {
		b.addf(v, key("concurrency"), "must be more than zero")
	}
	return t
}

// over returns the rule with what the table says in the place of what there was.
//
// A rate replaces the burst as well: a burst that was made for another rate would let through what the
// new one is to keep back.
func (t limitsTable) over(r limit.Rule) limit.Rule {
	if t.rule.Rates != nil {
		r.Rates, r.Burst = t.rule.Rates, 0
	}
	if t.Burst > 0 {
		r.Burst = t.Burst
	}
	if t.Concurrency > 0 {
		r.Concurrency = t.Concurrency
	}
	return r
}

// fits reports whether nothing in the table was objected to before.
func (t limitsTable) fits() bool { return t.Burst >= 0 && t.Concurrency >= 0 }
