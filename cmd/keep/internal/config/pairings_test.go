package config_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/internal/twin"
	"github.com/keep-run/keep/testkit/connectortest"
)

// The test binary is two programs: the tests, and a relay in front of a real MCP server that
// loses answers.
func TestMain(m *testing.M) {
	if dir := os.Getenv("RELAY_DIR"); dir != "" {
		relay(dir, os.Args[1:])
		return
	}
	os.Exit(pgtest.Main(m))
}

// relay passes messages on, and dies before or after a call if the file "fault" says so.
func relay(dir string, argv []string) {
	cmd := exec.Command(argv[0], argv[1:]...)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		os.Exit(1)
	}
	lost := make(chan bool, 1)
	go func() {
		lines := bufio.NewReader(os.Stdin)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				in.Close()
				return
			}
			if strings.Contains(line, `"tools/call"`) {
				fault, _ := os.ReadFile(filepath.Join(dir, "fault"))
				_ = os.Remove(filepath.Join(dir, "fault"))
				switch string(fault) {
				case "before":
					os.Exit(1)
				case "after":
					lost <- true
				}
			}
			io.WriteString(in, line)
		}
	}()
	answers := bufio.NewReader(out)
	for {
		line, err := answers.ReadString('\n')
		if err != nil {
			return
		}
		select {
		case <-lost:
			os.Exit(1)
		default:
			io.WriteString(os.Stdout, line)
		}
	}
}

// npmServer returns the program of a real server that test.sh installs with npm.
func npmServer(t testing.TB, name string) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cache, "keep-test", "mcp-servers", "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
	if _, err := os.Stat(file); err != nil {
		t.Skip("no MCP servers of npm on this machine; test.sh installs them")
	}
	return []string{"node", file}
}

// TestPairingsOfRealServers tries what pairings say of servers that run offline, on the servers
// themselves: calls whose answers are lost have one effect, which is known. Law: once.
func TestPairingsOfRealServers(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]struct {
		server, pairing, params string
		effects                 func(dir string, n int) int
	}{
		"write_file": {"server-filesystem", "filesystem", `{"path":"DIR/f%[1]d","content":"c%[1]d"}`, func(dir string, n int) int {
			text, _ := os.ReadFile(filepath.Join(dir, fmt.Sprintf("f%d", n)))
			return strings.Count(string(text), fmt.Sprintf("c%d", n))
		}},
		"delete_relations": {"server-memory", "memory", `{"relations":[{"from":"a%[1]d","to":"b","relationType":"is"}]}`, func(dir string, n int) int {
			text, _ := os.ReadFile(filepath.Join(dir, "memory.json"))
			return 1 - strings.Count(string(text), fmt.Sprintf(`"from":"a%d"`, n))
		}},
	} {
		t.Run(p.pairing+"."+name, func(t *testing.T) {
			t.Parallel()
			argv := npmServer(t, p.server)
			connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
				dir := tb.TempDir()
				args := append(slices.Clone(argv), dir)
				graph := ""
				for n := range 4 {
					graph += fmt.Sprintf(`{"type":"relation","from":"a%d","to":"b","relationType":"is"}`+"\n", n)
				}
				if err := os.WriteFile(filepath.Join(dir, "memory.json"), []byte(graph), 0o600); err != nil {
					tb.Fatal(err)
				}
				quoted, _ := json.Marshal(args)
				arm := func(fault string) func() {
					return func() {
						if err := os.WriteFile(filepath.Join(dir, "fault"), []byte(fault), 0o600); err != nil {
							tb.Error(err)
						}
					}
				}
				return &connectortest.Bench{
					Connection: openPack(tb, fmt.Sprintf("[connections.svc]\nconnector = \"mcp\"\npairing = %q\ncommand = %q\nargs = %s\nenv = { RELAY_DIR = %q, MEMORY_FILE_PATH = %q }\n",
						p.pairing, os.Args[0], quoted, dir, filepath.Join(dir, "memory.json")), "x"),
					Tool: name, Refused: []json.RawMessage{json.RawMessage(`[]`)},
					Params: func(n int) json.RawMessage {
						return json.RawMessage(strings.ReplaceAll(fmt.Sprintf(p.params, n), "DIR", dir))
					},
					Effects: func(n int) int { return p.effects(dir, n) },
					Troubles: []connectortest.Trouble{
						{Name: "the server dies before the call", Want: keep.ClassUnknown, Arm: arm("before")},
						{Name: "the server dies before the answer", Want: keep.ClassUnknown, Arm: arm("after")},
					},
				}
			})
		})
	}
}

// TestMemoryTakesRepeats makes each call of the memory server twice, as after a lost answer, and finds
// its graph as it was after the first.
func TestMemoryTakesRepeats(t *testing.T) {
	t.Parallel()
	argv := npmServer(t, "server-memory")
	file := filepath.Join(t.TempDir(), "memory.json")
	args, _ := json.Marshal(argv[1:])
	conn := openPack(t, fmt.Sprintf("[connections.svc]\nconnector = \"mcp\"\npairing = \"memory\"\ncommand = %q\nargs = %s\nenv = { MEMORY_FILE_PATH = %q }\n", argv[0], args, file), "x")
	t.Cleanup(func() { conn.Close() })
	last := ""
	for _, call := range []struct{ tool, params string }{
		{"create_entities", `{"entities":[{"name":"a","entityType":"t","observations":["o"]},{"name":"b","entityType":"t","observations":[]}]}`},
		{"create_relations", `{"relations":[{"from":"a","to":"b","relationType":"is"}]}`},
		{"add_observations", `{"observations":[{"entityName":"a","contents":["p"]}]}`},
		{"delete_observations", `{"deletions":[{"entityName":"a","observations":["o"]}]}`},
		{"delete_relations", `{"relations":[{"from":"a","to":"b","relationType":"is"}]}`},
		{"delete_entities", `{"entityNames":["b"]}`},
	} {
		i := slices.IndexFunc(conn.Tools, func(tool connector.Tool) bool { return tool.Spec().Name == call.tool })
		m := keep.Mutation{Token: "t1", Payload: json.RawMessage(call.params)}
		if _, err := conn.Tools[i].(connector.Mutator).Mutate(t.Context(), m); err != nil {
			t.Fatalf("%s: %v", call.tool, err)
		}
		before, _ := os.ReadFile(file)
		a, err := conn.Tools[i].(connector.Reconciler).Reconcile(t.Context(), m)
		after, _ := os.ReadFile(file)
		if err != nil || a.Verdict != connector.Happened || string(before) != string(after) || string(before) == last {
			t.Errorf("%s: %v, %v; the graph was %s and is %s", call.tool, a.Verdict, err, before, after)
		}
		last = string(after)
	}
}

// TestPairingsFitRealServers compares what pairings declare with what real servers list.
func TestPairingsFitRealServers(t *testing.T) {
	t.Parallel()
	all := pairingsOf(t)
	for server, c := range map[string]struct {
		pairing string
		args    []string
		env     map[string]string
	}{
		"server-filesystem": {"filesystem", []string{t.TempDir()}, nil},
		"server-memory":     {"memory", nil, map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "m.json")}},
		"server-slack":      {"slack", nil, map[string]string{"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "T1"}},
		"server-postgres":   {"postgres", []string{"postgres://127.0.0.1:1/none"}, nil},
	} {
		t.Run(c.pairing, func(t *testing.T) {
			t.Parallel()
			argv := npmServer(t, server)
			s := mcp.NewServer(mcp.ServerConfig{Name: c.pairing, Command: argv[0], Args: append(argv[1:], c.args...), Env: c.env})
			defer s.Close()
			listed, err := s.Tools(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, misfit := range mcp.Misfits(listed, all[c.pairing].Tools) {
				t.Error(misfit)
			}
			for _, tool := range listed { // what is not said counts as a change of which nothing is known
				if _, said := all[c.pairing].Tools[tool.Name]; !said {
					t.Errorf("the pairing says nothing of %s", tool.Name)
				}
			}
		})
	}
}

func pairingsOf(t testing.TB) map[string]config.Pairing {
	t.Helper()
	list, err := config.Pairings(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]config.Pairing)
	for _, p := range list {
		all[p.Name] = p
	}
	return all
}

// TestPairingLevels holds each pairing to what it says: no tool may claim more without a change here.
func TestPairingLevels(t *testing.T) {
	want := map[string]keep.Level{
		"filesystem.write_file": keep.LevelKey, "filesystem.create_directory": keep.LevelKey,
		"filesystem.edit_file": keep.LevelNone, "filesystem.move_file": keep.LevelNone,
		"memory.create_entities": keep.LevelKey, "memory.create_relations": keep.LevelKey, "memory.add_observations": keep.LevelKey,
		"memory.delete_entities": keep.LevelKey, "memory.delete_observations": keep.LevelKey, "memory.delete_relations": keep.LevelKey,
		"github.issue_write": keep.LevelWitness, "github.add_issue_comment": keep.LevelWitness,
		"github.create_pull_request": keep.LevelWitness, "github.create_or_update_file": keep.LevelWitness,
		"slack.slack_post_message": keep.LevelWitness, "slack.slack_reply_to_thread": keep.LevelWitness, "slack.slack_add_reaction": keep.LevelNone,
		"gmail.send_email": keep.LevelNone, "gmail.draft_email": keep.LevelNone, "gmail.modify_email": keep.LevelKey,
		"postgres.query": keep.LevelNone,
	}
	for _, p := range pairingsOf(t) {
		for name, tool := range p.Tools {
			if tool.Effect != connector.Mutate {
				continue
			}
			pairing, err := tool.Pairing(name)
			if err != nil {
				t.Errorf("%s.%s: %v", p.Name, name, err)
			}
			full := p.Name + "." + name
			if got := pairing.Level(); got != want[full] {
				t.Errorf("%s is level %s, want %q", full, got, want[full])
			}
			delete(want, full)
		}
	}
	for name := range want {
		t.Errorf("there is no %s", name)
	}
}

// TestPairingsOfTwins tries pairings of servers that need an account on twins with the published
// schemas, over a wire that is cut at any byte. Laws: once, witnessed.
func TestPairingsOfTwins(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]struct {
		service func() twin.Service
		params  string
		effect  string
	}{
		"github.issue_write":           {githubServer, `{"method":"create","owner":"o","repo":"r","title":"t%d"}`, "t%d"},
		"github.add_issue_comment":     {githubServer, `{"owner":"o","repo":"r","issue_number":1,"body":"b%d"}`, "b%d"},
		"github.create_pull_request":   {githubServer, `{"owner":"o","repo":"r","head":"h","base":"main","title":"t%d","body":"b"}`, "t%d"},
		"github.create_or_update_file": {githubServer, `{"owner":"o","repo":"r","branch":"main","path":"p%d","content":"c","message":"m"}`, "p%d"},
		"slack.slack_post_message":     {slackServer, `{"channel_id":"C1","text":"x%d"}`, "x%d"},
		"slack.slack_reply_to_thread":  {slackServer, `{"channel_id":"C1","thread_ts":"1.2","text":"x%d"}`, "x%d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pairing, tool, _ := strings.Cut(name, ".")
			connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
				service, err := twin.Start(p.service())
				if err != nil {
					tb.Fatal(err)
				}
				tb.Cleanup(service.Close)
				proxy, err := connectortest.NewProxy(service.Addr())
				if err != nil {
					tb.Fatal(err)
				}
				tb.Cleanup(proxy.Close)
				return &connectortest.Bench{
					Connection: openPack(tb, fmt.Sprintf("[connections.svc]\nconnector = \"mcp\"\npairing = %q\nurl = \"http://%s/mcp\"\nheaders = { Authorization = \"Bearer ${secret:svc}\" }\n",
						pairing, proxy.Addr()), service.Secret),
					Tool: tool, Secrets: []string{service.Secret}, Refused: []json.RawMessage{json.RawMessage(`[]`)},
					Params:   func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(p.params, n)) },
					Effects:  func(n int) int { return service.Effects(fmt.Sprintf(p.effect, n)) },
					Troubles: connectortest.MCPTroubles(proxy, service), Settle: service.Settle,
				}
			})
		})
	}
}

// rows is what a twin keeps.
type rows []map[string]any

// schema returns the schema of an object.
func schema(required string, properties ...string) json.RawMessage {
	p := map[string]any{}
	for _, kv := range properties {
		name, kind, _ := strings.Cut(kv, ":")
		p[name] = map[string]any{"type": kind}
	}
	raw, _ := json.Marshal(map[string]any{"type": "object", "required": strings.Fields(required), "properties": p, "additionalProperties": false})
	return raw
}

// githubServer follows https://github.com/github/github-mcp-server: the schemas of
// pkg/github/__toolsnaps__, and answers as one text of JSON (pkg/github/minimal_types.go), in which
// what is hidden was escaped (pkg/sanitize).
func githubServer() twin.Service {
	var issues, comments, pulls, commits rows
	text := func(v any) (any, error) {
		raw, err := json.Marshal(v)
		return string(raw), err
	}
	add := func(to *rows, args map[string]any, body string) (any, error) {
		row := map[string]any{"number": len(*to) + 1, "title": args["title"], "body": strings.ReplaceAll(fmt.Sprint(args[body]), "<", "&lt;")}
		*to = append(rows{row}, *to...)
		return text(map[string]any{"id": fmt.Sprint(len(*to)), "url": "https://github.com/o/r/issues/1"})
	}
	all := func(of *rows) func(map[string]any) (any, error) {
		return func(map[string]any) (any, error) { return text(append(rows{}, *of...)) }
	}
	return twin.NewMCP(
		twin.MCPTool{Name: "issue_write", Effect: "title", Schema: schema("method owner repo", "method:string", "owner:string", "repo:string", "issue_number:number", "title:string", "body:string",
			"state:string", "state_reason:string", "duplicate_of:number", "labels:array", "assignees:array", "milestone:number", "type:string", "show_ui:boolean"),
			Do: func(args map[string]any) (any, error) { return add(&issues, args, "body") }},
		twin.MCPTool{Name: "list_issues", Schema: schema("owner repo", "owner:string", "repo:string", "since:string", "perPage:number", "after:string", "state:string", "orderBy:string", "direction:string",
			"labels:array", "fields:array", "field_filters:array"), Do: func(map[string]any) (any, error) {
			return text(map[string]any{"issues": append(rows{}, issues...), "totalCount": len(issues), "pageInfo": map[string]any{"hasNextPage": false}})
		}},
		twin.MCPTool{Name: "add_issue_comment", Effect: "body", Schema: schema("owner repo issue_number", "owner:string", "repo:string", "issue_number:number", "body:string", "reaction:string"),
			Do: func(args map[string]any) (any, error) { return add(&comments, args, "body") }},
		twin.MCPTool{Name: "issue_read", Schema: schema("method owner repo issue_number", "method:string", "owner:string", "repo:string", "issue_number:number", "page:number", "perPage:number"), Do: all(&comments)},
		twin.MCPTool{Name: "create_pull_request", Effect: "title", Schema: schema("owner repo title head base", "owner:string", "repo:string", "title:string", "head:string", "base:string", "body:string",
			"draft:boolean", "maintainer_can_modify:boolean", "reviewers:array", "show_ui:boolean"), Do: func(args map[string]any) (any, error) { return add(&pulls, args, "body") }},
		twin.MCPTool{Name: "list_pull_requests", Schema: schema("owner repo", "owner:string", "repo:string", "state:string", "base:string", "head:string", "sort:string", "direction:string", "page:number",
			"perPage:number", "fields:array"), Do: all(&pulls)},
		twin.MCPTool{Name: "create_or_update_file", Effect: "path", Schema: schema("owner repo path content message branch", "owner:string", "repo:string", "path:string", "content:string", "message:string",
			"branch:string", "sha:string"), Do: func(args map[string]any) (any, error) { return add(&commits, args, "message") }},
		twin.MCPTool{Name: "list_commits", Schema: schema("owner repo", "owner:string", "repo:string", "sha:string", "path:string", "since:string", "until:string", "author:string", "page:number",
			"perPage:number", "fields:array"), Do: all(&commits)},
	)
}

// slackServer follows npm @modelcontextprotocol/server-slack 2025.4.25, which answers with one text
// that is what Slack answered (https://docs.slack.dev/reference/methods/conversations.history).
func slackServer() twin.Service {
	var messages rows
	post := func(args map[string]any) (any, error) {
		messages = append(rows{{"type": "message", "text": args["text"], "ts": fmt.Sprintf("17.%d", len(messages))}}, messages...)
		return `{"ok":true,"channel":"C1","ts":"17.1"}`, nil
	}
	read := func(map[string]any) (any, error) {
		raw, err := json.Marshal(map[string]any{"ok": true, "messages": append(rows{}, messages...), "has_more": false})
		return string(raw), err
	}
	return twin.NewMCP(
		twin.MCPTool{Name: "slack_post_message", Effect: "text", Schema: schema("channel_id text", "channel_id:string", "text:string"), Do: post},
		twin.MCPTool{Name: "slack_reply_to_thread", Effect: "text", Schema: schema("channel_id thread_ts text", "channel_id:string", "thread_ts:string", "text:string"), Do: post},
		twin.MCPTool{Name: "slack_get_channel_history", Schema: schema("channel_id", "channel_id:string", "limit:number"), Do: read},
		twin.MCPTool{Name: "slack_get_thread_replies", Schema: schema("channel_id thread_ts", "channel_id:string", "thread_ts:string"), Do: read},
	)
}

// TestPairingOfAGateway checks what a pairing means for the gateway: a file of the project wins, what
// the owner writes of a tool is put over it, and records name the file.
func TestPairingOfAGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func() (config.Gateway, error) {
		cfg, err := config.Load(config.Options{Dir: dir, Environ: []string{}})
		return cfg.Gateway, err
	}
	write("keep.toml", `[gateway.servers.files]
command = "node"
pairing = "filesystem"
[gateway.tools."files.move_file"]
errors = "refused"
[gateway.tools."files.read_file"]
effect = "mutate"
`)
	g, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if r := g.Rules["files.write_file"]; r.Read || r.Level() != keep.LevelKey || !g.Rules["files.list_directory"].Read {
		t.Errorf("the rules of the pairing: %+v", g.Rules)
	}
	if r := g.Rules["files.move_file"]; !r.ErrorsRefused || !slices.Equal(r.Identity, []string{"source", "destination"}) || g.Rules["files.read_file"].Read {
		t.Errorf("the owner's keys are not put over the pairing: %+v", r)
	}
	pack := g.Servers[0].Pack
	if pack == nil || pack.Name != "filesystem" || pack.Version != "1" || !strings.HasPrefix(pack.Hash, "sha256:") {
		t.Errorf("the file is %+v", pack)
	}
	write("pairings/filesystem.toml", "name = \"filesystem\"\nversion = \"7\"\ntitle = \"Mine\"\n[tools.write_file]\neffect = \"mutate\"\nidentity = [\"path\"]\n")
	if g, err = load(); err != nil || g.Rules["files.write_file"].Level() != keep.LevelNone || g.Servers[0].Pack.Version != "7" {
		t.Errorf("a file of the project does not win: %+v, %v", g.Servers[0].Pack, err)
	}
	write("pairings/filesystem.toml", "name = \"filesystem\"\nversion = \"7\"\ntitle = \"Mine\"\n[tools.write_file]\neffect = \"mutate\"\n")
	if _, err = load(); err == nil || !strings.Contains(err.Error(), "pairings/filesystem.toml:4:8: tools.write_file.identity") {
		t.Errorf("what is wrong with a pairing: %v", err)
	}
	write("keep.toml", "[gateway.servers.files]\ncommand = \"node\"\npairing = \"filesytem\"\n")
	if _, err = load(); err == nil || !strings.Contains(err.Error(), "did you mean filesystem?") {
		t.Errorf("a pairing that there is not: %v", err)
	}
	two := "[gateway.servers.bank]\ncommand = \"a\"\nwas = [\"pay\", \"older\"]\n[gateway.servers.post]\ncommand = \"a\"\nwas = "
	write("keep.toml", two+"\"mail\"\n")
	if g, err = load(); err != nil || !slices.Equal(g.Was["bank"], connector.Names{"pay", "older"}) || !slices.Equal(g.Was["post"], connector.Names{"mail"}) {
		t.Errorf("names of before: %v, %v", g.Was, err)
	}
	for _, was := range []string{"bank", "older", ""} {
		write("keep.toml", two+"\""+was+"\"\n")
		if _, err = load(); err == nil || !strings.Contains(err.Error(), "gateway.servers.post.was") {
			t.Errorf("%q is no name of before: %v", was, err)
		}
	}
	write("keep.toml", "[gateway]\norigins = [\"https://app.example.com\"]\n")
	if g, err = load(); err != nil || !slices.Equal(g.Origins, []string{"https://app.example.com"}) {
		t.Errorf("origins: %q, %v", g.Origins, err)
	}
	write("keep.toml", "[gateway]\norigins = [\"https://app.example.com/\"]\n")
	if _, err = load(); err == nil || !strings.Contains(err.Error(), "keep.toml:2:1: gateway.origins") {
		t.Errorf("what is no origin: %v", err)
	}
}
