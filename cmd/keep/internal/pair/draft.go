package pair

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/keep-run/keep/connector/mcp"
)

// A Tool is what is guessed of a tool.
type Tool struct {
	Name     string   `json:"tool"`
	Reads    bool     `json:"reads"`    // by its name
	Params   []string `json:"params"`   // all
	Required []string `json:"required"` // of them
	Key      string   `json:"key"`      // param that may be a key which the server honours; empty: none
	Mark     string   `json:"mark"`     // param to which a mark can be appended; empty: none
	Lookups  []Lookup `json:"lookups"`  // tools that may show the mark, the likeliest first

	example map[string]any
}

// A Lookup is a tool that may show what a call made.
type Lookup struct {
	Tool string            `json:"tool"`
	Args map[string]string `json:"args"` // with {param} and {token}
}

// maxLookups bounds the tools that are tried for one.
const maxLookups = 5

// Draft returns what is guessed of the tools of a server, in their order.
func Draft(listed []mcp.ToolInfo) []Tool {
	out := make([]Tool, len(listed))
	for i, t := range listed {
		out[i] = draft(t)
	}
	for i := range out {
		if !out[i].Reads {
			out[i].Lookups = lookups(out[i], out)
		}
	}
	return out
}

// A property is what is read of the schema of a param.
type property struct {
	Type   any    `json:"type"`
	Enum   []any  `json:"enum"`
	Format string `json:"format"`
	Const  any    `json:"const"`
}

// isText reports whether any text fits.
func (p property) isText() bool {
	return p.Type == "string" && len(p.Enum) == 0 && p.Format == "" && p.Const == nil
}

// example returns a value that may fit.
func (p property) example() any {
	switch {
	case len(p.Enum) > 0:
		return p.Enum[0]
	case p.Const != nil:
		return p.Const
	}
	switch p.Type {
	case "string":
		return "{n}"
	case "integer", "number":
		return 1
	case "boolean":
		return false
	case "array":
		return []any{}
	case "object":
		return map[string]any{}
	}
	return "…"
}

// marks are names of params with text for people, the likeliest first.
var marks = []string{"body", "description", "content", "contents", "text", "message", "comment", "notes", "note", "details", "summary", "markdown", "subject", "title", "name"}

// keys are names of params that servers honour as keys, without what is between words.
var keys = []string{"idempotencykey", "idempotencytoken", "idempotencyid", "clienttoken", "clientrequestid", "clientrequesttoken", "requesttoken", "deduplicationid", "dedupkey", "dedupekey", "dedupeid"}

// draft guesses what a tool is by itself.
func draft(t mcp.ToolInfo) Tool {
	var schema struct {
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}
	_ = json.Unmarshal(t.InputOf(), &schema) // of one that cannot be read nothing is guessed
	out := Tool{Name: t.Name, Reads: reads(t), Params: append([]string{}, slices.Sorted(maps.Keys(schema.Properties))...),
		Required: append([]string{}, schema.Required...), Lookups: []Lookup{}, example: make(map[string]any)}
	for _, name := range out.Required {
		out.example[name] = schema.Properties[name].example()
	}
	if out.Reads {
		return out
	}
	likely := len(marks)
	for _, name := range out.Params {
		if !schema.Properties[name].isText() {
			continue
		}
		if i := slices.Index(marks, strings.ToLower(name)); i >= 0 && i < likely {
			out.Mark, likely = name, i
		}
		if out.Key == "" && slices.Contains(keys, strings.Join(words(name), "")) {
			out.Key = name
		}
	}
	if out.Key != "" {
		delete(out.example, out.Key)
	}
	return out
}

// Example returns params that may fit, in which {n} stands for something new in each call.
func (t Tool) Example() string {
	text, err := json.Marshal(t.example)
	if err != nil {
		return "{}"
	}
	return string(text)
}

// Verbs of names, by what they say.
var (
	readVerbs   = []string{"list", "get", "search", "find", "read", "query", "fetch", "show", "lookup", "describe", "view", "count", "browse"}
	changeVerbs = []string{"create", "add", "post", "send", "write", "insert", "make", "upload", "save", "set", "put", "update", "edit", "delete", "remove", "move", "rename",
		"append", "merge", "close", "assign", "reply", "publish", "submit", "run", "execute", "start", "stop", "cancel", "pay", "charge", "refund", "invite", "modify", "draft", "open",
		"mark", "unmark", "replace", "patch", "apply", "upsert", "change", "toggle", "swap", "sort", "unarchive", "clear", "reset", "empty", "flush", "purge", "drop", "truncate", "pop", "take", "claim",
		"consume", "ack", "acknowledge", "dismiss", "snooze", "subscribe", "unsubscribe", "unfollow", "unwatch", "unstar", "unpin", "unshare", "duplicate", "import", "sync", "restore", "revert", "undo",
		"transfer", "approve", "accept", "reject", "decline", "confirm", "enable", "disable", "lock", "unlock", "unblock", "mute", "ban", "revoke", "register", "trigger", "restart", "kill", "buy", "notify",
		"next", "new", "dequeue", "receive", "poll", "generate", "lease", "acquire", "allocate", "rotate", "renew"} // as get_next_job, which takes a job out of a queue
	// thingVerbs are of changing where they stand before a verb of reading, as in order_list, and else names of things.
	thingVerbs = []string{"archive", "follow", "watch", "star", "pin", "like", "vote", "share", "copy", "clone", "fork", "block", "grant", "schedule", "deploy", "push", "commit", "sign", "book", "reserve",
		"order", "email", "call", "dial", "print"}
)

// reads reports whether a tool seems to read only: a verb in its name is of reading, and none is of changing.
// What the server says itself is believed if it says otherwise.
func reads(t mcp.ToolInfo) bool {
	var entry struct {
		Annotations struct {
			ReadOnly *bool `json:"readOnlyHint"`
		} `json:"annotations"`
	}
	if json.Unmarshal(t.Raw, &entry) == nil && entry.Annotations.ReadOnly != nil && !*entry.Annotations.ReadOnly {
		return false
	}
	found := false
	for _, w := range words(t.Name) {
		if slices.Contains(changeVerbs, w) || !found && slices.Contains(thingVerbs, w) {
			return false
		}
		found = found || slices.Contains(readVerbs, w)
	}
	return found
}

// words returns the words of a name, in small letters.
//
// createIssue, create_issue and create-issue have the same words.
func words(name string) []string {
	var out []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			out, word = append(out, strings.ToLower(string(word))), nil
		}
	}
	lower := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			lower = false
			continue
		case unicode.IsUpper(r) && lower:
			end()
		}
		word, lower = append(word, r), unicode.IsLower(r)
	}
	end()
	return out
}

// nouns returns the words of a name that are no verbs, each in one form.
func nouns(name string) []string {
	var out []string
	for _, w := range words(name) {
		if slices.Contains(readVerbs, w) || slices.Contains(changeVerbs, w) {
			continue
		}
		if stem, ok := strings.CutSuffix(w, "ies"); ok {
			w = stem + "y"
		}
		out = append(out, strings.TrimSuffix(w, "s"))
	}
	return out
}

// queries are names of params of a search.
var queries = []string{"query", "q", "search", "text", "keyword", "keywords", "term", "pattern"}

// lookups returns the tools that may show what t made: those that read, and whose required params t
// has, or which take the mark as what is searched for.
func lookups(t Tool, all []Tool) []Lookup {
	type scored struct {
		Lookup
		score int
	}
	found := []scored{}
	of := nouns(t.Name)
	for _, r := range all {
		args, ok := arguments(t, r)
		if !r.Reads || !ok {
			continue
		}
		score := 0
		for _, n := range nouns(r.Name) {
			if slices.Contains(of, n) {
				score += 10
			}
		}
		if w := words(r.Name); len(w) > 0 && w[0] == "list" {
			score++
		}
		found = append(found, scored{Lookup{r.Name, args}, score})
	}
	slices.SortStableFunc(found, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	out := []Lookup{}
	for _, f := range found[:min(len(found), maxLookups)] {
		out = append(out, f.Lookup)
	}
	return out
}

// arguments returns those of r when it is to show what t made; false: some are not known.
func arguments(t, r Tool) (map[string]string, bool) {
	args := make(map[string]string)
	for _, name := range r.Required {
		switch {
		case slices.Contains(t.Params, name) && name != t.Mark:
			args[name] = "{" + name + "}"
		case slices.Contains(queries, strings.ToLower(name)):
			args[name] = "{token}"
		default:
			return nil, false
		}
	}
	return args, true
}
