package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/manual"
)

// TestDocs looks at the forms in which documents come.
func TestDocs(t *testing.T) {
	out, _, status := runCommand(t, "docs", "--list", "--json")
	var list []document
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || len(list) < 30 || list[0].Name != "readme" {
		t.Errorf("keep docs --list --json: status %d, %v\n%s", status, err, out)
	}
	if out, _, status := runCommand(t, "docs", "--list"); status != 0 || !strings.Contains(out, "retention ") {
		t.Errorf("keep docs --list: status %d\n%s", status, out)
	}
	if out, _, status := runCommand(t, "docs", "--print", "retention"); status != 0 || !strings.HasPrefix(out, "# Retention\n") {
		t.Errorf("keep docs --print retention: status %d\n%s", status, out)
	}
	out, _, status = runCommand(t, "docs", "search", "certain", "--json")
	var hits []manual.Hit
	if err := json.Unmarshal([]byte(out), &hits); err != nil || status != 0 || len(hits) == 0 || hits[0].Topic() != "repair#what-is-certain" {
		t.Errorf("keep docs search certain --json: status %d, %v\n%s", status, err, out)
	}
	if out, _, status := runCommand(t, "docs", "search", "certain"); status != 0 || !strings.HasPrefix(out, "repair#what-is-certain  What is certain\n    ") {
		t.Errorf("keep docs search certain: status %d\n%s", status, out)
	}
	if out, talk, status := runCommand(t, "docs", "search", "quetzalcoatl"); status != 0 || out != "" || talk != "None.\n" {
		t.Errorf("keep docs search of nothing: status %d\n%s%s", status, out, talk)
	}
	for _, args := range [][]string{{"docs", "nothing"}, {"docs", "--print"}, {"docs", "--print", "nothing"}, {"docs", "--list", "api"}, {"docs", "search", "x", "--limit", "0"}} {
		if _, talk, status := runCommand(t, args...); status != 2 {
			t.Errorf("keep %v: status %d, %s", args, status, talk)
		}
	}
}

// TestDocsServe reads a page at the address that is printed, until the command is interrupted.
func TestDocsServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"docs", "repair#what-is-certain", "--json"}, in, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var at struct{ Open string }
	if err := json.Unmarshal(line, &at); err != nil || !strings.HasPrefix(at.Open, "http://127.0.0.1:") || !strings.HasSuffix(at.Open, "/repair#what-is-certain") {
		t.Fatalf("it printed %s: %v", line, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.Open, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil || res.Body.Close() != nil || !strings.Contains(string(text), `id="what-is-certain"`) {
		t.Errorf("%v\n%s", err, text)
	}
	cancel()
	if status := <-ended; status != 0 {
		t.Errorf("it ended with %d", status)
	}
}
