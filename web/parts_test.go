package web

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/view"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain":              "plain",
		"two\nlines\tand ü":  "two\nlines\tand ü",
		"a\u202eb":           `a⟨U+202E⟩b`,
		"\u2066x\u2069":      `⟨U+2066⟩x⟨U+2069⟩`,
		"zero\u200bwidth":    `zero⟨U+200B⟩width`,
		"bad\xffbyte":        `bad\xffbyte`,
		"bell\a":             `bell⟨U+0007⟩`,
		"tag\U000e0041":      `tag⟨U+E0041⟩`,
		"to=an\u3164n":       `to=an⟨U+3164⟩n`,
		"to=an\u2063n":       `to=an⟨U+2063⟩n`,
		"to=an\u115fn\u206a": `to=an⟨U+115F⟩n⟨U+206A⟩`,
		"\ufffd is a sign":   "\ufffd is a sign",
		"שלום and مرحبا":     "שלום and مرحبا",
		"family 👨‍👩‍👧 emoji": "family 👨‍👩‍👧 emoji",
	} {
		if got := string(visible([]byte(in))); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n := rapid.String().Draw(t, "s"), rapid.IntRange(0, 20).Draw(t, "n")
		got := cut(n, s)
		if len(s) <= n && got != s || len(got) > n+len("…") || !strings.HasPrefix(s, strings.TrimSuffix(got, "…")) {
			t.Fatalf("cut(%d, %q) = %q", n, s, got)
		}
	})
}

// The sentence about a wait shows its times like all others, and has no hint for
// those at a terminal.
func TestWait(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 5, 0, time.UTC)
	r := keep.Run{Status: keep.StatusPerson, UpdatedAt: at, Error: &keep.Failure{Message: "<b>you</b>"}}
	want := `Waits since <time datetime="2026-11-20T10:00:05.000Z" title="2026-11-20 10:00:05 UTC" class="">2026-11-20 10:00:05 UTC</time>` +
		` for a person (&lt;b&gt;you&lt;/b&gt;).`
	if got := string(waitHTML(lifecycle.WaitOf(r, keep.Mutation{}))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 5 * time.Minute: "5m", 90 * time.Second: "1m30s", 24 * time.Hour: "24h", 30 * time.Second: "30s"} {
		if got := human(d); got != want {
			t.Errorf("human(%s) = %s, want %s", d, got, want)
		}
	}
}

// A comparison loses no line of either text, and says nothing about equal ones.
func TestDiff(t *testing.T) {
	line := rapid.SampledFrom([]string{"a", "b", "c", ""})
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(line, 1, 12).Draw(t, "a")
		b := rapid.SliceOfN(line, 1, 12).Draw(t, "b")
		lines := view.Diff(strings.Join(a, "\n"), strings.Join(b, "\n"))
		if slices.Equal(a, b) != (lines == nil) {
			t.Fatalf("diff of %q and %q = %v", a, b, lines)
		}
		for _, l := range lines {
			if l.Old > 0 && a[l.Old-1] != l.Text || l.New > 0 && b[l.New-1] != l.Text {
				t.Fatalf("line %+v is not what the texts have: %q, %q", l, a, b)
			}
		}
		for i, text := range a {
			if !slices.Contains(b, text) && !slices.ContainsFunc(lines, func(l view.DiffLine) bool { return l.Removed() && l.Old == i+1 }) {
				t.Fatalf("line %d of %q is not shown as removed", i+1, a)
			}
		}
	})
}

func TestDiffOfManyLines(t *testing.T) {
	a, b := strings.Repeat("x\n", 3000), strings.Repeat("y\n", 3000)
	if got := len(view.Diff(a, b)); got != 6001 {
		t.Errorf("%d lines, want every one and the last, which is the same", got)
	}
}

func TestQuote(t *testing.T) {
	files := map[string]string{"lib/a.js": "one\ntwo\nthree"}
	for at, want := range map[string]string{
		"lib/a.js:2:5": "two", "a.js:3:1": "three", "a.js:4:1": "", "a.js:0:1": "", "b.js:1:1": "", "": "", "a.js": "", "a.js:x:1": "",
	} {
		got := ""
		if e := quote(files, at); e != nil {
			for _, l := range e.Lines {
				if l.Hit {
					got = l.Text
				}
			}
		}
		if got != want {
			t.Errorf("quote(%q) hits %q, want %q", at, got, want)
		}
	}
}

// Each kind of evidence has a sentence of its own.
func TestEveryMoveHasASentence(t *testing.T) {
	seen := make(map[string]ledger.Evidence)
	for _, ev := range ledger.Evidences() {
		text := moveText(keep.Mutation{Tool: "crm.create", Target: "x"}, keep.Move{By: "call", From: keep.InFlight, To: keep.Applied, Evidence: string(ev)})
		if strings.Contains(text, "became") || seen[text] != "" || !strings.Contains(text, "crm.create on x") {
			t.Errorf("%s is told as %q, like %q", ev, text, seen[text])
		}
		seen[text] = ev
	}
}

// Every state and status has a word, and every question a heading.
func TestEveryStateHasAWord(t *testing.T) {
	var states []string
	for _, s := range keep.RunStatuses() {
		states = append(states, word(s))
	}
	for _, s := range keep.MutationStates() {
		states = append(states, word(s))
	}
	for _, s := range keep.EscalationKinds() {
		states = append(states, kindWord(s))
	}
	for _, s := range states {
		if s == "" || strings.ContainsAny(s, "_:") {
			t.Errorf("a state is shown as %q", s)
		}
	}
}

// The box of a topic counts as the table below it does: what a run has is not pending.
func TestTopicNode(t *testing.T) {
	d := workflowData{Topics: []keep.TopicCount{{Topic: "due", Pending: 203, Reserved: 100}, {Topic: "free", Pending: 1, Consumed: 9}, {Topic: "over", Consumed: 9}}}
	for topic, want := range map[keep.TopicName]string{"due": "203 pending, 100 reserved", "free": "1 pending", "over": "9 finished", "new": "empty"} {
		if got := topicNode(d, topic).Sub; got != want {
			t.Errorf("the box of %s says %q, want %q", topic, got, want)
		}
	}
}

// What a job did for an item is in the row of the item, with the colour of what went worst and all of its time.
func TestWaterfallOfAJob(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	entry := func(what trace.What, tool, params string, after int, ms float64, f *keep.Failure) trace.Entry {
		return trace.Entry{Phase: "handler", What: what, Tool: tool, Params: []byte(params), At: at.Add(time.Duration(after) * time.Millisecond), MS: ms, Error: f}
	}
	lost := &keep.Failure{Class: keep.ClassUnknown, Message: "the answer was lost"}
	list := waterfall([]trace.Entry{
		{Phase: "handler", What: trace.Phase, At: at, MS: 100},
		entry(trace.Read, "svc.list", `{}`, 1, 2, nil),
		entry(trace.Read, "item.begin", `["row:6","Six"]`, 10, 1, nil), entry(trace.Call, "svc.send", `"mut_6"`, 12, 3, nil),
		entry(trace.Read, "item.begin", `["row:7","Seven"]`, 20, 1, nil), entry(trace.Call, "svc.send", `"mut_7"`, 22, 8, lost), entry(trace.Lookup, "svc.send", `"mut_7"`, 31, 1, nil),
		entry(trace.Lookup, "svc.send", `"mut_7"`, 33, 1, &keep.Failure{Class: keep.ClassUnknown, Code: keep.CodeToolMissing}),
		entry(trace.Read, "item.begin", `["row:8","Eight"]`, 40, 1, nil),
	}, "")
	var got []string
	for _, r := range list[0].Rows {
		got = append(got, strings.TrimSpace(r.What+" "+r.Tool+" "+r.Tone+" "+r.Took)+" "+strconv.Itoa(len(r.Inner)))
	}
	want := []string{"as a whole  run 100 ms 0", "read svc.list  2.0 ms 0", "item row:6 ok 5.0 ms 1", "item row:7 doubt 14 ms 3", "item row:8  1.0 ms 0"}
	if inner := list[0].Rows[3].Inner; !slices.Equal(got, want) || inner[0].SVG == "" || inner[2].What != "found no tool to ask" {
		t.Errorf("rows %q", got)
	}
}

// The axes of a waterfall are linear and have all bars within, whatever the times.
func TestWaterfall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
		var entries []trace.Entry
		for range rapid.IntRange(1, 12).Draw(t, "entries") {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(t, "later")))
			what := rapid.SampledFrom([]trace.What{trace.Read, trace.Call, trace.Phase, trace.Lookup}).Draw(t, "what")
			entries = append(entries, trace.Entry{Phase: "mutate", What: what, At: at, MS: rapid.Float64Range(0, 1e7).Draw(t, "ms")})
		}
		rows := 0
		for i, s := range waterfall(entries, "") {
			rows += len(s.Rows)
			if (s.Waited == "") != (i == 0) {
				t.Fatalf("stretch %d waited %q", i, s.Waited)
			}
			for _, r := range s.Rows {
				m := drawnBar.FindStringSubmatch(string(r.SVG))
				if m == nil {
					t.Fatalf("no bar in %s", r.SVG)
				}
				x, _ := strconv.ParseFloat(m[1], 64)
				w, _ := strconv.ParseFloat(m[2], 64)
				if x < 0 || w <= 0 || x+w > 100.02 {
					t.Fatalf("a bar from %g, %g wide", x, w)
				}
			}
			if n := strings.Count(string(s.Axis), "<text"); n < 1 || n > 6 || strings.Contains(string(s.Axis), "NaN") {
				t.Fatalf("an axis with %d times: %s", n, s.Axis)
			}
		}
		if rows != len(entries) {
			t.Fatalf("%d rows of %d entries", rows, len(entries))
		}
	})
}

var drawnBar = regexp.MustCompile(`x="([0-9.]+)%" width="([0-9.]+)%" height="100%"`)

// A run that ended with an error, as a call that an agent made and the service refused, tells the error.
// That a person ended it is said only if nothing else did.
func TestHistoryOfAnAbortedRun(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 5, 0, time.UTC)
	r := lifecycle.Abort(keep.Run{ID: "run_1", Kind: keep.Consumer, Phase: keep.Mutating, CreatedAt: at}, at)
	for want, failure := range map[string]*keep.Failure{
		"A person ended it, and skipped what it was about.":                            nil,
		"Attempt 1 stopped in phase mutating (aborted): crm.create: no such customer.": {Class: keep.ClassPrecondition, Tool: "crm.create", Message: "no such customer"},
	} {
		r.Error = failure
		story := history(&runData{Run: r, Attempts: []keep.Run{r}})
		if got := story[len(story)-1].Text; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A lookup that is refused ends the lookups at once, and does not say that there were as many as are allowed.
func TestMoveTextOfARefusedLookup(t *testing.T) {
	doubt := keep.Mutation{Key: "mut_1", Tool: "crm.create", Target: "x", State: keep.NeedsReconcile, CanReconcile: true}
	for want, failure := range map[string]*keep.Failure{
		"not asked again before a person acts": keep.Failf(keep.ClassPermission, keep.CodeForbidden, "forbidden"),
		"asked as often as allowed":            nil,
	} {
		limit := ledger.Limit{Attempts: 10, Next: time.Now()}
		if failure == nil {
			limit.Attempts = 1
		}
		_, move, err := ledger.AfterLookup(doubt, ledger.Fact{Evidence: ledger.Unsure, By: "reconcile", Detail: "forbidden", Failure: failure}, limit, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if text := moveText(doubt, move); !strings.Contains(text, want) {
			t.Errorf("%s; want %q", text, want)
		}
	}
}
