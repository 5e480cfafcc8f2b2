package examples_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep/internal/port"
)

// A block is one fenced block of a Markdown file.
type block struct {
	lang string
	line int // of its first line
	text string
}

// blocks returns the fenced blocks of a file in the repository.
func blocks(t testing.TB, file string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	open := false
	for i, line := range strings.Split(string(text), "\n") {
		switch lang, fence := strings.CutPrefix(line, "```"); {
		case fence && !open:
			out, open = append(out, block{lang: lang, line: i + 2}), true
		case fence:
			open = false
		case open:
			out[len(out)-1].text += line + "\n"
		}
	}
	return out
}

// inLang returns the blocks of README.md in that language.
func inLang(t testing.TB, lang string) []block {
	t.Helper()
	var out []block
	for _, b := range blocks(t, "README.md") {
		if b.lang == lang {
			out = append(out, b)
		}
	}
	if len(out) == 0 {
		t.Fatalf("README.md has no block in %s", lang)
	}
	return out
}

// A step is a command of README.md and what it prints there.
type step struct {
	line    int
	command string
	want    string
}

// stepsOf returns the commands of all console blocks of a document: those after a dollar.
func stepsOf(t testing.TB, file string) []step {
	t.Helper()
	var out []step
	for _, b := range blocks(t, file) {
		if b.lang != "console" {
			continue
		}
		for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				out = append(out, step{line: b.line + i, command: command})
				continue
			}
			out[len(out)-1].want += line + "\n"
		}
	}
	return out
}

// Every command of a console block prints what README.md says it does. There an
// ellipsis stands for anything, and alone on a line for any number of lines.
func TestREADMECommands(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	dir := copyOfRepository(t)
	leavesClean(t, dir)
	runSteps(t, "README.md", dir, stepsOf(t, "README.md"))
}

// leavesClean makes a repository of a directory, with what ours ignores. When the test ends, git
// must have nothing to say: what ran there changed no file that a checkout has, and left none.
func leavesClean(t testing.TB, dir string) {
	t.Helper()
	ignored, err := os.ReadFile(filepath.Join("..", ".gitignore"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ".gitignore"), ignored, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e", "-c", "core.hooksPath=/dev/null"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "--no-gpg-sign", "-m", "before")
	t.Cleanup(func() {
		if left := git("status", "--porcelain"); left != "" {
			t.Errorf("the checkout is not clean afterwards:\n%s", left)
		}
	})
}

// runSteps runs the commands of a document in one shell, and compares what they print with what the
// document says.
func runSteps(t *testing.T, file, dir string, all []step) {
	t.Helper()
	var script strings.Builder
	for i, s := range all {
		// A group in braces keeps the jobs of the shell, and may end in &.
		fmt.Fprintf(&script, "printf '\\036%d %%s\\n' $EPOCHREALTIME\n{\n%s\n} 2>&1\n", i, s.command)
	}
	script.WriteString("printf '\\036%s %s\\n' end $EPOCHREALTIME\nkill $(jobs -p) 2>/dev/null\nwait\n")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = dir
	// Linking what debuggers read takes three times as long as the rest.
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+string(os.PathListSeparator)+bin, "GOFLAGS="+os.Getenv("GOFLAGS")+" -ldflags=-w")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		t.Fatalf("the commands did not end: %v\n%s", context.Cause(ctx), &out)
	}
	parts := strings.Split(out.String(), "\x1e")[1:]
	if len(parts) != len(all)+1 {
		t.Fatalf("%d of %d commands ran:\n%s", len(parts)-1, len(all), &out)
	}
	for i, s := range all {
		_, got, _ := strings.Cut(parts[i], "\n")
		t.Logf("%s:%d: %.2f s, %d characters: %s", file, s.line, began(parts[i+1])-began(parts[i]), len(s.command), s.command)
		if got = tidy(got); !pattern(s.want).MatchString(got) {
			t.Errorf("%s:%d: %s\nprints\n%s\nwant\n%s", file, s.line, s.command, got, s.want)
		}
	}
}

// began returns when a part of the output began, in seconds.
func began(part string) float64 {
	var name string
	var at float64
	_, _ = fmt.Sscan(strings.Replace(part, ",", ".", 1), &name, &at) // by the locale
	return at
}

// killed is what the shell says of the process that a command killed.
var killed = regexp.MustCompile(`(?m)^.*line \d+: +\d+ Killed.*\n`)

// tidy makes the spaces between words one, since the width of columns depends on
// what is in them.
func tidy(s string) string {
	var b strings.Builder
	for line := range strings.Lines(killed.ReplaceAllString(s, "")) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}

// pattern returns what output must match.
func pattern(want string) *regexp.Regexp {
	expr := `\A`
	for line := range strings.Lines(tidy(want)) {
		if line = strings.TrimSuffix(line, "\n"); line == "…" {
			expr += `(?:.*\n)*`
			continue
		}
		expr += strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`
	}
	return regexp.MustCompile(expr + `\z`)
}

// copyOfRepository returns a copy of the files that git has or would take, in
// which the example server has a port that is free.
func copyOfRepository(t testing.TB) string {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		t.Skipf("this is no checkout of the repository: %v", err)
	}
	dir, addr := t.TempDir(), port.Addr(t)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		raw, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			continue // deleted, and git doesn't know yet
		}
		if strings.HasPrefix(name, "examples/") {
			raw = bytes.ReplaceAll(raw, []byte("127.0.0.1:9000"), []byte(addr))
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	emptyInvoices(t, filepath.Join(dir, "examples", "invoices"))
	return dir
}

// The script and the configuration of README.md work together as they are.
func TestREADMEWorkflow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"inbox", "notes"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "inbox"), os.DirFS("invoices/mails")); err != nil {
		t.Fatal(err)
	}
	for name, lang := range map[string]string{"journal.js": "js", "keep.toml": "toml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(inLang(t, lang)[0].text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	keep(t, dir, nil, 0, "check", ".")
	for range 2 {
		runOnce(t, dir)
		text, err := os.ReadFile(filepath.Join(dir, "notes", "journal.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n != 14 || !strings.Contains(string(text), "2026-11-16T11:58:00Z Lunch?\n") {
			t.Errorf("journal.txt has %d lines, want 14:\n%s", n, text)
		}
	}
}

// The Go of every document is part of a program or an example that is built and run, whatever its
// indentation there.
func TestGoOfDocuments(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, file := range []string{"../host/example_test.go", "../testkit/handlertest/example_test.go", "guard_test.go", "go/main.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString(flush(string(text)))
	}
	seen := 0
	for _, file := range documents(t) {
		name, err := filepath.Rel("..", file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(t, name) {
			if b.lang != "go" {
				continue
			}
			if seen++; !strings.Contains(code.String(), flush(b.text)) {
				t.Errorf("%s:%d: this code is in no example:\n%s", name, b.line, b.text)
			}
		}
	}
	if seen < 8 {
		t.Errorf("the documents have %d blocks of Go, want 8 or more", seen)
	}
}

// flush returns lines without their indentation.
func flush(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, "\t"))
	}
	return b.String()
}

// The example in Go sends each mail once although every answer is lost.
func TestGo(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), program("go")).Output()
	want := "mailer: sends to ada@example.com and loses the answer\nmailer: sends to bob@example.com and loses the answer\n2 mails for 2 invoices\n"
	if err != nil || string(out) != want {
		t.Errorf("the program printed %q, %v; want %q", out, err, want)
	}
}

var (
	link = regexp.MustCompile(`\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	test = regexp.MustCompile("^`((?:Test|Fuzz|Example)\\w+)`$")
)

// What the documents link to is there, and a test that they name is in the file
// that they link to.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			label, target := m[1], m[2]
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			there, err := os.ReadFile(filepath.Join(filepath.Dir(file), filepath.FromSlash(target)))
			if err != nil && !isDir(filepath.Join(filepath.Dir(file), target)) {
				t.Errorf("%s: %s leads nowhere", file, m[0])
			}
			if name := test.FindStringSubmatch(label); name != nil && !bytes.Contains(there, []byte("func "+name[1]+"(")) {
				t.Errorf("%s: %s has no %s", file, target, name[1])
			}
		}
	}
}

// Every law is in docs/GUARANTEES.md with one sentence or more, what it needs, what
// it does not promise, and a test that is linked.
func TestGuaranteesAreWhole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/GUARANTEES.md")
	if err != nil {
		t.Fatal(err)
	}
	laws, err := os.ReadFile("../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := law.FindAllStringSubmatch(string(laws), -1)
	if len(found) != 16 {
		t.Fatalf("ARCHITECTURE.md has %d laws, want 16", len(found))
	}
	for _, m := range found {
		_, section, ok := strings.Cut(string(text), "\n## "+m[1]+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, part := range []string{"*Needs:* ", "*Does not promise:* ", "*Proved by:* [`"} {
			if !ok || !strings.Contains(section, part) {
				t.Errorf("docs/GUARANTEES.md: %s has no %s", m[1], part)
			}
		}
	}
}

// law is a row of the table of laws.
var law = regexp.MustCompile(`(?m)^\| ([a-z-]+) \| [A-Z].*\. \|$`)

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// documents returns every Markdown file of the repository.
func documents(t testing.TB) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "sample"):
			return fs.SkipDir
		case filepath.Ext(name) == ".md":
			out = append(out, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// docs/DEPENDENCIES.md has each module that go.mod requires directly, with its
// version.
func TestDependenciesAreListed(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../docs/DEPENDENCIES.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range required.FindAllStringSubmatch(string(mod), -1) {
		if want := m[1] + " " + strings.TrimSuffix(m[2], "+incompatible"); !strings.Contains(string(doc), want) {
			t.Errorf("docs/DEPENDENCIES.md does not list %s", want)
		}
	}
}

// required is a direct requirement in go.mod: module and version.
var required = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+) v(\S+)$`)

// The README is short enough to be read, and shows something early.
func TestREADMESize(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 220 {
		t.Errorf("README.md has %d lines, want at most 220", n)
	}
	if first := blocks(t, "README.md")[0]; first.line >= 30 || first.lang != "console" {
		t.Errorf("the first block begins at line %d in %s, want a console before line 30", first.line, first.lang)
	}
}

// The matcher finds what differs; without this, a README that matches anything
// would pass.
func TestPattern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{"a  b\n", "a b\n", true},
		{"a b\n", "a c\n", false},
		{"mut_…  x\n", "mut_123 x\n", true},
		{"…\nb\n", "1\n2\nb\n", true},
		{"…\nb\n", "1\nc\n", false},
		{"", "x\n", false},
		{"", "", true},
		{"a\n", "sh: line 4:  12 Killed   ./keep\na\n", true},
	} {
		if diff := cmp.Diff(pattern(c.want).MatchString(tidy(c.got)), c.ok); diff != "" {
			t.Errorf("pattern(%q) matches %q (-got +want): %s", c.want, c.got, diff)
		}
	}
}
