package limit_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/law/policy"
)

var (
	start   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	backoff = policy.Backoff{First: 10 * time.Second, Max: time.Minute, Attempts: 2}
)

func TestParseRates(t *testing.T) {
	for text, want := range map[string]string{
		"60/min": "60/min", " 2/s,100/h ": "2/s, 100/h", "1/s": "1/s",
		"": "", "60": "", "0/s": "", "-1/s": "", "60/day": "", "60/min,": "", "1.5/s": "", "2000000/s": "",
	} {
		rates, err := limit.ParseRates(text)
		if got := (limit.Rule{Rates: rates}).Text(); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
}

// In no window are more requests let in than the rate and the burst allow, whoever asks and
// how often; and a user who asks at the time that he was told is let in.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		rates string
		burst int
		most  map[time.Duration]int // in a window
	}{
		{"60/min", 0, map[time.Duration]int{time.Minute: 60, time.Second: 1}},
		{"60/min", 10, map[time.Duration]int{time.Minute: 69, time.Second: 10}},
		{"10/s, 60/min", 0, map[time.Duration]int{time.Minute: 60}},
		{"3/s, 60/min", 5, map[time.Duration]int{time.Minute: 64, time.Second: 5}},
	} {
		rates, _ := limit.ParseRates(c.rates)
		rule := limit.Rule{Rates: rates, Burst: c.burst}
		var s limit.State
		var begun []time.Time
		for now, until := start, start.Add(5*time.Minute); now.Before(until); {
			next, ans := limit.Take(s, rule, limit.Claim{Host: fmt.Sprint(len(begun) % 2)}, now)
			if ans.Granted {
				begun, s = append(begun, now), restored(t, next)
				continue
			}
			if !ans.Wait.Until.After(now) || ans.Wait.Kind != limit.ByRate {
				t.Fatalf("%s: waits at %s until %s", c.rates, now, ans.Wait.Until)
			}
			now = ans.Wait.Until
		}
		for window, most := range c.most {
			seen := 0
			for i, at := range begun {
				n := 0
				for _, other := range begun[i:] {
					if other.Before(at.Add(window)) {
						n++
					}
				}
				seen = max(seen, n)
			}
			if seen != most {
				t.Errorf("%s, burst %d: %d requests in %s, want %d", c.rates, c.burst, seen, window, most)
			}
		}
	}
}

// restored returns s as a store gives it back.
func restored(t *testing.T, s limit.State) (out limit.State) {
	t.Helper()
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil || !out.Equal(s) {
		t.Fatalf("%s is read as %+v, %v", text, out, err)
	}
	return out
}

// A clock that is set back, and a rule that changes, cost at most one full bucket of waiting.
func TestRateAfterTheClockWasSetBack(t *testing.T) {
	rule := limit.Rule{Rates: []limit.Rate{{N: 60, Per: time.Hour}}}
	s, _ := limit.Take(limit.State{}, rule, limit.Claim{}, start)
	_, ans := limit.Take(s, rule, limit.Claim{}, start.Add(-24*time.Hour))
	if d := ans.Wait.Until.Sub(start.Add(-24 * time.Hour)); ans.Granted || d > time.Minute {
		t.Errorf("waits %s, want a minute at most", d)
	}
	if s, ans = limit.Take(s, limit.Rule{Rates: []limit.Rate{{N: 1, Per: time.Second}}}, limit.Claim{}, start); !ans.Granted || len(s.Full) != 1 {
		t.Errorf("another rate: %+v, buckets %v; want it granted, and one bucket", ans, s.Full)
	}
}

// Places are shared by hosts. One that died gives its places back when its calls must be
// over, and no sooner.
func TestConcurrency(t *testing.T) {
	rule := limit.Rule{Concurrency: 3}
	take := func(s limit.State, host string, held int, at time.Duration) (limit.State, limit.Answer) {
		now := start.Add(at)
		s, ans := limit.Take(s, rule, limit.Claim{Host: host, Held: held, Until: now.Add(30 * time.Second), Last: now}, now)
		return restored(t, s), ans
	}
	s, _ := take(limit.State{}, "a", 0, 0)
	s, _ = take(s, "b", 0, 5*time.Second)
	s, _ = take(s, "a", 1, 10*time.Second)
	if _, ans := take(s, "b", 1, 11*time.Second); ans.Granted || ans.Wait.Kind != limit.ByConcurrency {
		t.Fatalf("a fourth call: %+v", ans)
	}
	if _, ans := take(limit.Leave(s, "b", 0, start, start.Add(12*time.Second)), "b", 0, 12*time.Second); !ans.Granted {
		t.Errorf("after one is over: %+v", ans)
	}
	if _, ans := take(s, "b", 1, 39*time.Second); ans.Granted {
		t.Error("a host that may still be at its calls lost their places")
	}
	if _, ans := take(s, "b", 1, 41*time.Second); !ans.Granted {
		t.Errorf("the calls of a host that is gone: %+v", ans)
	}
}

// A story: what happens to a connection, and what it is then.
func TestShut(t *testing.T) {
	failed := limit.Outcome{Who: "w", Failed: true, Why: "refused"}
	named := limit.Outcome{Who: "w", Failed: true, RetryAfter: time.Minute, Why: "429"}
	probe := func(o limit.Outcome) limit.Outcome { o.Probe = true; return o }
	type step struct {
		after   time.Duration
		outcome limit.Outcome
	}
	for _, c := range []struct {
		name  string
		steps []step
		want  string
		waits time.Duration // after the last step; 0: it is open
	}{
		{"two failures are no outage", []step{{0, failed}, {0, failed}}, "", 0},
		{"three are", []step{{0, failed}, {0, failed}, {0, failed}}, "down 3", 40 * time.Second},
		{"in a row", []step{{0, failed}, {0, failed}, {0, limit.Outcome{}}, {0, failed}}, "", 0},
		{"what began before says nothing", []step{{0, failed}, {0, failed}, {0, failed}, {time.Second, failed}, {0, limit.Outcome{}}}, "down 3", 39 * time.Second},
		{"a probe that fails", []step{{0, failed}, {0, failed}, {0, failed}, {40 * time.Second, probe(failed)}}, "down 4", time.Minute},
		{"a probe that is answered", []step{{0, failed}, {0, failed}, {0, failed}, {40 * time.Second, probe(limit.Outcome{})}}, "", 0},
		{"a probe that was not sent", []step{{0, named}, {time.Minute, limit.Outcome{Probe: true, Unsent: true}}}, "slow 0", 0},
		{"a named time", []step{{0, named}}, "slow 0", time.Minute},
		{"the later one counts", []step{{0, named}, {30 * time.Second, named}, {0, limit.Outcome{Failed: true, RetryAfter: time.Second}}}, "slow 0", time.Minute},
		{"no longer than a day", []step{{0, limit.Outcome{Failed: true, RetryAfter: 1000 * time.Hour}}}, "slow 0", limit.MaxShut},
		{"a probe that fails after a named time", []step{{0, named}, {time.Minute, probe(failed)}}, "down 1", 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s limit.State
			now := start
			for _, st := range c.steps {
				now = now.Add(st.after)
				s = restored(t, limit.Report(s, st.outcome, backoff, 3, 0, now))
			}
			got := ""
			if s.Shut != nil {
				got = fmt.Sprint(s.Shut.Kind, " ", s.Shut.Tries)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatal(diff)
			}
			_, ans := limit.Take(s, limit.Rule{}, limit.Claim{Host: "h", Who: "v", Until: now.Add(time.Second)}, now)
			if c.waits == 0 && !ans.Granted || c.waits > 0 && (ans.Granted || !ans.Wait.Until.Equal(now.Add(c.waits)) || !ans.Wait.IsShut()) {
				t.Errorf("a claim: %+v, want a wait of %s", ans, c.waits)
			}
		})
	}
}

// Where no failures count as an outage, a time that the service named is all that shuts a connection.
func TestNoOutage(t *testing.T) {
	s := limit.Report(limit.State{}, limit.Outcome{Failed: true, RetryAfter: time.Minute}, backoff, 0, 0, start)
	s = limit.Report(s, limit.Outcome{Probe: true, Failed: true}, backoff, 0, 0, start.Add(time.Minute))
	for range 10 {
		s = limit.Report(s, limit.Outcome{Failed: true}, backoff, 0, 0, start.Add(time.Minute))
	}
	if !s.Equal(limit.State{}) {
		t.Errorf("it is %+v, want it open", s)
	}
}

// One call is the probe; the others wait until it is over, whatever became of its host.
func TestOneProbe(t *testing.T) {
	s := limit.Report(limit.State{}, limit.Outcome{Who: "w", Failed: true, RetryAfter: time.Minute}, backoff, 3, 0, start)
	now := start.Add(time.Minute)
	claim := func(who string, at time.Time) (limit.State, limit.Answer) {
		return limit.Take(s, limit.Rule{}, limit.Claim{Host: who, Who: who, Until: at.Add(30 * time.Second)}, at)
	}
	next, ans := claim("v", now)
	if !ans.Granted || !ans.Probe {
		t.Fatalf("the first: %+v, want a probe", ans)
	}
	s = next
	if _, ans := claim("u", now.Add(29*time.Second)); ans.Granted {
		t.Error("a second probe beside the first")
	}
	if _, ans := claim("u", now.Add(30*time.Second)); !ans.Probe {
		t.Errorf("after its time: %+v, want a probe", ans)
	}
	// The one whose probe failed leaves the next one to others.
	s = limit.Report(s, limit.Outcome{Host: "v", Who: "v", Probe: true, Failed: true}, backoff, 3, 0, now)
	now = now.Add(10 * time.Second)
	if _, ans := claim("v", now); ans.Granted {
		t.Error("the same one probes again at once")
	}
	if _, ans := claim("u", now); !ans.Probe {
		t.Errorf("another one: %+v, want a probe", ans)
	}
	if _, ans := claim("v", now.Add(time.Second)); !ans.Probe {
		t.Errorf("the same one a second later: %+v, want a probe", ans)
	}
}

// A probe that was over before it was reported says nothing, if another one is out: that one stays the only one.
func TestLateProbe(t *testing.T) {
	shut := limit.Report(limit.State{}, limit.Outcome{Who: "w", Failed: true, RetryAfter: time.Minute}, backoff, 3, 0, start)
	take := func(s limit.State, host, who string, at time.Time) limit.State {
		s, ans := limit.Take(s, limit.Rule{}, limit.Claim{Host: host, Who: who, Until: at.Add(30 * time.Second)}, at)
		if !ans.Probe {
			t.Fatalf("%s at %s: %+v, want a probe", who, at, ans)
		}
		return s
	}
	now := start.Add(time.Minute)
	first := take(shut, "a", "v", now)
	now = now.Add(30 * time.Second)
	for _, other := range []limit.Outcome{{Host: "a", Who: "u"}, {Host: "b", Who: "v"}} {
		second := take(first, other.Host, other.Who, now)
		for _, late := range []limit.Outcome{{}, {Unsent: true}, {Failed: true, Why: "late"}, {Failed: true, RetryAfter: time.Second}} {
			late.Host, late.Who, late.Probe = "a", "v", true
			s := limit.Report(second, late, backoff, 3, 0, now)
			if s.Shut == nil || s.Shut.Probe == nil || s.Shut.Probe.Who != other.Who || s.Shut.Probe.Host != other.Host {
				t.Errorf("%+v after %+v is out: %+v, want it to be the probe", late, other, s.Shut)
			}
			other.Probe = true
			if s = limit.Report(s, other, backoff, 3, 0, now); s.Shut != nil {
				t.Errorf("%+v succeeded: %+v, want it open", other, s.Shut)
			}
		}
	}
	// One that says that it was not sent does not shut what another one opened.
	second := take(first, "b", "u", now)
	opened := limit.Report(second, limit.Outcome{Host: "b", Who: "u", Probe: true}, backoff, 3, 0, now)
	if s := limit.Report(opened, limit.Outcome{Host: "a", Who: "v", Probe: true, Unsent: true}, backoff, 3, 0, now); s.Shut != nil {
		t.Errorf("a late probe that was not sent: %+v, want it open", s.Shut)
	}
	for _, host := range []string{"a", ""} { // where there is one host only, outcomes do not name it
		if s := limit.Report(first, limit.Outcome{Host: host, Who: "v", Probe: true}, backoff, 3, 0, now); s.Shut != nil {
			t.Errorf("a late probe of host %q beside none: %+v, want it open", host, s.Shut)
		}
	}
}

// A host that has lost its way to the service leaves the probe to another one.
func TestAnotherHostProbes(t *testing.T) {
	var s limit.State
	for i := range 3 {
		s = restored(t, limit.Report(s, limit.Outcome{Host: "a", Who: fmt.Sprint("w", i), Failed: true}, backoff, 3, 0, start))
	}
	claim := func(host, who string, at time.Time) limit.Answer {
		_, ans := limit.Take(s, limit.Rule{}, limit.Claim{Host: host, Who: who, Until: at.Add(30 * time.Second)}, at)
		return ans
	}
	due := claim("a", "w9", start).Wait.Until
	if ans := claim("a", "w9", due); ans.Granted || !ans.Wait.Until.Equal(due.Add(time.Second)) {
		t.Errorf("the same host: %+v, want it to wait a second for others", ans)
	}
	if ans := claim("b", "v", due); !ans.Probe {
		t.Errorf("another host: %+v, want a probe", ans)
	}
	if ans := claim("a", "w9", due.Add(time.Second)); !ans.Probe {
		t.Errorf("the same host, and nobody came: %+v, want a probe", ans)
	}
}

// A person is asked once for an outage, and again after a wish to try now came to nothing.
func TestAsks(t *testing.T) {
	var s limit.State
	now := start
	fail := func(probe bool) {
		now = now.Add(time.Minute)
		s = limit.Report(s, limit.Outcome{Who: "w", Failed: true, Probe: probe}, backoff, 2, 0, now)
	}
	fail(false)
	fail(false)
	if s.Asks(backoff, now) {
		t.Error("asks after two tries, of which the policy repeats two")
	}
	fail(true)
	if !s.Asks(backoff, now) {
		t.Error("does not ask after three tries")
	}
	if s = limit.Asked(s, "esc_1"); s.Asks(backoff, now) {
		t.Error("asks twice")
	}
	if s = limit.Asked(s, "esc_2"); s.Shut.Asked != "esc_1" {
		t.Errorf("the question is %s, want the first one", s.Shut.Asked)
	}
	s = limit.TryNow(s, now)
	if _, ans := limit.Take(s, limit.Rule{}, limit.Claim{Who: "w"}, now); !ans.Probe || !ans.Wanted {
		t.Errorf("a person wants it tried: %+v, want a probe that is wanted", ans)
	}
	for range backoff.Attempts + 1 {
		if s.Asks(backoff, now) {
			t.Error("asks again too soon")
		}
		fail(true)
	}
	if !s.Asks(backoff, now) {
		t.Error("does not ask again")
	}
	if _, ans := limit.Take(s, limit.Rule{}, limit.Claim{Who: "v"}, s.Shut.Until); !ans.Probe || ans.Wanted {
		t.Errorf("a probe failed since: %+v, want one that nobody wants", ans)
	}
}

// A service that names a time is slow, which nobody is asked about: until it named another one for an hour, whenever it was
// tried. Then a person is asked once, as about an outage.
func TestAsksAboutWhatIsSlowForLong(t *testing.T) {
	named := func(s limit.State, wait time.Duration, probe bool, now time.Time) limit.State {
		return restored(t, limit.Report(s, limit.Outcome{Who: "w", Failed: true, Probe: probe, RetryAfter: wait, Why: "429"}, backoff, 3, 0, now))
	}
	for _, c := range []struct {
		wait, asked time.Duration // asked: since the first answer
		times       int           // that it named a time by then
	}{
		{20 * time.Minute, time.Hour, 4},
		{45 * time.Minute, 90 * time.Minute, 3},
		{24 * time.Hour, 48 * time.Hour, 3},
	} {
		now, times := start, 1
		s := named(limit.State{}, c.wait, false, now)
		s = named(s, c.wait, false, now) // a call that was out by then is no try
		for ; !s.Asks(backoff, now) && times < 10; times++ {
			now = s.Shut.Until
			s = named(s, c.wait, true, now)
		}
		if got := now.Sub(start); got != c.asked || times != c.times || s.IsDown() || !s.MayBeAsked(now) {
			t.Errorf("a service that names %s: asks after %s and %d answers, state %+v; want %s, %d", c.wait, got, times, s.Shut, c.asked, c.times)
		}
		if s = limit.Asked(s, "esc_1"); s.Asks(backoff, now.Add(24*time.Hour)) {
			t.Errorf("a service that names %s: asks twice", c.wait)
		}
		if s = limit.Report(s, limit.Outcome{Who: "w", Probe: true}, backoff, 3, 0, now); !s.Equal(limit.State{}) {
			t.Errorf("it answered: %+v, want it open", s)
		}
	}
}

// A person wants what is slow to be tried: the probe is to be a call, and the person is asked again as before.
func TestTryNowOfWhatIsSlow(t *testing.T) {
	s, now := limit.State{}, start
	fail := func(probe bool) {
		s = restored(t, limit.Report(s, limit.Outcome{Who: "w", Failed: true, Probe: probe, RetryAfter: time.Hour}, backoff, 3, 0, now))
	}
	wanted := func() bool {
		_, ans := limit.Take(s, limit.Rule{}, limit.Claim{Who: "v", Until: s.Shut.Until}, s.Shut.Until)
		if !ans.Probe {
			t.Fatalf("%+v, want a probe", ans)
		}
		return ans.Wanted
	}
	fail(false)
	if wanted() {
		t.Error("nobody wants it tried, and its probe is wanted")
	}
	for s.Shut.Asked == "" {
		now = s.Shut.Until
		if fail(true); s.Asks(backoff, now) {
			s = limit.Asked(s, "esc_1")
		}
	}
	if s = limit.TryNow(s, now); !wanted() {
		t.Error("a person wants it tried, and its probe is not wanted")
	}
	for n := 1; ; n++ {
		if fail(true); wanted() {
			t.Fatal("it was tried, and its next probe is wanted")
		}
		if s.Asks(backoff, now) {
			if n != 3 {
				t.Errorf("asks again after %d answers, want 3", n)
			}
			break
		}
		now = s.Shut.Until
	}
}
