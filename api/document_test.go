package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keep-run/keep/api"
)

// What the document says of an operation.
type documented struct {
	Parameters  []struct{ Name string }
	RequestBody any
	Responses   map[string]struct {
		Content map[string]struct{ Schema any }
	}
}

// A described answer is held against the document.
type described struct {
	doc struct {
		Paths map[string]map[string]documented
	}
	all *jsonschema.Compiler
}

// describedBy reads the document of a server.
func describedBy(t *testing.T, w *world) *described {
	t.Helper()
	text := w.ask("ann viewer", "GET", api.Prefix+"/openapi.json", "").Body
	d := &described{all: jsonschema.NewCompiler()}
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err == nil {
		err = json.Unmarshal([]byte(text), &d.doc)
	}
	if err == nil {
		err = d.all.AddResource("mem:///doc.json", whole)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fits fails the test unless the document has the answer: its status, and what its body is.
func (d *described) fits(t *testing.T, method, path string, a answer) {
	t.Helper()
	op, ok := d.doc.Paths[path][strings.ToLower(method)]
	if !ok {
		t.Errorf("the document has no %s %s", method, path)
		return
	}
	kind, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	if _, ok := op.Responses[fmt.Sprint(a.Status)].Content[kind]; !ok {
		t.Errorf("%s %s: the document has no %d of %s: %.300s", method, path, a.Status, kind, a.Body)
		return
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace
	at := fmt.Sprintf("mem:///doc.json#/paths/%s/%s/responses/%d/content/%s/schema", escape(path), strings.ToLower(method), a.Status, escape(kind))
	schema, err := d.all.Compile(at)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return
	}
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(a.Body)))
	if err == nil {
		err = schema.Validate(body)
	}
	if err != nil {
		t.Errorf("%s %s: the document says otherwise: %v\n%.600s", method, path, err, a.Body)
	}
}

// What each read answers is what the document says: of a store with one of everything, of what is not there, and of a
// query that no read has. A new read is asked, too.
func TestAnswersFitTheDocument(t *testing.T) {
	w := newWorld(t, func(c *api.Config) {
		c.Settings = func() *api.Settings { return &api.Settings{} }
		c.Refusal = func() *api.Refusal { return nil }
	})
	w.ask("ann admin", "PUT", api.Prefix+"/workflows/invoices/grant", `{"tools":[{"tool":"bank.pay"}]}`).want(t, 200)
	w.ask("ann admin", "POST", api.Prefix+"/workflows/invoices/topics/email.received/events", `{"payload":1}`, "Idempotency-Key", "k").want(t, 201)
	d := describedBy(t, w)
	fill := strings.NewReplacer("{workflow}", "invoices", "{run}", "run_1", "{mutation}", "mut_1", "{input}", string(fullInput.ID), "{item}", "invoice:0",
		"{escalation}", string(fullEscalation.ID), "{topic}", "email.received", "{event}", "m1")
	nothing := strings.NewReplacer("{workflow}", "nothing", "{run}", "nothing")
	for _, path := range slices.Sorted(maps.Keys(d.doc.Paths)) {
		if _, ok := d.doc.Paths[path]["get"]; !ok || path == api.Prefix+"/events" { // a stream
			continue
		}
		for _, at := range []string{fill.Replace(path), fill.Replace(path) + "?full=true", nothing.Replace(placeholder.ReplaceAllString(path, "nothing")),
			fill.Replace(path) + "?nothing=1", fill.Replace(path) + "?cursor=x"} {
			d.fits(t, "GET", path, w.ask("ann admin", "GET", at, ""))
		}
	}
	const events = "/workflows/{workflow}/topics/{topic}/events"
	for _, body := range []string{`{"message_id":"m9","payload":1}`, `{"message_id":"m9","payload":1}`, `{`, `{"message_id":3}`} {
		d.fits(t, "POST", api.Prefix+events, w.ask("ann admin", "POST", api.Prefix+fill.Replace(events), body))
	}
	d.fits(t, "POST", api.Prefix+events, w.ask("ann admin", "POST", api.Prefix+fill.Replace(events), "x", "Content-Type", "text/plain"))
	for _, method := range []string{"PUT", "DELETE"} {
		d.fits(t, method, api.Prefix+"/workflows/{workflow}/grant", w.ask("ann admin", method, api.Prefix+"/workflows/nothing/grant", `{"tools":[]}`))
		d.fits(t, method, api.Prefix+"/workflows/{workflow}/grant", w.ask("ann admin", method, api.Prefix+"/workflows/invoices/grant", `{"tools":[]}`))
	}
}
