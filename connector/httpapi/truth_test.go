package httpapi_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
)

var truthRounds = flag.Int("truth", 20_000, "how many inquiries TestLookupsAgainstTheTruth makes")

// TestLookupsAgainstTheTruth asks services of random shapes, behind gateways that answer for
// them now and then, about calls whose fate is known. What is believed is true: no
// effect is found that is not there, and none is absent that is. Law: witnessed.
func TestLookupsAgainstTheTruth(t *testing.T) {
	t.Parallel()
	tools := openTools(t, lookups+asking, http.NotFound)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	found, absent := 0, 0
	for round := range *truthRounds {
		q := newInquiry(rng, tools)
		switch verdict := q.settle(); {
		case verdict == connector.Happened && !q.happened, verdict == connector.Absent && q.happened:
			t.Fatalf("seed %d, round %d: %s is believed, and the truth is happened = %t\n%s", seed, round, verdict, q.happened, strings.Join(q.log, "\n"))
		case verdict == connector.Happened:
			found++
		case verdict == connector.Absent:
			absent++
		}
	}
	if found < *truthRounds/20 || absent < *truthRounds/50 {
		t.Errorf("seed %d: %d found and %d absent of %d; a rule that believes nothing proves nothing", seed, found, absent, *truthRounds)
	}
}

// An inquiry is the host's way to settle one doubt.
type inquiry struct {
	rng      *rand.Rand
	tool     connector.Tool
	name     string
	happened bool // the truth about the doubtful call

	records []record // what the service has, others' included
	shape   shape    // how it answers
	lost    int      // from this request on, or up to it, a gateway answers
	after   bool     // from it on
	gate    reply    // what the gateway answers
	asked   int
	log     []string
}

// A record is an effect in the service.
type record struct{ id, token, note string }

// A shape is how a service answers a lookup.
type shape struct {
	wrap  string // "", "data", "hits"
	none  int    // how it says that there is nothing
	field string // name of the field that holds the token
	all   bool   // it ignores the filter of a search
}

func newInquiry(rng *rand.Rand, conn *connector.Connection) *inquiry {
	names := []string{"byToken", "byID", "list", "complete", "marker", "known", "byBody", "bodyList", "inside", "each", "object", "fixedMatch"}
	q := &inquiry{rng: rng, name: names[rng.IntN(len(names))], happened: rng.IntN(2) == 0}
	for _, tl := range conn.Tools {
		if tl.Spec().Name == q.name {
			q.tool = tl
		}
	}
	for i := range 1 + rng.IntN(3) {
		q.records = append(q.records, record{fmt.Sprint(100 + i), fmt.Sprintf("tok-%d", 100+i), "other"})
	}
	if rng.IntN(3) == 0 {
		q.records = q.records[:0] // an index that is being built shows nothing
		q.happened = false
	}
	if q.happened {
		q.records = append(q.records, record{"17", "tok-1", "ours"})
	}
	q.shape = shape{wrap: []string{"", "data", "hits"}[rng.IntN(3)], none: rng.IntN(9),
		field: []string{"ref", "keep_id", "externalId", "metadata"}[rng.IntN(4)], all: rng.IntN(4) == 0}
	q.lost, q.after = rng.IntN(5), rng.IntN(2) == 0
	q.gate = gates[rng.IntN(len(gates))]
	return q
}

// gates are what gateways, caches and login pages answer for a service. None of them
// knows the service's own words, or what we sent.
var gates = []reply{
	{status: 404, kind: "text/html", body: "<html><h1>404 Not Found</h1></html>"},
	{status: 404, kind: "text/plain", body: "404 page not found\n"},
	{status: 404, body: `{"message":"no route matched"}`},
	{status: 404, body: ``},
	{status: 200, kind: "text/html", body: "<!DOCTYPE html><title>Sign in</title>"},
	{status: 200, body: `null`},
	{status: 200, body: `{}`},
	{status: 200, body: `{"status":"ok"}`},
	{status: 200, body: `{"state":"done"}`},
	{status: 200, body: `{"data":null,"total":0}`},
	{status: 200, body: `{"hits":{"hits":[]}}`},
	{status: 200, body: `{"found":false}`},
	{status: 200, body: ``},
	{status: 301, body: ``},
	{status: 405, body: `{}`},
	{status: 410, body: ``},
	{status: 501, body: ``},
	{status: 503, kind: "text/html", body: "<html>Bad gateway</html>"},
}

// settle does what the host does: it asks, and if the answer is no evidence, it asks for
// an effect that is known and then once more.
func (q *inquiry) settle() connector.Verdict {
	ours := keep.Mutation{Token: "tok-1", Payload: sent("17")}
	known := keep.Mutation{Token: "tok-100", Payload: sent("100")}
	v := q.ask(ours)
	if v != connector.Unwitnessed {
		return v
	}
	if q.ask(known) != connector.Happened {
		return connector.Retry
	}
	if v = q.ask(ours); v == connector.Unwitnessed {
		return connector.Absent
	}
	return v
}

// ask makes one request.
func (q *inquiry) ask(m keep.Mutation) connector.Verdict {
	r := q.gate
	if (q.asked >= q.lost) != q.after {
		r = q.serve(m)
	}
	q.asked++
	a := httpapi.Judge(q.tool, r.status, r.kind, r.body, m)
	q.log = append(q.log, fmt.Sprintf("%s for %s: %d %s %s: %s%s", q.name, m.Token, r.status, r.kind, r.body, a.Verdict, a.Detail))
	return a.Verdict
}

// sent is the params of the call with that id. Those of no two calls are the same, but for the
// account.
func sent(id string) json.RawMessage {
	return json.RawMessage(strings.ReplaceAll(`{"id":#,"email":"#@x","owner":{"id":"o-#"},"tags":["a-#","b-#"],"account":"acc"}`, "#", id))
}

// serve is what the service itself answers.
func (q *inquiry) serve(m keep.Mutation) reply {
	var hits []any
	single := q.name == "byID" || q.name == "known" || q.name == "fixedMatch"
	for _, r := range q.records {
		if mine := r.token == m.Token; mine || q.shape.all && !single || q.name == "list" || q.name == "complete" || q.name == "marker" {
			hits = append(hits, q.render(r))
		}
	}
	switch {
	case single && len(hits) > 0:
		return reply{status: 200, body: encode(hits[0])}
	case single:
		return q.nothing(m)
	case q.name == "list" || q.name == "complete" || q.name == "bodyList":
		return reply{status: 200, body: encode(map[string]any{"data": append([]any{}, hits...), "query": m.Token})}
	case len(hits) == 0 && q.shape.none < 7 && q.name != "marker":
		return q.nothing(m)
	case q.shape.wrap == "" || q.name == "marker":
		return reply{status: 200, body: encode(append([]any{}, hits...))}
	}
	return reply{status: 200, body: encode(map[string]any{q.shape.wrap: append([]any{}, hits...), "query": map[string]any{"ref": m.Token}})}
}

// render returns a record as the service shows it.
func (q *inquiry) render(r record) any {
	out := map[string]any{"note": r.note, "files": []string{}, "error": nil, "state": "done", "body": "text\n<!-- keep:" + r.token + " -->"}
	_ = json.Unmarshal(sent(r.id), &out) // of our own
	switch {
	case q.name == "list" || q.name == "complete":
		out["metadata"] = map[string]any{"keep_id": r.token}
	case q.shape.field == "metadata":
		out["metadata"] = []any{map[string]string{"name": "keep", "value": r.token}}
	default:
		out[q.shape.field] = r.token
	}
	return out
}

// nothing is how the service says that there is nothing. It may repeat the question.
func (q *inquiry) nothing(m keep.Mutation) reply {
	if q.name == "known" {
		return reply{status: 404, body: `{"error":{"type":"not_found","message":"` + m.Token + `"}}`}
	}
	return []reply{
		{status: 200, body: `{"results":[],"took":3,"criteria":` + string(withoutID(m.Payload)) + `}`},
		{status: 404, body: `{"error":"` + m.Token + `"}`},
		{status: 404, body: ``},
		{status: 200, body: `{"found":false,"id":17,"ref":"` + m.Token + `"}`},
		{status: 200, body: `{"data":[],"query":{"ref":"` + m.Token + `","id":"17"}}`},
		{status: 200, body: `{"total":0,"hits":{"hits":[]},"self":"` + m.Token + `"}`},
		{status: 200, body: `{"result":null,"message":"17"}`},
		{status: 200, body: `{"errors":["no payment"],"id":"17","ref":"` + m.Token + `"}`},
		{status: 200, body: `"` + m.Token + `"`},
	}[q.shape.none]
}

// withoutID returns params as a search repeats them.
func withoutID(params json.RawMessage) json.RawMessage {
	return append(json.RawMessage("{"), params[strings.IndexByte(string(params), ',')+1:]...)
}

func encode(v any) string {
	raw, _ := json.Marshal(v) // of strings
	return string(raw)
}
