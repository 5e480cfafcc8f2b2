//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A running host refuses a grant or a budget that names a workflow by its new name alone, as its start does: it would hold
// nobody. A name that another workflow has as its own by now is about that one.
func TestReloadRefusesRulesByTheNewName(t *testing.T) {
	dir := shortDir(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const script = `export default Keep.workflow({ name: %q, %s topics: {}, producers: { async tick(ctx) { ctx.log(1); } } });`
	const settings = "[connections.journal]\nconnector = \"log\"\npath = \"journal.jsonl\"\n"
	const grant, budget = "[grants.%s]\ntools = []\n", "[budgets.few]\nworkflows = [%s]\ntools = [\"journal.write\"]\ncount = true\nlimit = 1\nper = \"24h\"\n"
	write("keep.toml", settings)
	t.Chdir(dir)
	deploy := func(name, was string) {
		t.Helper()
		write("a.js", fmt.Sprintf(script, name, was))
		outputOf(t, "deploy", "a.js")
	}
	deploy("alpha", "")
	deploy("beta", `was: "alpha",`)
	said := serveIn(t, dir, "--listen", "127.0.0.1:0")
	said.wait(t, "Serving 1 workflow")
	for _, c := range []struct{ text, want string }{
		{fmt.Sprintf(grant, "beta"), "refused"},
		{fmt.Sprintf(grant, "alpha"), "taken"},
		{fmt.Sprintf(budget, `"beta"`), "refused"},
		{fmt.Sprintf(budget, `"beta", "alpha"`), "taken"},
	} {
		write("keep.toml", settings+c.text)
		said.wait(t, "configuration ")
		said.wait(t, "\n")
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, "configuration "+c.want) {
			t.Errorf("%s: %s; want that it is %s", c.text, last, c.want)
		}
	}
	// The start refuses the same.
	write("keep.toml", settings+fmt.Sprintf(grant, "beta"))
	if status := run(t.Context(), []string{"check", "."}, t.Output(), t.Output()); status != exit.Misused {
		t.Errorf("keep check: status %d, want %d", status, exit.Misused)
	}
}
