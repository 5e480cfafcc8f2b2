package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/keep-run/keep/examples/gateway/agent"
	"github.com/keep-run/keep/internal/llmtest"
	"github.com/keep-run/keep/internal/twin"
	"github.com/keep-run/keep/llm"
)

// What the agent of the example makes.
const (
	issueTitle = "Login fails"
	teamText   = "New issue: Login fails"
)

// team is the MCP server of the example, which believes each call that it gets.
func team() *twin.MCP {
	var issues []map[string]any
	object := func(params ...string) json.RawMessage {
		all := make(map[string]any)
		for _, p := range params {
			all[p] = map[string]string{"type": "string"}
		}
		schema, _ := json.Marshal(map[string]any{"type": "object", "properties": all, "required": append([]string{}, params...)}) // of strings
		return schema
	}
	return twin.NewMCP(
		twin.MCPTool{Name: "create_issue", Schema: object("title", "body"), Effect: "title", Do: func(args map[string]any) (any, error) {
			issues = append(issues, args)
			return fmt.Sprintf(`{"number":%d}`, len(issues)), nil
		}},
		twin.MCPTool{Name: "list_issues", Schema: object(), Do: func(map[string]any) (any, error) {
			return map[string]any{"issues": append([]map[string]any{}, issues...)}, nil
		}},
		twin.MCPTool{Name: "send_message", Schema: object("text"), Effect: "text", Do: func(map[string]any) (any, error) {
			return `{"sent":true}`, nil
		}},
	)
}

// A wire stands in front of an MCP server, and loses the first answer of each tool that changes something.
type wire struct {
	next *httputil.ReverseProxy

	mu   sync.Mutex // protects the next
	lost map[string]bool
}

// wired starts a wire in front of a server.
func (t *trial) wired(to string) (string, error) {
	at, err := url.Parse(to)
	if err != nil {
		return "", err
	}
	at.Path = "" // that of a request is passed on
	w := &wire{next: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}, lost: make(map[string]bool)}
	return t.serving(w), nil
}

// serving serves until the trial ends, and returns the address.
func (t *trial) serving(h http.Handler) string {
	s := httptest.NewServer(h)
	t.stop = append(t.stop, func() {
		s.CloseClientConnections() // streams have no other end
		s.Close()
	})
	return s.URL
}

// ServeHTTP passes a request on, and its answer back, or breaks the connection in place of the answer.
func (w *wire) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		Method string
		Params struct{ Name string }
	}
	_ = json.Unmarshal(body, &m) // a request without a body is none of a tool
	r.Body = io.NopCloser(bytes.NewReader(body))
	if m.Method != "tools/call" || !w.loses(m.Params.Name) {
		w.next.ServeHTTP(to, r)
		return
	}
	w.next.ServeHTTP(httptest.NewRecorder(), r) // the server does it
	panic(http.ErrAbortHandler)                 // the stream breaks
}

// loses reports whether the answer of a tool is to be lost: once.
func (w *wire) loses(tool string) bool {
	if !strings.HasSuffix(tool, "create_issue") && !strings.HasSuffix(tool, "send_message") {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.lost[tool]
	w.lost[tool] = true
	return !was
}

var reference = regexp.MustCompile(`keep_outcome with (mut_\w+)`)

// script is what the model says, by what it was answered last.
func script(q llmtest.Request) llmtest.Reply {
	tool := func(suffix string, args any) llmtest.Reply {
		for _, name := range q.Tools {
			if strings.HasSuffix(name, suffix) {
				return llmtest.Reply{Calls: []llmtest.Call{{Name: name, Arguments: args}}}
			}
		}
		return llmtest.Reply{Text: "There is no tool " + suffix + "."}
	}
	ref := reference.FindStringSubmatch(q.Text)
	switch {
	case q.Turns == 0:
		return tool("create_issue", map[string]string{"title": issueTitle, "body": "A customer cannot log in."})
	case q.Turns == 1:
		return tool("send_message", map[string]string{"text": teamText})
	case strings.Contains(q.Last, "do not repeat it"):
		return llmtest.Reply{Text: "The issue is filed. Whether the message was sent is not known, so I do not send it again."}
	case strings.HasPrefix(q.Last, "Go on") && ref != nil:
		return tool("keep_outcome", map[string]string{"ref": ref[1]})
	}
	return llmtest.Reply{Text: "The issue is filed, and the team knows."}
}

// newAgent returns an agent with a scripted model, and tools at an address.
func (t *trial) newAgent(tools, token string) (*agent.Agent, error) {
	model, err := llm.New(llm.Config{API: llm.Anthropic, BaseURL: t.serving(llmtest.New(script)), Key: llmtest.Key})
	a := &agent.Agent{Model: model, Name: "scripted", Tools: tools + "/mcp", Token: token, Out: os.Stdout}
	t.stop = append(t.stop, func() { a.Close() })
	return a, err
}

// task is what the agent is to do.
const task = "A customer cannot log in. File an issue, and tell the team."

// agentToken is the one with which the agent comes to the gateway.
const agentToken = "token-of-the-example"

// gateway has an agent work with tools whose answers are lost, without the gateway and with it.
func gateway(ctx context.Context, t *trial) error {
	fmt.Print("An agent files an issue and tells the team, by tools of an MCP server. The first answer of each is lost wherever it passes.\n\n")
	plain, err := t.without(ctx)
	if err != nil {
		return err
	}
	kept, questions, err := t.with(ctx)
	if err != nil {
		return err
	}
	issues, texts := [2]int{plain.Effects(issueTitle), kept.Effects(issueTitle)}, [2]int{plain.Effects(teamText), kept.Effects(teamText)}
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "WHAT\tWITHOUT\tWITH THE GATEWAY\n")
	fmt.Fprintf(table, "issues filed\t%d\t%d\n", issues[0], issues[1])
	fmt.Fprintf(table, "messages sent\t%d\t%d\n", texts[0], texts[1])
	fmt.Fprintf(table, "questions to a person\t0\t%d\n", questions)
	if err := table.Flush(); err != nil {
		return err
	}
	if want := [2]int{2, 1}; issues != want || texts != want || questions != 1 {
		return fmt.Errorf("it should have been 2 of each without, and 1 with, and one question")
	}
	return nil
}

// without has the agent speak to the server itself.
func (t *trial) without(ctx context.Context) (*twin.Twin, error) {
	fmt.Println("without the gateway")
	service, err := twin.Start(team())
	if err != nil {
		return nil, err
	}
	t.stop = append(t.stop, service.Close)
	at, err := t.wired("http://" + service.Addr())
	if err != nil {
		return nil, err
	}
	a, err := t.newAgent(at, service.Secret)
	if err != nil {
		return nil, err
	}
	return service, a.Do(ctx, task)
}

// with has the agent speak to keep gateway, with wires that lose answers on both sides of it, and
// a person who answers its question.
func (t *trial) with(ctx context.Context) (service *twin.Twin, questions int, err error) {
	fmt.Print("\nwith the gateway\n")
	if service, err = twin.Start(team()); err != nil {
		return nil, 0, err
	}
	t.stop = append(t.stop, service.Close)
	behind, err := t.wired("http://" + service.Addr())
	if err != nil {
		return nil, 0, err
	}
	t.env = append(t.env, "TEAM_URL="+behind, "KEEP_SECRET_TEAM="+service.Secret, "KEEP_SECRET_AGENT="+agentToken)
	at, err := t.listening(ctx, "gateway", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	before, err := t.wired(at)
	if err != nil {
		return nil, 0, err
	}
	a, err := t.newAgent(before, agentToken)
	if err != nil {
		return nil, 0, err
	}
	if err := a.Do(ctx, task); err != nil {
		return nil, 0, err
	}
	if questions, err = t.answerAll(ctx, service); err != nil {
		return nil, 0, err
	}
	return service, questions, a.Do(ctx, "Go on: a person has answered.")
}

// answerAll answers each question of the gateway by what is there.
func (t *trial) answerAll(ctx context.Context, service *twin.Twin) (int, error) {
	out, err := t.command(ctx, "inbox", "--json").Output()
	if err != nil {
		return 0, err
	}
	var questions []struct{ ID, Question string }
	if err := json.Unmarshal(out, &questions); err != nil {
		return 0, err
	}
	for _, q := range questions {
		fmt.Println("  keep inbox:", q.Question)
		said := "did-not-happen"
		if service.Effects(teamText) > 0 {
			said = "happened"
		}
		fmt.Println("  a person looks into the channel, and says:", said)
		if out, err := t.quiet(ctx, "inbox", "do", q.ID, said, "--yes"); err != nil {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
	}
	return len(questions), nil
}
