//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/llmtest"
)

// A script of three files: what it says is made in one of them, with a word of another.
var (
	partsScript = "import { line } from \"./lib/line.js\";\n" + strings.Replace(writtenScript, `prepared.data.name + " arrived"`, "line(prepared.data.name)", 1)
	partsLine   = "import { word } from \"./word.js\";\nexport const line = (name) => name + \" \" + word;\n"
	partsWord   = "export const word = \"arrived\";\n"

	changedLine = strings.Replace(partsLine, `" " + word`, `" has " + word`, 1)
	changedWord = strings.Replace(partsWord, "arrived", "come", 1)
	newWord     = "export const end = \".\";\n"
	changedAll  = map[string]any{"lib/line.js": strings.Replace(changedLine, "+ word", "+ word + end", 1) + "import { end } from \"./more/end.js\";\n", "lib/word.js": changedWord, "lib/more/end.js": newWord}
	partsTests  = strings.Replace(writtenTests, "a.txt arrived", "a.txt has come.", 1)
)

// partsProject is a project whose script of three files is deployed and has run.
func partsProject(t *testing.T, answer func(llmtest.Request) llmtest.Reply) (string, *llmtest.Server) {
	t.Helper()
	dir, s := writeProject(t, false, answer)
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"note-files.js": partsScript, "lib/line.js": partsLine, "lib/word.js": partsWord, "note-files.test.toml": writtenTests} {
		putText(t, dir, name, text)
	}
	if out, talk, status := writes(t, dir, "run", "."); status != 0 {
		t.Fatalf("run: %d %s %s", status, out, talk)
	}
	return dir, s
}

func proposesFiles(source, tests string, files map[string]any) llmtest.Reply {
	return calls("propose", map[string]any{"source": source, "tests": tests, "note": "Says it otherwise.", "files": files})
}

// An edit of a script of several files changes any of them, adds some, and shows the difference of
// each. Check and test know the files that the model does not change.
func TestEditFiles(t *testing.T) {
	t.Parallel()
	dir, s := partsProject(t, inTurn(
		calls("test", map[string]any{"source": partsScript, "tests": partsTests, "files": changedAll}),
		proposesFiles(partsScript, partsTests, changedAll)))
	out, talk, status := writes(t, dir, "edit", "note-files", "say has come", "--force")
	if status != 4 {
		t.Fatalf("status %d: %s %s", status, out, talk)
	}
	for _, want := range []string{"=== lib/line.js", "=== lib/word.js", "=== lib/more/end.js", `- export const word = "arrived";`, `+ export const word = "come";`, "impactful"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q: %s", want, out)
		}
	}
	if strings.Contains(out, "=== note-files.js") {
		t.Errorf("the script is the same: %s", out)
	}
	first := s.Requests()[0].Text
	for _, want := range []string{partsLine, partsWord, "lib/line.js"} {
		if !strings.Contains(first, want) {
			t.Errorf("the model does not see %q: %s", want, first)
		}
	}
	if last := s.Requests()[1].Last; !strings.Contains(last, `"passed": 1`) {
		t.Errorf("test says %s", last)
	}
	for name, text := range changedAll {
		if textOfFile(t, dir, name) != text {
			t.Errorf("%s is %q", name, textOfFile(t, dir, name))
		}
	}
	firstIsCurrent(t, dir)
	for _, args := range [][]string{{"check", "."}, {"proposals", "accept", "note-files@2.0"}, {"run", "."}, {"db", "check"}} {
		if out, talk, status := writes(t, dir, args...); status != 0 {
			t.Errorf("keep %q: %d %s %s", args, status, out, talk)
		}
	}
	if out, _, _ := writes(t, dir, "workflows", "show", "note-files", "--json"); !strings.Contains(out, `"version": "2.0"`) {
		t.Errorf("after it was accepted: %s", out)
	}
	if shown, _, _ := writes(t, dir, "proposals", "show", "note-files@2.0"); !strings.Contains(shown, "edit, by") || !strings.Contains(shown, "=== lib/word.js") {
		t.Errorf("the proposal: %s", shown)
	}
}

// An edit writes no file that is none of the script: names that lead out, hidden and foreign ones
// are refused, and so is a link that leads out.
func TestEditFilesRefuses(t *testing.T) {
	t.Parallel()
	names := []string{"../evil.js", "/etc/evil.js", "lib/../../evil.js", ".git/hooks.js", "lib/.x.js", `lib\evil.js`, "c:evil.js", "keep.toml", "lib/x.sh", "note-files.js", "lib/unused.js", "lib//x.js", "./lib/word.js"}
	var replies []llmtest.Reply
	for _, name := range names {
		replies = append(replies, proposesFiles(partsScript, writtenTests, map[string]any{name: "export const evil = 1;\n"}))
	}
	dir, s := partsProject(t, inTurn(replies...))
	putText(t, dir, "keep.toml", textOfFile(t, dir, "keep.toml")+"attempts = 1\n")
	before := treeOf(t, dir)
	out, talk, status := writes(t, dir, "edit", "note-files", "do it", "--force")
	if status != 1 {
		t.Fatalf("status %d: %s %s", status, out, talk)
	}
	for i, q := range s.Requests()[1:min(len(names)+1, len(s.Requests()))] {
		if !strings.Contains(q.Last, "It is not taken") {
			t.Errorf("%s: %s", names[i], q.Last)
		}
	}
	if len(s.Requests()) <= len(names) {
		t.Errorf("%d requests, want one for each name", len(s.Requests()))
	}
	if after := treeOf(t, dir); after != before {
		t.Errorf("the files are\n%s\nwant\n%s", after, before)
	}
	if out, talk, status := writes(t, dir, "edit", "note-files", "do it", "--out", "other.js"); status != 2 || !strings.Contains(talk, "leave --out away") {
		t.Errorf("--out: %d %s %s", status, out, talk)
	}
}

// A directory that is a link out of the project is not written through.
func TestEditFilesLink(t *testing.T) {
	t.Parallel()
	dir, _ := partsProject(t, inTurn(proposesFiles(strings.Replace(partsScript, "./lib/", "./out/", 1), partsTests, map[string]any{"out/line.js": changedLine + "export const x = 1;\n", "out/word.js": strings.Replace(changedWord, "come", "come.", 1)})))
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	out, talk, status := writes(t, dir, "edit", "note-files", "do it", "--force")
	if left, _ := os.ReadDir(outside); status == 0 || status == 4 || len(left) > 0 {
		t.Errorf("it ended with %d and wrote %v: %s %s", status, left, out, talk)
	}
	firstIsCurrent(t, dir)
	if textOfFile(t, dir, "note-files.js") != partsScript || textOfFile(t, dir, "lib/line.js") != partsLine {
		t.Error("a part of it was written")
	}
}

// treeOf lists the files of the scripts of a project with their texts.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, pattern := range []string{"*.js", "*.toml", "*.sh", ".keep*", "lib/*", "lib/.*", "lib/*/*", "../evil.js", ".git/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range found {
			if text, err := os.ReadFile(name); err == nil {
				b.WriteString(name + ": " + string(text) + "\n")
			}
		}
	}
	return b.String()
}

// An edit of several files that is killed anywhere leaves all of them as before or all as after, as
// soon as somebody reads scripts: a mixture would be a version that nobody saw. The version that is
// current stays, and the same edit again asks one question in all.
func TestEditFilesKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"the script", ".keep-write-*", ".keep-pending.json", "note-files.test.toml", "note-files.grants.toml", "lib/.keep-write-*", "lib/line.js", "lib/word.js"} {
		t.Run(strings.ReplaceAll(at, "/", "_"), func(t *testing.T) {
			t.Parallel()
			var kill func()
			killed := make(chan struct{})
			files := map[string]any{"lib/line.js": changedLine, "lib/word.js": changedWord}
			tests := strings.Replace(writtenTests, "a.txt arrived", "a.txt has come", 1)
			dir, _ := partsProject(t, func(q llmtest.Request) llmtest.Reply {
				<-killed
				if q.N == 1 && at == "the script" {
					kill()
				}
				return proposesFiles(partsScript, tests, files)
			})
			before := ""
			if old, err := os.ReadFile(filepath.Join(dir, at)); err == nil {
				before = string(old)
			}
			cmd := exec.CommandContext(t.Context(), buildKeep(t), "edit", "note-files", "say has come", "--force")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "TMPDIR="+draftsOf(t, dir))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			kill = func() { _ = cmd.Process.Kill() }
			close(killed)
			killWhen(dir, at, before, cmd, kill)
			if out, talk, _ := writes(t, dir, "check", "."); strings.Contains(out+talk, "error") {
				t.Errorf("check: %s %s", out, talk)
			}
			switch got := textOfFile(t, dir, "lib/line.js") + textOfFile(t, dir, "lib/word.js"); got {
			case partsLine + partsWord, changedLine + changedWord:
			default:
				t.Errorf("the files are a mixture: %s", got)
			}
			firstIsCurrent(t, dir)
			if left, _ := filepath.Glob(filepath.Join(dir, ".keep-pending*")); len(left) > 0 {
				t.Errorf("after a script was read there is %v", left)
			}
			if out, talk, status := writes(t, dir, "edit", "note-files", "say has come", "--force", "--json"); status != 4 || writtenOf(t, out).State != "waiting" {
				t.Fatalf("again: %d %s %s", status, out, talk)
			}
			if textOfFile(t, dir, "lib/line.js") != changedLine || textOfFile(t, dir, "lib/word.js") != changedWord {
				t.Error("the files are not those of the change")
			}
			firstIsCurrent(t, dir)
			if out, _, _ := writes(t, dir, "inbox", "--json"); strings.Count(out, `"kind": "proposal"`) != 1 {
				t.Errorf("not one question is open: %s", out)
			}
		})
	}
}

// The files that a model changed are kept with the script if nothing comes of them, and in the directory of the draft alone, whatever their names are.
func TestEditFilesKeepsItsDraft(t *testing.T) {
	t.Parallel()
	dir, _ := partsProject(t, inTurn(
		proposesFiles(partsScript, writtenTests, map[string]any{"lib/line.js": changedLine}),
		proposesFiles(partsScript, writtenTests, map[string]any{"../evil.js": "export const evil = 1;\n"})))
	putText(t, dir, "keep.toml", textOfFile(t, dir, "keep.toml")+"attempts = 1\n")
	out, talk, status := writes(t, dir, "edit", "note-files", "do it", "--force")
	drafts, _ := filepath.Glob(filepath.Join(draftsOf(t, dir), "keep-write-*"))
	if status != 1 || len(drafts) != 1 || !strings.Contains(talk, drafts[0]) {
		t.Fatalf("status %d, drafts %v: %s %s", status, drafts, out, talk)
	}
	if got := textOfFile(t, drafts[0], "files/lib/line.js"); got != changedLine {
		t.Errorf("the file of the draft is %q, want %q", got, changedLine)
	}
	if evil, _ := filepath.Glob(filepath.Join(drafts[0], "*evil*")); len(evil) > 0 {
		t.Errorf("a file is not where the draft's are: %v", evil)
	}
}
