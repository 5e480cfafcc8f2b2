//go:build unix

package gateway_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestOfficialClient speaks to the gateway with the client of the official SDK, which begins with
// the version of 2026-07-28.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GATEWAY_TEST_ROLE=gateway", "GATEWAY_TEST_SETUP="+string(text))
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := session.InitializeResult().ProtocolVersion; got != "2026-07-28" {
		t.Errorf("the version is %s", got)
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 3 {
		t.Errorf("%v, %v", tools, err)
	}
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "notes__create", Arguments: map[string]any{"title": "x"}})
	if err != nil || r.IsError || r.Meta["keep/state"] != "applied" || effects(t, s.Dir, "x") != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	check(t, s.Dir)
}

func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	d := open(t, setup{Dir: t.TempDir(), Agent: "a"}, nil)
	r, _ := d.ask(4, "ping", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2031-01-01"}}`)
	if r.Error == nil || r.Error.Code != -32022 || !strings.Contains(string(r.Error.Data), `"2026-07-28"`) {
		t.Errorf("%s", r.raw)
	}
	if r, _ := d.ask(4, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`); !strings.Contains(r.raw, `"resultType":"complete"`) {
		t.Errorf("%s", r.raw)
	}
}
