package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/guide"
	"github.com/keep-run/keep/rehearsal/scripttest"
)

// A block is one example of the guide.
type block struct {
	section, language, text string

	// file is what the first line says that it is: a name, or what stands around it.
	file string
}

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// blocks returns the examples of the guide, in order.
func blocks() (out []block) {
	for _, s := range guide.Sections() {
		for _, m := range fence.FindAllStringSubmatch(s.Text, -1) {
			first, _, _ := strings.Cut(m[2], "\n")
			out = append(out, block{s.Name, m[1], m[2], strings.TrimLeft(first, "/# ")})
		}
	}
	return out
}

// guideProject returns a project as keep init makes it, without its own workflow, and what
// each secret of the guide is.
func guideProject(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, talk, status := runCommand(t, "init", dir); status != 0 {
		t.Fatalf("init: %d %s", status, talk)
	}
	for _, name := range []string{"journal.js", "journal.test.toml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir, "tell-me", "#!/bin/sh\n")
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func runCommand(t *testing.T, args ...string) (out, talk string, status int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = run(t.Context(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), status
}

// wrong are the places where a fragment can stand, with what stands around it.
var wrong = map[string]string{
	"in a producer": `producers: { async p(ctx) { %s } }`,
	"in a job":      `jobs: { async j(ctx) { %s } }`,
	"in prepare":    `consumers: { c: Keep.consumer({ subscribe: ["file.arrived"], async prepare(ctx, event) { %s return { reservations: [], data: {} }; } }) }`,
}

// TestGuide checks every script of the guide beside the keep.toml that keep init makes,
// runs the tests that the guide has for it, and looks whether a mistake is found with the
// words that the guide quotes.
func TestGuide(t *testing.T) {
	scripts, tested, mistakes, settings, commands := 0, 0, 0, 0, 0
	dir, project := guideProject(t), t.TempDir()
	var script string
	for _, b := range blocks() {
		place, quoted, isWrong := strings.Cut(b.file, "; keep check says: ")
		switch {
		case b.language == "js" && strings.Contains(b.text, "Keep.workflow("):
			scripts++
			dir, script = guideProject(t), b.file
			put(t, dir, script, b.text)
			if out, talk, status := runCommand(t, "check", dir); status != 0 || strings.Contains(out+talk, "warning") {
				t.Errorf("%s: keep check %s: status %d\n%s%s", b.section, script, status, out, talk)
			}
		case strings.HasSuffix(b.file, ".test.toml"):
			tested++
			put(t, dir, b.file, b.text)
			if want := strings.TrimSuffix(script, ".js") + ".test.toml"; b.file != want {
				t.Errorf("%s: %s stands below %s", b.section, b.file, script)
			}
			if out, talk, status := runCommand(t, "test", filepath.Join(dir, b.file)); status != 0 {
				t.Errorf("%s: keep test %s: status %d\n%s%s", b.section, b.file, status, out, talk)
			}
		case b.language == "js" && isWrong:
			mistakes++
			checkMistake(t, b, place, strings.Trim(quoted, `"`))
		case b.file == "keep.toml":
			settings++
			checkSettings(t, dir, b, script != "" && b.section == "patterns")
		case b.language == "toml" && b.section == "tests": // the whole form, which no one test has
			put(t, dir, "form.js", "")
			put(t, dir, "form.test.toml", b.text)
			if f, err := scripttest.ReadFile(filepath.Join(dir, "form.test.toml")); err != nil || len(f.Tests) != 1 {
				t.Errorf("%s: %d tests, %v:\n%s", b.section, len(f.Tests), err, b.text)
			}
		case b.language == "sh":
			commands += runCommands(t, project, b)
		case b.language == "ts": // generated of what keep types writes
		default:
			t.Errorf("%s: nothing tries this example:\n%s", b.section, b.text)
		}
	}
	if scripts < 7 || tested < 6 || mistakes < 5 || settings < 3 || commands < 12 {
		t.Errorf("%d scripts, %d tests, %d mistakes, %d settings and %d commands were found", scripts, tested, mistakes, settings, commands)
	}
}

// asked are commands that ask a model, do not end, or name what is not there: of those only the form is tried.
var asked = regexp.MustCompile(`^keep (write|edit|serve|workflows versions)\b`)

// runCommands runs the commands of an example in a directory, and returns how many there are.
func runCommands(t *testing.T, dir string, b block) (n int) {
	t.Chdir(dir)
	for line := range strings.Lines(b.text) {
		line, _, _ = strings.Cut(line, "#")
		line, _, _ = strings.Cut(line, " > ")
		args := strings.Fields(line)
		if len(args) < 2 || args[0] != "keep" {
			continue
		}
		n++
		if asked.MatchString(line) {
			args = append(args, "--help")
		}
		if out, talk, status := runCommand(t, args[1:]...); status != 0 || out+talk == "" {
			t.Errorf("%s: %s: status %d\n%s%s", b.section, line, status, out, talk)
		}
	}
	return n
}

// checkMistake looks whether keep check finds a mistake.
func checkMistake(t *testing.T, b block, place, says string) {
	t.Helper()
	around, ok := wrong[place]
	if !ok || says == "" {
		t.Errorf("%s: an example stands %q, and keep check says %q", b.section, place, says)
		return
	}
	dir := guideProject(t)
	put(t, dir, "wrong.js", fmt.Sprintf("export default Keep.workflow({ name: \"wrong\", topics: { \"file.arrived\": {} }, "+around+" });\n", "\n"+b.text))
	out, talk, _ := runCommand(t, "check", dir, "--json")
	var r checkReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, out, talk)
	}
	for _, p := range r.Problems {
		if strings.Contains(p.Message, says) {
			return
		}
	}
	t.Errorf("%s: keep check does not say %q of this:\n%s\n%+v", b.section, says, b.text, r.Problems)
}

// checkSettings looks whether a part of a keep.toml is in order: beside the example before
// it, or by itself.
func checkSettings(t *testing.T, dir string, b block, beside bool) {
	t.Helper()
	if !beside {
		dir = guideProject(t)
		put(t, dir, "paid.js", `export default Keep.workflow({ name: "paid", topics: { payment: {} },
  consumers: { note: Keep.consumer({ subscribe: ["payment"], async prepare() { return { reservations: [], data: {} }; } }) } });`)
	}
	before, err := os.ReadFile(filepath.Join(dir, "keep.toml"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "keep.toml", string(before)+"\n"+b.text)
	for _, secret := range []string{"CRM", "SLACK", "MAIL"} {
		t.Setenv("KEEP_SECRET_"+secret, "s3cret-for-tests")
	}
	t.Setenv("KEEP_SECRET_SHOP", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if out, talk, status := runCommand(t, "check", dir); status != 0 {
		t.Errorf("%s: keep check with\n%s: status %d\n%s%s", b.section, b.text, status, out, talk)
	}
}

// TestGuideCommand looks at the forms in which the guide comes.
func TestGuideCommand(t *testing.T) {
	whole, _, status := runCommand(t, "guide")
	if status != 0 || len(whole) > 80<<10 {
		t.Errorf("keep guide: status %d, %d bytes", status, len(whole))
	}
	for _, s := range guide.Sections() {
		one, _, status := runCommand(t, "guide", s.Name)
		if status != 0 || one != s.Text || !strings.Contains(whole, one) || !strings.HasSuffix(s.About, ".") {
			t.Errorf("keep guide %s: status %d, %d bytes; about: %q", s.Name, status, len(one), s.About)
		}
	}
	if _, talk, status := runCommand(t, "guide", "nothing"); status != 2 || !strings.Contains(talk, "patterns") {
		t.Errorf("keep guide nothing: status %d, %s", status, talk)
	}
	if out, _, status := runCommand(t, "guide", "--llms"); status != 0 || !strings.HasPrefix(out, "# Keep\n\n> ") {
		t.Errorf("keep guide --llms: status %d\n%s", status, out)
	}
	dir := t.TempDir()
	if _, talk, status := runCommand(t, "guide", "--skill", dir); status != 0 {
		t.Fatalf("keep guide --skill: status %d, %s", status, talk)
	}
	skill, err := os.ReadFile(filepath.Join(dir, "SKILL.md"))
	if err != nil || !bytes.HasPrefix(skill, []byte("---\nname: keep\ndescription: ")) {
		t.Fatalf("SKILL.md: %v\n%s", err, skill)
	}
	for _, m := range regexp.MustCompile(`\]\((reference/[a-z-]+\.md)\)`).FindAllSubmatch(skill, -1) {
		if _, err := os.Stat(filepath.Join(dir, string(m[1]))); err != nil {
			t.Error(err)
		}
	}
}
