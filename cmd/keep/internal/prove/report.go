package prove

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// A Report is what was found out about the tools of a connection.
type Report struct {
	Connection string     `json:"connection"`
	Pack       *keep.Pack `json:"pack"` // null: the tools are of keep.toml
	At         api.Time   `json:"at"`
	Tools      []Tool     `json:"tools"`
	Budget     int        `json:"budget"`  // calls that change something, at most
	Spent      int        `json:"spent"`   // those that were made
	Stopped    bool       `json:"stopped"` // before the end, by a person or a deadline
}

// When is the time of the report as people read it.
func (r Report) When() string { return time.Time(r.At).UTC().Format("2006-01-02 15:04:05") }

// A Tool is what was found out about one tool.
type Tool struct {
	Tool       string     `json:"tool"`
	Level      keep.Level `json:"level"`          // as configured
	Grade      keep.Level `json:"grade"`          // as shown
	Calls      int        `json:"calls"`          // requests for a change, repeats included
	Found      int        `json:"found"`          // effects that were found, of those that were made
	VisibleP50 *float64   `json:"visible_p50_ms"` // until a lookup found an effect; null: none was looked for
	VisibleP99 *float64   `json:"visible_p99_ms"`
	Repeat     string     `json:"repeat"` // what a repeat of the same call answered, and did
	Made       []Made     `json:"made"`
	Faults     []string   `json:"faults"` // what lowered the grade
	Advice     []string   `json:"advice"` // what to write into the pack or keep.toml

	longest time.Duration // that an effect took to show
}

// Settle returns what settle_after is to be: three times the longest that an effect took to show.
func (t Tool) Settle() time.Duration { return roundUp(3 * t.longest) }

// Made is one change that was asked for, so that a person can remove it.
type Made struct {
	What    string          `json:"what"` // which trial
	Token   string          `json:"token"`
	Target  string          `json:"target"`
	Params  json.RawMessage `json:"params"`
	Effects *int            `json:"effects"` // as the lookup shows at the end; null: it can't count
	Error   string          `json:"error"`   // with which the call ended, so that it may have made nothing; empty: there was none
}

// MadeBy returns what a call asked for that ended with err.
func MadeBy(what string, m keep.Mutation, err error) Made {
	made := Made{What: what, Token: m.Token, Target: m.Target, Params: m.Payload}
	if err != nil {
		made.Error = err.Error()
	}
	return made
}

// Passed reports whether every tool is at least what it is configured to be.
func (r Report) Passed() bool {
	for _, t := range r.Tools {
		if t.Grade > t.Level {
			return false
		}
	}
	return !r.Stopped
}

// report sums up what was found out.
//
// A call that was refused made nothing, and is not among what a person must remove, unless it was found
// all the same.
func (t *prover) report() Tool {
	out := Tool{
		Tool: t.spec.Name, Level: t.spec.Level, Calls: t.plan.Calls - t.left(), Repeat: t.repeat,
		Made: []Made{}, Faults: []string{}, Advice: []string{},
	}
	missing := 0
	for _, tr := range t.trials {
		if tr.found {
			out.Found++
		} else if tr.err == nil {
			missing++
		}
		made := MadeBy(tr.what, tr.m, tr.err)
		if tr.shown >= 0 {
			made.Effects = &tr.shown
		}
		if t.plan.MayHaveMade(tr.err) || tr.found {
			out.Made = append(out.Made, made)
		}
	}
	slices.Sort(t.lags)
	if n := len(t.lags); n > 0 {
		out.longest = max(t.lags[n-1], t.longest)
	}
	out.VisibleP50, out.VisibleP99 = percentile(t.lags, 50), percentile(t.lags, 99)
	late := len(t.lags) > 0 && t.lags[len(t.lags)-1] > t.spec.SettleAfter
	if late {
		t.faultf("an effect showed %s after its call, and settle_after is %s: until then it would have been called absent",
			t.lags[len(t.lags)-1].Round(time.Millisecond), t.spec.SettleAfter)
	}
	out.Grade = t.grade(missing, late)
	t.advise(&out)
	out.Faults = append(out.Faults, t.faults...)
	return out
}

// grade is the level that was shown.
func (t *prover) grade(missing int, late bool) keep.Level {
	looked := len(t.lags) > 0 && !t.blind && !late && missing == 0
	switch {
	case t.fatal || t.spec.Level == keep.LevelNone:
		return keep.LevelNone
	case t.spec.Level == keep.LevelKey && t.keyed && !t.unsure:
		return keep.LevelKey
	case t.spec.Level == keep.LevelClaim && t.keyed && looked:
		return keep.LevelClaim
	case t.spec.Level != keep.LevelClaim && looked:
		return keep.LevelWitness
	}
	return keep.LevelNone
}

// advise says what to write into the pack, or into the connection's tool.
func (t *prover) advise(out *Tool) {
	add := func(format string, args ...any) { out.Advice = append(out.Advice, fmt.Sprintf(format, args...)) }
	switch {
	case out.Grade == keep.LevelKey && !t.spec.Sets && t.spec.Level == keep.LevelKey:
		add("deduplicates = true: the place of token holds, a repeat has no second effect")
	case t.spec.Level == keep.LevelKey && t.unsure:
		add("nothing shows what a repeat did; look by hand: %s", cmp.Or(t.spec.VerifyByHand, "count what the service has of each call"))
	case t.spec.Level == keep.LevelKey && out.Grade != keep.LevelKey && t.spec.Sets:
		add("take sets out: the same request again is not the same")
	case t.spec.Level == keep.LevelKey && out.Grade != keep.LevelKey && !t.fatal:
		add("take deduplicates out: a key there is not honoured")
	case t.spec.Level == keep.LevelWitness && t.one != nil && t.one.shown == 1 && t.keyed:
		add("a repeat had no second effect: with deduplicates = true this may be level A, by the place where token is now")
	}
	if len(t.lags) > 0 && t.spec.Level != keep.LevelNone {
		add("settle_after = %q: three times the longest that an effect took to show", out.Settle().String())
	}
	if t.one != nil && t.one.err != nil && t.repeat == "" {
		add("no repeat was tried, since the call itself ended with: %v", t.one.err)
	}
	if out.Grade > t.spec.Level {
		add("until then: level %s is not shown, and a doubt is for a person", t.spec.Level)
	}
}

// roundUp returns d in whole seconds.
func roundUp(d time.Duration) time.Duration {
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}

// percentile returns the p-th percentile of sorted lags in milliseconds; nil: there are none.
func percentile(lags []time.Duration, p int) *float64 {
	if len(lags) == 0 {
		return nil
	}
	ms := float64(lags[min(len(lags)-1, len(lags)*p/100)].Microseconds()) / 1000
	return &ms
}

// canonical returns JSON with its members in order.
func canonical(raw json.RawMessage) []byte {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}

// cut returns a result in a few words.
func cut(raw json.RawMessage) string {
	const most = 200
	if runes := []rune(string(raw)); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(raw)
}
