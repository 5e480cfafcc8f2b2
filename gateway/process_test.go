//go:build unix

package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/repeat"
	"github.com/keep-run/keep/store/sqlite"
)

// The test binary is three programs: the tests, a gateway that may die at a point, and an MCP
// server that counts its effects in a file.
func TestMain(m *testing.M) {
	switch os.Getenv("GATEWAY_TEST_ROLE") {
	case "gateway":
		if err := serveGateway(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "server":
		serveNotes(os.Getenv("NOTES_DIR"))
	case "echo":
		serveEcho()
	case "asker":
		serveAsker()
	default:
		dialWorlds()
		os.Exit(m.Run())
	}
}

// kill ends this very process as a power cut would.
func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// A setup is what the gateway of a test is told.
type setup struct {
	Dir    string
	Agent  string
	KillAt engine.Point // empty: it lives
	CutAt  int          // the bytes of stdout after which it dies; 0: it lives
	Rules  map[keep.ToolName]gateway.Rule
	Repeat repeat.Rules
	URL    string // of the server; empty: it is a process
	Echoes int    // how many servers that do nothing there are in place of that
	HTTP   bool   // agents speak to it by HTTP, at the address that it prints
	Link   bool   // a front speaks to it
	Grants map[string][]string
}

func testPolicy() *policy.Policy {
	p := policy.Default()
	p.Reconcile.First, p.Reconcile.Max, p.Reconcile.Inline = 20*time.Millisecond, 50*time.Millisecond, 5*time.Second
	p.Reconcile.Attempts, p.Breaker.Failures = 1000, 0
	return &p
}

// serverConfig is where the server of the tests is.
func (s setup) serverConfig() mcp.ServerConfig {
	if s.URL != "" {
		return mcp.ServerConfig{Name: "notes", URL: s.URL}
	}
	return mcp.ServerConfig{Name: "notes", Command: os.Args[0], Env: map[string]string{"GATEWAY_TEST_ROLE": "server", "NOTES_DIR": s.Dir}}
}

func (s setup) servers() []mcp.ServerConfig {
	if s.Echoes > 0 {
		return echoes(s.Echoes)
	}
	return []mcp.ServerConfig{s.serverConfig()}
}

// serveGateway is a whole gateway on stdin and stdout.
func serveGateway() (err error) {
	var s setup
	if err := json.Unmarshal([]byte(os.Getenv("GATEWAY_TEST_SETUP")), &s); err != nil {
		return err
	}
	ctx := context.Background() // it ends with its client
	db := sqlite.New(filepath.Join(s.Dir, "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(ctx); err != nil {
		return err
	}
	defer db.Close()
	g, err := gateway.New(ctx, db, gateway.Config{
		Servers: s.servers(), Rules: s.Rules, Grants: s.Grants, Repeat: s.Repeat, Policy: testPolicy(), Alone: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Trace: func(_ keep.WorkflowName, p engine.Point) {
			if p == s.KillAt {
				kill()
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if s.HTTP {
		return serveAgents(g)
	}
	var out io.Writer = os.Stdout
	if s.CutAt > 0 {
		out = &cutting{os.Stdout, s.CutAt}
	}
	if s.Link {
		return g.ServeLink(ctx, s.Agent, false, stdLink{os.Stdin, out})
	}
	return serveFront(ctx, g, s.Agent, os.Stdin, out)
}

// serveFront serves an agent as keep gateway does on stdin and stdout, on a file.
func serveFront(ctx context.Context, g *gateway.Gateway, agent string, in io.Reader, out io.Writer) error {
	served := make(chan error, 1)
	f := gateway.Front{Connect: func(context.Context) (gateway.Link, error) {
		front, back := gateway.NewLink()
		go func() { served <- g.ServeLink(ctx, agent, true, back) }() // ends with the link
		return front, nil
	}, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	err := f.Serve(ctx, in, out)
	return errors.Join(err, <-served)
}

// A stdLink is a link on stdin and stdout.
type stdLink struct {
	io.Reader
	io.Writer
}

func (stdLink) CloseWrite() error { return os.Stdout.Close() }

func (stdLink) Close() error { return os.Stdout.Close() }

// A cutting writer dies with its process after some bytes of the answers to calls.
type cutting struct {
	w    io.Writer
	left int
}

// Write implements io.Writer.
func (c *cutting) Write(p []byte) (int, error) {
	if !bytes.Contains(p, []byte(`"id":7`)) {
		return c.w.Write(p)
	}
	if len(p) >= c.left {
		_, _ = c.w.Write(p[:c.left])
		kill()
	}
	c.left -= len(p)
	return c.w.Write(p)
}

// serveNotes is an MCP server whose effects are lines of a file: they outlive it. Its next fault is in
// a file, too, and is used up by one call of create.
func serveNotes(dir string) {
	effects, fault := filepath.Join(dir, "effects"), filepath.Join(dir, "fault")
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Title, Body string }
			}
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		next := ""
		var result any
		switch {
		case m.Method == "initialize":
			result = map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]string{"name": "notes", "version": "1"}}
		case m.Method == "tools/list":
			schema := map[string]string{"type": "object"}
			tools := []any{map[string]any{"name": "create", "description": "adds\u200b a note", "inputSchema": schema}, map[string]any{"name": "list", "inputSchema": schema}}
			if text, err := os.ReadFile(filepath.Join(dir, "tools")); err == nil {
				_ = json.Unmarshal(text, &tools)
			}
			result = map[string]any{"tools": tools}
		case m.Params.Name == "list":
			text, _ := os.ReadFile(effects)
			rows := []any{}
			if _, err := os.Stat(filepath.Join(dir, "blind")); err == nil {
				text = nil
			}
			for l := range strings.Lines(string(text)) {
				rows = append(rows, json.RawMessage(l))
			}
			result = map[string]any{"content": []any{}, "structuredContent": map[string]any{"notes": rows}}
		case m.Params.Name == "create":
			text, _ := os.ReadFile(fault)
			if next = string(text); next != "" {
				os.Remove(fault)
			}
			if next == "die-before" {
				kill()
			}
			if next == "changes" { // and says so, before its answer
				_, _ = os.Stdout.WriteString(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n")
			}
			if next == "refuse" {
				answerLine(m.ID, map[string]any{"content": []any{map[string]string{"type": "text", "text": "upstream timed out"}}, "isError": true}, "")
				continue
			}
			row, _ := json.Marshal(m.Params.Arguments)
			f, err := os.OpenFile(effects, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			_, _ = f.Write(append(row, '\n'))
			f.Close()
			if next == "die-after" {
				kill()
			}
			result = map[string]any{"content": []any{map[string]string{"type": "text", "text": "created"}}, "structuredContent": json.RawMessage(row), "x": 12345678901234567890.0}
			if next == "error-after" {
				result = map[string]any{"content": []any{map[string]string{"type": "text", "text": "upstream timed out"}}, "isError": true}
			}
		default:
			result = map[string]any{}
		}
		answerLine(m.ID, result, next)
	}
}

// answerLine writes an answer. The fault "cut:N" ends the process after N bytes of it.
func answerLine(id json.RawMessage, result any, fault string) {
	line, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
	line = append(line, '\n')
	if n, ok := strings.CutPrefix(fault, "cut:"); ok {
		at, _ := strconv.Atoi(n)
		if at < len(line) {
			_, _ = os.Stdout.Write(line[:at])
			kill()
		}
	}
	_, _ = os.Stdout.Write(line)
}

// A client is an agent with its gateway.
type client struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err bytes.Buffer

	wait  func() // for the gateway
	ended bool
}

func newClient(t *testing.T, in io.WriteCloser, out io.Reader, wait func()) *client {
	c := &client{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20), wait: wait}
	t.Cleanup(c.stop)
	return c
}

// hello agrees with the gateway on a version.
func (c *client) hello() {
	c.t.Helper()
	if _, ok := c.ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); !ok {
		c.t.Fatalf("the gateway did not start: %s", c.err.String())
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// start starts a gateway and agrees with it on a version.
func start(t *testing.T, s setup) *client {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GATEWAY_TEST_ROLE=gateway", "GATEWAY_TEST_SETUP="+string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, in, out, func() { _ = cmd.Wait() })
	c.cmd, cmd.Stderr = cmd, &c.err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.hello()
	return c
}

// stop ends the gateway by its stdin and waits for it.
func (c *client) stop() {
	if !c.ended {
		c.ended = true
		c.in.Close()
		_, _ = io.Copy(io.Discard, c.out)
		c.wait()
	}
}

func (c *client) send(frame string) { _, _ = io.WriteString(c.in, frame+"\n") }

// reply is an answer of the gateway.
type reply struct {
	ID     json.RawMessage
	Result struct {
		IsError           bool
		StructuredContent map[string]any
		Content           []struct{ Text string }
		Meta              map[string]any `json:"_meta"`
		Tools             []map[string]any
	}
	Error *mcp.RPCError
	raw   string
}

func (r reply) text() string {
	var b strings.Builder
	for _, c := range r.Result.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

func (r reply) state() string { s, _ := r.Result.Meta["keep/state"].(string); return s }

// ask sends a request and returns its answer; false: the gateway died first.
func (c *client) ask(id int, method, params string) (reply, bool) {
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
	return c.read(id)
}

// read returns the answer to a request.
func (c *client) read(id int) (reply, bool) {
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			c.stop()
			return reply{}, false
		}
		var r reply
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			c.t.Fatalf("stdout has what is no message: %q", line)
		}
		if string(r.ID) == strconv.Itoa(id) {
			r.raw = strings.TrimSpace(line)
			return r, true
		}
	}
}

// create calls the tool that adds a note, by the id that counts for faults.
func (c *client) create(title string) (reply, bool) {
	return c.ask(7, "tools/call", createParams(title))
}

func createParams(title string) string {
	return fmt.Sprintf(`{"name":"notes__create","arguments":{"title":%q,"body":"text"}}`, title)
}

// effects returns how many notes of a title there are.
func effects(t *testing.T, dir, title string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), fmt.Sprintf(`"Title":%q`, title))
}

func fail(t *testing.T, dir, fault string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "fault"), []byte(fault), 0o600); err != nil {
		t.Fatal(err)
	}
}

// paired is the rules of an owner who says how the outcome can be known.
func paired() map[keep.ToolName]gateway.Rule {
	return map[keep.ToolName]gateway.Rule{
		"notes.list": {Read: true},
		"notes.create": {Pairing: mcp.Pairing{
			Tool: "create", TokenParam: "body", TokenAppend: " <!-- keep:{token} -->", Timeout: 500 * time.Millisecond,
			Lookup: &mcp.Lookup{Tool: "list", Found: "$.notes", Complete: true},
		}},
	}
}
