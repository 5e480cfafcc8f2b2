//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
)

// TestGateway speaks to keep gateway, which has keep mcp behind it: a real server of the official SDK.
func TestGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := fmt.Sprintf("[gateway.servers.own]\ncommand = %q\nargs = [\"mcp\"]\n[gateway.tools.\"own.list\"]\neffect = \"read\"\n", buildKeep(t))
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), buildKeep(t), "gateway", "--agent", "alice")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	ask := func(id int, method, params string) string {
		t.Helper()
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				_ = cmd.Wait()
				t.Fatalf("%s: %v: %s", method, err, said.String())
			}
			if strings.Contains(line, fmt.Sprintf(`"id":%d,`, id)) {
				return line
			}
		}
	}
	if got := ask(1, "initialize", `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`); !strings.Contains(got, `"protocolVersion":"2025-03-26"`) || !strings.Contains(got, `"prompts"`) {
		t.Errorf("initialize: %s", got)
	}
	for method, want := range map[string]string{
		"tools/list": `"name":"own__guide"`, "prompts/list": `"own__write-workflow"`, "resources/list": `keep://guide`, "nonsense": `-32601`,
	} {
		if got := ask(2, method, `{}`); !strings.Contains(got, want) {
			t.Errorf("%s: %.300s, want %s", method, got, want)
		}
	}
	if got := ask(3, "resources/read", `{"uri":"keep://guide"}`); !strings.Contains(got, `"contents"`) {
		t.Errorf("resources/read: %.300s", got)
	}
	if got := ask(4, "tools/call", `{"name":"own__guide","arguments":{}}`); !strings.Contains(got, `"keep/state":"applied"`) {
		t.Errorf("guide: %.300s", got)
	}
	in.Close()
	_, _ = io.Copy(io.Discard, lines)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("keep gateway: %v\n%s", err, said.String())
	}
	text, _ := keepAt(t, dir, "mutations", "--json")
	var list []api.Mutation
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 1 {
		t.Fatalf("mutations: %v: %s", err, text)
	}
	m := list[0]
	if m.Agent == nil || *m.Agent != "alice" || m.Workflow != "gateway" || m.Tool != "own.guide" || m.Connection != "own" || m.Level != "D" || m.Title != nil || m.Item != nil || string(m.Payload) != "{}" {
		t.Errorf("the record is %s", text)
	}
}
