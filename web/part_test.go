package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
)

// busy has a run, an input, an item and an event with more about them than a page lists.
func busy(t *testing.T) *memory.Store {
	t.Helper()
	db := memory.New()
	now := keepNow()
	v := keep.Version{Major: 1}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: v, Entry: "w.js", CreatedAt: now,
		Code: []byte(strings.Repeat("// a line of a script\n", 4000) + "Keep.workflow({}) // the last line\n"), Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}, Handlers: []keep.Handler{{Name: "h", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}}}}}})
	var causes []keep.InputID
	var ins []keep.Change
	for i := range 130 {
		id := keep.InputID(fmt.Sprintf("in_%03d", i))
		causes = append(causes, id)
		ins = append(ins, keep.PutInput{Input: keep.Input{ID: id, Workflow: "w", Source: "s", Type: "x", ExternalID: string(id), Title: string(id), Status: keep.InputPending, CreatedAt: now}})
	}
	commit(t, db, "w", now, append(ins, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m", Payload: []byte(`{}`), Status: keep.EventPending,
		CausedBy: causes, CreatedAt: now, UpdatedAt: now}})...)
	commit(t, db, "w", now, keep.PutItem{Item: keep.Item{Workflow: "w", ID: "17", Title: "Order 17", Status: keep.ItemDone, Attempt: 1, CreatedAt: now, UpdatedAt: now}})
	for i := range 130 {
		run := keep.Run{ID: keep.RunID(fmt.Sprintf("run_%03d", i)), Chain: keep.RunID(fmt.Sprintf("run_%03d", i)), Workflow: "w", Version: v, Handler: "h", Kind: keep.Consumer, Phase: keep.Prepared,
			Status: keep.StatusPerson, Error: keep.Failf(keep.ClassPermission, "no", "waits"), CreatedAt: now, UpdatedAt: now}
		run.Lane = keep.ChainLane(run.ID)
		m := keep.Mutation{Key: keep.MutationKey(fmt.Sprintf("mut_%03d", i)), Workflow: "w", Run: run.ID, Item: "17", Attempt: 1, Tool: "shop.put", Target: fmt.Sprint("id=", i), Level: keep.LevelKey, Token: fmt.Sprint(i),
			Identity: []byte(`{}`), Payload: []byte(`{}`), State: keep.Applied, ResolvedBy: "call", Attempts: 1, CallDeadline: now, CreatedAt: now, UpdatedAt: now}
		commit(t, db, "w", now, keep.PutRun{Run: run}, keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: keep.Applied}}})
	}
	return db
}

// What a page leaves out it says.
func TestPagesSayWhatTheyLeaveOut(t *testing.T) {
	ask := pagesWith(t, busy(t))
	for path, want := range map[string]string{
		"/item?workflow=w&id=17":         "There are older ones",
		"/item/confirm?workflow=w&id=17": "and older calls, which are not listed",
		"/event?workflow=w&topic=t&id=m": "and 30 inputs more",
		"/runs":                          "There are more unfinished runs",
		"/workflows/w/versions/1.0":      "The beginning of the file",
	} {
		ask("GET", path, nil).want(t, http.StatusOK, want)
	}
	if page := ask("GET", "/runs?open=1", nil); strings.Contains(page.body, "more unfinished runs") {
		t.Error("the list of unfinished runs, which has pages, says that it leaves some out")
	}
	if page := ask("GET", "/workflows/w/versions/1.0", nil); strings.Contains(page.body, "The whole file") {
		t.Error("the beginning of a file is called the whole file")
	}
}

// A list of some questions that is empty does not say that nothing needs anybody.
func TestEmptyInboxOfSome(t *testing.T) {
	db := memory.New()
	doubts(t, db, 2, nil)
	ask := pagesWith(t, db)
	for _, path := range []string{"/inbox?workflow=nothing", "/inbox?cause=" + url.QueryEscape("unknown_outcome bank.other no-answer"), "/inbox?show=each&workflow=nothing"} {
		page := ask("GET", path, nil)
		page.want(t, http.StatusOK, "None of the open questions is here")
		if strings.Contains(page.body, "Nothing needs you") {
			t.Errorf("%s says that nothing needs you, with 2 open questions", path)
		}
	}
	if page := ask("GET", "/inbox?workflow=w0", nil); strings.Contains(page.body, "is here") {
		t.Error("a list with a question says that it has none")
	}
	pagesWith(t, memory.New())("GET", "/inbox?workflow=w0", nil).want(t, http.StatusOK, "Nothing needs you")
}

// The second press for several says which of those that were chosen it leaves out, and why.
func TestConfirmTogetherNamesWhatItLeavesOut(t *testing.T) {
	db := memory.New()
	doubts(t, db, 4, func(i int, _ *keep.Mutation, q *keep.Escalation) {
		if i == 2 {
			q.Attempted += strings.Repeat("x", 3000)
		}
	})
	ask := pagesWith(t, db)
	ask("POST", "/inbox/esc_1", url.Values{"action": {"happened"}}).want(t, http.StatusSeeOther)
	page := ask("GET", "/inbox/together/confirm?action=did-not-happen&id=esc_0&id=esc_1&id=esc_2&id=esc_3", nil)
	page.want(t, http.StatusOK, "send 2 calls again", "2 of those that you chose are left out", `href="/inbox/esc_1"`, "answered meanwhile", `href="/inbox/esc_2"`, "too long for a list")
}
