//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/llmtest"
)

// The script that the scripted model writes: a line of the journal for each file.
const (
	writtenScript = `export default Keep.workflow({
  name: "note-files",
  topics: { "file.arrived": {} },
  producers: { async look(ctx) {
    for (const file of await ctx.inbox.list({})) await ctx.publish("file.arrived", { messageId: file.name, name: file.name });
  } },
  consumers: { note: Keep.consumer({
    subscribe: ["file.arrived"],
    async prepare(ctx, event) {
      if (!event) return { reservations: [], data: {} };
      return { reservations: [{ topic: "file.arrived", ids: [event.messageId] }], data: { name: event.payload.name }, ui: { title: event.payload.name } };
    },
    async mutate(ctx, prepared) { await ctx.journal.write({ text: prepared.data.name + " arrived" }); },
  }) },
});
`
	writtenTests = `[[test]]
name = "notes each file once"
[[test.read]]
tool   = "inbox.list"
result = [{ name = "a.txt", size = 5 }]
[test.expect]
calls = [{ tool = "journal.write", params = { text = "a.txt arrived" } }]
`
	writtenIntent = "note each file that comes, and tell ops@example.com nothing"
)

// proposes is what a model says that hands a script over.
func proposes(source, tests string) llmtest.Reply {
	return llmtest.Reply{Text: "Here it is.", Calls: []llmtest.Call{{Name: "propose", Arguments: map[string]string{"source": source, "tests": tests, "note": "Notes each file."}}}}
}

func calls(name string, args any) llmtest.Reply {
	return llmtest.Reply{Calls: []llmtest.Call{{Name: name, Arguments: args}}}
}

// inTurn answers the n-th request with the n-th reply, and with the last one after that.
func inTurn(replies ...llmtest.Reply) func(llmtest.Request) llmtest.Reply {
	return func(q llmtest.Request) llmtest.Reply { return replies[min(q.N, len(replies))-1] }
}

// writeProject makes a project whose model answers so.
func writeProject(t testing.TB, chat bool, answer func(llmtest.Request) llmtest.Reply) (string, *llmtest.Server) {
	t.Helper()
	s := llmtest.Start(t, answer)
	dir := t.TempDir()
	api := "anthropic"
	if chat {
		api = "openai"
	}
	putText(t, dir, "keep.toml", fmt.Sprintf(`workflows = ["*.js"]
[policy]
retry = { first = "1ms", max = "1ms", attempts = 2 }
[connections.inbox]
connector = "files"
root      = "inbox"
read_only = true
[connections.journal]
connector = "log"
path      = "journal.jsonl"
[connections.crm]
connector = "http"
base_url  = "http://127.0.0.1:1"
headers   = { Authorization = "Bearer ${secret:crm}" }
[connections.crm.tools.find]
effect = "list"
path   = "/contacts"
[llm.m]
api      = %q
base_url = %q
key      = "${secret:model}"
price    = { in = 3, out = 15 }
[write]
provider = "m"
model    = "model-1"
`, api, s.Base(chat)))
	for _, sub := range []string{"inbox", ".secrets"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	putText(t, dir, ".secrets/crm", agentSecret)
	putText(t, dir, ".secrets/model", llmtest.Key)
	putText(t, dir, "inbox/hello.txt", "hello")
	return dir, s
}

func putText(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writes runs the command, with its drafts in a directory of the project.
func writes(t testing.TB, dir string, args ...string) (out, talk string, status int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), buildKeep(t), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "TMPDIR="+draftsOf(t, dir))
	_ = cmd.Run() // the status says it
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// draftsOf is where drafts of a project are kept in tests.
func draftsOf(t testing.TB, dir string) string {
	t.Helper()
	drafts := filepath.Join(dir, ".drafts")
	if err := os.MkdirAll(drafts, 0o700); err != nil {
		t.Fatal(err)
	}
	return drafts
}

// untouched fails the test if the project has a file of a script, a workflow or a grant.
func untouched(t testing.TB, dir string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "note-files*"))
	hidden, err2 := filepath.Glob(filepath.Join(dir, ".keep-write*"))
	if err != nil || err2 != nil || len(found)+len(hidden) > 0 {
		t.Errorf("files were written: %v %v", found, hidden)
	}
	inactive(t, dir)
}

// inactive fails the test if a workflow is there, or was granted anything.
func inactive(t testing.TB, dir string) {
	t.Helper()
	for _, list := range []string{"workflows", "grants"} {
		if out, talk, status := writes(t, dir, list, "--json"); status != 5 && strings.Contains(out, "note-files") {
			t.Errorf("keep %s: %d %s %s", list, status, out, talk)
		}
	}
}

// A written is what keep write --json prints, as far as tests look at it.
type written struct {
	Workflow, Version, Question, File, Tests, Draft *string
	GrantFile                                       *string `json:"grant_file"`
	State, Note                                     string
	Grants                                          []string
	Plan                                            struct{ Mutations []struct{ Tool string } }
	Questions                                       []struct{ Question, Answer string }
	Tokens                                          int64
	Cost                                            float64
	Attempts                                        int
	Diff                                            string
	Comparison                                      struct{ Impact string }
	BrokenTests                                     []struct{ Name string } `json:"broken_tests"`
	BaseVersion                                     string                  `json:"base_version"`
}

func writtenOf(t testing.TB, out string) (w written) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &w); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return w
}

// Write has the model learn, check, test and plan, writes the files, and waits; nothing of it
// runs or is granted before a person agrees. Both protocols.
func TestWrite(t *testing.T) {
	t.Parallel()
	for _, chat := range []bool{false, true} {
		t.Run(map[bool]string{false: "anthropic", true: "openai"}[chat], func(t *testing.T) {
			t.Parallel()
			dir, s := writeProject(t, chat, inTurn(
				llmtest.Reply{Calls: []llmtest.Call{{Name: "guide"}, {Name: "types", Arguments: map[string]any{}}}},
				calls("check", map[string]string{"source": "export default 1"}),
				calls("test", map[string]string{"source": writtenScript, "tests": writtenTests}),
				calls("plan", map[string]string{"source": writtenScript}),
				proposes(strings.Replace(writtenScript, "ctx.journal.write", "ctx.journal.nothing", 1), writtenTests),
				proposes(writtenScript, ""),
			))
			out, talk, status := writes(t, dir, "write", writtenIntent, "--json", "--html", "plan.html")
			if status != 4 {
				t.Fatalf("status %d: %s %s", status, out, talk)
			}
			w := writtenOf(t, out)
			if w.State != "waiting" || *w.Workflow != "note-files" || *w.Version != "1.0" || w.Draft != nil || w.Attempts != 1 ||
				fmt.Sprint(w.Grants) != "[inbox.list journal.write]" || len(w.Plan.Mutations) != 1 || w.Plan.Mutations[0].Tool != "journal.write" ||
				w.Tokens != 900 || w.Cost < 0.006 || w.Cost > 0.007 {
				t.Errorf("it says %+v", w)
			}
			for file, want := range map[string]string{"note-files.js": writtenScript, "note-files.test.toml": writtenTests,
				"note-files.grants.toml": `tools = ["inbox.list", "journal.write"]`, "plan.html": "journal.write"} {
				if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), want) {
					t.Errorf("%s: %v, %s", file, err, text)
				}
			}
			asked := s.Requests()
			if len(asked) != 6 || fmt.Sprint(asked[0].Tools) != "[check guide plan test types ask propose]" || asked[0].Model != "model-1" {
				t.Errorf("%d requests, tools %v", len(asked), asked[0].Tools)
			}
			for i, want := range []string{writtenIntent, "declare", `"ok": false`, `"passed": 1`, `hello.txt arrived`, "check finds problems"} {
				if !strings.Contains(asked[i].Last, want) {
					t.Errorf("request %d has no %q: %s", i+1, want, asked[i].Last)
				}
			}
			for i, q := range asked {
				if strings.Contains(string(q.Body), agentSecret) || strings.Contains(string(q.Body), llmtest.Key) {
					t.Errorf("request %d shows a secret", i+1)
				}
			}
			inactive(t, dir)

			// A host that finds the file leaves it waiting; a person's answer deploys and grants it.
			if out, talk, _ := writes(t, dir, "run", ".", "--json"); !strings.Contains(talk, "waits for a person") || strings.Contains(out, `"committed": 1`) {
				t.Errorf("keep run: %s %s", out, talk)
			}
			if _, err := os.Stat(filepath.Join(dir, "journal.jsonl")); err == nil {
				t.Error("what waits has run")
			}
			inactive(t, dir)
			if out, talk, status := writes(t, dir, "inbox", "do", *w.Question, "approve"); status != 0 {
				t.Fatalf("approve: %d %s %s", status, out, talk)
			}
			if out, talk, status := writes(t, dir, "run", ".", "--json"); status != 0 {
				t.Fatalf("keep run: %d %s %s", status, out, talk)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "journal.jsonl")); err != nil || strings.Count(string(text), "hello.txt arrived") != 1 {
				t.Errorf("the journal: %v %s", err, text)
			}
			out, _, _ = writes(t, dir, "workflows", "show", "note-files", "--json")
			var shown struct{ Intent, Version string }
			if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.Intent != writtenIntent || shown.Version != "1.0" {
				t.Errorf("the workflow: %v %s", err, out)
			}
			if out, _, _ := writes(t, dir, "grants", "show", "note-files", "--json"); !strings.Contains(out, "journal.write") || strings.Contains(out, "crm") {
				t.Errorf("the grant: %s", out)
			}
		})
	}
}

// A question is answered by --answer, or printed where nobody is there; there are three at most.
func TestWriteAsks(t *testing.T) {
	t.Parallel()
	ask := func(q string) llmtest.Call {
		return llmtest.Call{Name: "ask", Arguments: map[string]string{"question": q}}
	}
	withAddress := strings.Replace(writtenScript, `" arrived"`, `" arrived, ann@example.com"`, 1)
	tests := strings.Replace(writtenTests, " arrived", " arrived, ann@example.com", 1)
	dir, s := writeProject(t, false, inTurn(
		llmtest.Reply{Calls: []llmtest.Call{ask("Which address?"), ask("What\x1b[2J else?")}},
		llmtest.Reply{Calls: []llmtest.Call{ask("Which address?"), ask("What else?"), ask("Really?"), ask("And a fourth?")}},
		proposes(withAddress, tests),
	))
	out, talk, status := writes(t, dir, "write", "note each file")
	if status != 4 || !strings.Contains(out, "Which address?") || !strings.Contains(out, "else?") || strings.Contains(out+talk, "\x1b[2J") || !strings.Contains(talk, "--answer") {
		t.Errorf("nobody is there: %d %s %s", status, out, talk)
	}
	untouched(t, dir)
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	out, talk, status = writes(t, dir, "write", "note each file", "--answer", "ann@example.com", "--answer", "nothing", "--answer", "yes", "--json")
	if status != 4 {
		t.Fatalf("status %d: %s %s", status, out, talk)
	}
	if w := writtenOf(t, out); len(w.Questions) != 3 || w.Questions[0].Answer != "ann@example.com" || w.State != "waiting" {
		t.Errorf("it says %+v", w)
	}
	if last := s.Requests()[2].Last; !strings.Contains(last, "The person answers: ann@example.com") || !strings.Contains(last, "was asked 3 questions, and is not asked more") {
		t.Errorf("the model was told %q", last)
	}
}

// What a model wrote is told from what keep says of it: no line of a script looks like one of the command.
func TestWriteShowsAScriptApart(t *testing.T) {
	t.Parallel()
	dir, _ := writeProject(t, false, inTurn(proposes(writtenScript+"/*\nIt may call: nothing\n*/\n", writtenTests)))
	out, talk, status := writes(t, dir, "write", writtenIntent)
	if status != 4 || !strings.Contains(out, "\n  It may call: nothing\n") || strings.Contains(out, "\nIt may call: nothing") ||
		!strings.Contains(out, "\nIt may call: inbox.list, journal.write\n") {
		t.Errorf("status %d: %s%s", status, out, talk)
	}
}

// Whatever the model does, it costs at most what it may, nothing is written, and what was drafted
// is kept where the message says.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	stranger := strings.Replace(writtenScript, `" arrived"`, `" arrived, eve@evil.example"`, 1)
	for name, c := range map[string]struct {
		reply    llmtest.Reply
		config   string
		want     string
		drafts   int
		requests int // at most
	}{
		"garbage":       {llmtest.Reply{Fault: llmtest.Garbage}, "", "did not answer", 0, 9},
		"cut":           {llmtest.Reply{Fault: llmtest.Cut}, "", "did not answer", 0, 9},
		"endless":       {llmtest.Reply{Fault: llmtest.Endless}, "", "did not answer", 0, 3},
		"silent":        {llmtest.Reply{Fault: llmtest.Silent}, "time = '300ms'", "300ms that it may take are over", 0, 1},
		"refused":       {llmtest.Reply{Status: 401, Kind: "authentication_error"}, "", "after 1 conversation (0 tokens): the model did not answer: the service answered 401 authentication_error: it does not accept the key", 0, 1},
		"busy":          {llmtest.Reply{Status: 429}, "time = '300ms'", "the service answered 429; it is asked again in 1s.", 0, 9},
		"talk":          {llmtest.Reply{Text: "I would rather talk."}, "", "without a proposal", 0, 3},
		"never ready":   {calls("check", map[string]string{"source": writtenScript}), "attempts = 1", "proposed nothing in 20 answers", 1, 20},
		"tokens":        {llmtest.Reply{In: 900, Out: 200, Calls: []llmtest.Call{{Name: "guide"}}}, "tokens = 1000", "of 1000 tokens are used up", 0, 1},
		"cost":          {llmtest.Reply{In: 1_000_000, Calls: []llmtest.Call{{Name: "guide"}}}, "cost = 2.5\ntokens = 100000000", "its cost is 3", 0, 1},
		"a stranger":    {proposes(stranger, writtenTests), "attempts = 1", "that the person did not give", 1, 20},
		"failing tests": {proposes(writtenScript, strings.Replace(writtenTests, " arrived", " went", 1)), "attempts = 1", "some of its tests fail", 1, 20},
		"no tests":      {proposes(writtenScript, ""), "attempts = 1", "propose needs tests", 1, 20},
		"no such tool":  {calls("grant", map[string]string{"tool": "*"}), "attempts = 1", "proposed nothing", 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, s := writeProject(t, false, inTurn(c.reply))
			text, err := os.ReadFile(filepath.Join(dir, "keep.toml"))
			if err != nil {
				t.Fatal(err)
			}
			putText(t, dir, "keep.toml", string(text)+c.config+"\n")
			out, talk, status := writes(t, dir, "write", "note each file")
			if status != 1 || out != "" || !strings.Contains(talk, c.want) || !strings.Contains(talk, "Nothing was written to the project.") {
				t.Errorf("status %d: %s %s", status, out, talk)
			}
			if n := len(s.Requests()); n < 1 || n > c.requests {
				t.Errorf("%d requests, want at most %d", n, c.requests)
			}
			drafts, _ := filepath.Glob(filepath.Join(draftsOf(t, dir), "keep-write-*", "workflow.js"))
			if len(drafts) != c.drafts || c.drafts > 0 && !strings.Contains(talk, filepath.Dir(drafts[0])) {
				t.Errorf("drafts %v, and it says %s", drafts, talk)
			}
			untouched(t, dir)
		})
	}
}

// With --json it is said what the model used, and what waits, also if something fails after it was asked.
func TestWriteSaysWhatItUsedHoweverItEnds(t *testing.T) {
	t.Parallel()
	dir, _ := writeProject(t, false, inTurn(proposes(writtenScript, writtenTests)))
	out, talk, status := writes(t, dir, "write", writtenIntent, "--json", "--html", filepath.Join("none", "plan.html"))
	if status == 0 || status == 4 || !strings.Contains(talk, "plan.html") {
		t.Fatalf("status %d: %s %s", status, out, talk)
	}
	if w := writtenOf(t, out); w.Tokens == 0 || w.Version == nil || *w.Version != "1.0" || w.State != "waiting" || w.Draft == nil {
		t.Errorf("it prints %s", out)
	}
}

// What cannot be done is said before a model is asked, and no file is overwritten.
func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	dir, s := writeProject(t, false, inTurn(proposes(writtenScript, writtenTests)))
	putText(t, dir, "there.test.toml", "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"write", " "}, "say in a sentence"},
		{[]string{"write", strings.Repeat("x", 9000)}, "at most 8192 bytes"},
		{[]string{"write", "x", "--out", "x.txt"}, "ends with .js or .ts"},
		{[]string{"write", "x", "--out", "there.js"}, "there.test.toml is there already"},
		{[]string{"edit", "none", "x"}, "none"},
	} {
		if out, talk, status := writes(t, dir, c.args...); status < 2 || status > 3 || !strings.Contains(talk, c.want) {
			t.Errorf("%q: %d %s %s", c.args, status, out, talk)
		}
	}
	bare := t.TempDir()
	if _, talk, status := writes(t, bare, "write", "x"); status != 2 || !strings.Contains(talk, "[llm.NAME]") {
		t.Errorf("without a model: %d %s", status, talk)
	}
	if err := os.Remove(filepath.Join(dir, ".secrets/model")); err != nil {
		t.Fatal(err)
	}
	if _, talk, status := writes(t, dir, "write", "x"); status != 2 || !strings.Contains(talk, "model") {
		t.Errorf("without its key: %d %s", status, talk)
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("the model was asked %d times", n)
	}
}
