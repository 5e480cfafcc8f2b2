package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/gateway"
)

// TestSeats has agents work on one file at the same time. Each ends sooner than the next, so that the database
// goes from one to another while calls are out: no call is made twice, and nobody gets the answer of another.
// The processes of TestGatewaysShareAFile do not run under the race detector; these agents do.
func TestSeats(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // protects the next one
	made := make(map[string]int)
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "create"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Title string `json:"title"`
	},
	) (*mcp.CallToolResult, any, error) {
		mu.Lock()
		defer mu.Unlock()
		made[in.Title]++
		return nil, map[string]any{"made": in.Title}, nil
	})
	service := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	t.Cleanup(service.Close)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), fmt.Appendf(nil, "[gateway.servers.notes]\nurl = %q\n", service.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	const agents = 6
	var all sync.WaitGroup
	for i := range agents {
		a := sit(t, dir, fmt.Sprint("agent-", i))
		all.Go(func() {
			defer a.end()
			for n := range 3 * (i + 1) {
				title := fmt.Sprint(a.name, " note ", n)
				switch state, text := a.call(title); {
				case state == "applied" && strings.Contains(text, title):
				case state == "indeterminate": // its gateway ended meanwhile, and nobody knows
				default:
					t.Errorf("%s: %s, %s", title, state, text)
				}
			}
		})
	}
	all.Wait()
	applied := 0
	for title, n := range made {
		if n != 1 {
			t.Errorf("%s was made %d times", title, n)
		}
		applied++
	}
	if most := 3 * agents * (agents + 1) / 2; applied < most-agents*agents {
		t.Errorf("%d notes of %d were made", applied, most)
	}
}

// A sitter is an agent with its seat.
type sitter struct {
	t     *testing.T
	name  string
	in    io.WriteCloser
	out   *bufio.Reader
	ended chan error
	asked int
}

// sit begins the session of an agent.
func sit(t *testing.T, dir, name string) *sitter {
	t.Helper()
	cfg, err := config.Load(config.Options{File: filepath.Join(dir, "keep.toml"), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	seat := &Seat{Env: Env{Log: quiet}, Cfg: cfg, Agent: name}
	read, in := io.Pipe()
	out, write := io.Pipe()
	a := &sitter{t: t, name: name, in: in, out: bufio.NewReader(out), ended: make(chan error, 1)}
	go func() { // ends with in
		err := gateway.Front{Connect: seat.Connect, Logger: quiet}.Serve(t.Context(), read, write)
		_ = write.Close()
		if closed := seat.Close(); err == nil {
			err = closed
		}
		a.ended <- err
	}()
	if got := a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`); !strings.Contains(string(got), "keep-gateway") {
		t.Fatalf("%s is told %s", name, got)
	}
	return a
}

// ask sends a request, and returns the answer to it.
func (a *sitter) ask(method, params string) []byte {
	a.t.Helper()
	a.asked++
	fmt.Fprintf(a.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", a.asked, method, params)
	for {
		line, err := a.out.ReadBytes('\n')
		if err != nil {
			a.t.Errorf("%s gets no answer to %s %s: %v", a.name, method, params, err)
			return nil
		}
		var m struct{ ID int }
		if json.Unmarshal(line, &m) == nil && m.ID == a.asked {
			return line
		}
	}
}

// call makes a call, and returns what became of it.
func (a *sitter) call(title string) (state, text string) {
	a.t.Helper()
	line := a.ask("tools/call", fmt.Sprintf(`{"name":"notes__create","arguments":{"title":%q}}`, title))
	var r struct {
		Result struct {
			Meta map[string]any `json:"_meta"`
		}
	}
	if err := json.Unmarshal(line, &r); err != nil {
		a.t.Errorf("%s: %v: %s", title, err, line)
	}
	state, _ = r.Result.Meta["keep/state"].(string)
	return state, string(line)
}

// end ends the agent, and with it the gateway that it may have.
func (a *sitter) end() {
	a.t.Helper()
	_ = a.in.Close()
	go func() { _, _ = io.Copy(io.Discard, a.out) }() // ends with the front
	if err := <-a.ended; err != nil {
		a.t.Errorf("%s: %v", a.name, err)
	}
}
