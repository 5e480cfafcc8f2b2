package web_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/view"
)

// manyQuestions has 1,200 runs with a question of one cause, and before them an approval, a grant and a script that
// failed, and a decided question.
func manyQuestions(t *testing.T) *memory.Store {
	t.Helper()
	db := memory.New()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	ask := func(w keep.WorkflowName, id string, kind keep.EscalationKind, f *keep.Failure, q keep.Escalation) {
		t.Helper()
		r := keep.Run{ID: keep.RunID("run_" + id), Workflow: w, Version: keep.Version{Major: 1}, Handler: "send", Kind: keep.Consumer, Phase: keep.Prepared,
			Status: keep.StatusPerson, Error: f, CreatedAt: at, UpdatedAt: at}
		r.Chain, r.Lane = r.ID, keep.ChainLane(r.ID)
		q.ID, q.Kind, q.Workflow, q.Run, q.CreatedAt = keep.EscalationID("esc_"+id), kind, w, r.ID, at
		commit(t, db, w, at, keep.PutRun{Run: r}, keep.OpenEscalation{Escalation: q})
	}
	for _, w := range []keep.WorkflowName{"payouts", "many1", "many2"} {
		def := keep.Definition{Name: w, Handlers: []keep.Handler{{Name: "send", Kind: keep.Consumer}}}
		commit(t, db, w, at, keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Hash: string(w), Entry: "w.js", Code: []byte("x"), Definition: def, CreatedAt: at}})
	}
	ask("payouts", "pay", keep.AskApproval, &keep.Failure{Class: keep.ClassPermission, Code: "approval-needed", Tool: "bank.pay"},
		keep.Escalation{Question: "May bank.pay be called?", Approval: &keep.Approval{Tool: "bank.pay", Payload: []byte(`{}`)}, Choices: []keep.Choice{{Action: keep.Approve, Label: "Approve"}}})
	ask("payouts", "logic", keep.AskLogic, &keep.Failure{Class: keep.ClassLogic, Code: "throw"}, keep.Escalation{Question: "The script of payouts failed."})
	ask("payouts", "old", keep.AskLogic, &keep.Failure{Class: keep.ClassLogic, Code: "throw"}, keep.Escalation{Question: "This was answered."})
	commit(t, db, "payouts", at, keep.CloseEscalation{ID: "esc_old", Decision: &keep.Decision{Action: keep.Retry, By: "ann", At: at}})
	for i := range 1200 {
		w := []keep.WorkflowName{"many1", "many2"}[i%2]
		ask(w, fmt.Sprintf("many%d", i), keep.AskUnknownOutcome, &keep.Failure{Class: keep.ClassUnknown, Code: "no-answer", Tool: "office.lost"},
			keep.Escalation{Question: "Nobody can tell whether it happened."})
	}
	return db
}

// Beyond the questions that a list would have, the pages say what needs a person: of each cause, of each workflow,
// and how many there are.
func TestManyQuestions(t *testing.T) {
	db := manyQuestions(t)
	ask := pagesWith(t, db)
	for path, want := range map[string]struct{ has, not []string }{
		"/":                                {[]string{"May bank.pay be called?", "The script of payouts failed."}, []string{"run_many0\""}},
		"/inbox":                           {[]string{"May bank.pay be called?", "The script of payouts failed.", "<b>1,200 questions</b>", "in 2 workflows"}, nil},
		"/inbox?workflow=payouts":          {[]string{"May bank.pay be called?", "The script of payouts failed."}, []string{"Nothing needs you.", "Nobody can tell"}},
		"/inbox?workflow=many1":            {[]string{"<b>600 questions</b>"}, []string{"May bank.pay", "2 workflows"}},
		"/inbox/together":                  {[]string{"May bank.pay be called?"}, []string{"No call waits"}},
		"/inbox/together?workflow=payouts": {[]string{"May bank.pay be called?"}, []string{"No call waits"}},
		"/inbox/together?tool=bank.pay":    {[]string{"May bank.pay be called?"}, []string{"No call waits"}},
		"/inbox?show=decided":              {[]string{"This was answered."}, []string{"Nothing was decided", "Nobody can tell", "Older"}},
		"/inbox?cause=logic+send+throw":    {[]string{"The script of payouts failed."}, []string{"This was answered."}},
		"/inbox?cause=unknown_outcome+office.lost+no-answer&from=1180": {[]string{"1,200 questions", "esc_many0\""}, []string{"esc_many20\""}},
	} {
		body := ask("GET", path, nil).body
		for _, text := range want.has {
			if !strings.Contains(body, text) {
				t.Errorf("%s does not say %q", path, text)
			}
		}
		for _, text := range want.not {
			if strings.Contains(body, text) {
				t.Errorf("%s says %q", path, text)
			}
		}
	}
	o, err := view.Read(t.Context(), db, time.Now())
	if err != nil || o.Asked != 1202 || o.Waiting != 1203 {
		t.Errorf("%d open questions, %d runs wait, %v", o.Asked, o.Waiting, err)
	}
	st, err := api.ReadStatus(t.Context(), db, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Failing) != 1 || st.Failing[0].ID != "run_old" || st.Asked != 1202 || len(st.Causes) != 3 || len(st.Workflows[0].OpenRuns) != 600 {
		t.Errorf("%d runs fail with nobody asked, %d questions, %d causes, %d open runs", len(st.Failing), st.Asked, len(st.Causes), len(st.Workflows[0].OpenRuns))
	}
}
