//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep/api"
)

// TestGatewayByHTTP has two agents at a keep gateway --listen, with clients of the official SDK: the
// same call of each is a call, a token that nobody has gets nothing, and SIGTERM ends it in order.
func TestGatewayByHTTP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens := map[string]string{"ann": strings.Repeat("a", 32), "bob": strings.Repeat("b", 32)}
	put(t, dir, "keep.toml", fmt.Sprintf(`[gateway.servers.own]
command = %q
args    = ["mcp"]
[gateway.agents.ann]
token = "${secret:ann}"
[gateway.agents.bob]
token = "${secret:bob}"
[gateway.agents.eve]
tools = ["own.why", "own.ch*"]
`, buildKeep(t)))
	cmd := exec.CommandContext(t.Context(), buildKeep(t), "gateway", "--listen", "127.0.0.1:0")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "KEEP_SECRET_ANN="+tokens["ann"], "KEEP_SECRET_BOB="+tokens["bob"])
	said := newListener()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said.wait(t, "/mcp\n")
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/mcp`).FindString(said.String())
	for name, role := range map[string]string{"cat": "agent", "eve": "agent", "dan": "viewer"} {
		token, _ := keepAt(t, dir, "token", "add", name, "--role", role)
		tokens[name] = strings.TrimSpace(token)
	}
	refused := tokens["dan"]
	delete(tokens, "dan")
	connect := func(token string) (*mcp.ClientSession, error) {
		return mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: withToken{token: token}}, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	}
	for _, token := range []string{strings.Repeat("c", 32), refused} {
		if _, err := connect(token); err == nil {
			t.Error("a token of no agent was let in")
		}
	}
	for agent, token := range tokens {
		s, err := connect(token)
		if err != nil {
			t.Fatalf("%s: %v", agent, err)
		}
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "own__guide", Arguments: map[string]any{}})
		if agent == "eve" { // what she may not call she does not see, either
			list, err := s.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 3 {
				t.Errorf("%s: %v, %v", agent, list, err)
			}
			if text, _ := json.Marshal(r); r == nil || !r.IsError || !strings.Contains(string(text), "permission") {
				t.Errorf("%s: %s", agent, text)
			}
		} else if err != nil || r.IsError || r.Meta["keep/state"] != "applied" || r.Meta["keep/replayed"] != nil {
			t.Errorf("%s: %+v, %v", agent, r, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", agent, err)
		}
	}
	// An agent that is taken from keep.toml is none from then on, without a restart.
	text, err := os.ReadFile(filepath.Join(dir, "keep.toml"))
	noError(t, err)
	put(t, dir, "keep.toml", strings.Replace(string(text), "[gateway.agents.bob]\ntoken = \"${secret:bob}\"\n", "", 1))
	said.wait(t, "/mcp\n")
	if _, err := connect(tokens["bob"]); err == nil {
		t.Error("an agent that was removed was let in")
	}
	if _, err := connect(tokens["ann"]); err != nil {
		t.Errorf("ann, after another was removed: %v", err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("keep gateway: %v\n%s", err, said.String())
	}
	out, _ := keepAt(t, dir, "mutations", "--json")
	var list []api.Mutation
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("mutations: %v: %s", err, out)
	}
	var agents []string
	for _, m := range list {
		agents = append(agents, *m.Agent)
	}
	if slices.Sort(agents); !slices.Equal(agents, []string{"ann", "bob", "cat"}) {
		t.Errorf("the calls are of %q, want one of each agent: %s", agents, out)
	}
	for _, token := range tokens {
		if strings.Contains(said.String()+out, token) {
			t.Errorf("the token %s was said", token)
		}
	}
}
