package web_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// Every action works as a plain form, without JavaScript, and says what it did.
func TestActions(t *testing.T) {
	w := fullWorld(t)
	c := w.as("ada", access.Operator)

	t.Run("what sends again is never the default", func(t *testing.T) {
		seen := map[string]bool{}
		views := w.views()
		views["key"] = w.unknownKey()
		for name, path := range views {
			for _, m := range regexp.MustCompile(`(?s)<button([^>]*value="(did-not-happen|reprocess|do-again|forget)"[^>]*)>(.*?)</small>`).FindAllStringSubmatch(c.get(path).body, -1) {
				seen[m[2]] = true
				if strings.Contains(m[1], "primary") || strings.Contains(m[1], "data-act") || !strings.Contains(strings.ToLower(m[3]), "asks you once more") && !strings.Contains(m[1], "disabled") {
					t.Errorf("%s: %s is the default, or one key away, or final: %s", name, m[2], m[0])
				}
			}
		}
		if !seen["did-not-happen"] || !seen["reprocess"] {
			t.Errorf("seen %v", seen)
		}
	})
	t.Run("decide that it did not happen", func(t *testing.T) {
		q := w.question("mails")
		c.get("/inbox/"+string(q.ID)).want(t, 200, "Outcome unknown", "sent folder of the desk", "sends the call again", "a claim of the script")
		w.desk.set(func(d *desk) { d.lose["/replies"] = false })
		before := w.desk.done("/replies")
		first := c.post("/inbox/"+string(q.ID), "action", "did-not-happen", "note", "looked in the sent folder", "from", "question")
		first.want(t, 200, "send it again?", "sends the call again", "<code>desk.reply</code>", "sent folder of the desk", "What was sent")
		if n := w.desk.done("/replies") - before; n != 0 || len(w.questions()) == 0 || w.question("mails").ID != q.ID {
			t.Fatalf("one press sent %d replies or closed the question", n)
		}
		a := c.post("/inbox/"+string(q.ID), formOf(t, first.body)...)
		a.want(t, 200, "Your decision is recorded.", "<strong>ada</strong> decided “It didn&#39;t happen”", "looked in the sent folder")
		w.settle("mails")
		if n := w.desk.done("/replies") - before; n != 4 { // the one in doubt, and the three behind it
			t.Errorf("%d replies after the decision, want 4", n)
		}
		got, err := w.db.Escalation(t.Context(), q.ID)
		w.must(err)
		if d := got.Decision; d == nil || d.By != "ada" || d.From != "web" {
			t.Errorf("the decision is %+v, want one by ada, from web", d)
		}
		c.get("/runs/"+string(q.Run)).want(t, 200, "ada decided “It didn&#39;t happen”. Note: looked in the sent folder", "attempt 1 of 2")
	})
	t.Run("decide that it happened", func(t *testing.T) {
		w.desk.set(func(d *desk) {
			d.lose["/replies"] = true
			d.mails = append(d.mails, mail{ID: "told", From: "told@example.com", Subject: "Told"})
		})
		c.post("/workflows/mails/run", "handler", "poll").want(t, 200)
		w.until("it is asked about", func() bool {
			return slices.ContainsFunc(w.questions(), func(q keep.Escalation) bool { return q.Workflow == "mails" })
		})
		q := w.question("mails")
		before := w.desk.done("/replies")
		c.get("/inbox/"+string(q.ID)).want(t, 200, ">It happened</button>", "what the call would have answered, as JSON (may be empty)", `name="result"`)
		c.post("/inbox/"+string(q.ID), "action", "happened", "result", "{oops", "from", "question").want(t, 422, "The result is needed", "not JSON", "nothing was changed")
		c.post("/inbox/"+string(q.ID), "action", "happened", "result", `{"id":1,"id":2}`, "from", "question").want(t, 422, "The result is needed", "two members have the name", "nothing was changed")
		if w.question("mails").ID != q.ID {
			t.Fatal("an answer that was refused closed the question")
		}
		c.post("/inbox/"+string(q.ID), "action", "happened", "result", `{"ok": true}`, "from", "question").want(t, 200, "decided “It happened”")
		w.desk.set(func(d *desk) { d.lose["/replies"] = false })
		w.settle("mails")
		m, err := w.db.Mutation(t.Context(), q.Mutation)
		w.must(err)
		if n := w.desk.done("/replies") - before; n != 0 || m.State != keep.Applied || m.ResolvedBy != "ada" || string(m.Result) != `{"ok": true}` {
			t.Errorf("%d replies were sent, the call is %s by %s with %s; want none, applied by ada with the result", n, m.State, m.ResolvedBy, m.Result)
		}
		c.get("/mutations/"+string(m.Key)).want(t, 200, "Result: resolved by ada", "person: happened")
	})
	t.Run("approve", func(t *testing.T) {
		q := w.question("refunds")
		c.get("/inbox/"+string(q.ID)).want(t, 200, "May refund of workflow refunds call desk.refund", "4000", "Harmless refund")
		c.post("/inbox/"+string(q.ID), "action", "approve").want(t, 200, "Your decision is recorded.", "Script failed")
		w.until("the refund was made", func() bool { return w.desk.done("/refunds") == 1 })
	})
	t.Run("reprocess what changed", func(t *testing.T) {
		q := w.question("letters")
		c.get("/inbox/"+string(q.ID)).want(t, 200, "What differs", "amount: 10 → 12", "Letter to kim@example.com")
		c.post("/inbox/"+string(q.ID), "action", "skip", "from", "question").want(t, 200, "decided “Skip”")
	})
	t.Run("pause and resume", func(t *testing.T) {
		c.post("/workflows/mails/pause", "note", "<b>closed</b> until Monday").want(t, 200, "The workflow is paused.", ">Resume ", "&lt;b&gt;closed&lt;/b&gt; until Monday")
		c.post("/workflows/mails/pause", "note", strings.Repeat("x", 4001)).want(t, 400, "a note has at most 4000 characters")
		_, form, _ := strings.Cut(c.get("/workflows/mails").body, `action="/workflows/mails/resume"`)
		form, _, _ = strings.Cut(form, "</form>")
		c.post("/workflows/mails/resume", formOf(t, form)...).want(t, 200, "The workflow runs again.", ">Pause ")
		c.post("/workflows/nobody/pause").want(t, 404, "no workflow &#34;nobody&#34;")
	})
	t.Run("run now", func(t *testing.T) {
		w.settle("mails")
		before := w.ran("mails", "poll")
		w.until("mails is free", func() bool { // it may look once more for events
			return strings.Contains(c.post("/workflows/mails/run", "handler", "poll").body, "Asked to run")
		})
		w.until("poll ran again", func() bool { return w.ran("mails", "poll") != before })
		c.post("/workflows/mails/run", "handler", "reply").want(t, 400, "reply is a consumer")
		c.post("/workflows/mails/run", "handler", "x").want(t, 404)
		c.post("/workflows/broken/run", "handler", "watch").want(t, 409, "Not now", "unfinished run")
	})
	t.Run("reprocess and skip an item", func(t *testing.T) {
		item := "/item?workflow=reminders&id=order:17"
		c.get(item).want(t, 200, "Remind lee@northwind.test", "Starts over as attempt 2")
		first := c.post(item, "action", "reprocess", "note", "the address was wrong")
		first.want(t, 200, "It starts over as attempt 2", "desk.remind")
		c.get(item).want(t, 200, "attempt 1 ")
		c.post(item, formOf(t, first.body)...).want(t, 200, "starts over as a new attempt", "attempt 2")
		skip := append(formOf(t, c.get(item).body), "action", "skip")
		c.post(item, skip...).want(t, 200, "passed over from now on", "<dt>Reprocessed</dt><dd>by <bdi>ada</bdi> (web), ", "the address was wrong", "<dt>Skipped</dt>")
		c.post(item, skip...).want(t, 409, "nothing is left to skip")
		c.post(item, "action", "eat").want(t, 400, "not &#34;eat&#34;")
	})
}

// Of two people who decide at once the second sees who was first, and when.
func TestSecondOfTwoDeciders(t *testing.T) {
	w := newWorld(t, "refunds.js")
	q := w.question("refunds")
	w.as("ada", access.Operator).post("/inbox/"+string(q.ID), "action", "reject", "note", "too much").want(t, 200, "Your decision is recorded.")
	got, err := w.db.Escalation(t.Context(), q.ID)
	w.must(err)
	at := got.Decision.At.UTC().Format("2006-01-02 15:04:05 UTC")
	bob := w.as("bob", access.Operator)
	bob.post("/inbox/"+string(q.ID), "action", "approve").want(t, 409, "Already answered", "ada decided “Reject” at "+at, "your answer was not recorded", "/inbox/"+string(q.ID))
	bob.get("/inbox/"+string(q.ID)).want(t, 200, "<strong>ada</strong> decided “Reject”", "too much")
	bob.get("/inbox?show=decided").want(t, 200, "too much")
	if n := w.desk.done("/refunds"); n != 0 {
		t.Errorf("%d refunds were made, want none", n)
	}
}

// Skipping all that match says first what that is, and leaves alone what came
// later or does not match.
func TestSkipAllThatMatch(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) {
		d.lose["/replies"] = true
		d.mails = append(mails(130), mail{ID: "keep", From: "x@example.com", Subject: "Holiday", Text: "-"})
	})
	w.trigger("mails", "poll")
	w.question("mails") // holds the first
	c := w.as("ada", access.Operator)
	c.get("/inputs?q=invoice").want(t, 200, "Skip all 130 pending that match")
	plan := c.get("/skip-inputs?q=invoice")
	plan.want(t, 200, "130 inputs will be left undone", "and others, 130 in all", "Inputs that come in from now on are left alone")
	form := formOf(t, plan.body)
	w.must(w.db.Commit(t.Context(), keep.Commit{Workflow: "mails", At: keepNow(), Changes: lateInput()}))
	a := c.post("/skip-inputs", form...)
	for strings.Contains(a.body, "data-auto") {
		a = c.post("/skip-inputs", formOf(t, a.body)...)
	}
	a.want(t, 200, "129 inputs skipped", "Too late for 1", "Done.")
	counts, err := w.db.CountInputs(t.Context(), keep.InputFilter{})
	w.must(err)
	if got, want := fmt.Sprint(counts), fmt.Sprint(map[keep.InputStatus]int{keep.InputPending: 2, keep.InputSkipped: 130}); got != want {
		t.Errorf("inputs are %s, want %s", got, want)
	}
	c.get("/skip-inputs?q=invoice").want(t, 200, "will be left undone") // the late one
	c.get("/skip-inputs?q=nothing").want(t, 200, "No pending input matches")
}

// A viewer sees everything and no buttons, and can do nothing.
func TestRoles(t *testing.T) {
	w := fullWorld(t)
	viewer, nobody := w.as("vera", access.Viewer), w.as("", "")
	q := w.question("mails")
	for name, path := range w.views() {
		if name == "missing" {
			continue
		}
		a := viewer.get(path)
		a.want(t, http.StatusOK)
		if strings.Contains(strings.ReplaceAll(a.body, `method="post" action="/logout"`, ""), `method="post"`) {
			t.Errorf("%s shows a viewer a form:\n%.3000s", path, a.body)
		}
		a = nobody.get(path)
		if a.want(t, http.StatusForbidden, "You may not do this"); strings.Contains(a.body, "mails") {
			t.Errorf("%s tells nobody about workflows", path)
		}
	}
	nobody.get("/live").want(t, http.StatusForbidden)
	nobody.get("/mutations.csv").want(t, http.StatusForbidden)
	nobody.get("/static/app.css").want(t, http.StatusOK)
	for _, path := range []string{"/inbox/" + string(q.ID), "/inputs/" + string(w.inputOf(q)) + "/skip", "/skip-inputs", "/workflows/mails/pause",
		"/workflows/mails/resume", "/workflows/mails/run", "/item?workflow=reminders&id=order:17", "/event/skip?workflow=mails&topic=mail.received&id=m5",
		"/connections/desk/mails/test", "/keys/key_00000000000000000000000000"} {
		viewer.post(path, "action", "skip").want(t, http.StatusForbidden, "this needs the role operator")
	}
	if got := w.question("mails"); got.ID != q.ID {
		t.Error("a viewer decided a question")
	}
}

// A read that changes nothing can be tried out; nothing else can.
func TestTestButton(t *testing.T) {
	w := newWorld(t, "refunds.js")
	c := w.as("ada", access.Operator)
	c.get("/connections").want(t, 200, "/connections/desk/mails/test", "it would change something")
	c.post("/connections/desk/mails/test").want(t, 200, "It answered in")
	c.post("/connections/desk/down/test").want(t, 200, "The read failed after", "503 Service Unavailable")
	c.post("/connections/desk/reply/test").want(t, 400, "not a read that needs no params")
	c.post("/connections/desk/nothing/test").want(t, 404)
	if n := w.desk.done("/replies"); n != 0 {
		t.Errorf("the test made %d calls", n)
	}
}

// An admin makes tokens, which are shown once, and revokes them; nobody else sees
// them.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	store := memory.New()
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Access: store})
	admin := w.as("ada", access.Admin)
	form := regexp.MustCompile(`name="once" value="([^"]*)"`).FindStringSubmatch(admin.get("/settings").body)
	if form == nil {
		t.Fatal("the form names no token")
	}
	made := []string{"once", form[1], "name", "deploy bot", "role", "author", "days", "90"}
	a := admin.post("/settings/tokens", made...)
	a.want(t, 200, "shown once", "deploy bot")
	admin.post("/settings/tokens", made...).want(t, http.StatusConflict, "this token was made already") // the page was loaded again
	if all, err := store.Credentials(t.Context(), keep.CredentialToken); err != nil || len(all) != 1 {
		t.Errorf("one form made %d tokens, %v", len(all), err)
	}
	for _, once := range []string{"", "short", "../../abcd", "keep_aaaaa"} {
		admin.post("/settings/tokens", "once", once, "name", "x", "role", "viewer", "days", "1").want(t, 400, "does not name the token")
	}
	secret := regexp.MustCompile(`keep_[a-z0-9]+_[a-z0-9]+`).FindString(a.body)
	if secret == "" {
		t.Fatal("no secret was shown")
	}
	a = admin.get("/settings")
	if a.want(t, 200, "deploy bot", "author", "Revoke"); strings.Contains(a.body, secret) {
		t.Error("the secret is shown twice")
	}
	for _, bad := range [][]string{{"name", "", "role", "author", "days", "1"}, {"name", "x", "role", "god", "days", "1"}, {"name", "x", "role", "viewer", "days", "0"}} {
		admin.post("/settings/tokens", append(bad, "once", access.Once())...).want(t, 400)
	}
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Author} {
		c := w.as("bob", role)
		if a := c.get("/settings"); strings.Contains(a.body, "deploy bot") {
			t.Errorf("a %s sees tokens", role)
		}
		c.post("/settings/tokens", "name", "x", "role", "admin", "days", "1").want(t, 403)
		c.post("/settings/credentials/"+strings.Split(secret, "_")[1]+"/revoke").want(t, 403)
	}
	admin.post("/settings/credentials/"+strings.Split(secret, "_")[1]+"/revoke").want(t, 200, "Revoked", "There are none")
	admin.post("/settings/credentials/nothing/revoke").want(t, 404)
}

// What a new version changed is shown line by line, and the run says which version
// it was and what it wrote.
func TestVersionsAndLogs(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	text, err := os.ReadFile("testdata/mails.js")
	w.must(err)
	dir := t.TempDir()
	w.must(os.WriteFile(filepath.Join(dir, "mails.js"), []byte(strings.Replace(string(text), `ctx.log("polled the desk")`, `ctx.log("polled <b>again</b>")`, 1)), 0o644))
	v, err := w.host.Load(t.Context(), dir, "mails.js")
	w.must(err)
	_, err = w.host.Deploy(t.Context(), v)
	w.must(err)
	c := w.as("vera", access.Viewer)
	c.get("/workflows/mails").want(t, 200, `versions/1.0">1.0`, `versions/2.0">2.0</a> <span class="pill ok">current`)
	c.get("/workflows/mails/versions/2.0").want(t, 200, "Compared with", `class="del"`, `- `, `polled the desk`, `class="add"`, `polled &lt;b&gt;again&lt;/b&gt;`)
	c.get("/workflows/mails/versions/2.0?against=2.0").want(t, 200, "The same as in 2.0")
	c.get("/workflows/mails/versions/1.0").want(t, 200, "The whole file")
	c.get("/workflows/mails/versions/9.9").want(t, 404)
	c.get("/workflows/mails/versions/new").want(t, 400)
	w.trigger("mails", "poll")
	c.get("/runs/"+string(w.ran("mails", "poll"))).want(t, 200, "version 2.0", "polled &lt;b&gt;again&lt;/b&gt;", "It committed.")
}

// What a workflow is for, in the words of who wanted it, is on its page and on those of its versions, and
// stays there when a later version says nothing about it.
func TestIntent(t *testing.T) {
	w := newWorld(t, "letters.js")
	const said, shown = `note <b>each</b> letter`, `It is for: <q>note &lt;b&gt;each&lt;/b&gt; letter</q>`
	c := w.as("vera", access.Viewer)
	for _, path := range []string{"/workflows/letters", "/workflows/letters/versions/1.0"} {
		if a := c.get(path); strings.Contains(a.body, "It is for") {
			t.Errorf("%s says what it is for, and nobody did", path)
		}
	}
	d, err := w.db.Deployment(t.Context(), "letters", w.version("letters").Version)
	w.must(err)
	for i, intent := range []string{said, ""} {
		d.Hash, d.Definition.Intent = "another "+intent, intent
		v, err := w.host.Operator.Deploy(t.Context(), d)
		w.must(err)
		if v.Major != i+2 {
			t.Fatalf("version %s", v)
		}
		c.get("/workflows/letters").want(t, 200, shown)
		c.get("/workflows/letters/versions/"+v.String()).want(t, 200, shown)
	}
}

// Keys of HTTP requests: one whose outcome is unknown is resolved once, and one that
// is done can be forgotten.
func TestKeys(t *testing.T) {
	w := newWorld(t)
	now := keepNow()
	path := "/orders/" + strings.Repeat("of/", 150) + "alice" // nobody gives a key free for the beginning of a path
	var refs []string
	for i, state := range []key.State{key.Unknown, key.Unknown, key.Done} {
		r := key.Record{ID: key.NewID("h", "caller", string(state)+string(rune('a'+i))), Version: key.Version, Key: "order-<" + string(rune('a'+i)) + ">", Method: "POST", Path: path,
			State: state, Fence: 1, CreatedAt: now, UpdatedAt: now, ExpiresAt: now.Add(48 * time.Hour)}
		if state == key.Unknown {
			r.DoubtAt = now
		} else {
			r.Answer = key.Answer{Status: 201, Body: []byte(`{"id":7}`)}
		}
		w.must(w.keys.Write(t.Context(), r))
		refs = append(refs, "/keys/"+r.ID.String())
	}
	c := w.as("ada", access.Operator)
	c.get("/keys").want(t, 200, "order-&lt;a&gt;", "POST /orders", "unknown", "201")
	c.get("/keys?state=done").want(t, 200, "order-&lt;c&gt;")
	c.get("/keys?q=order-%3Cb%3E").want(t, 200, "order-&lt;b&gt;")
	c.get("/keys?q=nothing").want(t, 200, "No key matches")
	c.get(refs[0]).want(t, 200, "Did this request happen?")
	c.get(refs[2]).want(t, 200, "Forget", "&#34;id&#34;: 7")
	free := func(ref, action string) {
		t.Helper()
		page := c.get(ref)
		page.want(t, 200, path)
		if b := regexp.MustCompile(`<button[^>]*value="` + action + `"[^>]*>`).FindString(page.body); b == "" || strings.Contains(b, "primary") || strings.Contains(b, "data-act") {
			t.Errorf("%s: what lets a request be executed again is the default, or one key away: %s", ref, b)
		}
		second := c.post(ref, "action", action)
		second.want(t, 200, "execute the request again?", "POST "+path, "order-&lt;", `button primary" href="`+ref+`">Back, change nothing`)
		if c.get(ref).body != page.body {
			t.Errorf("%s: one press changed the key", ref)
		}
		c.post(ref, formOf(t, second.body)...).want(t, 200, "The key is free")
	}
	free(refs[0], "did-not-happen")
	c.get(refs[0]+"/confirm?action=did-not-happen").want(t, 409, "Already answered")
	c.get(refs[0]+"/confirm?action=eat").want(t, 400)
	c.post(refs[0], "action", "happened", "status", "200").want(t, 409, "Already answered")
	shown := formOf(t, c.get(refs[1]).body)
	c.post(refs[1], append(shown, "action", "happened", "status", "20x")...).want(t, 400, "not &#34;20x&#34;")
	c.post(refs[1], "action", "happened", "status", "201").want(t, 400, "shown first")
	c.post(refs[1], append(shown, "action", "happened", "status", "201", "body", `{"id":8}`)...).want(t, 200, "retries with this key get the answer", "&#34;id&#34;: 8", "person: ada")
	free(refs[2], "forget")
	c.post(refs[2], "action", "eat").want(t, 400)
	c.get("/keys/key_00000000000000000000000000").want(t, 404)
	c.get("/keys/nothing").want(t, 404)
}

// Events and inputs are skipped one by one.
func TestSkipOne(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.lose["/replies"] = true; d.mails = mails(3) })
	w.trigger("mails", "poll")
	held := w.inputOf(w.question("mails"))
	c := w.as("ada", access.Operator)
	c.post("/event/skip?workflow=mails&topic=mail.received&id=m2", "attempt", "1").want(t, 200, "Skipped.", `pill ">skipped`, "<dt>Skipped</dt><dd>by <bdi>ada</bdi> (web), ")
	c.post("/event/skip?workflow=mails&topic=mail.received&id=m9", "attempt", "1").want(t, 404)
	c.post("/inputs/"+string(held)+"/skip", "redone", "0").want(t, 200, "too late to skip")
	ins, _, err := w.db.Inputs(t.Context(), keep.InputFilter{Text: "1002"}, keep.Page{})
	w.must(err)
	c.post("/inputs/"+string(ins[0].ID)+"/skip", "redone", "0").want(t, 200, "Skipped.", "skipped", "Undo the skip")
	c.get("/inputs/"+string(ins[0].ID)).want(t, 200, "<dt>Skipped</dt><dd>by <bdi>ada</bdi> (web), ")
	c.post("/inputs/"+string(ins[0].ID)+"/unskip", "redone", "0").want(t, 200, "The skip is undone.", "pending", "<dt>Skip undone</dt><dd>by <bdi>ada</bdi>")
	c.post("/inputs/"+string(ins[0].ID)+"/unskip", "redone", "0").want(t, 409, "not skipped")
	c.post("/event/unskip?workflow=mails&topic=mail.received&id=m2", "attempt", "1").want(t, 200, "The skip is undone.", `pill ">pending`)
	c.post("/event/unskip?workflow=mails&topic=mail.received&id=m1", "attempt", "1").want(t, 200, "It is not skipped any more.")
	w.as("vera", access.Viewer).post("/event/unskip?workflow=mails&topic=mail.received&id=m2").want(t, 403)
}

// An event is done again for what the page showed, once; so is an input.
func TestRedo(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.mails = mails(1) })
	w.trigger("mails", "poll")
	event := "?workflow=mails&topic=mail.received&id=m1"
	c := w.as("ada", access.Operator)
	w.settle("mails")
	c.get("/event"+event).want(t, 200, "Do it again")
	first := c.get("/redo" + event)
	first.want(t, 200, "attempt 2", "may happen a second time", "Back, change nothing")
	c.post("/redo"+event).want(t, 400, "is shown first")
	c.post("/redo"+event, "mark", "another").want(t, 409, "is not what was shown")
	form := formOf(t, first.body)
	c.post("/redo"+event, append(form, "note", "wrong <address>")...).want(t, 200, "It is pending again", "attempt 2", "Done again", "wrong &lt;address&gt;")
	c.post("/redo"+event, form...).want(t, 409)
	w.settle("mails")
	ins, _, err := w.db.Inputs(t.Context(), keep.InputFilter{Workflow: "mails"}, keep.Page{})
	w.must(err)
	c.get("/inputs/"+string(ins[0].ID)).want(t, 200, "Do it again")
	page := c.get("/redo?input=" + string(ins[0].ID))
	page.want(t, 200, "attempt 3")
	c.post("/redo?input="+string(ins[0].ID), formOf(t, page.body)...).want(t, 200, "It is pending again")
	c.get("/redo?workflow=mails&topic=mail.received&id=none").want(t, 404)
	w.as("vera", access.Viewer).get("/redo"+event).want(t, 403)
	w.as("vera", access.Viewer).post("/redo"+event, form...).want(t, 403)
}
