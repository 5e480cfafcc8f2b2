package web_test

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// A page leaves no line that says nothing: how long a run took that is not over, when a handler comes next whose time is over, of which
// workflow an event of all is, what a button to test does. A note keeps its lines where a run is told in words.
func TestNoLineSaysNothing(t *testing.T) {
	db := memory.New()
	now := keepNow()
	def := keep.Definition{Name: "w", Topics: []keep.TopicName{"in"}, Handlers: []keep.Handler{{Name: "poll", Kind: keep.Producer}, {Name: "pay", Kind: keep.Consumer, Subscribe: []keep.TopicName{"in"}}}}
	one, input := keep.Version{Major: 1}, keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "e", Title: "T", Status: keep.InputPending, CreatedAt: now}
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: one, Handler: "pay", Kind: keep.Consumer, Phase: keep.Mutating, Status: keep.StatusPerson,
		Error: keep.Failf(keep.ClassPermission, "forbidden", "no"), Reservations: []keep.Reservation{{Topic: "in", IDs: []keep.MessageID{"m1"}}}, CreatedAt: now, UpdatedAt: now}
	ask := keep.Escalation{ID: "esc_1", Kind: keep.AskPermission, Workflow: "w", Run: "run_1", Question: "May it?", CreatedAt: now, Choices: []keep.Choice{{Action: keep.Retry, Label: "Retry"}}}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: one, Code: []byte("x"), Definition: def, CreatedAt: now}},
		keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "poll", Kind: keep.Producer, NextAt: now.Add(-time.Minute)}}, keep.PutInput{Input: input},
		keep.Publish{Event: keep.Event{Workflow: "w", Topic: "in", MessageID: "m1", Payload: []byte(`{}`), Status: keep.EventPending, CausedBy: []keep.InputID{input.ID}, CreatedAt: now, UpdatedAt: now}},
		keep.PutRun{Run: run}, keep.Reserve{Chain: run.Chain, Reservation: run.Reservations[0]}, keep.OpenEscalation{Escalation: ask})
	commit(t, db, "w", now, keep.CloseEscalation{ID: ask.ID, Decision: &keep.Decision{Action: keep.Retry, By: "ada", At: now, Note: "first line\nsecond line"}})
	get := pagesAs(t, db, access.Operator)
	get("GET", "/inputs/in_1", nil).want(t, http.StatusOK, `data-label="Took:">not over<`)
	get("GET", "/workflows/w", nil).want(t, http.StatusOK, `data-label="Next:">due since <time`)
	get("GET", "/events", nil).want(t, http.StatusOK, `<td><a href="/workflows/w">w</a></td><td>in</td>`)
	if of := get("GET", "/events?workflow=w", nil); strings.Contains(of.body, "<th>Workflow</th>") {
		t.Error("the events of one workflow have a column that says it each time")
	}
	if text := get("GET", "/runs/run_1", nil); !regexp.MustCompile(`<bdi class="lines">[^<]*first line\nsecond line`).MatchString(text.body) {
		t.Errorf("the note is told as %.300q", regexp.MustCompile(`[^>]*first line[^<]*`).FindString(text.body))
	}
	commit(t, db, "w", now, keep.SetPaused{Paused: true})
	if of := get("GET", "/workflows/w", nil); strings.Contains(of.body, "due since") || strings.Count(of.body, `data-label="Next:">when the workflow is resumed<`) != 2 {
		t.Error("handlers of a paused workflow come next at a time, or when an event comes")
	}
	newWorld(t).as("ada", access.Operator).get("/connections").want(t, http.StatusOK, "calls a read once, without params: it changes nothing")
}

// A locked tool is a read whose account has to be connected again.
type locked struct{}

func (locked) Spec() connector.Spec { return connector.Spec{Name: "rows", Effect: connector.List} }

func (locked) Read(context.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeAccount, Tool: "sheet.rows", Account: "cloud", Message: "the account cloud must be connected again"}
}

// Who tests a connection whose account has to be connected again is led there, and not to keep.toml, which is in order.
func TestTestOfALostAccount(t *testing.T) {
	w := newWorld(t)
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Connections: []connector.Connection{{Name: "sheet", Connector: "sheet", Tools: []connector.Tool{locked{}}}}})
	a := w.as("ada", access.Operator).post("/connections/sheet/rows/test")
	if a.want(t, http.StatusOK, "The read failed after", `<a href="/accounts">Accounts</a>`, "Nothing was changed."); strings.Contains(a.body, "Look at the address") {
		t.Error("it leads to keep.toml")
	}
}

// A question about an account leads to where that is connected again, as it is answered by nothing else.
func TestQuestionAboutAnAccountLeadsToIt(t *testing.T) {
	db, now := memory.New(), keepNow()
	lost := keep.Account{Name: "work_mail", Pack: "gmail", Status: keep.AccountNeedsReconnect, Error: "refused: Token has been revoked.", ConnectedBy: "ada", ConnectedAt: now, Generation: 3}
	q := account.Question(lost, now)
	if strings.Contains(q.Why, ".;") {
		t.Errorf("it says %q", q.Why)
	}
	commit(t, db, "", now, keep.OpenEscalation{Escalation: q})
	const link = `<a href="/accounts/work_mail">Connect the account again</a>`
	get := pagesAs(t, db, access.Operator)
	for _, path := range []string{"/inbox", "/inbox/" + string(q.ID)} {
		get("GET", path, nil).want(t, http.StatusOK, link)
	}
	commit(t, db, "", now, keep.CloseEscalation{ID: q.ID})
	if over := get("GET", "/inbox/"+string(q.ID), nil); strings.Contains(over.body, link) {
		t.Error("there is something to do about a question that is over")
	}
}
