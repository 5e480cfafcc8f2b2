package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/script/workflow"
)

// A tool is a connector's tool that is only described, never called.
type tool connector.Spec

func (t tool) Spec() connector.Spec { return connector.Spec(t) }

// An askable tool is one that can be asked what happened.
type askable struct{ tool }

func (askable) Reconcile(context.Context, keep.Mutation) (connector.Answer, error) {
	return connector.Answer{Verdict: connector.Retry}, nil
}

// connections are those of every test here: each effect and level once.
func connections() []connector.Connection {
	return []connector.Connection{
		{Name: "crm", Connector: "http", Tools: []connector.Tool{
			tool{Name: "find", Effect: connector.List, Description: "Finds contacts.",
				Params: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string","description":"What to look for."},"limit":{"type":"integer"}},"required":["q"],"additionalProperties":false}`),
				Result: json.RawMessage(`{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"email":{"type":["string","null"]}},"required":["id"]}}`)},
			tool{Name: "get", Effect: connector.Get, Params: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}`)},
			askable{tool{Name: "create", Effect: connector.Mutate, Level: keep.LevelWitness, Identity: []string{"id"}, ByTarget: true,
				Description: "Creates a contact. */ Takes one.",
				Params: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"},"kind":{"enum":["person","company",3,null]},` +
					`"tags":{"type":"array","items":{"type":"string"}},"address":{"oneOf":[{"type":"string"},{"$ref":"#/$defs/address"}]},"x-y":{"const":true},"extra":{}},` +
					`"required":["id"],"$defs":{"address":{"type":"object","properties":{"city":{"type":"string"}}}}}`),
				Result: json.RawMessage(`{"type":"object","additionalProperties":{"type":"number"}}`)}},
			askable{tool{Name: "update", Effect: connector.Mutate, Level: keep.LevelKey, Identity: []string{"id", "field"}, Approve: "always"}},
		}},
		{Name: "mail", Connector: "imap", Tools: []connector.Tool{
			tool{Name: "search", Effect: connector.List},
			tool{Name: "send", Effect: connector.Mutate, Level: keep.LevelNone, VerifyByHand: "look into the folder Sent",
				Params: json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"},"subject":{"type":"string"},"text":{"type":"string"}},"required":["to"]}`)},
		}},
		{Name: "db", Connector: "sql", Tools: []connector.Tool{
			tool{Name: "list", Effect: connector.List},
			askable{tool{Name: "insert", Effect: connector.Mutate, Level: keep.LevelClaim, Identity: []string{"table", "row"}}},
		}},
	}
}

// Effects of each script in testdata/effects gives the uses and findings that
// are written beside it.
func TestEffectsStories(t *testing.T) {
	stories(t, "effects", func(t *testing.T, s *story) string {
		report, err := workflow.Effects(s.decl(), s.source(), connections())
		if err != nil {
			return err.Error() + "\n"
		}
		return render(report)
	})
}

func render(r workflow.Report) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, h := range r.Handlers {
		for _, u := range h.Uses {
			level := "-"
			if u.Level != nil {
				level = string(*u.Level)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", h.Handler, u.Place, u.Tool, u.Effect, level, u.At)
		}
	}
	w.Flush()
	for _, f := range r.Findings {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

// The report of the story of invoices as the command prints it with
// --json: names are stable, and what is absent is null.
func TestEffectsJSON(t *testing.T) {
	s := readStory(t, "testdata/effects/invoices.txtar")
	report, err := workflow.Effects(s.decl(), s.source(), connections())
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/report.json", string(got)+"\n")
}

// golden compares got with the text of a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is had:\n%s", path, got)
	}
}

func TestEffectsOfAWrongDeclaration(t *testing.T) {
	if _, err := workflow.Effects(json.RawMessage(`{}`), nil, nil); err == nil {
		t.Error("Effects of an empty declaration: no error")
	}
}

// A script that calls a tool as it was called before calls it, and is told so.
func TestEffectsUnderAFormerName(t *testing.T) {
	decl := `{"name":"w","jobs":{"a":{"$function":{"at":{"file":"a.js","line":7,"column":3},"params":1,
		"source":"async a(ctx) {\n  await ctx.contacts.get({ id: \"1\" });\n}"}}}}`
	conns := connections()
	conns[0].Was = connector.Names{"contacts"}
	report, err := workflow.Effects(json.RawMessage(decl), nil, conns)
	if err != nil {
		t.Fatal(err)
	}
	got := render(report)
	for _, want := range []string{"job, outside an item  crm.get  get  -  a.js:8:9", "warning: a.js:8:9: a, job, outside an item: contacts.get is called crm.get today (write ctx.crm.get)"} {
		if !strings.Contains(got, want) {
			t.Errorf("got:\n%s\nwant %q", got, want)
		}
	}
	if strings.Contains(got, "error") {
		t.Errorf("got:\n%s\nwant no error", got)
	}
}

// Without the author's text the engine's copy of each function is read, and
// lines count from where it begins.
func TestEffectsWithoutSource(t *testing.T) {
	decl := `{"name":"w","jobs":{"a":{"$function":{"at":{"file":"a.js","line":7,"column":3},"params":1,
		"source":"async a(ctx) {\n  await ctx.crm.find({});\n  await ctx.crm.create({});\n}"}}}}`
	report, err := workflow.Effects(json.RawMessage(decl), nil, connections())
	if err != nil {
		t.Fatal(err)
	}
	const want = `a  job, outside an item  crm.create  mutate  C  a.js:9:9
`
	if got := render(report); !strings.Contains(got, want) || !strings.Contains(got, "a.js:8:9") {
		t.Errorf("got:\n%s\nwant a line:\n%s", got, want)
	}
}

// Whatever the script looks like, Effects reports or refuses, and never panics.
func FuzzEffects(f *testing.F) {
	paths, _ := filepath.Glob("testdata/effects/*.txtar")
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, script, _ := strings.Cut(string(raw), "-- script.js --\n")
		script, _, _ = strings.Cut(script, "-- decl.json --\n")
		f.Add(script, 3, 5)
	}
	f.Add("const { a: { b: { c } } } = ctx; ctx?.[x]", 1, 1)
	f.Add("ctx => ctx.withItem(1, 2, async", 1, 1)
	f.Fuzz(func(t *testing.T, script string, line, column int) {
		fn := fmt.Sprintf(`{"$function":{"at":{"file":"script.js","line":%d,"column":%d},"params":1,"source":""}}`, line, column)
		decl := fmt.Sprintf(`{"name":"w","topics":{"a":{}},"jobs":{"j":%s},"consumers":{"c":{"$keep":"consumer",`+
			`"$at":{"file":"script.js","line":%d,"column":1},"subscribe":["a"],"prepare":%s,"mutate":%s}}}`, fn, line, fn, fn)
		report, err := workflow.Effects(json.RawMessage(decl), workflow.Source{"script.js": script}, connections())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(report); err != nil {
			t.Fatal(err)
		}
	})
}
