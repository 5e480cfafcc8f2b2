package web_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// hiddenIn returns the hidden fields of a page as a form.
func hiddenIn(tb testing.TB, body string, more ...string) url.Values {
	tb.Helper()
	form := url.Values{}
	pairs := append(formOf(tb, body), more...)
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form
}

// An item that was done again since its page was made is not done once more by that page.
func TestReprocessIsOfTheAttemptThatWasShown(t *testing.T) {
	db := memory.New()
	now := keepNow()
	item := func(attempt int) keep.PutItem {
		return keep.PutItem{Item: keep.Item{Workflow: "w", ID: "17", Title: "Order 17", Status: keep.ItemDone, Attempt: attempt, CreatedAt: now, UpdatedAt: now}}
	}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}}, item(1))
	ask := pagesWith(t, db)
	const path = "/item?workflow=w&id=17"
	shown := ask("GET", "/item/confirm?workflow=w&id=17", nil)
	shown.want(t, http.StatusOK, "It starts over as attempt 2")
	form := hiddenIn(t, shown.body)
	ask("POST", path, form).want(t, http.StatusSeeOther)
	it, err := db.Item(t.Context(), "w", "17")
	if err != nil || it.Attempt != 2 {
		t.Fatalf("attempt %d, %v", it.Attempt, err)
	}
	it.Status = keep.ItemDone // its job did it again
	commit(t, db, "w", now, keep.PutItem{Item: it})
	ask("POST", path, form).want(t, http.StatusConflict, "Not in this state", "attempt 2")
	ask("POST", path, url.Values{"action": {"reprocess"}, "confirm": {"1"}}).want(t, http.StatusBadRequest, "shown first")
	if it, err = db.Item(t.Context(), "w", "17"); err != nil || it.Attempt != 2 || it.Status != keep.ItemDone {
		t.Errorf("the page of attempt 1 made attempt %d (%s), %v", it.Attempt, it.Status, err)
	}
}

// A stale page skips no later attempt of an item, and answers no question that it did not show.
func TestSkipIsOfTheItemThatWasShown(t *testing.T) {
	const path = "/item?workflow=w0&id=17"
	for name, then := range map[string]func(t *testing.T, db *memory.Store, it keep.Item){
		"attempt": func(t *testing.T, db *memory.Store, it keep.Item) {
			it.Attempt++
			commit(t, db, "w0", it.UpdatedAt, keep.PutItem{Item: it})
		},
		"question": func(t *testing.T, db *memory.Store, it keep.Item) {
			doubts(t, db, 1, func(_ int, m *keep.Mutation, q *keep.Escalation) {
				m.Item, m.Attempt, q.Item = it.ID, it.Attempt, it.ID
				q.Choices = append(q.Choices, keep.Choice{Action: keep.Skip, Label: "Skip", Effect: "continues without knowing"})
			})
			it.Status = keep.ItemAttention
			commit(t, db, "w0", it.UpdatedAt, keep.PutItem{Item: it})
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := memory.New()
			now := keepNow()
			commit(t, db, "w0", now, keep.PutItem{Item: keep.Item{Workflow: "w0", ID: "17", Title: "Order 17", Status: keep.ItemProcessing, Attempt: 1, CreatedAt: now, UpdatedAt: now}})
			ask := pagesWith(t, db)
			form := hiddenIn(t, ask("GET", path, nil).body, "action", "skip")
			it, err := db.Item(t.Context(), "w0", "17")
			if err != nil {
				t.Fatal(err)
			}
			then(t, db, it)
			ask("POST", path, form).want(t, http.StatusConflict, "Not in this state", name)
			if got, err := db.Item(t.Context(), "w0", "17"); err != nil || got.Status == keep.ItemSkipped {
				t.Errorf("the item is %s, %v", got.Status, err)
			}
			if q, err := db.Escalation(t.Context(), "esc_0"); err == nil && q.Decision != nil {
				t.Errorf("%s decided %s", q.Decision.By, q.Decision.Action)
			}
			ask("POST", path, url.Values{"action": {"skip"}}).want(t, http.StatusBadRequest, "shown first")
			ask("POST", path, hiddenIn(t, ask("GET", path, nil).body, "action", "skip")).want(t, http.StatusSeeOther)
			if got, err := db.Item(t.Context(), "w0", "17"); err != nil || got.Status != keep.ItemSkipped {
				t.Errorf("the item is %s, %v", got.Status, err)
			}
		})
	}
}

// A stale page takes up no later attempt of an item or an event that was skipped, and skips none of an event: what the attempt that it
// shows did would be done a second time.
func TestSkipIsUndoneOfTheAttemptThatWasShown(t *testing.T) {
	const item, event = "/item?workflow=w&id=17", "workflow=w&topic=t&id=17"
	db := memory.New()
	now := keepNow()
	def := keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}, Handlers: []keep.Handler{{Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}}}}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), Definition: def, CreatedAt: now}},
		keep.PutItem{Item: keep.Item{Workflow: "w", ID: "17", Title: "Order 17", Status: keep.ItemSkipped, Attempt: 1, CreatedAt: now, UpdatedAt: now}},
		keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "17", CreatedAt: now}})
	ask := pagesWith(t, db)
	skip := hiddenIn(t, ask("GET", "/event?"+event, nil).body)
	commit(t, db, "w", now, keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"17"}})
	unskip, unskipItem := hiddenIn(t, ask("GET", "/event?"+event, nil).body), hiddenIn(t, ask("GET", item, nil).body, "action", "unskip")
	redone := keep.RedoEvents{Topic: "t", IDs: []keep.MessageID{"17"}, Attempt: 1, By: "bob"} // others do both again,
	it, err := db.Item(t.Context(), "w", "17")
	if err != nil {
		t.Fatal(err)
	}
	it.Attempt++
	commit(t, db, "w", now, redone, keep.PutItem{Item: it})
	ask("POST", "/event/skip?"+event, skip).want(t, http.StatusConflict, "Not in this state", "attempt 2")
	commit(t, db, "w", now, keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"17"}}) // and leave them then
	ask("POST", "/event/unskip?"+event, unskip).want(t, http.StatusConflict, "Not in this state", "attempt 2")
	ask("POST", item, unskipItem).want(t, http.StatusConflict, "Not in this state", "attempt 2")
	for path, form := range map[string]url.Values{item: {"action": {"unskip"}}, "/event/skip?" + event: nil, "/event/unskip?" + event: nil} {
		ask("POST", path, form).want(t, http.StatusBadRequest, "shown first")
	}
	ev, err := db.Event(t.Context(), "w", "t", "17")
	if it, itemErr := db.Item(t.Context(), "w", "17"); err != nil || itemErr != nil || ev.Status != keep.EventSkipped || it.Status != keep.ItemSkipped {
		t.Errorf("the event is %s, %v, and the item %s, %v", ev.Status, err, it.Status, itemErr)
	}
	ask("POST", "/event/unskip?"+event, hiddenIn(t, ask("GET", "/event?"+event, nil).body)).want(t, http.StatusSeeOther)
	ask("POST", "/event/skip?"+event, hiddenIn(t, ask("GET", "/event?"+event, nil).body)).want(t, http.StatusSeeOther)
	ask("POST", item, hiddenIn(t, ask("GET", item, nil).body, "action", "unskip")).want(t, http.StatusSeeOther)
	if it, err = db.Item(t.Context(), "w", "17"); err != nil || it.Status == keep.ItemSkipped {
		t.Errorf("the item is %s, %v", it.Status, err)
	}
}

// A stale page of an input neither leaves nor takes up what somebody had done again since.
func TestInputIsSkippedAsItWasShown(t *testing.T) {
	db := memory.New()
	now := keepNow()
	event := keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"17"}}
	redone := func(attempt int) keep.RedoEvents {
		return keep.RedoEvents{Topic: "t", IDs: event.IDs, Attempt: attempt, By: "bob"}
	}
	def := keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}, Handlers: []keep.Handler{{Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}}}}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), Definition: def, CreatedAt: now}},
		keep.PutInput{Input: keep.Input{ID: "in_17", Workflow: "w", Source: "s", ExternalID: "17", Title: "Order 17", CreatedAt: now}},
		keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "17", CausedBy: []keep.InputID{"in_17"}, CreatedAt: now}})
	ask := pagesWith(t, db)
	form := func() url.Values { return hiddenIn(t, ask("GET", "/inputs/in_17", nil).body) }
	skip := form()
	commit(t, db, "w", now, keep.SkipInput{Input: "in_17"}, event)
	unskip := form()
	commit(t, db, "w", now, redone(1), keep.UnskipInput{Input: "in_17"}) // others do it again,
	ask("POST", "/inputs/in_17/skip", skip).want(t, http.StatusConflict, "Not in this state", "done again since")
	commit(t, db, "w", now, keep.SkipInput{Input: "in_17"}, event) // and leave it then
	ask("POST", "/inputs/in_17/unskip", unskip).want(t, http.StatusConflict, "Not in this state", "done again since")
	for _, verb := range []string{"skip", "unskip"} {
		ask("POST", "/inputs/in_17/"+verb, nil).want(t, http.StatusBadRequest, "shown first")
	}
	if in, err := db.Input(t.Context(), "in_17"); err != nil || in.Status != keep.InputSkipped {
		t.Errorf("the input is %s, %v", in.Status, err)
	}
	ask("POST", "/inputs/in_17/unskip", form()).want(t, http.StatusSeeOther)
	skip = form()
	commit(t, db, "w", now, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "18", CausedBy: []keep.InputID{"in_17"}, CreatedAt: now}}) // it moves on
	ask("POST", "/inputs/in_17/skip", skip).want(t, http.StatusSeeOther)
	if in, err := db.Input(t.Context(), "in_17"); err != nil || in.Status != keep.InputSkipped {
		t.Errorf("the input is %s, %v", in.Status, err)
	}
}

// A page counts what was done again behind the events that it shows, and offers nothing if it cannot count all.
func TestInputWithManyEvents(t *testing.T) {
	db := memory.New()
	now := keepNow()
	def := keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}, Handlers: []keep.Handler{{Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}}}}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), Definition: def, CreatedAt: now}},
		keep.PutInput{Input: keep.Input{ID: "in_17", Workflow: "w", Source: "s", ExternalID: "17", Title: "Order 17", CreatedAt: now}})
	publish := func(from, to int) {
		var events []keep.Change
		for i := from; i < to; i++ {
			events = append(events, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: keep.MessageID(strconv.Itoa(i)), CausedBy: []keep.InputID{"in_17"}, CreatedAt: now}})
		}
		commit(t, db, "w", now, events...)
	}
	publish(0, 200)
	ask := pagesWith(t, db)
	skip := hiddenIn(t, ask("GET", "/inputs/in_17", nil).body)
	oldest := []keep.MessageID{"0"} // which the page does not show
	commit(t, db, "w", now, keep.SkipEvents{Topic: "t", IDs: oldest})
	commit(t, db, "w", now, keep.RedoEvents{Topic: "t", IDs: oldest, Attempt: 1, By: "bob"})
	ask("POST", "/inputs/in_17/skip", skip).want(t, http.StatusConflict, "Not in this state", "done again since")
	publish(200, keep.MaxPage+200)
	page := ask("GET", "/inputs/in_17", nil)
	page.want(t, http.StatusOK, "keep inputs skip in_17")
	if strings.Contains(page.body, "/inputs/in_17/skip") {
		t.Error("it offers to skip what it did not look at")
	}
}

// A stale page resumes no workflow that was paused again since for another reason, and overwrites no note.
func TestPauseIsOfWhatWasShown(t *testing.T) {
	db := memory.New()
	now := keepNow()
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}})
	ask := pagesWith(t, db)
	actor, err := operator.New(db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const note = "release\r\nof \u200f1.2 "
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(actor.Pause(t.Context(), "w", keep.Decision{By: "ann", Note: note}))
	form := func(body string) url.Values {
		_, body, _ = strings.Cut(body, `action="/workflows/w/resume"`)
		return hiddenIn(t, body)
	}
	shown := form(ask("GET", "/workflows/w", nil).body)
	do(actor.Resume(t.Context(), "w", keep.Decision{By: "ann"}))
	do(actor.Pause(t.Context(), "w", keep.Decision{By: "ann", Note: "it pays twice"}))
	ask("POST", "/workflows/w/resume", shown).want(t, http.StatusConflict, "Not in this state")
	ask("POST", "/workflows/w/pause", url.Values{"note": {"lunch"}}).want(t, http.StatusConflict, "Not in this state")
	if w, err := db.Workflow(t.Context(), "w"); err != nil || !w.Paused || w.PauseNote != "it pays twice" {
		t.Errorf("paused %t with note %q, %v", w.Paused, w.PauseNote, err)
	}
	// What the page shows is done, whatever the note has that no field keeps.
	do(actor.Pause(t.Context(), "w", keep.Decision{By: "ann", Note: note}))
	ask("POST", "/workflows/w/resume", form(ask("GET", "/workflows/w", nil).body)).want(t, http.StatusSeeOther)
	if w, err := db.Workflow(t.Context(), "w"); err != nil || w.Paused {
		t.Errorf("paused %t, %v", w.Paused, err)
	}
}

// What a person says of a request is said of no later one with the same key.
func TestKeyIsDecidedAsItWasShown(t *testing.T) {
	for _, action := range []string{"happened", "did-not-happen", "forget"} {
		t.Run(action, func(t *testing.T) {
			w := newWorld(t)
			now := keepNow()
			id := key.NewID("h", "caller", "order-7")
			claim := key.Claim{ID: id, Key: "order-7", Method: "POST", Path: "/orders", TTL: 48 * time.Hour}
			after := func(f key.Fact) {
				t.Helper()
				r, err := w.keys.Read(t.Context(), id)
				w.must(err)
				r, err = key.Apply(r, f, now)
				w.must(err)
				w.must(w.keys.Write(t.Context(), r))
			}
			request := func(fence key.Fence) { // it ends as the page is for
				after(key.Fact{Evidence: key.Begun, Claim: claim, Lease: time.Minute, Fence: fence, By: "owner"})
				if action == "forget" {
					after(key.Fact{Evidence: key.Answered, Fence: fence, Answer: key.Answer{Status: 201}, By: "owner"})
				} else {
					after(key.Fact{Evidence: key.Unsure, Fence: fence, By: "owner"})
				}
			}
			request(5)
			c := w.as("ada", access.Operator)
			path := "/keys/" + id.String()
			page := c.get(path)
			if action != "happened" {
				page = c.get(path + "/confirm?action=" + action)
			}
			press := append(formOf(t, page.body), "action", action, "status", "201", "body", "first")
			// Another person gives the key free, and the client sends another request with it.
			keys := idempotency.NewKeys(w.keys)
			var err error
			if action == "forget" {
				_, err = keys.Forget(t.Context(), id.String(), "bob", now)
			} else {
				_, err = keys.Resolve(t.Context(), id.String(), idempotency.Resolution{By: "bob"}, now)
			}
			w.must(err)
			request(9)
			second, err := w.keys.Read(t.Context(), id)
			w.must(err)
			c.post(path, press...).want(t, http.StatusConflict, "Not in this state")
			if got, err := w.keys.Read(t.Context(), id); err != nil || got.State != second.State || got.Rev != second.Rev {
				t.Errorf("the page of the first request made the second %s, %v", got.State, err)
			}
		})
	}
}

// putting is a connector that keeps what was put.
type putting struct {
	offering
	put  map[string]string    // values by the name of the account
	over map[string]time.Time // when those were connected that are replaced
}

func (p putting) Put(_ context.Context, _ access.Identity, _, name, value string, over time.Time) error {
	p.put[name], p.over[name] = value, over
	return nil
}

// An account is replaced by who read that it is: not by a name that was typed, and is taken.
func TestAccountIsReplacedAsItWasShown(t *testing.T) {
	db := memory.New()
	actor, err := operator.New(db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	put := putting{put: make(map[string]string), over: make(map[string]time.Time)}
	w := &world{TB: t}
	w.serve(web.Config{Store: db, Actor: actor, Accounts: shelved(), Connector: put})
	t.Cleanup(w.site.Close)
	admin := w.as("ann", access.Admin)
	a := admin.post("/connect/stripe", "name", "work-mail", "credential", "key of a shop")
	a.want(t, http.StatusConflict, "There is an account <bdi>work-mail</bdi>", "takes its place", `value="work-mail"`)
	if len(put.put) != 0 || strings.Contains(a.body, "key of a shop") {
		t.Fatalf("an account was replaced, %v, or its key is shown", put.put)
	}
	if a := admin.post("/connect/gmail", "name", "work-mail"); strings.Contains(a.body, "accounts.example.com") {
		t.Error("a page of a service is offered, which would replace an account")
	}
	admin.post("/connect/stripe", append(formOf(t, a.body), "name", "work-mail", "credential", "key of a shop")...)
	admin.post("/connect/stripe", "name", "new", "credential", "key")
	if put.put["work-mail"] != "key of a shop" || put.put["new"] != "key" {
		t.Errorf("put %v", put.put)
	}
}

// A value of a checkpoint is replaced, deleted or set by who saw what it is, or that it is not set.
func TestCheckpointIsSetAsItWasShown(t *testing.T) {
	w := newWorld(t, "counter.js")
	w.began("counter", "count")
	w.trigger("counter", "count")
	root := w.as("root", access.Admin)
	const page = "/workflows/counter/checkpoint"
	stale := formOf(t, root.get(page+"?handler=count").body)
	root.post(page+"/values", append(stale, "key", "n", "value", "41", "verb", "set")...).want(t, http.StatusOK, "The value is changed")
	root.post(page+"/values", append(stale, "key", "other", "value", `"first"`, "verb", "set")...).want(t, http.StatusOK, "The value is changed")
	for _, verb := range []string{"set", "delete"} {
		for _, key := range []string{"n", "other"} { // one was another one, and one was not set
			root.post(page+"/values", append(stale, "key", key, "value", "7", "verb", verb)...).want(t, http.StatusConflict, "Not in this state")
		}
	}
	now := root.get(page + "?handler=count")
	now.want(t, http.StatusOK, `<td class="mono">41</td>`, `<td class="mono">&#34;first&#34;</td>`)
	root.post(page+"/values", append(formOf(t, now.body), "key", "n", "verb", "delete")...).want(t, http.StatusOK, "The value is changed")
	root.post(page+"/values", append(formOf(t, now.body), "key", "n", "value", "7", "verb", "set")...).want(t, http.StatusConflict, "Not in this state")
}

// What somebody connected, or set, since a page was made is not replaced or removed by that page.
func TestSecretAndAccountAreReplacedAsTheyWereShown(t *testing.T) {
	db := memory.New()
	actor, err := operator.New(db, operator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	put, keeps, accounts := putting{put: make(map[string]string), over: make(map[string]time.Time)}, filled(), shelved()
	w := &world{TB: t}
	w.serve(web.Config{Store: db, Actor: actor, Accounts: accounts, Connector: put, Secrets: keeps})
	t.Cleanup(w.site.Close)
	admin, other := w.as("ann", access.Admin), w.as("bob", access.Admin)
	stale := map[string][]string{} // the forms of each page as they were at first
	for _, path := range []string{"/secrets/bank", "/secrets/slack", "/accounts/work-mail", "/connect/stripe?name=work-mail"} {
		stale[path] = formOf(t, admin.get(path).body)
	}
	set := func(c *client, of, name, value string) answer {
		return c.post("/secrets", append(slices.Clone(stale[of]), "name", name, "value", value)...)
	}
	set(other, "/secrets/bank", "bank", "of bob").want(t, http.StatusOK, "by <bdi>bob</bdi>")
	set(other, "/secrets/slack", "slack", "of bob").want(t, http.StatusOK, "by <bdi>bob</bdi>")
	for _, name := range []string{"bank", "slack"} {
		for _, body := range []string{set(admin, "/secrets/"+name, name, "of ann").body, admin.post("/secrets", "name", name, "value", "of ann").body} {
			if !strings.Contains(body, "Not in this state") || !strings.Contains(body, "bob set the secret "+name) || strings.Contains(body, "of ann") {
				t.Errorf("an old page of %s is answered with\n%s", name, body)
			}
		}
	}
	admin.post("/secrets/bank/remove", stale["/secrets/bank"]...).want(t, http.StatusConflict, "bob set the secret bank")
	if keeps.values["bank"] != "of bob" || keeps.values["slack"] != "of bob" {
		t.Errorf("the secrets are %v", keeps.values)
	}
	admin.post("/secrets/bank/remove", formOf(t, admin.get("/secrets/bank").body)...).want(t, http.StatusOK, "The secret is removed")
	set(admin, "/secrets/bank", "bank", "of ann").want(t, http.StatusConflict, "removed")

	accounts.list[1].ConnectedBy, accounts.list[1].ConnectedAt = "bob", api.Time(time.Now())
	admin.post("/accounts/work-mail/revoke", stale["/accounts/work-mail"]...).want(t, http.StatusConflict, "bob connected the account work-mail")
	again := admin.post("/connect/stripe", append(slices.Clone(stale["/connect/stripe?name=work-mail"]), "name", "work-mail", "credential", "key of a shop")...)
	again.want(t, http.StatusConflict, "takes its place", "by <bdi>bob</bdi>")
	if len(put.put) != 0 || accounts.list[1].Status != keep.AccountOK {
		t.Errorf("put %v, and the account is %s", put.put, accounts.list[1].Status)
	}
	admin.post("/connect/stripe", append(formOf(t, again.body), "name", "work-mail", "credential", "key of a shop")...)
	if put.put["work-mail"] != "key of a shop" || !put.over["work-mail"].Equal(time.Time(accounts.list[1].ConnectedAt)) {
		t.Errorf("put %v over %v", put.put, put.over)
	}
	accounts.first = func() { // after the page of the form was compared
		accounts.list[1].ConnectedBy, accounts.list[1].ConnectedAt = "eve", api.Time(time.Now().Add(time.Hour))
	}
	admin.post("/accounts/work-mail/revoke", formOf(t, admin.get("/accounts/work-mail").body)...).want(t, http.StatusConflict, "Not in this state", "eve connected it")
	if accounts.first = nil; accounts.list[1].Status != keep.AccountOK {
		t.Errorf("what eve connected is %s", accounts.list[1].Status)
	}
	admin.post("/accounts/work-mail/revoke", formOf(t, admin.get("/accounts/work-mail").body)...).want(t, http.StatusOK)
}
