//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// protocolSuite is the conformance suite of the Model Context Protocol that test.sh installs.
const protocolSuite = "@modelcontextprotocol/conformance@0.1.13"

// notOurs are the checks of the suite that ask for tools, prompts and resources of its own
// example server, or for what a server may leave out and keep mcp does: completion,
// subscriptions, sampling, elicitation, logging and progress of a call.
var notOurs = []string{
	"completion-complete", "elicitation-sep1034-general", "elicitation-sep1330-general", "json-schema-2020-12-tool-found",
	"prompts-get-embedded-resource", "prompts-get-simple", "prompts-get-with-args", "prompts-get-with-image",
	"resources-read-binary", "resources-read-text", "resources-subscribe", "resources-templates-read", "resources-unsubscribe",
	"tools-call-audio", "tools-call-elicitation", "tools-call-embedded-resource", "tools-call-image", "tools-call-mixed-content",
	"tools-call-sampling", "tools-call-with-logging", "tools-call-with-progress",
}

// passes are the checks that say something about keep mcp.
var passes = []string{
	"localhost-host-rebinding-rejected", "localhost-host-valid-accepted", "logging-set-level", "ping", "prompts-list", "resources-list",
	"server-initialize", "tools-call-error", "tools-list",
}

// TestAgentProtocol runs the protocol's own conformance suite on /mcp of a real keep serve,
// behind a proxy that shows a token: each check that is not about the suite's own example passes.
func TestAgentProtocol(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	suite := filepath.Join(cache, "keep-test", protocolSuite, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	if _, err := os.Stat(suite); err != nil {
		t.Skip("no conformance suite on this machine; test.sh installs it")
	}
	dir := poisoned(t)
	to, err := url.Parse(servedAgents(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	token, _ := keepAt(t, dir, "token", "add", "suite", "--role", "author")
	shows := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the suite calls the server by a wrong name
		r.Out.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}})
	defer shows.Close()
	out := t.TempDir()
	said, err := exec.CommandContext(t.Context(), "node", suite, "server", "--url", shows.URL+"/mcp", "--suite", "all", "--output-dir", out).CombinedOutput()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatal(err)
	}
	passed, failed := map[string]bool{}, map[string]string{}
	files, err := filepath.Glob(filepath.Join(out, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the suite wrote nothing, %v\n%s", err, said)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(data, &checks); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range checks {
			switch c.Status {
			case "SUCCESS":
				passed[c.ID] = true
			case "FAILURE":
				failed[c.ID] = c.ErrorMessage
			}
		}
	}
	for _, id := range passes {
		if !passed[id] || failed[id] != "" {
			t.Errorf("%s did not pass: %s", id, failed[id])
		}
		delete(failed, id)
	}
	if diff := cmp.Diff(notOurs, slices.Sorted(maps.Keys(failed))); diff != "" {
		t.Errorf("checks that fail (-those about the suite's own server +all): %s\n%v", diff, failed)
	}
}

// servedAgents starts keep serve in a project, and returns its address.
func servedAgents(t *testing.T, dir string) string {
	t.Helper()
	serving := exec.Command(buildKeep(t), "serve", ".", "--listen", "127.0.0.1:0")
	serving.Dir = dir
	serving.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	said, err := serving.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serving.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serving.Process.Kill(); _ = serving.Wait() }) // it is of this test alone
	base := ""
	for lines := bufio.NewScanner(said); base == "" && lines.Scan(); {
		base = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`).FindString(lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	if base == "" {
		t.Fatal("keep serve did not say where it is")
	}
	return base
}
