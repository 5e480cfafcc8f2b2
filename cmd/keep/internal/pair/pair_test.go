package pair_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/pair"
	"github.com/keep-run/keep/connector/mcp"
)

// listed returns tools as a server lists them: NAME(PARAM TYPE, …), where a param with ! is required.
func listed(t *testing.T, tools ...string) []mcp.ToolInfo {
	t.Helper()
	var out []mcp.ToolInfo
	for _, tool := range tools {
		name, rest, _ := strings.Cut(strings.TrimSuffix(tool, ")"), "(")
		props, required := map[string]any{}, []string{}
		for p := range strings.SplitSeq(rest, ", ") {
			if p == "" {
				continue
			}
			param, kind, _ := strings.Cut(p, " ")
			if r, ok := strings.CutSuffix(param, "!"); ok {
				param, required = r, append(required, r)
			}
			props[param] = map[string]any{"type": kind}
		}
		raw, err := json.Marshal(map[string]any{"name": name, "inputSchema": map[string]any{"type": "object", "properties": props, "required": required}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, mcp.ToolInfo{Name: name, Raw: raw})
	}
	return out
}

// What is guessed of tools as well-known servers name them.
func TestDraft(t *testing.T) {
	drafts := pair.Draft(listed(t,
		"create_issue(owner! string, repo! string, title! string, body string)",
		"list_issues(owner! string, repo! string, state string)",
		"search_issues(q! string)",
		"get_issue(owner! string, repo! string, issue_number! number)",
		"createOrder(item! string, idempotencyKey string)",
		"slack_post_message(channel_id! string, text! string)",
		"slack_get_channel_history(channel_id! string, limit number)",
		"get_or_create_label(name! string)",
		"whoami()",
	))
	type guess struct {
		Reads     bool
		Key, Mark string
		Lookups   []string
	}
	got := map[string]guess{}
	for _, d := range drafts {
		g := guess{d.Reads, d.Key, d.Mark, nil}
		for _, l := range d.Lookups {
			text, err := json.Marshal(l.Args)
			if err != nil {
				t.Fatal(err)
			}
			g.Lookups = append(g.Lookups, l.Tool+" "+string(text))
		}
		got[d.Name] = g
	}
	for name, want := range map[string]guess{
		"create_issue":              {Mark: "body", Lookups: []string{`list_issues {"owner":"{owner}","repo":"{repo}"}`, `search_issues {"q":"{token}"}`}},
		"list_issues":               {Reads: true},
		"get_issue":                 {Reads: true},
		"createOrder":               {Key: "idempotencyKey", Lookups: []string{`search_issues {"q":"{token}"}`}},
		"slack_post_message":        {Mark: "text", Lookups: []string{`slack_get_channel_history {"channel_id":"{channel_id}"}`, `search_issues {"q":"{token}"}`}},
		"slack_get_channel_history": {Reads: true},
		"get_or_create_label":       {Mark: "name", Lookups: []string{`search_issues {"q":"{token}"}`}},
		"whoami":                    {Lookups: []string{`search_issues {"q":"{token}"}`}},
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s is guessed to be %+v, want %+v", name, got[name], want)
		}
	}
	if got := drafts[0].Example(); got != `{"owner":"{n}","repo":"{n}","title":"{n}"}` {
		t.Errorf("the example is %s", got)
	}
}

// A tool whose name has a word of reading beside one of changing is not believed to read: keep gateway pair calls what reads without
// asking for it.
func TestDraftOfWhatOnlySoundsLikeReading(t *testing.T) {
	names := []string{"mark_as_read", "find_and_replace", "archive_list", "clear_search_history", "reset_view_count", "subscribe_to_list",
		"unsubscribe_from_list", "share_view", "duplicate_list", "copyView", "dismiss_view", "approve_query", "restore-list", "transfer_list",
		"sync_list", "empty_list", "enable_search", "disable_search", "toggle_view", "import_list", "purge_search", "pop_and_get", "lock_view",
		"trigger_query", "register_view", "schedule_search", "apply_view", "list_and_flush", "book_view", "order_list", "accept_view", "reject_view",
		"get_next_job", "getNextMessage", "fetch_new_mails", "read_and_dequeue", "generate_list", "get_lease", "poll_list", "receive_and_show", "rotate_view", "allocate_view", "acquire_view"}
	var tools []string
	for _, name := range names {
		tools = append(tools, name+"(message_id! string)")
	}
	drafts := pair.Draft(listed(t, append(tools, "reply(message_id! string, body! string)")...))
	for _, d := range drafts[:len(names)] {
		if d.Reads {
			t.Errorf("%s is believed to read", d.Name)
		}
	}
	for _, d := range pair.Draft(listed(t, "get_order()", "list_commits()", "getEmail()", "search_archive()")) {
		if !d.Reads {
			t.Errorf("%s is not believed to read", d.Name)
		}
	}
	if reply := drafts[len(names)]; len(reply.Lookups) > 0 {
		t.Errorf("what reply makes is looked for by %v", reply.Lookups)
	}
}

// A draft is a whole pairing in which every tool is of level D, also if a server names its tools to be something
// else in it.
func TestDraftIsOfLevelD(t *testing.T) {
	hostile := "a\"]\nsets = true\n\u202e\u200b[tools.b"
	tools := listed(t, "create_issue(title! string, body string, idempotency_key string)", "list_issues()", "two words(a.b string)")
	raw, err := json.Marshal(map[string]any{"name": hostile, "inputSchema": map[string]any{"properties": map[string]any{hostile: map[string]string{"type": "string"}, "body": map[string]string{"type": "string"}}}})
	if err != nil {
		t.Fatal(err)
	}
	text := pair.Text("tracker", pair.Draft(append(tools, mcp.ToolInfo{Name: hostile, Raw: raw}, mcp.ToolInfo{Name: "broken", Raw: json.RawMessage(`{"inputSchema":7}`)})))
	if err := config.CheckPairing("tracker", text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && (strings.Contains(line, "token") || strings.HasPrefix(line, "sets") || strings.Contains(line, "reconcile") || strings.Contains(line, "\u202e") || strings.Contains(line, `"get"`)) {
			t.Errorf("a guess counts: %s", line)
		}
	}
	if strings.ContainsAny(text, "\u202e\u200b") {
		t.Errorf("a character that nobody sees is printed: %q", text)
	}
}
