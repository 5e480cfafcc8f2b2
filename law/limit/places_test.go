package limit_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keep-run/keep/law/limit"
)

// Whatever hosts claim, are refused, and send more requests for: no more calls are out at once than may be, and who is
// refused waits for one that is out.
func TestPlacesOfAllHosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := limit.Rule{Concurrency: rapid.IntRange(1, 4).Draw(t, "concurrency")}
		if rapid.Bool().Draw(t, "rate") {
			rule.Rates = []limit.Rate{{N: 2, Per: time.Second}}
		}
		var s limit.State
		now := start
		out := map[string][]time.Time{} // until when the calls of each host may take
		last := func(host string) (last time.Time) {
			for _, until := range out[host] {
				if until.After(last) {
					last = until
				}
			}
			return last
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond)
			for _, host := range slices.Sorted(maps.Keys(out)) { // calls end by their time
				if n := len(out[host]); n > 0 {
					out[host] = slices.DeleteFunc(out[host], func(until time.Time) bool { return !until.After(now) })
					if len(out[host]) < n {
						s = limit.Leave(s, host, len(out[host]), last(host), now)
					}
				}
			}
			host := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "host")
			held, all := len(out[host]), len(out["a"])+len(out["b"])+len(out["c"])
			claim := limit.Claim{Host: host, Held: held, Until: now.Add(3 * time.Second), Last: last(host)}
			switch rapid.SampledFrom([]string{"take", "take", "more", "leave"}).Draw(t, "what") {
			case "take":
				next, ans := limit.Take(s, rule, claim, now)
				switch s = next; {
				case ans.Granted && all >= rule.Concurrency:
					t.Fatalf("%d calls are out, of %d, and %s makes one more", all, rule.Concurrency, host)
				case ans.Granted:
					out[host] = append(out[host], claim.Until)
				case ans.Wait.Kind == limit.ByConcurrency && all < rule.Concurrency:
					t.Fatalf("%d calls are out, of %d, and %s waits for a place", all, rule.Concurrency, host)
				}
			case "more":
				if held > 0 {
					claim.More, claim.Held, claim.Until = true, held, now
					s, _ = limit.Take(s, rule, claim, now)
				}
			case "leave":
				if held > 0 {
					out[host] = out[host][1:]
					s = limit.Leave(s, host, held-1, last(host), now)
				}
			}
		}
	})
}

// A probe and calls that were made by a clock which was ahead hold up nobody for as long as that was.
func TestAfterTheClockWasSetBack(t *testing.T) {
	ahead := start.Add(30 * 24 * time.Hour)
	claim := func(host string, now time.Time) limit.Claim {
		return limit.Claim{Host: host, Who: host, Until: now.Add(time.Minute)}
	}
	rule := limit.Rule{Concurrency: 1}
	s, _ := limit.Take(limit.State{}, rule, claim("a", ahead), ahead)
	if _, ans := limit.Take(s, rule, claim("b", start), start); !ans.Granted {
		t.Errorf("beside a call of then: %+v, want it granted", ans)
	}
	s, ans := limit.Take(limit.State{Shut: &limit.Shut{Kind: limit.ByDown, Since: ahead, Until: ahead}}, limit.Rule{}, claim("a", ahead), ahead)
	if !ans.Probe {
		t.Fatalf("the probe of then: %+v", ans)
	}
	for _, at := range []time.Time{start, start.Add(2 * time.Second)} { // for the grace that others have
		if _, ans = limit.Take(s, limit.Rule{}, claim("b", at), at); ans.Granted {
			return
		}
	}
	t.Errorf("after the probe of then: %+v, want another one", ans)
}
