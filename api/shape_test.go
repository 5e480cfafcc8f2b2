package api_test

import (
	"encoding/json"
	"errors"
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

// A request that does not fit says where and what is wanted, by a type to branch on, and repeats nothing of what was sent.
func TestUnfitRequests(t *testing.T) {
	const decision, pause = "/api/v1/escalations/esc_1/decision", "/api/v1/workflows/invoices/pause"
	w := newWorld(t, nil)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		kind, want         string
	}{
		"member":    {"POST", topicEvents, `{"payload":1,"x":{"token":"hunter2"}}`, 422, "bad-request", "body.x: unexpected property"},
		"missing":   {"POST", topicEvents, `{"message_id":"hunter2"}`, 422, "bad-request", "body: expected required property payload to be present"},
		"another":   {"POST", topicEvents, `["hunter2"]`, 422, "bad-request", "body: expected object"},
		"number":    {"POST", decision, `{"action":"raise","limit":"hunter2"}`, 422, "bad-request", "body.limit: expected number"},
		"time":      {"POST", decision, `{"action":"raise","limit":1,"until":"hunter2"}`, 422, "bad-request", "body.until: expected string to be RFC 3339 date-time"},
		"bool":      {"POST", pause, `{"if_running":"hunter2"}`, 422, "bad-request", "body.if_running: expected boolean"},
		"several":   {"PUT", "/api/v1/workflows/invoices/grant", `{"tools":[{"a":1,"b":1,"c":1,"d":1,"e":1,"f":"hunter2"}]}`, 422, "bad-request", "; and 2 more"},
		"parameter": {"GET", "/api/v1/runs?limit=hunter2", "", 422, "bad-request", "query.limit: invalid integer"},
		"unknown":   {"GET", "/api/v1/runs?nothing=hunter2", "", 422, "bad-request", "query.nothing: unknown query parameter"},
		"cut":       {"POST", topicEvents, `{"payload":"hunter2`, 400, "bad-body", "body: it is not JSON: unexpected end of JSON input, at byte 19 of 19"},
		"none":      {"POST", topicEvents, ``, 400, "bad-body", "request body is required"},
		"ambiguous": {"POST", topicEvents, `{"payload":"hunter2","payload":1}`, 400, "bad-body", "body: two members have the name"},
		"large":     {"POST", topicEvents, `{"payload":"` + strings.Repeat("hunter2", 200_000) + `"}`, 413, "too-large", "limit=1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.ask("ann admin", c.method, c.path, c.body)
			if a.want(t, c.status, "problems/"+c.kind, c.want); strings.Contains(a.Body, "hunter2") {
				t.Errorf("it repeats what was sent: %.300s", a.Body)
			}
		})
	}
	w.ask("ann admin", "POST", pause, `x=1`, "Content-Type", "text/plain").want(t, 415, "problems/media-type", "unknown content type: text/plain; send JSON")
	a := w.ask("ann admin", "POST", pause, "\x1f\x8b", "Content-Encoding", "gzip")
	if a.want(t, 415, "problems/media-type", "Content-Encoding: gzip", "send it as it is"); a.Header.Get("Accept-Encoding") != "identity" {
		t.Errorf("Accept-Encoding %q, want identity", a.Header.Get("Accept-Encoding"))
	}
	w.ask("ann admin", "POST", pause, "{}", "Content-Encoding", "identity").want(t, 200)
	_, err := w.client("ann admin").Compare(t.Context(), "invoices", api.CompareRequest{Script: &api.Script{}})
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Kind != api.KindBadRequest || strings.Count(err.Error(), "body.script.file") != 1 {
		t.Errorf("a client has %v, want each place once", err)
	}
}

// A pause with a condition that does not hold says how the workflow is, and what to do.
func TestConditionalPause(t *testing.T) {
	const pause, resume = "/api/v1/workflows/invoices/pause", "/api/v1/workflows/invoices/resume"
	w := newWorld(t, nil)
	w.ask("ann operator", "POST", resume, `{"if_note":"mine"}`).want(t, 409, "problems/stale", "workflow invoices is not paused; nothing was changed. Leave out if_note")
	w.ask("ann operator", "POST", pause, `{"if_running":true}`).want(t, 200)
	w.ask("ann operator", "POST", pause, `{"if_running":true}`).want(t, 409, "problems/stale", "is paused, without a note; nothing was changed. Leave out if_running")
	w.ask("ann operator", "POST", pause, `{"note":"theirs"}`).want(t, 200)
	w.ask("ann operator", "POST", resume, `{"if_note":"mine"}`).want(t, 409, "problems/stale", `is paused, with the note \"theirs\"`)
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
