//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/internal/pgtest"
)

// A gatewayAgent is an agent with a keep gateway of its own.
type gatewayAgent struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
	said  *listener
	id    int
}

// startAgent starts a keep gateway, and agrees with it on a version.
func startAgent(t *testing.T, dir, name string) *gatewayAgent {
	t.Helper()
	a := &gatewayAgent{t: t, name: name, cmd: exec.CommandContext(t.Context(), buildKeep(t), "gateway", "--agent", name), said: newListener()}
	a.cmd.Dir, a.cmd.Stderr = dir, a.said
	a.cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	var err error
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.lines = bufio.NewReader(out)
	noError(t, a.cmd.Start())
	if got := a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`); !strings.Contains(got, "keep-gateway") {
		t.Fatalf("%s: %s", got, a.said.String())
	}
	return a
}

// send sends a request.
func (a *gatewayAgent) send(method, params string) {
	a.id++
	fmt.Fprintf(a.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", a.id, method, params)
}

// answer returns the next frame, which has to be the answer to the last request: there is one, and no other.
func (a *gatewayAgent) answer() string {
	a.t.Helper()
	line, err := a.lines.ReadString('\n')
	if err != nil || !strings.Contains(line, fmt.Sprintf(`"id":%d,`, a.id)) {
		a.t.Fatalf("%s, request %d: %v: %q: %s", a.name, a.id, err, line, a.said.String())
	}
	return line
}

func (a *gatewayAgent) ask(method, params string) string {
	a.t.Helper()
	a.send(method, params)
	return a.answer()
}

// call makes a call, and returns its state and its text.
func (a *gatewayAgent) call(title string) (state, text string) {
	a.t.Helper()
	a.begin("create", title)
	return a.outcome()
}

func (a *gatewayAgent) begin(tool, title string) {
	a.send("tools/call", fmt.Sprintf(`{"name":"notes__%s","arguments":{"title":%q}}`, tool, title))
}

func (a *gatewayAgent) outcome() (state, text string) {
	a.t.Helper()
	var r struct {
		Result struct {
			Content []struct{ Text string }
			Meta    map[string]any `json:"_meta"`
		}
	}
	line := a.answer()
	noError(a.t, json.Unmarshal([]byte(line), &r))
	for _, c := range r.Result.Content {
		text += c.Text
	}
	state, _ = r.Result.Meta["keep/state"].(string)
	if r.Result.Meta["keep/replayed"] == true {
		state += " replayed"
	}
	return state, text
}

// end ends the gateway by its stdin.
func (a *gatewayAgent) end() {
	a.t.Helper()
	_ = a.in.Close()
	_, _ = io.Copy(io.Discard, a.lines)
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("%s: %v: %s", a.name, err, a.said.String())
	}
}

func (a *gatewayAgent) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// A notebook is an MCP server by HTTP that counts what it creates. One title is not answered.
type notebook struct {
	url string

	mu    sync.Mutex // protects the next one
	notes map[string]int
	came  chan struct{} // gets a token when the one that is not answered came
}

func openNotebook(t *testing.T) *notebook {
	n := &notebook{notes: make(map[string]int), came: make(chan struct{}, 9)}
	over := make(chan struct{})
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	for _, tool := range []string{"create", "create_once"} {
		mcp.AddTool(server, &mcp.Tool{Name: tool}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			Title string `json:"title"`
		}) (*mcp.CallToolResult, any, error) {
			n.mu.Lock()
			n.notes[in.Title]++
			n.mu.Unlock()
			if in.Title == "silent" {
				n.came <- struct{}{}
				<-over
			}
			return nil, map[string]any{"ok": true}, nil
		})
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	srv := httptest.NewServer(handler)
	t.Cleanup(func() { close(over); srv.Close() })
	n.url = srv.URL
	return n
}

func (n *notebook) count(title string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.notes[title]
}

// TestGatewaysShareAFile has several keep gateway on one file, and keep serve: the first has the database, the others
// hand their messages to it, and one of them takes its place when it ends. Whoever is killed, no call is made twice,
// no agent gets the answer of another, and each gets one answer, an honest one.
func TestGatewaysShareAFile(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), openNotebook(t)
	put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.notes]\nurl = %q\n", n.url))
	ann := startAgent(t, dir, "ann")
	bob := startAgent(t, dir, "bob")
	for _, a := range []*gatewayAgent{ann, bob} {
		if state, text := a.call("same"); state != "applied" {
			t.Errorf("%s: %s %s", a.name, state, text)
		}
	}
	if got := n.count("same"); got != 2 {
		t.Errorf("%d notes of two agents, want 2", got)
	}
	if state, _ := bob.call("same"); state != "applied replayed" || n.count("same") != 2 {
		t.Errorf("the same call at once, as if its answer was lost: %s, %d notes", state, n.count("same"))
	}
	var mutations []api.Mutation
	text, status := keepAt(t, dir, "mutations", "--json")
	if err := json.Unmarshal([]byte(text), &mutations); err != nil || status != 0 || len(mutations) != 2 || *mutations[0].Agent == *mutations[1].Agent {
		t.Errorf("mutations: status %d, %v: %s", status, err, text)
	}
	if text, status := keepAt(t, dir, "gateway", "tools", "--json"); status != 0 || !strings.Contains(text, `"state": "pinned"`) {
		t.Errorf("gateway tools: status %d: %s", status, text)
	}

	// The first is killed while a call of the second is out.
	bob.begin("create", "silent")
	<-n.came
	ann.kill()
	state, said := bob.outcome()
	if state != "indeterminate" || !strings.Contains(said, "do not repeat it") || n.count("silent") != 1 {
		t.Errorf("%s, %q, %d notes", state, said, n.count("silent"))
	}
	var questions []api.Escalation
	text, status = keepAt(t, dir, "inbox", "--json")
	if err := json.Unmarshal([]byte(text), &questions); err != nil || status != 0 || len(questions) != 1 {
		t.Fatalf("inbox: status %d, %v: %s", status, err, text)
	}
	ann = startAgent(t, dir, "ann") // comes second now
	if text, status := keepAt(t, dir, "inbox", "do", string(questions[0].ID), "happened"); status != 0 {
		t.Errorf("inbox do: status %d: %s", status, text)
	}
	if state, said := bob.call("silent"); state != "applied replayed" || n.count("silent") != 1 {
		t.Errorf("after a person answered: %s, %q, %d notes", state, said, n.count("silent"))
	}
	if state, _ := ann.call("same"); state != "applied replayed" || n.count("same") != 2 {
		t.Errorf("a client that lost its gateway, and its answer: %s, %d notes", state, n.count("same"))
	}
	// A project that has other servers does not get those of this one.
	other := t.TempDir()
	put(t, other, "keep.toml", fmt.Sprintf("db = %q\n[gateway.servers.notes]\nurl = %q\n", filepath.Join(dir, "keep.db"), n.url))
	if _, status := keepAt(t, other, "gateway"); status != 5 {
		t.Errorf("a gateway of another keep.toml: status %d, want 5", status)
	}
	n.sharesWithServe(t, dir, "127.0.0.1:0", ann, bob)
	n.sharesWithServe(t, dir, "off", ann, bob)
	ann.end()
	bob.end()
	if out, status := keepAt(t, dir, "db", "check"); status != 0 {
		t.Errorf("db check: status %d: %s", status, out)
	}
}

// TestServeAfterADeadGateway has a gateway killed while a call is out: keep serve asks about it without an agent, also where keep.toml
// has no server any more.
func TestServeAfterADeadGateway(t *testing.T) {
	t.Parallel()
	const server = "[gateway.servers.notes]\nurl = %q\n"
	for name, later := range map[string]string{"the server is there": server, "it was taken out": "# of %q\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, n := t.TempDir(), openNotebook(t)
			put(t, dir, "keep.toml", fmt.Sprintf(server, n.url))
			ann := startAgent(t, dir, "ann")
			ann.begin("create", "silent")
			<-n.came
			ann.kill()
			put(t, dir, "keep.toml", fmt.Sprintf(later, n.url))
			n.isAskedAbout(t, dir)
		})
	}
}

// isAskedAbout has a keep serve come, which asks about the one call that is out, and ends it.
func (n *notebook) isAskedAbout(t *testing.T, dir string) {
	t.Helper()
	serve := exec.CommandContext(t.Context(), buildKeep(t), "serve", "--listen", "127.0.0.1:0")
	serve.Dir, serve.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	said := newListener()
	serve.Stderr = said
	noError(t, serve.Start())
	said.wait(t, "Serving")
	var questions []api.Escalation
	text, status := keepAt(t, dir, "inbox", "--json")
	if err := json.Unmarshal([]byte(text), &questions); err != nil || status != 0 || len(questions) != 1 {
		t.Errorf("inbox: status %d, %v: %s", status, err, text)
	}
	_ = serve.Process.Signal(syscall.SIGTERM)
	if err := serve.Wait(); err != nil || n.count("silent") != 1 {
		t.Errorf("keep serve: %v, %d notes: %s", err, n.count("silent"), said.String())
	}
}

// sharesWithServe has a keep serve come, which the gateways let have the database, and killed.
func (n *notebook) sharesWithServe(t *testing.T, dir, listen string, agents ...*gatewayAgent) {
	t.Helper()
	serve := exec.CommandContext(t.Context(), buildKeep(t), "serve", "--listen", listen)
	serve.Dir, serve.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	said := newListener()
	serve.Stderr = said
	noError(t, serve.Start())
	said.wait(t, "Serving")
	for _, a := range agents {
		if state, text := a.call("with serve " + listen); state != "applied" {
			t.Errorf("%s with keep serve: %s %s: %s", a.name, state, text, said.String())
		}
	}
	if text, status := keepAt(t, dir, "status", "--json"); status != 0 {
		t.Errorf("status: %d: %s", status, text)
	}
	_ = serve.Process.Signal(syscall.SIGKILL)
	_ = serve.Wait()
	for _, a := range agents {
		if state, text := a.call("after serve " + listen); state != "applied" {
			t.Errorf("%s after keep serve: %s %s", a.name, state, text)
		}
	}
	for _, title := range []string{"with serve " + listen, "after serve " + listen} {
		if got := n.count(title); got != len(agents) {
			t.Errorf("%d notes %q, want %d", got, title, len(agents))
		}
	}
}

// TestGatewaysFollow has an owner write an approval, and another one, while gateways run, and while keep serve has their
// file: each call after that waits for a person, and a file that no gateway can be made of changes nothing.
func TestGatewaysFollow(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), openNotebook(t)
	config := fmt.Sprintf("[gateway.servers.notes]\nurl = %q\n", n.url)
	approve := config + "[gateway.tools.\"notes.create\"]\napprove = \"params.title != 'free'\"\n"
	put(t, dir, "keep.toml", config)
	ann, bob := startAgent(t, dir, "ann"), startAgent(t, dir, "bob")
	check := func(title, want string) {
		t.Helper()
		for _, a := range []*gatewayAgent{ann, bob} {
			if state, text := a.call(title); state != want {
				t.Errorf("%s %s: %s %s, want %s", a.name, title, state, text, want)
			}
		}
	}
	check("one", "applied")
	put(t, dir, "keep.toml", "[[[")
	ann.said.wait(t, "configuration refused")
	check("two", "applied")
	put(t, dir, "keep.toml", approve)
	cyd := startAgent(t, dir, "cyd") // comes after the change, and is not held to what was before
	if state, text := cyd.call("three"); state != "waiting" {
		t.Errorf("%s: %s %s", cyd.name, state, text)
	}
	cyd.end()
	check("three", "waiting")
	check("free", "applied")

	serve := exec.CommandContext(t.Context(), buildKeep(t), "serve", "--listen", "off")
	serve.Dir, serve.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	said := newListener()
	serve.Stderr = said
	noError(t, serve.Start())
	said.wait(t, "Serving")
	check("four", "waiting")
	put(t, dir, "keep.toml", config)
	said.wait(t, "configuration taken")
	for i := 0; ; i++ { // the next gateway takes its place when no call is out
		if state, _ := ann.call(fmt.Sprint("five ", i)); state == "applied" {
			break
		}
		if i == 2000 {
			t.Fatalf("keep serve does not follow: %s", said.String())
		}
	}
	check("six", "applied")
	_ = serve.Process.Signal(syscall.SIGTERM)
	noError(t, serve.Wait())
	ann.end()
	bob.end()
}

// TestGatewaysOnPostgres has gateways over one Postgres, each with connections of its own: the store decides who makes a
// call. One that is killed with a call leaves it to another after the call's time. (An equal call is answered with what the
// first became, whether that was delivered before the second came or not: which of both is so, nothing here decides.)
func TestGatewaysOnPostgres(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), openNotebook(t)
	put(t, dir, "keep.toml", fmt.Sprintf(`db = %q
[gateway.servers.notes]
url = %q
[gateway.tools."notes.create"]
timeout = "2s"
repeat = "replay"
[gateway.tools."notes.create_once"]
unique = true
`, pgtest.SchemaURL(t), n.url))
	ann, again, bob := startAgent(t, dir, "ann"), startAgent(t, dir, "ann"), startAgent(t, dir, "bob")
	all := []*gatewayAgent{ann, again, bob}
	for _, tool := range []string{"create", "create_once"} {
		for _, a := range all {
			a.begin(tool, tool)
		}
		applied := 0
		for _, a := range all {
			if state, text := a.outcome(); strings.HasPrefix(state, "applied") {
				applied++
			} else if tool == "create" {
				t.Errorf("%s: %s %s", a.name, state, text)
			}
		}
		// Two gateways of one agent make one call, and two agents make two, or one and a question.
		if want := map[string]int{"create": 2, "create_once": 1}[tool]; n.count(tool) != want || applied < want {
			t.Errorf("%s: %d notes and %d answers, want %d notes", tool, n.count(tool), applied, want)
		}
	}
	ann.begin("create", "silent")
	<-n.came
	ann.kill()
	if state, said := again.call("silent"); state != "indeterminate" || !strings.Contains(said, "do not repeat it") || n.count("silent") != 1 {
		t.Errorf("%s, %q, %d notes", state, said, n.count("silent"))
	}
	var questions []api.Escalation
	text, status := keepAt(t, dir, "inbox", "--json")
	if err := json.Unmarshal([]byte(text), &questions); err != nil || status != 0 {
		t.Fatalf("inbox: status %d, %v: %s", status, err, text)
	}
	kinds := make(map[string]int)
	for _, q := range questions {
		kinds[string(q.Kind)]++
	}
	if kinds["unknown_outcome"] != 1 {
		t.Errorf("questions are %v: %s", kinds, text)
	}
	again.end()
	bob.end()
	if out, status := keepAt(t, dir, "db", "check"); status != 0 {
		t.Errorf("db check: status %d: %s", status, out)
	}
}
