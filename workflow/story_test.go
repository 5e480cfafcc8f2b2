package workflow_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/workflow"
)

var update = flag.Bool("update", false, "rewrite what the stories in testdata want; needs node for changed scripts")

// A story is a script, its description as the sandbox makes it, and what is
// wanted of it.
// The file is a comment followed by parts, each after a line "-- name --".
type story struct {
	path    string
	comment string
	parts   []part
}

type part struct{ name, text string }

func readStory(t *testing.T, path string) *story {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{path: path}
	for line := range strings.Lines(string(raw)) {
		name, ok := strings.CutPrefix(line, "-- ")
		switch {
		case ok && strings.HasSuffix(line, " --\n"):
			s.parts = append(s.parts, part{name: strings.TrimSuffix(name, " --\n")})
		case len(s.parts) == 0:
			s.comment += line
		default:
			s.parts[len(s.parts)-1].text += line
		}
	}
	return s
}

func (s *story) write(t *testing.T) {
	t.Helper()
	text := s.comment
	for _, p := range s.parts {
		text += "-- " + p.name + " --\n" + p.text
	}
	if err := os.WriteFile(s.path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// stories runs f for each archive in testdata/dir. f returns what is had; the
// story's file want says what is wanted.
func stories(t *testing.T, dir string, f func(t *testing.T, s *story) string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories in testdata/%s: %v", dir, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			s := readStory(t, path)
			if *update {
				s.describe(t)
			}
			got := f(t, s)
			if *update {
				s.set("want", got)
				s.write(t)
				return
			}
			if diff := cmp.Diff(s.file("want"), got); diff != "" {
				t.Errorf("%s: want -, got +:\n%s", path, diff)
			}
		})
	}
}

func (s *story) file(name string) string {
	for _, p := range s.parts {
		if p.name == name {
			return p.text
		}
	}
	return ""
}

func (s *story) set(name, text string) {
	for i, p := range s.parts {
		if p.name == name {
			s.parts[i].text = text
			return
		}
	}
	s.parts = append(s.parts, part{name, text})
}

func (s *story) decl() json.RawMessage { return json.RawMessage(s.file("decl.json")) }

func (s *story) source() workflow.Source {
	return workflow.Source{"script.js": s.file("script.js")}
}

// describe makes decl.json from script.js, if node is here. A story without a
// script keeps its hand-made description.
func (s *story) describe(t *testing.T) {
	t.Helper()
	script := s.file("script.js")
	if script == "" {
		return
	}
	path := filepath.Join(t.TempDir(), "script.js")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command("node", "testdata/describe.mjs", path)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("describe %s: %v\n%s", s.path, err, stderr.String())
	}
	s.set("decl.json", string(out))
}

// Parse of each script in testdata/parse gives the definition or the problems
// that are written beside it.
func TestParseStories(t *testing.T) {
	stories(t, "parse", func(t *testing.T, s *story) string {
		def, err := workflow.Parse(s.decl(), s.source())
		if err != nil {
			return err.Error() + "\n"
		}
		out, err := json.MarshalIndent(def, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(out) + "\n"
	})
}
