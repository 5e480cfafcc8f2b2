package workflow_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/schedule"
	"github.com/keep-run/keep/script/workflow"
)

// Whatever the sandbox says and the author wrote, Parse returns a definition
// that is valid or the problems in order, and never panics.
func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/parse/*.txtar")
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(raw), "-- script.js --\n")
		script, rest, _ := strings.Cut(rest, "-- decl.json --\n")
		decl, _, _ := strings.Cut(rest, "-- want --\n")
		f.Add(decl, script)
	}
	f.Add(`{"$keep":"workflow"}`, "")
	f.Add(`{"$keep":"workflow","$at":{"line":9,"column":-1,"file":"script.js"},"topics":{"$type":"Map"}}`, "x")
	f.Add(`{"jobs":{"a":{"$function":{"$function":{"params":1}}}}}`, "Keep.workflow({jobs:[`${")
	f.Fuzz(func(t *testing.T, decl, script string) {
		def, err := workflow.Parse(json.RawMessage(decl), workflow.Source{"script.js": script})
		if err != nil {
			checkProblems(t, err)
			return
		}
		checkDefinition(t, def)
	})
}

func checkProblems(t *testing.T, err error) {
	t.Helper()
	bad, ok := errors.AsType[*workflow.DeclarationError](err)
	if !ok || len(bad.Problems) == 0 {
		t.Fatalf("Parse: %#v, want a *DeclarationError with problems", err)
	}
	for i, p := range bad.Problems {
		if p.Message == "" {
			t.Errorf("problem %d says nothing: %+v", i, p)
		}
	}
}

func checkDefinition(t *testing.T, def keep.Definition) {
	t.Helper()
	if err := def.Name.Validate(); err != nil {
		t.Error(err)
	}
	if len(def.Handlers) == 0 || len(def.Handlers) > workflow.MaxHandlers || len(def.Topics) > workflow.MaxTopics {
		t.Errorf("%d handlers, %d topics", len(def.Handlers), len(def.Topics))
	}
	names := make(map[keep.HandlerName]bool)
	consumers := make(map[keep.TopicName]bool)
	for _, h := range def.Handlers {
		if err := h.Name.Validate(); err != nil || names[h.Name] {
			t.Errorf("handler %q: %v, or twice", h.Name, err)
		}
		names[h.Name] = true
		if _, err := schedule.Parse(h.Schedule, 1); err != nil {
			t.Error(err)
		}
		if (h.Kind == keep.Consumer) != (len(h.Subscribe) > 0) {
			t.Errorf("%s %s subscribes to %v", h.Kind, h.Name, h.Subscribe)
		}
		for _, topic := range h.Subscribe {
			if !def.HasTopic(topic) || consumers[topic] {
				t.Errorf("topic %q is not declared, or has two consumers", topic)
			}
			consumers[topic] = true
		}
		for _, topic := range h.Publishes {
			if !def.HasTopic(topic) {
				t.Errorf("topic %q is not declared", topic)
			}
		}
	}
}
