package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

const topicEvents = api.Prefix + "/workflows/invoices/topics/email.received/events"

// publishedEvent is what a test reads of an event.
type publishedEvent struct {
	MessageID string          `json:"message_id"`
	Payload   json.RawMessage `json:"payload"`
	CreatedBy string          `json:"created_by"`
	CausedBy  []string        `json:"caused_by"`
}

func (a answer) event(t *testing.T) (e publishedEvent) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil {
		t.Fatalf("%v in %s", err, a.Body)
	}
	return e
}

func TestPublish(t *testing.T) {
	w := newWorld(t, nil)
	first := w.ask("ann operator", "POST", topicEvents, `{"message_id": "p1", "payload": {"n": [1]}}`)
	if e := first.event(t); first.Status != 201 || e.MessageID != "p1" || string(e.Payload) != `{"n":[1]}` || e.CreatedBy != "person:ann" || len(e.CausedBy) != 1 {
		t.Errorf("first: %d %s", first.Status, first.Body)
	}
	again := w.ask("bob operator", "POST", topicEvents, `{"message_id": "p1", "payload": "other"}`)
	if e := again.event(t); again.Status != 200 || string(e.Payload) != `{"n":[1]}` || e.CreatedBy != "person:ann" {
		t.Errorf("again: %d %s, want 200 and the first payload", again.Status, again.Body)
	}
	one, two := w.ask("ann operator", "POST", topicEvents, `{"payload": null}`), w.ask("ann operator", "POST", topicEvents, `{"payload": null}`)
	if one.Status != 201 || two.Status != 201 || one.event(t).MessageID == two.event(t).MessageID {
		t.Errorf("without an id: %d %d %s %s, want two events", one.Status, two.Status, one.Body, two.Body)
	}
	in, err := w.store.InputByKey(t.Context(), "invoices", "email.received", "event", "p1")
	if err != nil || in.Status != keep.InputPending {
		t.Errorf("input of the event: %+v %v", in, err)
	}
	for name, c := range map[string]struct {
		as, path, body string
		status         int
	}{
		"viewer":    {"ann viewer", topicEvents, `{"payload": 1}`, 403},
		"nobody":    {"", topicEvents, `{"payload": 1}`, 401},
		"workflow":  {"ann operator", strings.Replace(topicEvents, "invoices", "none", 1), `{"payload": 1}`, 404},
		"topic":     {"ann operator", strings.Replace(topicEvents, "email.received", "none", 1), `{"payload": 1}`, 404},
		"large":     {"ann operator", topicEvents, `{"payload": "` + strings.Repeat("x", api.MaxPublish) + `"}`, 413},
		"id":        {"ann operator", topicEvents, `{"message_id": "` + strings.Repeat("x", 513) + `", "payload": 1}`, 422},
		"null id":   {"ann operator", topicEvents, `{"message_id": null, "payload": 1}`, 422},
		"empty id":  {"ann operator", topicEvents, `{"message_id": "", "payload": 1}`, 422},
		"nothing":   {"ann operator", topicEvents, `{}`, 422},
		"not JSON":  {"ann operator", topicEvents, `{`, 400},
		"another":   {"ann operator", topicEvents, `{"payload": 1, "created_by": "run_1"}`, 422},
		"wrong way": {"ann operator", topicEvents, ``, 400},
		"half id":   {"ann operator", topicEvents, `{"message_id": "half\ud83d", "payload": 1}`, 400},
		"low half":  {"ann operator", topicEvents, `{"message_id": "half\ude00", "payload": 1}`, 400},
		"half text": {"ann operator", topicEvents, `{"message_id": "half1", "payload": {"id": "\ud83d"}}`, 400},
		"not UTF-8": {"ann operator", topicEvents, "{\"message_id\": \"half\xff\", \"payload\": 1}", 400},
		"whole":     {"ann operator", topicEvents, `{"message_id": "whole \ud83d\ude00 \\ud83d", "payload": 1}`, 201},
	} {
		if got := w.ask(c.as, "POST", c.path, c.body); got.Status != c.status {
			t.Errorf("%s: %d %s, want %d", name, got.Status, got.Body, c.status)
		}
	}
}

// A request that is repeated under its Idempotency-Key is one event, also without an id.
func TestPublishOnceByKey(t *testing.T) {
	w := newWorld(t, nil)
	one := w.ask("ann operator", "POST", topicEvents, `{"payload": 1}`, "Idempotency-Key", "k1")
	two := w.ask("ann operator", "POST", topicEvents, `{"payload": 1}`, "Idempotency-Key", "k1")
	if one.Status != 201 || two.Status != 201 || one.Body != two.Body {
		t.Errorf("%d %s, then %d %s: want the same answer", one.Status, one.Body, two.Status, two.Body)
	}
}

// Of many that publish one id at the same time exactly one is told that it was new.
func TestPublishConcurrently(t *testing.T) {
	w := newWorld(t, nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	statuses := map[int]int{}
	for range 20 {
		wg.Go(func() {
			got := w.ask("ann operator", "POST", topicEvents, `{"message_id": "race", "payload": 1}`)
			mu.Lock()
			defer mu.Unlock()
			statuses[got.Status]++
		})
	}
	wg.Wait()
	if statuses[201] != 1 || statuses[200] != 19 {
		t.Errorf("statuses %v, want one 201 and 19 times 200", statuses)
	}
}

// Most clients take an id of dots in an address for a way up, also with escapes, and read the topic. So none is published; one
// that a script or a hook made is read by its escapes.
func TestEventOfDots(t *testing.T) {
	w := newWorld(t, nil)
	for _, id := range []keep.MessageID{".", "..", "...", "a/../b", "%2E%2E"} {
		body, err := json.Marshal(map[string]any{"message_id": id, "payload": 1})
		if err != nil {
			t.Fatal(err)
		}
		made := w.ask("ann operator", "POST", topicEvents, string(body))
		if id == "." || id == ".." {
			made.want(t, 422, "bad-event", "another id")
			old := fullEvent
			old.MessageID, old.ReservedBy, old.Seq = id, "", 0
			w.commit(keep.Publish{Event: old})
			w.ask("ann viewer", "GET", topicEvents+"/"+strings.ReplaceAll(string(id), ".", "%2E"), "").want(t, 200, `"message_id":"`+string(id)+`"`)
		} else {
			made.want(t, 201)
		}
		e, err := w.client("ann viewer").Event(t.Context(), "invoices", "email.received", id)
		if err != nil || e.MessageID != id {
			t.Errorf("%s: %v, %v", id, e.MessageID, err)
		}
	}
}

// twice sends each request twice, as who lost the first answer does.
type twice struct{ http.RoundTripper }

func (t twice) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	again := r.Clone(r.Context())
	if again.Body, err = r.GetBody(); err != nil {
		return nil, err
	}
	return t.RoundTripper.RoundTrip(again)
}

// The client names what it publishes, so its request may be repeated whatever became of it.
func TestClientNamesItsEvents(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client("ann operator")
	c.Transport = twice{c.Transport}
	ev, created, err := c.Publish(t.Context(), "invoices", "email.received", api.PublishRequest{Payload: json.RawMessage(`7`)})
	if err != nil || !created || ev.MessageID == "" {
		t.Fatalf("%+v, created %v, %v", ev, created, err)
	}
	all, _, err := w.store.Events(t.Context(), keep.EventFilter{Workflow: "invoices", Topic: "email.received"}, keep.Page{Limit: 100})
	n := 0
	for _, e := range all {
		if string(e.Payload) == "7" {
			n++
		}
	}
	if err != nil || n != 1 {
		t.Errorf("%d events, %v, want one", n, err)
	}
}

// A client sends a payload as it is, so that what is as large as may be is taken, whatever it is made of.
func TestClientPublishesWhatIsLarge(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client("ann operator")
	for _, text := range []string{"<", "&", "é", "\\u003c"} {
		payload := `"` + strings.Repeat(text, (api.MaxPublish-2)/len(text)) + `"`
		ev, created, err := c.Publish(t.Context(), "invoices", "email.received", api.PublishRequest{Payload: json.RawMessage(payload)})
		if err != nil || !created || string(ev.Payload) != payload {
			t.Errorf("%d bytes of %s: %v, %d bytes are stored", len(payload), text, err, len(ev.Payload))
		}
	}
}
