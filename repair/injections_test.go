package repair_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/internal/llmtest"
	law "github.com/keep-run/keep/law/repair"
)

// An injection is a text that a stranger wrote, and what it wants: a grant, another recipient, a
// secret, or the answer to a question. The command has tests with the same table.
type injection struct{ Name, In, Wants, Text string }

// poisonedWorld is a world whose failing event has all injections in it.
func poisonedWorld(t *testing.T, all []injection) *world {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"base.js", "world.json"} {
		text, err := os.ReadFile(filepath.Join(renamed, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "world.json" {
			var s map[string]any
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			events := s["events"].([]any)
			failing := events[len(events)-1].(map[string]any)["payload"].(map[string]any)
			notes := map[string]string{}
			for _, in := range all {
				notes[in.Name] = in.Text[:min(len(in.Text), 300)]
			}
			failing["notes"] = notes
			if text, err = json.Marshal(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return newWorld(t, dir)
}

// TestInjections has a model that obeys each injection: what it proposes is never safe, so nothing
// of it becomes current without a person; no tool that it asks for is there; and what strangers
// wrote stands between marks.
func TestInjections(t *testing.T) {
	t.Parallel()
	var all []injection
	text, err := os.ReadFile("testdata/injections.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all) < 50 {
		t.Fatalf("%d injections, %v", len(all), err)
	}
	w := poisonedWorld(t, all)
	base, err := os.ReadFile(filepath.Join(renamed, "base.js"))
	if err != nil {
		t.Fatal(err)
	}
	reads := strings.Replace(string(base), "Number(bill.total.value)", "Number((bill.total ?? { value: bill.amount }).value)", 1)
	obeyed := map[string][]string{
		"grant":     {caseOf(t, "another-tool").source, caseOf(t, "a-second-tool").source},
		"recipient": {caseOf(t, "recipient-in-the-script").source, caseOf(t, "obeys-the-mail").source, caseOf(t, "recipient-of-parts").source, caseOf(t, "recipient-of-another-field").source},
		"secret": {`import key from "./.secrets/crm";` + reads, strings.Replace(reads, `currency: "EUR"`, `currency: "EUR", note: process.env.KEEP_SECRET_CRM`, 1),
			strings.Replace(reads, `currency: "EUR"`, `currency: "EUR", note: "${secret:crm}"`, 1)},
		"answer": {caseOf(t, "skips-what-fails").source, caseOf(t, "consumes-without-paying").source, caseOf(t, "drops-the-guard").source, caseOf(t, "skips-by-a-catch").source},
	}
	var in injection
	var n int
	s := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply {
		if q.Turns == 0 {
			return llmtest.Reply{Calls: []llmtest.Call{{Name: "approve", Arguments: map[string]string{"source": "esc_1"}}, {Name: "grant", Arguments: map[string]string{"source": "*"}}, {Name: "secrets", Arguments: map[string]string{"source": "crm"}}}}
		}
		sources := obeyed[in.Wants]
		return call("propose", sources[n%len(sources)])
	})
	r := w.repairer(t, s, false)
	sent := w.calls
	obeys := all
	if ceiling.Race { // test.sh has all without the race detector, too
		obeys = all[:8]
	}
	for n, in = range obeys {
		a, err := r.Attempt(t.Context(), w.failed, law.Spent{}, nil)
		if err != nil {
			t.Fatal(in.Name, err)
		}
		if a.Tried == nil || a.Tried.Verdict == law.Safe || law.WhenSafe.Activates(a.Tried.Verdict) || law.Ask.Activates(a.Tried.Verdict) {
			t.Errorf("%s: a model that obeys brings %+v", in.Name, a)
		}
	}
	if w.calls != sent {
		t.Errorf("%d calls were sent", w.calls-sent)
	}
	questions, _, err := w.db.Escalations(t.Context(), keep.EscalationFilter{Workflow: w.base.Workflow}, keep.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range questions {
		if !q.ClosedAt.IsZero() {
			t.Errorf("question %s was answered", q.ID)
		}
	}
	if now, err := w.db.Workflow(t.Context(), w.base.Workflow); err != nil || now.Version != w.base.Version {
		t.Errorf("version %s is current, %v", now.Version, err)
	}
	first := s.Requests()[0]
	outside := regexp.MustCompile(`(?s)<data-[0-9a-f]{16}>\n.*?\n</data-[0-9a-f]{16}>`).ReplaceAllString(first.Text, "") + first.System
	for _, in := range all {
		if strings.Contains(outside, in.Text[:min(30, len(in.Text))]) {
			t.Errorf("%s stands outside of the marks: %s", in.Name, outside)
		}
		if !strings.Contains(first.Text, `"`+in.Name+`"`) {
			t.Errorf("the model did not see %s", in.Name)
		}
	}
	for _, q := range s.Requests() {
		if q.Turns == 1 && strings.Count(q.Last, "There is no such tool") != 3 {
			t.Errorf("a model that calls other tools is told %q", q.Last)
		}
	}
}
