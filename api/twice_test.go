package api_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/memory"
)

// busy is an actor whose host does what is asked of an item at once: its job is done with the new attempt before the next one
// of the list is looked at.
type busy struct {
	api.Actor
	store *memory.Store
}

func (b *busy) ReprocessItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error {
	if err := b.Actor.ReprocessItem(ctx, w, id, d); err != nil {
		return err
	}
	it, err := b.store.Item(ctx, w, id)
	if err != nil {
		return err
	}
	it.Status = keep.ItemDone
	return b.store.Commit(ctx, keep.Commit{Workflow: w, At: noon, Changes: []keep.Change{keep.PutItem{Item: it}}})
}

// Who names an item twice in one request wants it done again once.
func TestItemNamedTwice(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Actor = &busy{c.Actor, c.Store.(*memory.Store)} })
	const path = api.Prefix + "/workflows/invoices/items/reprocess"
	got := decode[api.Page[api.ItemDone]](t, w.ask("ann operator", "POST", path, `{"ids":["invoice:0","invoice:1","invoice:0"],"confirm":true}`))
	if len(got.Items) != 2 || !got.Items[0].Done {
		t.Errorf("reprocess says %+v, want each of the two once", got.Items)
	}
	if it, err := w.store.Item(t.Context(), "invoices", "invoice:0"); err != nil || it.Attempt != fullItem.Attempt+1 {
		t.Errorf("the item is at attempt %d, %v, want %d", it.Attempt, err, fullItem.Attempt+1)
	}
}

// Who names the attempts that were shown to him decides about none that came after: neither when his request is late nor
// when he repeats it.
func TestItemIsAtAnotherAttempt(t *testing.T) {
	w := newWorld(t, nil)
	const path = api.Prefix + "/workflows/invoices/items/reprocess"
	body := func(ids, attempts, how string) string {
		return `{"ids":[` + ids + `],"attempts":[` + attempts + `],"` + how + `":true}`
	}
	w.ask("ann operator", "POST", path, body(`"invoice:0"`, "1", "preview")).want(t, 200, `"done":false`, "at attempt 2, and what was shown is attempt 1")
	w.ask("ann operator", "POST", path, body(`"invoice:0"`, "1", "confirm")).want(t, 200, `"done":false`)
	w.ask("ann operator", "POST", path, body(`"invoice:0","invoice:1"`, "2", "confirm")).want(t, 422, "1 attempts of 2 items")
	w.ask("ann operator", "POST", path, body(`"invoice:0","invoice:0"`, "2,3", "confirm")).want(t, 422, "named twice")
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices/items/invoice:0", "").want(t, 200, `"attempt":2`)
	w.ask("ann operator", "POST", path, body(`"invoice:0"`, "2", "confirm")).want(t, 200, `"done":true`)
	w.ask("ann operator", "POST", path, body(`"invoice:0"`, "2", "confirm")).want(t, 200, `"done":false`)
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices/items/invoice:0", "").want(t, 200, `"attempt":3`)
}

// meanwhile is an actor beside whom somebody has an item done again, right after it was looked at.
type meanwhile struct {
	api.Actor
	store *memory.Store
	is    keep.ItemStatus // of the item then
	done  bool
}

func (m *meanwhile) CanDoItem(it keep.Item, action keep.Action) error {
	err := m.Actor.CanDoItem(it, action)
	if err != nil || m.done {
		return err
	}
	m.done = true
	it.Status, it.Attempt = m.is, it.Attempt+1
	return m.store.Commit(context.Background(), keep.Commit{Workflow: it.Workflow, At: noon, Changes: []keep.Change{keep.PutItem{Item: it}}})
}

// An item is skipped, and its skip undone, at the attempt that was shown, also if it is done again between the look and the commit.
func TestSkipIsOfTheAttemptThatWasNamed(t *testing.T) {
	for verb, is := range map[string]keep.ItemStatus{"skip": keep.ItemFailed, "unskip": keep.ItemSkipped} {
		w := newWorld(t, func(c *api.Config) { c.Actor = &meanwhile{Actor: c.Actor, store: c.Store.(*memory.Store), is: is} })
		it, err := w.store.Item(t.Context(), "invoices", "invoice:0")
		if err != nil {
			t.Fatal(err)
		}
		it.Status = is
		w.commit(keep.PutItem{Item: it})
		ask := func(attempt int) string {
			return fmt.Sprintf(`{"ids":["invoice:0"],"attempts":[%d]}`, attempt)
		}
		path := api.Prefix + "/workflows/invoices/items/" + verb
		w.ask("ann operator", "POST", path, ask(it.Attempt)).want(t, 200, `"done":false`, fmt.Sprintf("what was shown is attempt %d", it.Attempt))
		if now, err := w.store.Item(t.Context(), "invoices", "invoice:0"); err != nil || now.Status != is {
			t.Errorf("%s: attempt %d is %s, %v", verb, now.Attempt, now.Status, err)
		}
		w.ask("ann operator", "POST", path, ask(it.Attempt+1)).want(t, 200, `"done":true`)
	}
}

// Who says what he saw of a key frees that one, and no request that took the key after.
func TestKeyAsItWasShown(t *testing.T) {
	w := newWorld(t, nil)
	pause := func() {
		w.ask("ann operator", "POST", api.Prefix+"/workflows/invoices/pause", "", "Idempotency-Key", `"k1"`).want(t, 200, `"paused":true`)
	}
	pause()
	one := decode[api.Page[idempotency.View]](t, w.ask("ann admin", "GET", api.Prefix+"/keys", "")).Items[0]
	if one.Seen == "" {
		t.Fatalf("nothing names what is shown: %+v", one)
	}
	path := api.Prefix + "/keys/" + one.Reference
	w.ask("ann operator", "POST", path+"/forget", "").want(t, 200, `"state":"released"`)
	pause() // another request with the same key
	w.ask("ann operator", "POST", path+"/forget", `{"seen":"`+one.Seen+`"}`).want(t, 409, "not as it was shown")
	now := decode[idempotency.View](t, w.ask("ann admin", "GET", path, ""))
	w.ask("ann operator", "POST", path+"/resolve", `{"happened":true,"seen":"`+now.Seen+`"}`).want(t, 409, "not unknown")
	w.ask("ann operator", "POST", path+"/forget", `{"seen":"`+now.Seen+`"}`).want(t, 200, `"state":"released"`)
}

// An event that is named twice is one event.
func TestEventNamedTwice(t *testing.T) {
	w := newWorld(t, nil)
	const path = api.Prefix + "/workflows/invoices/topics/email.received"
	for _, preview := range []string{"true", "false"} {
		w.ask("ann operator", "POST", path+"/skip", `{"ids":["m2","m2"],"preview":`+preview+`}`).want(t, 200, `"skipped":1`)
	}
	w.ask("ann operator", "POST", path+"/unskip", `{"ids":["m2","m2"]}`).want(t, 200, `"unskipped":1`)
}

// A paging store has small pages.
type paging struct{ *memory.Store }

func (p paging) Events(ctx context.Context, f keep.EventFilter, page keep.Page) ([]keep.Event, string, error) {
	page.Limit = min(page.Limit, 2)
	return p.Store.Events(ctx, f, page)
}

// Inputs finds inputs as a search does that looked at enough: a page may have none, and yet a next.
func (p paging) Inputs(ctx context.Context, f keep.InputFilter, page keep.Page) ([]keep.Input, string, error) {
	if page.After == "" {
		return nil, "first", nil
	}
	if page.After == "first" {
		page.After = ""
	}
	return p.Store.Inputs(ctx, f, page)
}

// What matches is looked for to the end: a page that ends early does not say that there are more than one request may skip.
func TestSkipOfASearchThatEndsEarly(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Store = paging{c.Store.(*memory.Store)} })
	for _, preview := range []string{"true", "false"} {
		w.ask("ann operator", "POST", api.Prefix+"/inputs/skip", `{"match":{"q":"email"},"preview":`+preview+`}`).want(t, 200, `"input":"in_1"`)
	}
}

// A preview counts all events of an input, as the skip does, and not those of a page.
func TestPreviewOfAnInputWithManyEvents(t *testing.T) {
	w := newWorld(t, func(c *api.Config) { c.Store = paging{c.Store.(*memory.Store)} })
	const n = 5
	in := fullInput
	in.ID, in.ExternalID = "in_2", "2"
	changes := []keep.Change{keep.PutInput{Input: in}}
	for i := range n {
		changes = append(changes, keep.Publish{Event: keep.Event{Workflow: "invoices", Topic: "email.received", MessageID: keep.MessageID(fmt.Sprint("many-", i)),
			Status: keep.EventPending, CausedBy: []keep.InputID{"in_2"}}})
	}
	w.commit(changes...)
	for _, preview := range []string{"true", "false"} {
		w.ask("ann operator", "POST", api.Prefix+"/inputs/skip", `{"ids":["in_2"],"preview":`+preview+`}`).want(t, 200, fmt.Sprintf(`"skipped":%d`, n))
	}
}
