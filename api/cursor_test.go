package api_test

import (
	"testing"

	"github.com/keep-run/keep/api"
)

// A cursor continues the list that made it, with the filters that it was made with, and no other one.
func TestCursorsAreOfTheirList(t *testing.T) {
	w := newWorld(t, nil)
	events := api.Prefix + "/workflows/invoices/events"
	get := func(path string) answer { return w.ask("ann viewer", "GET", path, "") }
	next := func(path string) string {
		t.Helper()
		a := get(path)
		a.want(t, 200)
		page := decode[api.Page[api.Event]](t, a)
		if page.Next == nil {
			t.Fatalf("%s has one page: %s", path, a.Body)
		}
		return "cursor=" + *page.Next
	}
	of := next(events + "?topic=email.received&limit=1")
	get(events+"?topic=email.received&"+of).want(t, 200, `"next":null`, `"message_id":"m1"`)
	get(events+"?full=true&limit=3&topic=email.received&"+of).want(t, 200, `"message_id":"m1"`)
	for _, other := range []string{
		events + "?", events + "?topic=idle&", events + "?topic=email.received&status=pending&",
		api.Prefix + "/topics/events?topic=email.received&", api.Prefix + "/topics/events?workflow=invoices&topic=email.received&",
		api.Prefix + "/workflows/other/events?topic=email.received&", api.Prefix + "/runs?", api.Prefix + "/keys?",
	} {
		get(other+of).want(t, 400, "bad-cursor", "take it from the page before")
	}
	for _, list := range []string{"runs", "mutations", "inputs", "items", "escalations", "topics/events", "keys"} {
		get(api.Prefix+"/"+list+"?cursor=x").want(t, 400, "bad-cursor")
	}
}
