package web_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/operator"
)

// A version that a repair wrote becomes current, or is refused, on the pages by who may deploy, and by
// nobody else.
func TestProposalRoles(t *testing.T) {
	w := newWorld(t, "letters.js")
	for i, role := range access.Roles() {
		for j, action := range []keep.Action{keep.Approve, keep.Reject} {
			d, err := w.db.Deployment(t.Context(), "letters", w.version("letters").Version)
			w.must(err)
			before := d.Version
			d.Hash = string(rune('a'+i)) + string(rune('a'+j))
			out, err := w.host.Operator.DeployGranted(t.Context(), d, &before, operator.Consent{
				Giver: operator.Giver{By: "rep_" + d.Hash, From: string(keep.OriginRepair)}, Repair: true, Ask: true})
			w.must(err)
			p := out.Waiting
			a := w.as("ann", role).post("/inbox/"+string(p.Question), "action", string(action), "from", "question")
			state, version := keep.ProposalWaiting, before
			if role.Covers(access.Author) {
				a.want(t, http.StatusOK)
				if state = keep.ProposalRejected; action == keep.Approve {
					state, version = keep.ProposalApproved, p.Version
				}
			} else if a.status != http.StatusForbidden {
				t.Errorf("%s by a %s: status %d, want 403", action, role, a.status)
			}
			got, err := w.db.Proposal(t.Context(), "letters", p.Version)
			if err != nil || got.State != state || w.version("letters").Version != version {
				t.Errorf("after %s by a %s the version is %s, %v, and %s is current; want %s and %s", action, role, got.State, err, w.version("letters").Version, state, version)
			}
			if state == keep.ProposalWaiting { // so that the next one may wait
				w.must(w.host.Decide(t.Context(), p.Question, keep.Decision{Action: keep.Reject, By: "bob", From: "cli"}))
			}
		}
	}
}

// The page of a proposal shows what changes in each of its files, and not in the one alone that declares the workflow: who decides
// there has seen all of it.
func TestProposalShowsEveryFile(t *testing.T) {
	w := newWorld(t, "letters.js")
	d, err := w.db.Deployment(t.Context(), "letters", w.version("letters").Version)
	w.must(err)
	before := d.Version
	files := d.Sources()
	entry := files[d.Entry]
	d.Map, err = json.Marshal(map[string]any{"version": 3, "sources": []string{d.Entry, "lib/pay.js"}, "sourcesContent": []string{entry, "export const to = 'DE66 elsewhere';\n"}, "mappings": ""})
	w.must(err)
	d.Hash = "of-an-agent"
	out, err := w.host.Operator.DeployGranted(t.Context(), d, &before, operator.Consent{Giver: operator.Giver{By: "bot", From: string(keep.OriginAgent)}, Ask: true})
	w.must(err)
	w.as("root", access.Admin).get("/proposals/letters@"+out.Waiting.Version.String()).want(t, http.StatusOK, "What changes in <bdi>lib/pay.js</bdi>", "DE66 elsewhere")
	// From another working directory its names begin with another folder.
	d.Map, err = json.Marshal(map[string]any{"version": 3, "sources": []string{"mine/" + d.Entry, "mine/lib/pay.js"}, "sourcesContent": []string{entry, "export const to = 'DE66 elsewhere';\n"}, "mappings": ""})
	w.must(err)
	d.Hash = "of-another-folder"
	out, err = w.host.Operator.DeployGranted(t.Context(), d, &before, operator.Consent{Giver: operator.Giver{By: "bot", From: string(keep.OriginAgent)}, Ask: true})
	w.must(err)
	shown := w.as("root", access.Admin).get("/proposals/letters@" + out.Waiting.Version.String())
	shown.want(t, http.StatusOK, "What changes in <bdi>mine/lib/pay.js</bdi>")
	if strings.Contains(shown.body, d.Entry+"</bdi>") {
		t.Errorf("%s is shown as changed, and only its folder is another: %s", d.Entry, shown.body)
	}
}
