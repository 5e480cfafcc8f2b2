package workflow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
)

var update = flag.Bool("update", false, "rewrite what the stories in testdata want; with the sandbox's descriptions")

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

// stories runs f for each story in testdata/dir, described by the sandbox anew.
// f returns what is had; the story's part want says what is wanted.
func stories(t *testing.T, dir string, f func(t *testing.T, s *story) string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories in testdata/%s: %v", dir, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			s := readStory(t, path)
			s.describe(t)
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
	if script := s.file("script.js"); script != "" {
		return workflow.Source{"script.js": script}
	}
	return nil
}

// describe makes decl.json from script.js. A script that the sandbox does not
// load keeps the description that it has.
func (s *story) describe(t *testing.T) {
	t.Helper()
	if script := s.file("script.js"); script == "" {
		return
	} else if decl, ok := load(t, script); ok {
		var out bytes.Buffer
		if err := json.Indent(&out, decl, "", " "); err != nil {
			t.Fatal(err)
		}
		s.set("decl.json", out.String()+"\n")
	}
}

// runtime is opened once for all tests that need it.
var (
	opened  bool
	runtime = sync.OnceValues(func() (*sandbox.Runtime, error) {
		opened = true
		return sandbox.Open(context.Background(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
	})
)

// load returns how the sandbox describes a script, if it loads.
func load(t *testing.T, script string) (json.RawMessage, bool) {
	t.Helper()
	rt, err := runtime()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := sandbox.BuildSource("script.js", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	p, err := rt.Load(t.Context(), bundle)
	if _, wrong := errors.AsType[*sandbox.ScriptError](err); wrong {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	decl := p.Declaration()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return decl, true
}

// TestMain closes the sandbox, if a test opened it.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if opened {
		rt, err := runtime()
		if err == nil {
			err = rt.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
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

// Places are those of the author's files also for TypeScript and for handlers
// that come from another file.
func TestParseProject(t *testing.T) {
	project := workflow.Source{
		"main.ts": `import { addRow, poll } from "./lib/handlers";
interface Options { name: string }
const options: Options = { name: "a project" };

export default Keep.workflow({
  name: options.name,
  topics: { "in": {} } satisfies Record<string, {}>,
  producers: { poll: { publishes: ["inn"] as string[], handler: poll } },
  consumers: { addRow },
});
`,
		"lib/handlers.ts": `// handlers of the project
export async function poll(ctx: any): Promise<void> {
  await ctx.crm.create({ id: "1" });
}
export const addRow = Keep.consumer({
  subscribe: ["in"],
  nxt: 1,
  async prepare(ctx: any): Promise<any> { return { reservations: [] }; },
});
`,
	}
	const want = `lib/handlers.ts:7:3: consumers.addRow.nxt: unknown key "nxt" (did you mean "next"?)
main.ts:6:3: name: workflow name "a project": use 1 to 64 letters, digits, dots, dashes or underscores, starting with a letter or digit
main.ts:8:36: producers.poll.publishes[0]: topic "inn" is not declared (did you mean "in"?)`
	if _, err := workflow.Parse(loadProject(t, project), project); err == nil || err.Error() != want {
		t.Errorf("Parse = %v, want\n%s", err, want)
	}
	for file, text := range project {
		project[file] = strings.NewReplacer("a project", "project", "inn", "in", "nxt: 1,", "").Replace(text)
	}
	report, err := workflow.Effects(loadProject(t, project), project, connections())
	if err != nil {
		t.Fatal(err)
	}
	const use = "poll  producer  crm.create  mutate  C  lib/handlers.ts:3:9\n"
	if got := render(report); !strings.HasPrefix(got, use) {
		t.Errorf("Effects:\n%s\nwant first:\n%s", got, use)
	}
}

// loadProject returns how the sandbox describes the main.ts of these files.
func loadProject(t *testing.T, project workflow.Source) json.RawMessage {
	t.Helper()
	dir := t.TempDir()
	for name, text := range project {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rt, err := runtime()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := sandbox.Build(dir, "main.ts")
	if err != nil {
		t.Fatal(err)
	}
	p, err := rt.Load(t.Context(), bundle)
	if err != nil {
		t.Fatal(err)
	}
	decl := p.Declaration()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return decl
}
