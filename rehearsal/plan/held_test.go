package plan_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/breaker"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/rehearsal/plan"
)

// A plan lists calls that are not made now, of a tool that was stopped and of a service that does not answer, and says so.
func TestMake_says_which_calls_wait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	put := func(name string, state any) { putState(t, w, name, state) }
	waits := func() (said []string) {
		t.Helper()
		for _, s := range w.plan(t, plan.Config{Base: w.db, Now: now}).Unknown {
			if !strings.HasPrefix(s, "What shop.") { // answers
				said = append(said, s)
			}
		}
		return said
	}
	put("other", limit.State{Shut: &limit.Shut{Kind: limit.ByDown, Until: now.Add(time.Hour)}})
	put(keep.ToolGate("shop.bill"), breaker.State{Failed: map[string][]time.Time{"logic http-422": {now}}})
	if got := waits(); len(got) > 0 {
		t.Errorf("said %q of what holds up nothing of the plan", got)
	}
	put(keep.ToolGate("shop.send"), breaker.State{Open: &breaker.Open{Since: now, Cause: "logic http-422", N: 5, Why: "no such order."}})
	put("shop", limit.State{Shut: &limit.Shut{Kind: limit.ByDown, Since: now, Until: time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC), Why: "connection refused"}})
	want := []string{
		"No call of shop.send is made before a person lets them through (keep inbox): calls of shop.send are stopped in all workflows, since 5 of them failed alike (logic http-422): no such order.",
		"Calls and reads of shop wait for shop, which does not answer: connection refused; the next one is made at 2126-01-02 03:04:05Z.",
	}
	if got := waits(); !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
}

// putState stores what the users of a connection or a tool share.
func putState(t *testing.T, w *world, name string, state any) {
	t.Helper()
	text, err := json.Marshal(state)
	if err == nil {
		err = w.db.PutGate(t.Context(), keep.Gate{Connection: name, State: text})
	}
	if err != nil {
		t.Fatal(err)
	}
}
