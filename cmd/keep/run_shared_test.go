package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// What a run waits for together with runs of another workflow is asked once, under that one. keep run of the first ends with 4 all the
// same, and prints the question: nobody else tells who reads the mail of cron.
func TestRunWaitsForAQuestionOfAnotherWorkflow(t *testing.T) {
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{}`)
			return
		}
		fmt.Fprint(w, `[{"id":"o1","mail":"ada"}]`)
	}))
	defer shop.Close()
	t.Chdir(t.TempDir())
	put(t, ".", "keep.toml", strings.Replace(shopToml(shop.URL), `"w.js"`, `"*.js"`, 1)+"[policy]\nbreaker = { failures = 2, within = \"1h\" }\n")
	for _, name := range []string{"one", "two", "three"} {
		put(t, ".", name+".js", strings.Replace(recordedScript, `name: "w"`, fmt.Sprintf("name: %q", name), 1))
	}
	const question = "esc_breaker_shop.send_1"
	for _, c := range []struct {
		name  string
		asked bool
	}{{"one", false}, {"two", true}, {"three", true}} {
		var out, talk bytes.Buffer
		status := run(t.Context(), []string{"run", c.name + ".js"}, &out, &talk)
		if status != exit.NeedsPerson || strings.Count(out.String(), "\n  "+question) != map[bool]int{true: 1}[c.asked] {
			t.Errorf("keep run %s.js: status %d, want %d, and that it asks once by %s: %t\n%s%s", c.name, status, exit.NeedsPerson, question, c.asked, out.String(), talk.String())
		}
	}
	var out, talk bytes.Buffer
	if status := run(t.Context(), []string{"run", "."}, &out, &talk); status != exit.NeedsPerson || strings.Count(out.String(), "\n  "+question) != 1 {
		t.Errorf("keep run of all: status %d, and the question not once:\n%s%s", status, out.String(), talk.String())
	}
	if _, err := os.Stat("keep.db"); err != nil {
		t.Error(err)
	}
}
