package repair_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/repair"
)

func TestSignature(t *testing.T) {
	run := keep.Run{ID: "run_1", Workflow: "bills", Version: keep.Version{Major: 1}, Handler: "pay", Status: keep.StatusLogic,
		Error: &keep.Failure{Class: keep.ClassLogic, Code: "script-error", At: "bills.js:7:3", Message: "x is undefined"}}
	s, ok := repair.SignatureOf(run)
	if !ok {
		t.Fatal("a failure by logic has no signature")
	}
	other := run
	other.ID, other.Error = "run_2", &keep.Failure{Class: keep.ClassLogic, Code: "script-error", At: "bills.js:7:3", Message: "y is undefined"}
	if o, _ := repair.SignatureOf(other); o != s || o.ID() != s.ID() {
		t.Errorf("the same failure of another event has the signature %+v, want %+v", o, s)
	}
	ids := map[string]bool{s.ID(): true}
	for _, change := range []func(*repair.Signature){
		func(s *repair.Signature) { s.Workflow = "other" },
		func(s *repair.Signature) { s.Version.Minor++ },
		func(s *repair.Signature) { s.Handler = "sum" },
		func(s *repair.Signature) { s.Code = "limit-cpu" },
		func(s *repair.Signature) { s.At = "bills.js:8:3" },
	} {
		o := s
		change(&o)
		if ids[o.ID()] {
			t.Errorf("%+v has the id of another signature", o)
		}
		ids[o.ID()] = true
	}
	for _, status := range []keep.RunStatus{keep.StatusActive, keep.StatusTransient, keep.StatusPerson, keep.StatusInternal, keep.StatusReconciliation, keep.StatusCommitted} {
		run.Status = status
		if _, ok := repair.SignatureOf(run); ok {
			t.Errorf("a run that is %s has a signature", status)
		}
	}
	run.Status, run.Closed = keep.StatusLogic, true
	if _, ok := repair.SignatureOf(run); ok {
		t.Error("a closed run has a signature")
	}
}

func TestLimits(t *testing.T) {
	l := repair.Limits{Attempts: 3, Tokens: 1000, Cost: 0.5, PerDay: 10}
	for _, tt := range []struct {
		spent repair.Spent
		want  string
	}{
		{repair.Spent{}, ""},
		{repair.Spent{Attempts: 2, Tokens: 999, Cost: 0.49}, ""},
		{repair.Spent{Attempts: 3}, "all 3 attempts"},
		{repair.Spent{Tokens: 1000}, "1000 of 1000 tokens"},
		{repair.Spent{Cost: 0.5}, "cost is 0.5"},
	} {
		if got := l.Stop(tt.spent); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("Stop(%+v) = %q, want %q", tt.spent, got, tt.want)
		}
	}
	l.Cost = 0
	if got := l.Stop(repair.Spent{Cost: 1e9}); got != "" {
		t.Errorf("without a limit of cost it stops: %s", got)
	}
	if l.Begin(9) != "" || l.Begin(10) == "" {
		t.Errorf("Begin(9) = %q, Begin(10) = %q", l.Begin(9), l.Begin(10))
	}
	for v, want := range map[repair.Verdict]bool{repair.Safe: true, repair.Impactful: false, repair.Inconclusive: false, repair.Refused: false, "": false} {
		if got := repair.WhenSafe.Activates(v); got != want || repair.Ask.Activates(v) {
			t.Errorf("safe activates %q: %t, want %t; ask: %t", v, got, want, repair.Ask.Activates(v))
		}
	}
}

// base is a script with a handler of each kind.
func base() repair.Script {
	return repair.Script{
		Definition: keep.Definition{Name: "bills", Topics: []keep.TopicName{"mail", "paid"}, Handlers: []keep.Handler{
			{Name: "poll", Kind: keep.Producer, Schedule: keep.Schedule{Interval: time.Minute}, Publishes: []keep.TopicName{"mail"}},
			{Name: "pay", Kind: keep.Consumer, Subscribe: []keep.TopicName{"mail"}, HasMutate: true, HasNext: true},
			{Name: "sync", Kind: keep.Job, Schedule: keep.Schedule{Cron: "0 8 * * *", Timezone: "Europe/Berlin"}},
		}},
		Files: []string{"bills.js", "lib/sum.js"}, Calls: []keep.ToolName{"bank.pay", "crm.find"},
	}
}

func TestAdmit(t *testing.T) {
	if got := repair.Admit(base(), base(), keep.Grant{}); got != nil {
		t.Errorf("the script itself is refused: %q", got)
	}
	handler := func(s *repair.Script, i int) *keep.Handler { return &s.Definition.Handlers[i] }
	for _, tt := range []struct {
		name   string
		change func(*repair.Script)
		want   string
	}{
		{"name", func(s *repair.Script) { s.Definition.Name = "bill" }, `its name is "bill"`},
		{"was", func(s *repair.Script) { s.Definition.Was = "bank" }, "the name that it had before"},
		{"on blocked", func(s *repair.Script) { s.Definition.OnBlocked = "poll" }, "onBlocked"},
		{"topic", func(s *repair.Script) { s.Definition.Topics = []keep.TopicName{"mail"} }, "its topics are"},
		{"interval", func(s *repair.Script) { handler(s, 0).Schedule.Interval = time.Second }, "the schedule of poll"},
		{"time zone", func(s *repair.Script) { handler(s, 2).Schedule.Timezone = "UTC" }, "the schedule of sync"},
		{"kind", func(s *repair.Script) { handler(s, 2).Kind = keep.Producer }, "sync was a job and is a producer"},
		{"handler gone", func(s *repair.Script) { s.Definition.Handlers = s.Definition.Handlers[:2] }, "the job sync is gone"},
		{"handler new", func(s *repair.Script) {
			s.Definition.Handlers = append(s.Definition.Handlers, keep.Handler{Name: "more", Kind: keep.Job})
		}, "the job more is new"},
		{"subscription", func(s *repair.Script) { handler(s, 1).Subscribe = []keep.TopicName{"mail", "paid"} }, "what is subscribed to"},
		{"publishes", func(s *repair.Script) { handler(s, 0).Publishes = nil }, "what may be published"},
		{"order", func(s *repair.Script) { handler(s, 1).Order = "none" }, "the order of pay"},
		{"topic names", func(s *repair.Script) { s.Definition.Called = []keep.CalledTopic{{Name: "x", First: "in"}} }, "the names that its topics had before"},
		{"items", func(s *repair.Script) { handler(s, 2).Items = "other" }, "the name that it had before"},
		{"phase", func(s *repair.Script) { handler(s, 1).HasMutate = false }, "the set of phases of pay"},
		{"import", func(s *repair.Script) { s.Files = append(s.Files, "lib/evil.js") }, "another file, lib/evil.js"},
		{"tool", func(s *repair.Script) { s.Calls = append(s.Calls, "mail.send") }, "it calls mail.send"},
	} {
		now := base()
		now.Definition.Handlers = slices.Clone(now.Definition.Handlers)
		tt.change(&now)
		got := repair.Admit(base(), now, keep.Grant{})
		if len(got) == 0 || !strings.Contains(strings.Join(got, "; "), tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A grant decides which tools there are, in place of what the script called before.
// TestRekeyed tells functions of order keys apart by their text.
func TestRekeyed(t *testing.T) {
	const key = "(event) => event.payload.iban"
	was := repair.Script{Keys: map[keep.HandlerName]string{"pay": key, "send": key}}
	for name, tt := range map[string]struct {
		now  map[keep.HandlerName]string
		want int
	}{
		"the same": {was.Keys, 0}, "none": {nil, 2},
		"one":          {map[keep.HandlerName]string{"pay": key, "send": "(event) => event.messageId"}, 1},
		"another text": {map[keep.HandlerName]string{"pay": key + "\n", "send": "e" + key}, 2},
		"one more":     {map[keep.HandlerName]string{"pay": key, "send": key, "more": key}, 0}, // Admit refuses it
	} {
		if got := repair.Rekeyed(was, repair.Script{Keys: tt.now}); len(got) != tt.want {
			t.Errorf("%s: %q, want %d sentences", name, got, tt.want)
		}
	}
}

func TestAdmitByGrant(t *testing.T) {
	now := base()
	now.Calls = []keep.ToolName{"bank.pay", "mail.send"}
	g := keep.Grant{N: 1, Tools: []keep.GrantedTool{{Tool: "bank.*"}}}
	if got := repair.Admit(base(), now, g); len(got) != 1 || !strings.Contains(got[0], "mail.send") {
		t.Errorf("Admit = %q, want mail.send alone", got)
	}
	g.Tools = append(g.Tools, keep.GrantedTool{Tool: "mail.send"})
	if got := repair.Admit(base(), now, g); len(got) != 0 {
		t.Errorf("Admit = %q, want nothing: all is granted", got)
	}
}

// sent is a neighbour that pays what its mail says.
func sent(to string, amount int) repair.Neighbour {
	return repair.Neighbour{
		Effects:  []repair.Effect{pay(to, amount, "EUR")},
		Sources:  mail(fmt.Sprintf(`{"from":%q,"total":%d,"text":"pay me"}`, to, amount)),
		Reserved: 1,
	}
}

func pay(to string, amount int, currency string) repair.Effect {
	return repair.Effect{Name: "bank.pay", Call: true,
		Values: json.RawMessage(fmt.Sprintf(`{"identity":{"to":%q},"payload":{"to":%q,"amount":%d,"currency":%q}}`, to, to, amount, currency))}
}

func mail(payload string) repair.Sources {
	return repair.Sources{"event mail": {json.RawMessage(payload)}}
}

// good is evidence of a proposal that is safe: the mails of a vendor have a new field.
func good() repair.Evidence {
	return repair.Evidence{
		Shadow: repair.Shadow{Ending: repair.Through, Effects: []repair.Effect{pay("cy", 30, "EUR")},
			Sources: mail(`{"sender":"cy","total":30,"text":"pay me, or evil"}`), Reserved: 1},
		Compared:   repair.Comparison{Done: 2},
		Neighbours: []repair.Neighbour{sent("ann", 10), sent("bob", 20)},
		Was:        `ctx.bank.pay({to: mail.from, amount: mail.total, currency: "EUR"})`,
		Is:         `ctx.bank.pay({to: mail.from ?? mail.sender, amount: mail.total, currency: "EUR"})`,
	}
}

func TestJudge(t *testing.T) {
	type evidence = repair.Evidence
	const refused, impactful, inconclusive = repair.Refused, repair.Impactful, repair.Inconclusive
	for _, tt := range []struct {
		name   string
		change func(*evidence)
		want   repair.Verdict
		why    string
	}{
		{"nothing", func(*evidence) {}, repair.Safe, ""},
		{"check fails", func(e *evidence) { e.Refused = []string{"line 3: unexpected token"} }, refused, "unexpected token"},
		{"a condition of the grant", func(e *evidence) { e.Shadow.Denied = []string{"bank.pay: params.amount < 20 does not hold"} }, refused, "does not hold"},
		{"fails again", func(e *evidence) { e.Shadow.Ending, e.Shadow.Why = repair.Fails, "mail is undefined" }, refused, "still fails: mail is undefined"},
		{"an applied run differs", func(e *evidence) { e.Compared.Differ = []string{"run_1 has another identity"} }, impactful, "another identity"},
		{"another order key", func(e *evidence) { e.Rekeyed = []string{"key of pay is another function"} }, impactful, "key of pay"},
		{"the event is skipped", func(e *evidence) { e.Shadow.Ending, e.Shadow.Effects = repair.Skips, nil }, impactful, "is skipped"},
		{"without its call", func(e *evidence) { e.Shadow.Effects = nil }, impactful, "without bank.pay"},
		{"applied already", func(e *evidence) { e.Shadow.Repeated = []string{"bank.pay"} }, impactful, "was applied already"},
		{"another tool", func(e *evidence) { e.Shadow.Effects[0].Name = "bank.refund" }, impactful, "no run that is done had this"},
		{"twice", func(e *evidence) { e.Shadow.Effects = append(e.Shadow.Effects, e.Shadow.Effects[0]) }, impactful, "2 times"},
		{"a parameter more", func(e *evidence) {
			e.Shadow.Effects[0].Values = json.RawMessage(`{"identity":{"to":"cy"},"payload":{"to":"cy","amount":30,"currency":"EUR","bcc":"evil"}}`)
		}, impactful, "payload.bcc is something that no run"},
		{"a parameter less", func(e *evidence) {
			e.Shadow.Effects[0].Values = json.RawMessage(`{"identity":{"to":"cy"},"payload":{"to":"cy","amount":30}}`)
		}, impactful, "lacks payload.currency"},
		{"another constant", func(e *evidence) { e.Shadow.Effects[0] = pay("cy", 30, "USD") }, impactful, "payload.currency is another"},
		{"a value of the script", func(e *evidence) {
			e.Shadow.Effects[0] = pay("evil@x", 30, "EUR")
			e.Is += ` || "evil@x"`
		}, impactful, "brings itself"},
		{"a part of a text", func(e *evidence) { e.Shadow.Effects[0] = pay("evil", 30, "EUR") }, impactful, "is nowhere in what is new"},
		{"from another field", func(e *evidence) {
			e.Shadow.Sources = mail(`{"from":"cy","reply":"dan","total":30,"text":"x"}`)
			e.Shadow.Effects[0] = pay("dan", 30, "EUR")
		}, impactful, "does not come from event mail.from"},
		{"one of two new fields", func(e *evidence) {
			e.Shadow.Sources = mail(`{"sender":"cy","manager":"dan","total":30,"text":"x y"}`)
		}, impactful, "may be in event mail.manager or event mail.sender now"},
		{"not what is new", func(e *evidence) {
			e.Shadow.Sources = mail(`{"sender":"cy","total":30,"text":"thirty"}`)
			e.Shadow.Effects[0] = pay("thirty", 30, "EUR")
		}, impactful, "payload.to was in event mail.from"},
		{"made otherwise", func(e *evidence) {
			for i, id := range []string{"pay:ann", "pay:bob"} {
				e.Neighbours[i].Effects[0].Values = json.RawMessage(fmt.Sprintf(`{"identity":{"id":%q}}`, id))
			}
			e.Shadow.Effects[0].Values = json.RawMessage(`{"identity":{"id":"again:cy"}}`)
		}, impactful, "identity.id is not made as"},
		{"another amount", func(e *evidence) { e.Shadow.Effects[0] = pay("cy", 3000, "EUR") }, impactful, "payload.amount does not come from"},
		{"more events", func(e *evidence) { e.Shadow.Reserved = 7 }, impactful, "reserves 7 events"},
		{"a read is not recorded", func(e *evidence) { e.Shadow.Ending, e.Shadow.Why = repair.Unknown, "crm.find was not asked" }, inconclusive, "crm.find"},
		{"a run is not known", func(e *evidence) { e.Compared.Unknown = []string{"run_1: its reads are not kept"} }, inconclusive, "not kept"},
		{"over the limit", func(e *evidence) { e.Compared.Unknown = []string{"the time was over"} }, inconclusive, "the time"},
		{"two tries differ", func(e *evidence) { e.Shadow.Varies = true }, inconclusive, "not do the same twice"},
		{"the top level asks for the time", func(e *evidence) { e.Timed = true }, inconclusive, "its top level"},
		{"a text that is not certain", func(e *evidence) { e.Is += "\n{ } /x/.test(1)" }, inconclusive, "is not certain"},
		{"ctx by another name", func(e *evidence) { e.Names, e.Is = []string{"bank"}, e.Is+"; bank.pay()" }, inconclusive, "or what it has, 3 times"},
		{"no recorded run", func(e *evidence) { e.Compared.Done, e.Neighbours = 0, nil }, inconclusive, "no run of the version"},
		{"no neighbour", func(e *evidence) { e.Neighbours = nil }, inconclusive, "no run of the handler"},
		{"refused before impact", func(e *evidence) { e.Refused, e.Compared.Differ = []string{"a"}, []string{"b"} }, refused, "a"},
		{"impact before doubt", func(e *evidence) { e.Shadow.Varies, e.Compared.Differ = true, []string{"b"} }, impactful, "b"},
	} {
		e := good()
		tt.change(&e)
		got, why := repair.Judge(e)
		if got != tt.want || !strings.Contains(strings.Join(why, "; "), tt.why) || (got == repair.Safe) != (len(why) == 0) {
			t.Errorf("%s: %s %q, want %s %q", tt.name, got, why, tt.want, tt.why)
		}
	}
}

// A producer that publishes is judged by its events as a consumer by its call.
func TestJudgePublishes(t *testing.T) {
	published := func(id, subject string) repair.Effect {
		return repair.Effect{Name: "publish mail", Values: json.RawMessage(fmt.Sprintf(`{"id":%q,"payload":{"subject":%q}}`, id, subject))}
	}
	read := func(id, subject string) repair.Sources {
		return repair.Sources{"imap.list": {json.RawMessage(fmt.Sprintf(`[{"uid":%q,"subject":%q}]`, id, subject))}}
	}
	e := repair.Evidence{
		Shadow:   repair.Shadow{Ending: repair.Through, Effects: []repair.Effect{published("u3", "c")}, Sources: read("u3", "c"), Whole: true},
		Compared: repair.Comparison{Done: 2},
		Neighbours: []repair.Neighbour{
			{Effects: []repair.Effect{published("u1", "a")}, Sources: read("u1", "a")},
			{Effects: []repair.Effect{published("u2", "b")}, Sources: read("u2", "b")},
		},
	}
	if v, why := repair.Judge(e); v != repair.Safe {
		t.Errorf("%s %q, want safe", v, why)
	}
	e.Shadow.Effects = []repair.Effect{published("2026-11-23T09:00:00Z", "c")}
	if v, why := repair.Judge(e); v != repair.Impactful {
		t.Errorf("an id made of time: %s %q, want impactful", v, why)
	}
	e.Shadow.Effects = nil
	if v, why := repair.Judge(e); v != repair.Impactful {
		t.Errorf("nothing is published: %s %q, want impactful", v, why)
	}
}

// A script that brings an address, a page or a number of its own waits for a person, whatever
// the recorded runs show.
func TestBrings(t *testing.T) {
	for text, want := range map[string]int{
		`if (mail.ref === "later") to = "eve@evil.example"`: 1, `fetch("https://evil.example/x")`: 1, `to = "DE44500105175407324931"`: 1,
		`n = 20261123`: 1, `// since 2026-11-23 it is called total`: 0, `mail.total ?? mail.amount`: 0, `x = "a @ b"`: 0, `n = 12345`: 0,
	} {
		e := good()
		e.Is += "\n" + text
		v, why := repair.Judge(e)
		if got := len(repair.Brings(e.Was, e.Is)); got != want || (v == repair.Impactful) != (want > 0) {
			t.Errorf("%s: brings %d, want %d; %s %q", text, got, want, v, why)
		}
		e.Was += "\n" + text
		if v, why := repair.Judge(e); v != repair.Safe {
			t.Errorf("%s was there before: %s %q, want safe", text, v, why)
		}
	}
}

// Reasons are bounded.
func TestReasonsAreBounded(t *testing.T) {
	e := good()
	e.Compared.Differ = slices.Repeat([]string{"x"}, 5000)
	if _, why := repair.Judge(e); len(why) > 21 {
		t.Errorf("%d reasons", len(why))
	}
}

// A repair is over when another version is current, whatever it was about to do, and stays what it came to
// before.
func TestUnder(t *testing.T) {
	v1, began, now := keep.Version{Major: 1}, time.Unix(1, 0), time.Unix(2, 0)
	sig := repair.Signature{Workflow: "w", Version: v1, Handler: "h", Code: "c"}
	for _, stage := range []repair.Stage{repair.Trying, repair.Proposed, repair.Used, repair.Replaced} {
		for _, current := range []keep.Version{{}, v1, {Major: 1, Minor: 1}, {Major: 2}} {
			for _, underWay := range []bool{false, true} {
				r := repair.Record{Signature: sig, Stage: stage, Limit: 3, Attempts: []repair.Attempt{{BeganAt: began, EndedAt: began, Why: "no"}}}
				if underWay {
					r.Attempts = append(r.Attempts, repair.Attempt{BeganAt: began, Tokens: 7})
				}
				got := r.Under(current, now)
				ends := current.After(v1) && (stage == repair.Trying || stage == repair.Proposed)
				if !ends {
					if got.Stage != stage || got.Why != r.Why || underWay && !got.Attempts[1].EndedAt.IsZero() {
						t.Errorf("%s under %s: %+v, want it as it was", stage, current, got)
					}
					continue
				}
				why := fmt.Sprintf("version %s was deployed meanwhile", current)
				if got.Stage != repair.Replaced || got.Why != why || got.Waits() != "" || got.Proposal() != nil || got.Spent() != r.Spent() || got.Attempts[0].Why != "no" {
					t.Errorf("%s under %s: %+v, want its end", stage, current, got)
				}
				if underWay && (got.Attempts[1].Why != why || !got.Attempts[1].EndedAt.Equal(now) || !r.Attempts[1].EndedAt.IsZero()) {
					t.Errorf("%s under %s: its attempt is %+v, before %+v", stage, current, got.Attempts[1], r.Attempts[1])
				}
				if _, err := got.Begin(repair.Limits{Attempts: 9, Tokens: 9}, "run_1", now); err == nil {
					t.Errorf("%s under %s: another attempt begins", stage, current)
				}
			}
		}
	}
}
