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

// Nobody agrees to a version where its script is not shown: not in the list of questions, and not to several at once, which are of
// different workflows and have no cause in common. The page of the question has the script, also of a workflow that is new.
func TestVersionsAreAgreedToWithTheirScript(t *testing.T) {
	w := newWorld(t, "letters.js")
	d, err := w.db.Deployment(t.Context(), "letters", w.version("letters").Version)
	w.must(err)
	propose := func(d keep.Deployment, script string, over *keep.Version) keep.Proposal {
		d.Hash, d.Map = "of "+string(d.Workflow), nil
		d.Map, err = json.Marshal(map[string]any{"version": 3, "sources": []string{d.Entry}, "sourcesContent": []string{script}, "mappings": ""})
		w.must(err)
		out, err := w.host.Operator.DeployGranted(t.Context(), d, over, operator.Consent{Giver: operator.Giver{By: "bot", From: string(keep.OriginAgent)}, Ask: true})
		w.must(err)
		return *out.Waiting
	}
	before := d.Version
	changed := propose(d, d.Sources()[d.Entry]+"// THE-CHANGE\n", &before)
	d.Workflow, d.Definition.Name = "brand-new", "brand-new"
	made := propose(d, "// ALL-THAT-IS-NEW\n", nil)
	root := w.as("root", access.Admin)
	root.get("/workflows/brand-new").want(t, http.StatusNotFound, "Not deployed", `href="/proposals?workflow=brand-new"`)

	list := root.get("/inbox?show=each")
	list.want(t, http.StatusOK, "See the script to approve it")
	// A key and the first button mean the same on each page.
	list.want(t, http.StatusOK, `value="reject" data-act="2"`)
	if strings.Contains(list.body, `class="primary"`) {
		t.Error("the list has a button to reject in the place of the one to approve")
	}
	causes := root.get("/inbox")
	causes.want(t, http.StatusOK, "of this kind")
	for _, unwanted := range []string{`value="approve"`, "with the same cause", "Answer all of them", "THE-CHANGE"} {
		if strings.Contains(list.body+causes.body, unwanted) {
			t.Errorf("a list has %q", unwanted)
		}
	}
	together := root.get("/inbox/together?cause=proposal++")
	together.want(t, http.StatusOK, "answered on its page")
	if strings.Contains(together.body, `type="checkbox"`) {
		t.Error("several versions can be chosen")
	}
	for _, p := range []keep.Proposal{changed, made} {
		root.post("/inbox/"+string(p.Question), "action", "approve").want(t, http.StatusBadRequest, "the list does not show the script")
		root.post("/inbox/together", "action", "approve", "id", string(p.Question)).want(t, http.StatusBadRequest, "the list does not show the script")
		text := map[keep.WorkflowName]string{"letters": "// THE-CHANGE", "brand-new": "// ALL-THAT-IS-NEW"}[p.Workflow]
		root.get("/inbox/"+string(p.Question)).want(t, http.StatusOK, text, `value="approve"`)
		root.get("/proposals/"+string(p.Workflow)+"@"+p.Version.String()).want(t, http.StatusOK, text)
		root.post("/inbox/"+string(p.Question), "action", "approve", "from", "question").want(t, http.StatusOK, "Your decision is recorded")
	}
}
