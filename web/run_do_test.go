package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
)

// The page of a run that waits offers what can be done to it, with what that causes; the
// press does it, and a run that is over offers nothing.
func TestRunIsCancelledOnItsPage(t *testing.T) {
	db := memory.New()
	now := time.Now()
	r := keep.Reservation{Topic: "t", IDs: []keep.MessageID{"m"}}
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Prepared,
		Status: keep.StatusTransient, Error: keep.Failf(keep.ClassTransient, "x", "x"), RetryAt: now.Add(time.Hour), Reservations: []keep.Reservation{r}, CreatedAt: now, UpdatedAt: now}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}},
		keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m"}}, keep.Reserve{Chain: run.Chain, Reservation: r}, keep.PutRun{Run: run})
	ask := pagesWith(t, db)
	ask("GET", "/runs/run_1", nil).want(t, http.StatusOK, "Try now", "makes the next attempt now", "Cancel the run", "skips its events (1)")
	ask("POST", "/runs/run_1", url.Values{"action": {"approve"}}).want(t, http.StatusBadRequest, "cancelled or tried now")
	ask("POST", "/runs/run_1", url.Values{"action": {"retry"}}).want(t, http.StatusSeeOther)
	ask("POST", "/runs/run_1", url.Values{"action": {"cancel"}, "note": {"wrong customer"}}).want(t, http.StatusSeeOther)
	after := ask("GET", "/runs/run_1", nil)
	after.want(t, http.StatusOK, "cancel by ada, from the web", "note: wrong customer")
	if strings.Contains(after.body, "Try now") {
		t.Error("a run that is over can be tried now")
	}
	ask("POST", "/runs/run_1", url.Values{"action": {"cancel"}}).want(t, http.StatusConflict, "it is over: aborted")
}
