package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/operator"
)

// failing is a failure of the version that is current, and repairing its repair while an attempt is under way.
func (w *world) failing(at string) keep.Repair {
	w.t.Helper()
	rec := law.Begun(law.Signature{Workflow: "invoices", Version: fullDeployment.Version, Handler: "addRow", Code: "script-failed", At: at})
	rec, err := rec.Begin(law.Limits{Attempts: 3, Tokens: 100}, "run_1", noon)
	if err != nil {
		w.t.Fatal(err)
	}
	r := keep.Repair{ID: rec.Signature.ID(), Workflow: "invoices", CreatedAt: noon}
	if r.State, err = rec.Encode(); err == nil {
		err = w.store.PutRepair(w.t.Context(), r)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// proposes has a repair propose a version, and returns it.
func (w *world) proposes(r keep.Repair) keep.Proposal {
	w.t.Helper()
	d := fullDeployment
	d.Hash, d.Code = "mended "+r.ID, []byte("x")
	out, err := w.engine.DeployGranted(w.t.Context(), d, nil, operator.Consent{Giver: operator.Giver{By: r.ID, From: string(keep.OriginRepair)}, Repair: true, Ask: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return *out.Waiting
}

// A repair whose attempts are used up was rejected by nobody.
func TestSpentRepair(t *testing.T) {
	w := newWorld(t, nil)
	r := w.failing("a.js:1")
	rec, err := law.ReadRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	if r.State, err = rec.Refuse("all 3 attempts are used up").Encode(); err != nil {
		t.Fatal(err)
	}
	r.Rev++
	if err := w.store.PutRepair(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/proposals/" + r.ID, "/proposals?status=spent"} {
		w.ask("ann viewer", "GET", api.Prefix+path, "").want(t, 200, `"state":"spent"`, `"why":"all 3 attempts are used up"`)
	}
	w.ask("ann viewer", "GET", api.Prefix+"/proposals?status=rejected", "").want(t, 200, `"items":[]`)
}

// A repair that another version replaced is over, says so, and asks nothing: also if no host lived to keep that.
func TestReplacedRepairs(t *testing.T) {
	w := newWorld(t, nil)
	trying, waiting := w.failing("a.js:1"), w.failing("a.js:2")
	p := w.proposes(waiting)
	ask := func(path string) answer { return w.ask("ann viewer", "GET", api.Prefix+path, "") }
	ask("/proposals/"+trying.ID).want(t, 200, `"state":"judging"`, `"ended_at":null`)
	ask("/proposals/"+waiting.ID).want(t, 200, `"state":"waiting"`, `"version":"1.3"`, `"question":"`+string(p.Question)+`"`)
	d := fullDeployment
	d.Hash, d.Code = "a person's", []byte("y")
	if _, err := w.engine.Deploy(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	ask("/proposals/"+trying.ID).want(t, 200, `"state":"superseded"`, `"why":"version 2.0 was deployed meanwhile"`, `"ended_at":"`)
	ask("/proposals/"+waiting.ID).want(t, 200, `"state":"superseded"`, `"why":"another version came before a person decided about 1.3"`, `"question":null`)
	ask("/proposals").want(t, 200, `"version 2.0 was deployed meanwhile"`, `"another version came before a person decided about 1.3"`)
	ask("/workflows/invoices/versions").want(t, 200, `"version":"2.0","state":"current"`, `"version":"1.3","state":"replaced"`)
	w.ask("ann admin", "POST", api.Prefix+"/escalations/"+string(p.Question)+"/decision", `{"action":"approve"}`).
		want(t, http.StatusConflict, "was closed at", "since it no longer applied")
	ask("/workflows/invoices").want(t, 200, `"version":"2.0"`)
}

// A version that a repair wrote becomes current, or is refused, by who may deploy, and by nobody else.
func TestProposalRoles(t *testing.T) {
	for _, role := range access.Roles() {
		for _, action := range []keep.Action{keep.Approve, keep.Reject} {
			w := newWorld(t, nil)
			p := w.proposes(w.failing("a.js:1"))
			a := w.ask("ann "+string(role), "POST", api.Prefix+"/escalations/"+string(p.Question)+"/decision", `{"action":"`+string(action)+`"}`)
			state, version := keep.ProposalWaiting, "1.2"
			if role.Covers(access.Author) {
				a.want(t, 200)
				if state = keep.ProposalRejected; action == keep.Approve {
					state, version = keep.ProposalApproved, "1.3"
				}
			} else {
				a.want(t, http.StatusForbidden, "ann has the role "+string(role))
			}
			got, err := w.store.Proposal(t.Context(), "invoices", p.Version)
			if err != nil || got.State != state {
				t.Errorf("after %s by a %s the version is %s, %v; want %s", action, role, got.State, err, state)
			}
			w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices", "").want(t, 200, `"version":"`+version+`"`)
		}
	}
}

// A page of proposals has as many as were asked for, and the pages have each of them once.
func TestPagesOfProposals(t *testing.T) {
	w := newWorld(t, nil)
	var want []string
	for i := range 7 {
		r := w.failing(fmt.Sprintf("a.js:%d", i))
		if want = append(want, r.ID); i == 0 {
			w.proposes(r)
		}
	}
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(b, a) }) // made at one time
	for _, query := range []string{"", "&workflow=invoices", "&origin=repair"} {
		var got []string
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			a := w.ask("ann viewer", "GET", api.Prefix+"/proposals?limit=3"+query+"&cursor="+cursor, "")
			var p api.Page[api.Proposal]
			if err := json.Unmarshal([]byte(a.Body), &p); err != nil || len(p.Items) > 3 || pages > 3 {
				t.Fatalf("page %d has %d proposals, %v", pages, len(p.Items), err)
			}
			for _, one := range p.Items {
				got = append(got, one.ID)
			}
			if cursor = ""; p.Next != nil {
				cursor = *p.Next
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	w.ask("ann viewer", "GET", api.Prefix+"/proposals?status=waiting&limit=3", "").want(t, 200, `"state":"waiting"`, `"next":null`)
	for _, cursor := range []string{"x", "1", "1."} {
		w.ask("ann viewer", "GET", api.Prefix+"/proposals?cursor="+cursor, "").want(t, 400, "/bad-cursor")
	}
}
