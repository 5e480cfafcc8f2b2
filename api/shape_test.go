package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/law/canonical"
)

// deep returns lists that are n within each other.
func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// Of two members of one name each reader chooses one, and deeply nested JSON ends parsers of others: neither is taken, in any
// body, and the problem says where.
func TestAmbiguousBodies(t *testing.T) {
	w := newWorld(t, nil)
	for name, c := range map[string]struct{ method, path, body, want string }{
		"deep":     {"POST", topicEvents, `{"payload":{"a":` + deep(9000) + `}}`, "at payload.a[0][0]"},
		"too deep": {"POST", topicEvents, `{"payload":` + deep(canonical.MaxDepth) + `}`, "more than 100 objects and lists are within each other"},
		"twice":    {"POST", topicEvents, `{"message_id":"x","payload":{"list":[1,{"id":1,"id":2}]}}`, `at payload.list[1]: two members have the name \"id\"`},
		"body":     {"POST", topicEvents, `{"payload":1,"payload":2}`, `two members have the name \"payload\"`},
		"result":   {"POST", "/api/v1/escalations/esc_1/decision", `{"action":"happened","result":{"n":` + deep(101) + `}}`, "at result.n[0]"},
		"confirm":  {"POST", "/api/v1/escalations/esc_1/decision", `{"action":"did-not-happen","confirm":false,"confirm":true}`, `two members have the name \"confirm\"`},
		"deploy":   {"PUT", "/api/v1/workflows/invoices", `{"file":"a.js","source":"x","imports":{"b.js":"1","b.js":"2"}}`, `at imports: two members have the name \"b.js\"`},
		"value":    {"POST", "/api/v1/workflows/invoices/set-checkpoint", `{"handler":"poll","key":"k","value":{"a":1,"\u0061":2}}`, `at value: two members have the name \"a\"`},
	} {
		t.Run(name, func(t *testing.T) { w.ask("ann admin", c.method, c.path, c.body).want(t, 400, c.want) })
	}
	w.ask("ann viewer", "GET", api.Prefix+"/escalations/esc_1", "").want(t, 200, `"decision":null`)
	w.ask("ann admin", "POST", topicEvents, `{"message_id":"fits","payload":`+deep(canonical.MaxDepth-1)+`}`).want(t, 201)
}

// What was stored before there was a limit is read, listed and left undone as ever.
func TestDeepPayloadOfBefore(t *testing.T) {
	w := newWorld(t, nil)
	ev := fullEvent
	ev.MessageID, ev.Seq, ev.ReservedBy, ev.CausedBy, ev.Payload = "deep", 0, "", nil, json.RawMessage(deep(9000))
	w.commit(keep.Publish{Event: ev})
	const list = api.Prefix + "/topics/events"
	for _, path := range []string{topicEvents + "/deep", list + "?full=true", list} {
		w.ask("ann viewer", "GET", path, "").want(t, 200, `"deep"`)
	}
	w.ask("ann operator", "POST", strings.TrimSuffix(topicEvents, "events")+"skip", `{"ids":["deep"]}`).want(t, 200, `"skipped":1`)
}
