package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/llmtest"
)

// What the model makes of the script of three files, and work of somebody else on it.
var (
	hasCome      = map[string]any{"lib/line.js": changedLine, "lib/word.js": changedWord}
	hasComeTests = strings.Replace(writtenTests, "a.txt arrived", "a.txt has come", 1)
	mine         = partsWord + "// mine\n"
)

// saves does to a project what a person does meanwhile: an empty text removes the file.
func saves(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		var err error
		if text == "" {
			err = os.Remove(name)
		} else if err = os.MkdirAll(filepath.Dir(name), 0o700); err == nil {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// deploysMeanwhile deploys another version of the script, and leaves the files as they were.
func deploysMeanwhile(t *testing.T, dir string) {
	t.Helper()
	saves(t, dir, map[string]string{"lib/word.js": strings.Replace(partsWord, "arrived", "there", 1)})
	if out, talk, status := writes(t, dir, "deploy", "."); status != 0 {
		t.Errorf("deploy: %d %s %s", status, out, talk)
	}
	saves(t, dir, map[string]string{"lib/word.js": partsWord})
}

// keptDraft fails the test unless the new texts are in a directory that the message names.
func keptDraft(t *testing.T, dir, talk string) {
	t.Helper()
	_, name, _ := strings.Cut(talk, "What was drafted is kept in ")
	name, _, _ = strings.Cut(name, "\n")
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(name), "files", "lib", "word.js"))
	if err != nil || string(text) != changedWord || !strings.HasPrefix(strings.TrimSpace(name), dir) {
		t.Errorf("the draft is not kept: %v, %q; it says %s", err, text, talk)
	}
}

// currentIs fails the test if another version is current.
func currentIs(t *testing.T, dir, version string) {
	t.Helper()
	if out, talk, _ := writes(t, dir, "workflows", "show", "note-files", "--json"); !strings.Contains(out, `"version": "`+version+`"`) {
		t.Errorf("version %s is not current: %s %s", version, out, talk)
	}
}

// What a person saves while the model writes is replaced by no edit, nor is any other file then:
// the message says which file it is and where the draft is. The same edit again, once the
// file is as the version has it, replaces it.
func TestEditSavedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		saves map[string]string
		names string // the file that the message names; empty: the edit is written
	}{
		"an import":               {map[string]string{"lib/word.js": mine}, "lib/word.js"},
		"an import that is kept":  {map[string]string{"lib/line.js": partsLine + "// mine\n", "lib/word.js": changedWord}, "lib/line.js"},
		"the script":              {map[string]string{"note-files.js": partsScript + "// mine\n"}, "note-files.js"},
		"its tests":               {map[string]string{"note-files.test.toml": writtenTests + "# mine\n"}, "note-files.test.toml"},
		"grants":                  {map[string]string{"note-files.grants.toml": "# mine\n"}, "note-files.grants.toml"},
		"gone":                    {map[string]string{"lib/word.js": ""}, "lib/word.js"},
		"what the model makes":    {map[string]string{"lib/word.js": changedWord}, ""},
		"a file of somebody else": {map[string]string{"lib/other.js": "export const other = 1;\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := ""
			began := make(chan struct{})
			p, _ := partsProject(t, func(q llmtest.Request) llmtest.Reply {
				<-began
				if q.N == 1 {
					saves(t, dir, c.saves)
				}
				return proposesFiles(partsScript, hasComeTests, hasCome)
			})
			dir = p
			close(began)
			want := treeWith(t, dir, c.saves)
			out, talk, status := writes(t, dir, "edit", "note-files", "say has come", "--force")
			if c.names == "" {
				if status != 4 || textOfFile(t, dir, "lib/word.js") != changedWord || textOfFile(t, dir, "lib/line.js") != changedLine {
					t.Errorf("it ended with %d: %s %s", status, out, talk)
				}
				return
			}
			if status != 1 || !strings.Contains(talk, c.names) || !strings.Contains(talk, "the same command again") {
				t.Errorf("it ended with %d: %s %s", status, out, talk)
			}
			if got := treeOf(t, dir); got != want {
				t.Errorf("the files are\n%s\nwant\n%s", got, want)
			}
			keptDraft(t, dir, talk)
			firstIsCurrent(t, dir)
			saves(t, dir, map[string]string{"lib/word.js": partsWord, "lib/line.js": partsLine, "note-files.js": partsScript})
			if out, talk, status := writes(t, dir, "edit", "note-files", "say has come", "--force"); status != 4 || textOfFile(t, dir, "lib/word.js") != changedWord {
				t.Errorf("again: %d %s %s", status, out, talk)
			}
		})
	}
}

// treeWith is treeOf after somebody saved files, which are then as they were.
func treeWith(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	before := map[string]string{}
	for name := range files {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		before[name] = string(text)
	}
	saves(t, dir, files)
	defer saves(t, dir, before)
	return treeOf(t, dir)
}

// What a person saves, or deploys, before the question is answered stays as it is, and the answer
// changes nothing.
func TestEditBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, dir string)
		says      string
		current   string
		word      string
	}{
		"saved":    {func(t *testing.T, dir string) { saves(t, dir, map[string]string{"lib/word.js": mine}) }, "lib/word.js", "1.0", mine},
		"deployed": {deploysMeanwhile, "superseded by now", "3.0", partsWord},
		"rejected": {func(t *testing.T, dir string) {
			if out, talk, status := writes(t, dir, "proposals", "reject", "note-files@2.0"); status != 0 {
				t.Errorf("reject: %d %s %s", status, out, talk)
			}
		}, "rejected by now", "1.0", partsWord},
		"accepted": {func(t *testing.T, dir string) {
			if out, talk, status := writes(t, dir, "proposals", "accept", "note-files@2.0"); status != 0 {
				t.Errorf("accept: %d %s %s", status, out, talk)
			}
		}, "", "2.0", changedWord},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := partsProject(t, inTurn(proposesFiles(partsScript, hasComeTests, hasCome)))
			cmd := exec.CommandContext(t.Context(), buildKeep(t), "edit", "note-files", "say has come")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm", "XDG_CACHE_HOME="+cacheHome(t), "TMPDIR="+draftsOf(t, dir))
			edit := onScreen(t, cmd)
			edit.sees("Write yes: ")
			c.meanwhile(t, dir)
			edit.types("yes\r")
			status := 0
			if c.says == "" {
				edit.sees("is current")
			} else {
				edit.sees("What was drafted is kept in ")
				edit.sees("\n")
				status = 1
			}
			if got := edit.ends(); got != status || !strings.Contains(edit.shown.String(), c.says) {
				t.Errorf("status %d, want %d: %q", got, status, edit.shown.String())
			}
			currentIs(t, dir, c.current)
			if word := textOfFile(t, dir, "lib/word.js"); word != c.word {
				t.Errorf("the file is %q, want %q", word, c.word)
			}
			if line := textOfFile(t, dir, "lib/line.js"); (line == changedLine) != (c.says == "") {
				t.Errorf("another file is %q", line)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".keep-*")); len(left) > 0 {
				t.Errorf("there is %v", left)
			}
		})
	}
}

// An edit that is killed after the person has agreed leaves no version current whose files are not
// there, as soon as somebody reads scripts, and no mixture.
func TestEditKilledAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for _, at := range []string{".keep-pending.json", "lib/line.js", "lib/word.js"} {
		t.Run(strings.ReplaceAll(at, "/", "_"), func(t *testing.T) {
			t.Parallel()
			dir, _ := partsProject(t, inTurn(proposesFiles(partsScript, hasComeTests, hasCome)))
			cmd := exec.CommandContext(t.Context(), buildKeep(t), "edit", "note-files", "say has come")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm", "XDG_CACHE_HOME="+cacheHome(t), "TMPDIR="+draftsOf(t, dir))
			edit := onScreen(t, cmd)
			edit.sees("Write yes: ")
			before, _ := os.ReadFile(filepath.Join(dir, at)) // none is there yet of those to come
			edit.types("yes\r")
			killWhen(dir, at, string(before), cmd, func() { _ = cmd.Process.Kill() })
			if out, talk, status := writes(t, dir, "check", "."); status != 0 {
				t.Errorf("check: %d %s %s", status, out, talk)
			}
			shown, _, _ := writes(t, dir, "workflows", "show", "note-files", "--json")
			accepted := strings.Contains(shown, `"version": "2.0"`)
			switch got := textOfFile(t, dir, "lib/line.js") + textOfFile(t, dir, "lib/word.js"); {
			case got == changedLine+changedWord:
			case got == partsLine+partsWord && !accepted:
			default:
				t.Errorf("version 2.0 is current: %v, and the files are %s", accepted, got)
			}
		})
	}
}

// A version that somebody deploys while the model writes is not what the model changed: nothing
// is proposed over it.
func TestEditDeployedMeanwhile(t *testing.T) {
	t.Parallel()
	dir := ""
	began := make(chan struct{})
	p, _ := partsProject(t, func(q llmtest.Request) llmtest.Reply {
		<-began
		if q.N == 1 {
			deploysMeanwhile(t, dir)
		}
		return proposesFiles(partsScript, hasComeTests, hasCome)
	})
	dir = p
	close(began)
	out, talk, status := writes(t, dir, "edit", "note-files", "say has come", "--force")
	if status != 1 || !strings.Contains(talk, "version 1.0") || !strings.Contains(talk, "is 2.0") || !strings.Contains(talk, "the same command again") {
		t.Errorf("it ended with %d: %s %s", status, out, talk)
	}
	keptDraft(t, dir, talk)
	currentIs(t, dir, "2.0")
	if textOfFile(t, dir, "lib/word.js") != partsWord || textOfFile(t, dir, "lib/line.js") != partsLine {
		t.Error("files were replaced")
	}
	if out, _, _ := writes(t, dir, "inbox", "--json"); strings.Contains(out, `"kind": "proposal"`) {
		t.Errorf("a question is open: %s", out)
	}
}

// A script of several files that is not on this disk is written with all of them.
func TestEditFilesThatAreNotThere(t *testing.T) {
	t.Parallel()
	all := map[string]string{"note-files.js": "", "lib/line.js": "", "lib/word.js": "", "note-files.test.toml": ""}
	gone := func(t *testing.T, but ...string) (string, *llmtest.Server) {
		dir, s := partsProject(t, inTurn(proposesFiles(partsScript, hasComeTests, map[string]any{"lib/word.js": changedWord, "lib/line.js": changedLine})))
		for name := range all {
			saves(t, dir, map[string]string{name: ""})
		}
		for _, name := range but {
			saves(t, dir, map[string]string{name: map[string]string{"lib/line.js": partsLine, "lib/word.js": partsWord}[name]})
		}
		return dir, s
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		dir, _ := gone(t)
		out, talk, status := writes(t, dir, "edit", "note-files", "say has come", "--json")
		if status != 4 {
			t.Fatalf("status %d: %s %s", status, out, talk)
		}
		if w := writtenOf(t, out); w.Draft != nil || w.File == nil {
			t.Errorf("it says %s", out)
		}
		for name, want := range map[string]string{"note-files.js": partsScript, "lib/line.js": changedLine, "lib/word.js": changedWord, "note-files.test.toml": hasComeTests} {
			if got := textOfFile(t, dir, name); got != want {
				t.Errorf("%s is %q", name, got)
			}
		}
		for _, args := range [][]string{{"check", "."}, {"proposals", "accept", "note-files@2.0"}, {"run", "."}} {
			if out, talk, status := writes(t, dir, args...); status != 0 {
				t.Errorf("keep %q: %d %s %s", args, status, out, talk)
			}
		}
		currentIs(t, dir, "2.0")
	})
	// A file that is there is replaced only if a person agrees.
	t.Run("one is there", func(t *testing.T) {
		t.Parallel()
		dir, _ := gone(t, "lib/word.js")
		before := treeOf(t, dir)
		out, talk, status := writes(t, dir, "edit", "note-files", "say has come", "--json")
		if status != 4 {
			t.Fatalf("status %d: %s %s", status, out, talk)
		}
		if w := writtenOf(t, out); w.Draft == nil || w.File != nil || treeOf(t, dir) != before {
			t.Errorf("it says %s, and the files are %s", out, treeOf(t, dir))
		}
	})
	t.Run("one has other work", func(t *testing.T) {
		t.Parallel()
		dir, s := gone(t)
		saves(t, dir, map[string]string{"lib/word.js": mine})
		before := treeOf(t, dir)
		out, talk, status := writes(t, dir, "edit", "note-files", "say has come")
		if status != 2 || !strings.Contains(talk, "lib/word.js is not as version 1.0") || len(s.Requests()) != 0 || treeOf(t, dir) != before {
			t.Errorf("it ended with %d: %s %s", status, out, talk)
		}
	})
}

// A file that the model adds may have the name of one that is there, and is no file of the script.
func TestEditAddsOverNothing(t *testing.T) {
	t.Parallel()
	added := map[string]any{"lib/line.js": changedAll["lib/line.js"], "lib/word.js": changedWord, "lib/more/end.js": newWord}
	dir, _ := partsProject(t, inTurn(proposesFiles(partsScript, partsTests, added)))
	const other = "export const other = 1;\n"
	saves(t, dir, map[string]string{"lib/more/end.js": other})
	out, talk, status := writes(t, dir, "edit", "note-files", "say has come")
	if status != 2 || !strings.Contains(talk, "lib/more/end.js") || textOfFile(t, dir, "lib/more/end.js") != other {
		t.Errorf("it ended with %d: %s %s", status, out, talk)
	}
	keptDraft(t, dir, talk)
	if out, talk, status := writes(t, dir, "edit", "note-files", "say has come", "--force"); status != 4 || textOfFile(t, dir, "lib/more/end.js") != newWord {
		t.Errorf("with --force: %d %s %s", status, out, talk)
	}
}
