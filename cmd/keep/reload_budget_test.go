//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

const reloadBudgetScript = `export default Keep.workflow({
  name: "spender", topics: {},
  jobs: { async pay(ctx) {
    for (const id of ["a", "b"])
      await ctx.withItem(id, id, async (ctx) => { if (!ctx.item.isDone) await ctx.svc.pay({ id }); });
  } },
});`

const reloadBudgetConfig = `[connections.svc]
connector = "http"
base_url  = "URL"
[connections.svc.tools.pay]
effect   = "mutate"
path     = "/pay"
identity = ["id"]
[budgets.payments]
tools = ["svc.pay"]
count = true
limit = 1
per   = "24h"
`

// A host that runs takes another limit of a budget from keep.toml, and what waits for the budget
// continues without an answer. What else changes in keep.toml asks nobody again.
func TestReloadOfABudget(t *testing.T) {
	buildKeep(t) // before the cache of go build is another one
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	paid := make(chan string, 100)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		paid <- string(body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{}`)
	}))
	defer service.Close()
	dir := shortDir(t)
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	settings := strings.Replace(reloadBudgetConfig, "URL", service.URL, 1)
	write("keep.toml", settings)
	write("spender.js", reloadBudgetScript)
	said, _ := serveProcessIn(t, dir, "--listen", "127.0.0.1:0")
	said.wait(t, "Serving 1 workflow")
	wants := func(want string) {
		t.Helper()
		select {
		case got := <-paid:
			if got != want {
				t.Fatalf("the service got %s, want %s", got, want)
			}
		case <-t.Context().Done():
			t.Fatalf("the service never got %s", want)
		}
	}
	t.Chdir(dir)
	wants(`{"id":"a"}`)
	list := func(what string) string {
		t.Helper()
		var out strings.Builder
		if status := run(t.Context(), []string{what, "--json"}, &out, io.Discard); status != exit.Done {
			t.Fatalf("%s: status %d", what, status)
		}
		return out.String()
	}
	for asked := ""; !strings.Contains(asked, `"kind": "budget"`); asked = list("inbox") {
		if t.Context().Err() != nil {
			t.Fatalf("nothing was asked about the budget: %s", asked)
		}
	}
	// Another change leaves the question, and the run that waits, as they are.
	waits := list("runs")
	write("keep.toml", "# the same\n"+settings)
	said.wait(t, "configuration taken")
	if asked := list("inbox"); !strings.Contains(asked, `"esc_budget_payments_1"`) {
		t.Errorf("after a change that is not about the budget: %s; want the question that was there", asked)
	}
	if now := list("runs"); now != waits {
		t.Errorf("after a change that is not about the budget the runs are\n%s\nand they were\n%s", now, waits)
	}
	write("keep.toml", strings.Replace(settings, "limit = 1", "limit = 2", 1))
	wants(`{"id":"b"}`)
	select {
	case got := <-paid:
		t.Errorf("the service got %s once more (law: once)", got)
	default:
	}
}
