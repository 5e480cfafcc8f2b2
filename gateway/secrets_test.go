//go:build unix

package gateway_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
)

// serveParrot starts a server that says in each answer what it was sent as credentials, and before it, as an event, asks
// and tells it.
func serveParrot(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		if r.Method != http.MethodPost || m.ID == nil || m.Method == "" {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		key := r.Header.Get("X-Key")
		said, _ := json.Marshal(fmt.Sprintf("you sent %s and %s, %s", r.Header.Get("Authorization"), key, base64.StdEncoding.EncodeToString([]byte(key))))
		result := fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"structuredContent":{%s:%s}}`, said, said, said)
		switch m.Method {
		case "initialize":
			result = fmt.Sprintf(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{},"logging":{}},"instructions":%s}`, said)
		case "tools/list":
			var list []string
			for _, name := range []string{"make", "look", "fail", "refuse"} {
				list = append(list, fmt.Sprintf(`{"name":%q,"description":%s,"inputSchema":{"type":"object","description":%s}}`, name, said, said))
			}
			result = `{"tools":[` + strings.Join(list, ",") + `]}`
		case "resources/list":
			result = fmt.Sprintf(`{"resources":[{"uri":"a://x","name":%s}]}`, said)
		case "resources/read":
			result = fmt.Sprintf(`{"contents":[{"uri":"a://x","text":%s}]}`, said)
		case "prompts/list":
			result = fmt.Sprintf(`{"prompts":[{"name":"p","description":%s}]}`, said)
		case "prompts/get":
			result = fmt.Sprintf(`{"messages":[{"role":"user","content":{"type":"text","text":%s}}]}`, said)
		}
		if m.Params.Name == "refuse" {
			result = fmt.Sprintf(`{"isError":true,"content":[{"type":"text","text":%s}]}`, said)
		}
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		if m.Params.Name == "fail" {
			answer = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%s,"data":{"said":%s}}}`, m.ID, said, said)
		}
		if m.Method != "tools/call" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range []string{
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%s}}`, said), answer} {
			fmt.Fprintf(w, "data: %s\n\n", line)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// A server that says again what it was sent does not tell agents the secrets of keep.toml, whatever it says them in, and
// neither the database nor the log has them.
func TestSecretsSaidAgain(t *testing.T) {
	t.Parallel()
	const token, key = "s3cr3t-canary-0123456789", "an0ther-canary-9876543210"
	s := setup{Dir: t.TempDir(), Agent: "a", URL: serveParrot(t), Rules: map[keep.ToolName]gateway.Rule{
		"notes.look": {Read: true}, "notes.refuse": {Pairing: mcp.Pairing{Tool: "refuse", ErrorsRefused: true}}}}
	var log lockedBuffer
	d := open(t, s, func(cfg *gateway.Config) {
		cfg.Servers[0].Headers = map[string]string{"Authorization": "Bearer " + token, "X-Key": key}
		cfg.Servers[0].Secrets = []string{token, key}
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	secrets := []string{token, key, base64.StdEncoding.EncodeToString([]byte(key))[:20]}
	n := 10
	for _, c := range []struct{ method, params string }{
		{"tools/list", `{}`}, {"resources/list", `{}`}, {"prompts/list", `{}`}, {"resources/read", `{"uri":"a://x"}`}, {"prompts/get", `{"name":"notes__p"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"notes__p"}}`}, {"logging/setLevel", `{"level":"debug"}`},
		{"tools/call", `{"name":"notes__make"}`}, {"tools/call", `{"name":"notes__make"}`}, {"tools/call", `{"name":"notes__look"}`}, {"tools/call", `{"name":"notes__fail"}`}, {"tools/call", `{"name":"notes__refuse"}`},
	} {
		n++
		d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, n, c.method, c.params))
		for end := fmt.Sprintf(`"id":%d`, n); ; {
			line, err := d.out.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range secrets {
				if strings.Contains(line, secret) {
					t.Errorf("%s %s: %s", c.method, c.params, line)
				}
			}
			if strings.Contains(line, end) {
				break
			}
		}
	}
	for _, file := range []string{"keep.db", "keep.db-wal"} {
		text, _ := os.ReadFile(filepath.Join(s.Dir, file))
		for _, secret := range secrets {
			if i := bytes.Index(text, []byte(secret)); i >= 0 {
				t.Errorf("%s has a secret: %q", file, text[max(i-200, 0):i])
			}
		}
	}
	for _, secret := range secrets {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has a secret: %s", log.String())
		}
	}
}

// A lookup compares a row by what it shows. Where a secret is hidden in it, the row of another secret looks the same, so
// it is not taken for the effect. Law: witnessed.
func TestSecretInARow(t *testing.T) {
	t.Parallel()
	rules := paired()
	rule := rules["notes.create"]
	rule.Identity, rule.TokenParam, rule.TokenAppend = []string{"title"}, "", ""
	rule.Lookup = &mcp.Lookup{Tool: "list", Found: "$.rows", Match: []string{"title"}, Complete: true}
	rules["notes.create"] = rule
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: rules}
	made := 0
	s.URL, _ = serveHostile(t, func(w http.ResponseWriter, method string, id json.RawMessage) bool {
		switch method {
		case "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"create","inputSchema":{"type":"object"}},{"name":"list","inputSchema":{"type":"object"}}]}}`, id)
			return true
		case "tools/call":
		default:
			return false
		}
		if made++; made == 1 {
			w.WriteHeader(http.StatusBadGateway) // its effect is there
			return true
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"rows":[{"title":"for acme-organisation"}]}}}`, id)
		return true
	})
	d := open(t, s, func(cfg *gateway.Config) { cfg.Servers[0].Secrets = []string{"acme-organisation"} })
	if r := d.make("for acme-organisation"); r.state() != "needs_reconcile" {
		t.Error(r.raw)
	}
	all, _, err := d.db.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d records, %v", len(all), err)
	}
	moves, err := d.db.History(t.Context(), all[0].Key)
	if err != nil || !strings.Contains(moves[len(moves)-1].Detail, "list shows a row that may be ours") {
		t.Errorf("%v, the lookup says %+v", err, moves)
	}
}
