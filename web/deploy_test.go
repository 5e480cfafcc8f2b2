package web_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/rehearsal/plan"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
	"github.com/keep-run/keep/web"
)

// A bench checks, plans and deploys scripts on the host of a world.
type bench struct {
	*world
	noPlan string // why there is none; empty: there is one
	before func() // what happens before the next script is taken; nil: nothing
	fails  error  // of all that is asked for; nil: none
}

func (b *bench) read(ctx context.Context, w keep.WorkflowName, s api.Script) (*host.Workflow, workflow.Report, error) {
	files := map[string][]byte{s.File: []byte(s.Source)}
	for name, text := range s.Imports {
		files[name] = []byte(text)
	}
	rt, err := sandboxes()
	if err != nil {
		return nil, workflow.Report{}, err
	}
	bundle, err := sandbox.BuildFiles(s.File, files)
	if err != nil {
		return nil, workflow.Report{}, err
	}
	out, err := host.LoadBundle(ctx, rt, bundle)
	if err != nil {
		return nil, workflow.Report{}, err
	}
	if w != "" && out.Name != w {
		return nil, workflow.Report{}, &api.ScriptError{Mistakes: []api.Mistake{{File: s.File, Line: 1, Column: 1, Message: fmt.Sprintf("it declares the workflow %q, not %q", out.Name, w)}}}
	}
	effects, err := workflow.Effects(out.Declaration, out.Sources, b.conns)
	return out, effects, err
}

func (b *bench) Check(ctx context.Context, w keep.WorkflowName, s api.Script) (out web.Checked, err error) {
	if b.fails != nil {
		return out, b.fails
	}
	script, effects, err := b.read(ctx, w, s)
	if built, ok := errors.AsType[*sandbox.BuildError](err); ok {
		for _, p := range built.Problems {
			out.Problems = append(out.Problems, web.ScriptProblem{Severity: "error", File: p.File, Line: p.Line, Column: p.Column, Message: p.Text})
		}
		return out, nil
	}
	if err != nil {
		return web.Checked{Problems: []web.ScriptProblem{{Severity: "error", Message: err.Error(), Fix: "<i>mend</i> it"}}}, nil
	}
	grant, err := b.db.Grant(ctx, w)
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		return out, err
	}
	out.Workflow, out.Files = script.Name, script.Sources
	for _, t := range effects.Tools {
		out.Calls = append(out.Calls, web.ScriptCall{Tool: t.Tool, Effect: t.Effect, Granted: grant.Covers(t.Tool)})
	}
	return out, nil
}

func (b *bench) Deploy(ctx context.Context, w keep.WorkflowName, s api.Script, over *keep.Version, by operator.Giver, give bool) (operator.Deployed, error) {
	return b.consent(ctx, w, s, over, operator.Consent{Giver: by, Give: give})
}

func (b *bench) Propose(ctx context.Context, w keep.WorkflowName, p api.NewProposal, over *keep.Version, by operator.Giver) (operator.Deployed, error) {
	return b.consent(ctx, w, p.Script, over, operator.Consent{Giver: by, Ask: true})
}

func (b *bench) consent(ctx context.Context, w keep.WorkflowName, s api.Script, over *keep.Version, c operator.Consent) (operator.Deployed, error) {
	if b.fails != nil {
		return operator.Deployed{}, b.fails
	}
	script, effects, err := b.read(ctx, w, s)
	if err != nil {
		return operator.Deployed{}, err
	}
	for _, t := range effects.Tools {
		c.Calls = append(c.Calls, t.Tool)
	}
	if before := b.before; before != nil {
		b.before = nil
		before()
	}
	return b.host.DeployGranted(ctx, script, over, c)
}

func (b *bench) Plan(ctx context.Context, w keep.WorkflowName, s *api.Script) (web.Plan, error) {
	if b.noPlan != "" {
		return nil, &web.NoPlanError{Why: b.noPlan}
	}
	if s == nil {
		d, err := b.db.Deployment(ctx, w, b.version(w).Version)
		if err != nil {
			return nil, err
		}
		s = &api.Script{File: d.Entry, Source: d.Sources()[d.Entry]}
	}
	script, _, err := b.read(ctx, w, *s)
	if err != nil {
		return nil, err
	}
	rt, err := sandboxes()
	if err != nil {
		return nil, err
	}
	made, err := plan.Make(ctx, plan.Config{Scripts: []*host.Workflow{script}, Base: b.db, Due: true, Connections: b.conns, Runtime: rt})
	return made, err
}

// give lets a workflow call some tools.
func (w *world) give(name keep.WorkflowName, tools ...string) {
	w.Helper()
	var list []keep.GrantedTool
	for _, t := range tools {
		list = append(list, keep.GrantedTool{Tool: t})
	}
	_, err := w.host.SetGrant(w.Context(), name, list, operator.Giver{By: "ada", From: "cli"}, nil)
	w.must(err)
}

// A sentForm is the form of a script as a browser sends it.
type sentForm struct{ fields, uploads [][2]string }

func (f *sentForm) set(name, value string) {
	value = strings.ReplaceAll(value, "\n", "\r\n") // as a browser does
	for i := range f.fields {
		if f.fields[i][0] == name {
			f.fields[i][1] = value
			return
		}
	}
	f.fields = append(f.fields, [2]string{name, value})
}

var scriptFields = regexp.MustCompile(`(?s)<input type="hidden" name="(over|checked|entry|name|note)" value="([^"]*)">|<textarea[^>]* name="(text|note)"[^>]*>\n(.*?)</textarea>`)

// formIn reads the form of a page. A browser ends lines with CR LF.
func formIn(t *testing.T, a answer) *sentForm {
	t.Helper()
	f := &sentForm{}
	for _, m := range scriptFields.FindAllStringSubmatch(a.body, -1) {
		name, value := m[1]+m[3], html.UnescapeString(m[2]+m[4])
		f.fields = append(f.fields, [2]string{name, strings.ReplaceAll(value, "\n", "\r\n")})
	}
	if m := regexp.MustCompile(`<option selected>([^<]*)</option>`).FindStringSubmatch(a.body); m != nil {
		f.fields = append(f.fields, [2]string{"entry", m[1]})
	}
	if len(f.fields) < 5 {
		t.Fatalf("no form in %s: %d fields\n%.2000s", a.path, len(f.fields), a.body)
	}
	return f
}

// text returns the text of a form's first file.
func (f *sentForm) text() string {
	for _, p := range f.fields {
		if p[0] == "text" {
			return strings.ReplaceAll(p[1], "\r\n", "\n")
		}
	}
	return ""
}

func (c *client) send(path, do string, f *sentForm) answer {
	c.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for _, p := range append(f.fields, [2]string{"do", do}) {
		c.must(m.WriteField(p[0], p[1]))
	}
	for _, u := range f.uploads {
		part, err := m.CreateFormFile("upload", u[0])
		c.must(err)
		_, err = part.Write([]byte(u[1]))
		c.must(err)
	}
	c.must(m.Close())
	return c.read(c.http.Post(c.site.URL+path, m.FormDataContentType(), &b))
}

const deployMails = "/workflows/mails/deploy"

// An author changes the script in a form, sees what that does, and deploys it. Nothing is sent by that,
// and nothing that was typed is lost.
func TestDeployOnThePages(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.give("mails", "desk.mails", "desk.reply", "desk.archive")
	w.desk.set(func(d *desk) { d.mails = mails(2) })
	author := w.as("anna", access.Author)
	author.get("/workflows/mails").want(t, http.StatusOK, `href="/workflows/mails/deploy"`, `action="/workflows/mails/plan"`)
	a := author.get(deployMails)
	a.want(t, http.StatusOK, "In force is", "takes it back", "Check")
	if strings.Contains(a.body, `value="deploy"`) {
		t.Error("a script that was not checked can be deployed")
	}
	checkSafe(t, deployMails, a)
	f := formIn(t, a)
	before := w.version("mails")
	script, err := os.ReadFile(filepath.Join("testdata", "mails.js"))
	w.must(err)
	if f.text() != string(script) {
		t.Fatalf("the form has\n%s", f.text())
	}
	author.send(deployMails, "check", f).want(t, http.StatusOK, "It is the one in force")

	f.set("text", strings.Replace(f.text(), `"Re: "`, `"Answer: "`, 1))
	if !strings.Contains(f.text(), "Answer: ") {
		t.Fatalf("fields %q", f.fields)
	}
	a = author.send(deployMails, "check", f)
	a.want(t, http.StatusOK, "The script can be deployed", "What changes in", "desk.reply", "What it would do", "Changes outside: 4", "Answer: Invoice 1000", "Nothing was sent", `value="deploy"`)
	if got := strings.Count(a.body, `class="add"`); got != 1 {
		t.Errorf("%d lines are added by a change of one", got)
	}
	checkSafe(t, "the check", a)
	if n := w.desk.done("/replies"); n != 0 || w.version("mails").Version != before.Version {
		t.Fatalf("the check sent %d replies, and %s is current", n, w.version("mails").Version)
	}
	checked := formIn(t, a)
	checked.set("text", strings.Replace(checked.text(), "Answer: ", "Reply: ", 1))
	a = author.send(deployMails, "deploy", checked)
	a.want(t, http.StatusUnprocessableEntity, "not the one that was checked", "Reply: ")
	if w.version("mails").Version != before.Version {
		t.Fatal("a text was deployed that nobody looked at")
	}
	a = author.send(deployMails, "deploy", formIn(t, a))
	a.want(t, http.StatusOK, "Deployed: this version runs now")
	now, err := w.db.Deployment(t.Context(), "mails", w.version("mails").Version)
	w.must(err)
	if now.Version == before.Version || !strings.Contains(string(now.Code), "Reply: ") || strings.Contains(string(now.Map), `\r`) {
		t.Errorf("current is %s: %s", now.Version, now.Map)
	}
}

// A version of which another file declares the workflow is another one, although each file is as it was: the check says so, and so does
// the proposal.
func TestCheckOfAnotherEntry(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.give("mails", "desk.mails", "desk.reply", "desk.archive")
	author := w.as("anna", access.Author)
	f := formIn(t, author.get(deployMails))
	f.set("text", "import { note } from \"./other.js\";\nnote();\n"+f.text())
	f.uploads = [][2]string{{"other.js", "export { default } from \"./mails.js\";\nexport function note() { globalThis.noted = 1; }\n"}}
	f = formIn(t, author.send(deployMails, "check", f))
	author.send(deployMails, "deploy", f).want(t, http.StatusOK, "Deployed: this version runs now")
	before := w.version("mails")
	f = formIn(t, author.get(deployMails))
	f.set("entry", "other.js")
	a := author.send(deployMails, "check", f)
	a.want(t, http.StatusOK, "The script can be deployed", "is declared in", "other.js", "and not in", "mails.js")
	if strings.Contains(a.body, "It is the one in force") {
		t.Error("another version is said to be the one in force")
	}
	b := author.send(deployMails, "propose", formIn(t, a))
	b.want(t, http.StatusOK, "waits in Inbox until a person agrees", "is declared in", "and not in")
	if p, err := w.db.Proposals(t.Context(), "mails"); err != nil || p[0].State != keep.ProposalWaiting || w.version("mails").Version != before.Version {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := api.ShowProposal(t.Context(), w.db, "mails@3.0"); err != nil || !slices.Equal(p.Diff, []string{"=== The workflow is declared in other.js, and not in mails.js."}) {
		t.Errorf("the API shows %q, %v", p.Diff, err)
	}
}

// What a version needs beyond its grant, and what is proposed, waits in the inbox.
func TestDeployWaits(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.give("mails", "desk.mails", "desk.reply")
	author := w.as("anna", access.Author)
	f := formIn(t, author.get(deployMails))
	f.set("text", "// changed\n"+f.text())
	a := author.send(deployMails, "check", f)
	a.want(t, http.StatusOK, "not granted", `It waits in <a href="/inbox">`)
	for _, do := range []string{"deploy", "propose"} {
		b := author.send(deployMails, do, formIn(t, a))
		b.want(t, http.StatusOK, "waits in Inbox until a person agrees", `href="/inbox/`)
		if p, err := w.db.Proposals(t.Context(), "mails"); err != nil || p[0].State != keep.ProposalWaiting || p[0].By != "anna" || w.version("mails").Version.Major != 1 {
			t.Errorf("%s: %+v, %v", do, p, err)
		}
		w.must(w.host.Decide(t.Context(), w.question("mails").ID, keep.Decision{Action: keep.Reject, By: "bob", From: "cli"}))
	}
}

// A form that cannot be taken comes back with all that was typed.
func TestDeployKeepsTheText(t *testing.T) {
	w := newWorld(t, "mails.js", "counter.js")
	w.began("mails", "poll")
	author := w.as("anna", access.Author)
	script := formIn(t, author.get(deployMails)).text()
	hard := "\n// <b>\"&amp;\" \u202e and \u200d and \ufeff, é 👩‍💻</textarea><script>\t\n" + script
	long := strings.Repeat("0123456789", 250_000)
	large := script + "// " + long
	for name, tt := range map[string]struct {
		text    string
		uploads [][2]string
		says    []string
		added   bool // a file is added
	}{
		"syntax":        {text: "export default {\n", says: []string{"cannot be deployed as it is", "mails.js</bdi></code> <span class=\"sub\">line 2, column 1"}},
		"nothing":       {text: "", says: []string{"cannot be deployed as it is"}},
		"another name":  {text: strings.Replace(script, `"mails"`, `"mials"`, 1), says: []string{"declares the workflow &#34;mials&#34;, not &#34;mails&#34;", "&lt;i&gt;mend"}},
		"import":        {text: "import x from './gone.js';\n" + script, says: []string{"gone.js&#34;: no such file in the project", "line 1, column 15"}},
		"too large":     {text: large, says: []string{"is larger than"}},
		"hidden":        {text: hard + "(", says: []string{"cannot be deployed as it is"}},
		"chosen: large": {text: "typed\n", uploads: [][2]string{{"a.js", strings.Repeat("x", access.MaxBody)}}, says: []string{"The form has more than 8.0 MiB"}},
		"chosen: kind":  {text: "typed\n", uploads: [][2]string{{"a.exe", "x"}}, says: []string{"a.exe is no .js"}},
		"chosen: bytes": {text: "typed\n", uploads: [][2]string{{"a.js", "\xff"}}, says: []string{"a.js is no text in UTF-8"}},
		"chosen: other": {text: script, uploads: [][2]string{{`C:\x\more.js`, "1"}}, says: []string{"more.js</bdi></code> is imported by nothing"}, added: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := formIn(t, author.get(deployMails))
			f.set("text", tt.text)
			f.uploads = tt.uploads
			a := author.send(deployMails, "check", f)
			status := http.StatusUnprocessableEntity
			if tt.added {
				status = http.StatusOK
			}
			a.want(t, status, tt.says...)
			if a.status != status {
				return
			}
			want := tt.text
			if before, after, ok := strings.Cut(want, long); ok { // regular expressions would go through it for seconds
				if strings.Count(a.body, long) != 1 {
					t.Error("the long line did not come back once")
				}
				want, a.body = before+"LONG"+after, strings.Replace(a.body, long, "LONG", 1)
			}
			checkSafe(t, name, a)
			back := &sentForm{}
			for _, m := range scriptFields.FindAllStringSubmatch(a.body, -1) {
				if m[3] == "text" {
					back.fields = append(back.fields, [2]string{"text", html.UnescapeString(m[4])})
				}
			}
			if back.text() != want {
				t.Errorf("the text came back as %.300q, want %.300q", back.text(), want)
			}
			if (len(back.fields) > 1) != tt.added {
				t.Errorf("%d files came back", len(back.fields))
			}
		})
	}
	t.Run("somebody else came first", func(t *testing.T) {
		f := formIn(t, author.get(deployMails))
		f.set("text", strings.Replace(f.text(), "polled the desk", "my words", 1))
		f = formIn(t, author.send(deployMails, "check", f))
		d, err := w.db.Deployment(t.Context(), "mails", w.version("mails").Version)
		w.must(err)
		_, err = w.bench.Deploy(t.Context(), "mails", api.Script{File: "mails.js", Source: strings.Replace(d.Sources()[d.Entry], "polled the desk", "their words", 1)}, nil, operator.Giver{By: "bob", From: "cli"}, true)
		w.must(err)
		theirs := w.version("mails").Version
		a := author.send(deployMails, "deploy", f)
		a.want(t, http.StatusUnprocessableEntity, "became current while you wrote", "their words", "my words")
		if w.version("mails").Version != theirs {
			t.Error("it was deployed over the version of somebody else")
		}
		w.give("mails", "desk.mails", "desk.reply", "desk.archive")
		author.send(deployMails, "deploy", formIn(t, a)).want(t, http.StatusOK, "Deployed")
	})
	t.Run("somebody else comes at the last moment", func(t *testing.T) {
		words := "my words"
		for _, do := range []string{"deploy", "propose"} {
			f := formIn(t, author.get(deployMails))
			f.set("text", strings.Replace(f.text(), words, "mine to "+do, 1))
			f = formIn(t, author.send(deployMails, "check", f))
			d, err := w.db.Deployment(t.Context(), "mails", w.version("mails").Version)
			w.must(err)
			w.bench.before = func() {
				other := api.Script{File: "mails.js", Source: strings.Replace(d.Sources()[d.Entry], words, "theirs before "+do, 1)}
				words = "theirs before " + do
				_, err := w.bench.Deploy(t.Context(), "mails", other, nil, operator.Giver{By: "bob", From: "cli"}, true)
				w.must(err)
			}
			author.send(deployMails, do, f).want(t, http.StatusUnprocessableEntity, "became current while you wrote", "mine to "+do)
			all, err := w.db.Proposals(t.Context(), "mails")
			w.must(err)
			for _, p := range all {
				if p.State == keep.ProposalWaiting {
					t.Errorf("%s: version %s waits over that of somebody else", do, p.Version)
				}
			}
		}
	})
	t.Run("a file in the place of the text", func(t *testing.T) {
		f := formIn(t, author.get(deployMails))
		f.uploads = [][2]string{{"mails.js", strings.Replace(script, "polled the desk", "chosen words", 1)}}
		a := author.send(deployMails, "check", f)
		a.want(t, http.StatusOK, "The script can be deployed", "chosen words")
		f = formIn(t, a)
		author.send(deployMails, "deploy", f).want(t, http.StatusOK, "Deployed")
		if d, err := w.db.Deployment(t.Context(), "mails", w.version("mails").Version); err != nil || !strings.Contains(string(d.Map), "chosen words") {
			t.Errorf("deployed %s, %v", d.Map, err)
		}
	})
	author.post(deployMails, "do", "check").want(t, http.StatusBadRequest)
	author.send(deployMails, "check", &sentForm{}).want(t, http.StatusBadRequest, "not whole")
	author.get("/workflows/none/deploy").want(t, http.StatusNotFound)
}

// Only authors deploy and plan, and a host that takes no scripts says what to do instead.
func TestDeployRights(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	f := formIn(t, w.as("anna", access.Author).get(deployMails))
	for _, role := range []access.Role{access.Viewer, access.Operator} {
		c := w.as("vera", role)
		if a := c.get("/workflows/mails"); strings.Contains(a.body, "/workflows/mails/deploy") || strings.Contains(a.body, "/workflows/mails/plan") {
			t.Errorf("a %s is offered to deploy or to plan", role)
		}
		c.get(deployMails).want(t, http.StatusForbidden)
		c.send(deployMails, "check", f).want(t, http.StatusForbidden)
		c.post("/workflows/mails/plan").want(t, http.StatusForbidden)
	}
	author := w.as("anna", access.Author)
	w.desk.set(func(d *desk) { d.mails = mails(2) })
	a := author.post("/workflows/mails/plan")
	a.want(t, http.StatusOK, "Plan of mails 1.0", "Changes outside: 4", "desk.reply", "Re: Invoice 1000", "Reads that were made")
	checkSafe(t, "the plan", a)
	if n := w.desk.done("/replies"); n != 0 {
		t.Errorf("a plan sent %d replies", n)
	}
	author.post("/workflows/none/plan").want(t, http.StatusNotFound)
	w.bench.noPlan = "<b>slow</b>"
	author.post("/workflows/mails/plan").want(t, http.StatusUnprocessableEntity, "There is no plan: <bdi>&lt;b&gt;slow")
	author.send(deployMails, "check", f).want(t, http.StatusOK, "There is no plan")
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host})
	author = w.as("anna", access.Author)
	a = author.get(deployMails)
	a.want(t, http.StatusOK, "takes its scripts from files", "keep deploy")
	if strings.Contains(a.body, "<textarea") {
		t.Error("a host that takes no scripts shows the form")
	}
	author.send(deployMails, "deploy", f).want(t, http.StatusNotImplemented, "keep deploy")
	author.post("/workflows/mails/plan").want(t, http.StatusBadRequest, "keep plan")
	if strings.Contains(author.get("/workflows/mails").body, "/workflows/mails/plan") {
		t.Error("a host that plans nothing offers it")
	}
}

// fresh is a script of a workflow that is not there yet.
const fresh = `export default Keep.workflow({ name: "fresh", topics: { t: {} },
  producers: { poll: { schedule: { interval: "1h" }, async handler(ctx) { for (const m of await ctx.desk.mails({})) await ctx.publish("t", { messageId: m.id }); } } },
  consumers: { send: Keep.consumer({ subscribe: ["t"],
    async prepare(ctx, e) { return e ? { reservations: [{ topic: "t", ids: [e.messageId] }], data: { id: e.messageId } } : { reservations: [], data: null }; },
    async mutate(ctx, prepared) { await ctx.desk.archive({ id: prepared.data.id }); } }) } });
`

// An author deploys a workflow that is not there yet: checked first, waiting for an admin if it calls what it
// was not granted, and never in the place of one that is there.
func TestDeployNew(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.began("mails", "poll")
	w.desk.set(func(d *desk) { d.mails = mails(2) })
	author := w.as("anna", access.Author)
	author.get("/workflows").want(t, http.StatusOK, `href="/deploy"`)
	a := author.get("/deploy")
	a.want(t, http.StatusOK, "Deploy a new workflow", "Check", `name="name" value="workflow.js"`)
	if strings.Contains(a.body, `value="deploy"`) {
		t.Error("a script that was not checked can be deployed")
	}
	checkSafe(t, "/deploy", a)
	typed := func(checked, workflow, file, text string, uploads ...[2]string) *sentForm {
		f := &sentForm{uploads: uploads}
		for _, p := range [][2]string{{"over", "0.0"}, {"checked", checked}, {"workflow", workflow}, {"name", file}, {"text", text}} {
			f.set(p[0], p[1])
		}
		return f
	}
	form := func(do, checked, workflow, file, text string, uploads ...[2]string) answer {
		t.Helper()
		return author.send("/deploy", do, typed(checked, workflow, file, text, uploads...))
	}
	mark := func(a answer) string {
		m := regexp.MustCompile(`name="checked" value="([^"]*)"`).FindStringSubmatch(a.body)
		if m == nil {
			t.Fatalf("no form in %.2000s", a.body)
		}
		return m[1]
	}
	form("check", "", "", "fresh.js", "").want(t, http.StatusUnprocessableEntity, "cannot be deployed as it is")
	form("check", "", "", "fresh.txt", fresh).want(t, http.StatusUnprocessableEntity, "fresh.txt")
	taken := strings.Replace(fresh, `"fresh"`, `"mails"`, 1)
	a = form("check", "", "", "mine.js", taken)
	a.want(t, http.StatusUnprocessableEntity, "declares the workflow mails, which is there already, in version 1.0", `formaction="/workflows/mails/deploy"`)
	// That button takes what was typed along, and compares it. Nothing is deployed by it, whatever the form says.
	for _, do := range []string{"check", "deploy"} {
		compared := author.send(deployMails, do, typed(mark(a), "mails", "mine.js", taken))
		compared.want(t, http.StatusOK, "What changes in <bdi>mails.js</bdi>", `name="over" value="1.0"`, `name="name" value="mails.js"`)
		if f := formIn(t, compared); f.text() != taken {
			t.Errorf("the form has another text than was typed:\n%s", f.text())
		}
	}
	if v := w.version("mails"); v.Version.String() != "1.0" {
		t.Fatalf("current is %s after a comparison", v.Version)
	}
	form("deploy", "", "fresh", "fresh.js", fresh).want(t, http.StatusUnprocessableEntity, "not the one that was checked")

	a = form("check", "", "", "fresh.js", fresh)
	a.want(t, http.StatusOK, "can be deployed, as the workflow <b>fresh</b>", "not granted", "desk.archive", "What it would do", `name="workflow" value="fresh"`, "It waits in", `name="name" value="fresh.js"`)
	checkSafe(t, "the check", a)
	if _, err := w.db.Workflow(t.Context(), "fresh"); !errors.Is(err, keep.ErrNotFound) || w.desk.done("/archive") != 0 {
		t.Fatalf("after a check the workflow is there (%v), or something was sent", err)
	}
	// A form that names another workflow than its script deploys nothing.
	form("deploy", mark(a), "mails", "fresh.js", fresh).want(t, http.StatusUnprocessableEntity, "declares the workflow &#34;fresh&#34;, not &#34;mails&#34;")
	a = form("deploy", mark(a), "fresh", "fresh.js", fresh)
	a.want(t, http.StatusOK, "waits in Inbox until a person agrees", `href="/inbox/`)
	if v, err := w.db.Workflow(t.Context(), "fresh"); err == nil && !v.Version.IsZero() {
		t.Fatalf("%s is current before an admin agreed", v.Version)
	}
	w.must(w.host.Decide(t.Context(), w.question("fresh").ID, keep.Decision{Action: keep.Approve, By: "bob", From: "cli"}))
	if v := w.version("fresh"); v.Version.String() != "1.0" {
		t.Errorf("current is %s after an admin agreed, want 1.0", v.Version)
	}

	// Files that were chosen are the script of an empty form; one that calls nothing runs at once.
	free := "import { topic } from './names.js';\nexport default Keep.workflow({ name: 'free', topics: { t: {} }, producers: { poll: { schedule: { interval: '1h' }, async handler(ctx) { await ctx.publish(topic, { messageId: 'a' }); } } } });\n"
	a = form("check", "", "", "workflow.js", "\n", [2]string{"names.js", "export const topic = 't';\n"}, [2]string{"free.js", free})
	a.want(t, http.StatusOK, "can be deployed, as the workflow <b>free</b>", "free runs from now on", "<option selected>free.js</option>", "names.js")
	f := formIn(t, a)
	f.set("workflow", "free")
	other := strings.Replace(fresh, `"fresh"`, `"free"`, 1)
	seen := mark(form("check", "", "", "free.js", other))
	author.send("/deploy", "deploy", f).want(t, http.StatusOK, "Deployed: this version runs now", "<h1>free</h1>")
	if d, err := w.db.Deployment(t.Context(), "free", w.version("free").Version); err != nil || d.Entry != "free.js" || d.Version.String() != "1.0" {
		t.Errorf("deployed %s of %s, %v", d.Version, d.Entry, err)
	}
	// The same form again, as by who saw no answer, finds it done. Another script, checked before the workflow was there, does not replace it.
	author.send("/deploy", "deploy", f).want(t, http.StatusOK, "Deployed: this version runs now", "<h1>free</h1>")
	form("deploy", seen, "free", "free.js", other).want(t, http.StatusUnprocessableEntity, "declares the workflow free, which is there already")
	if v := w.version("free"); v.Version.String() != "1.0" {
		t.Errorf("current is %s after both, want 1.0", v.Version)
	}

	for _, role := range []access.Role{access.Viewer, access.Operator} {
		c := w.as("vera", role)
		if strings.Contains(c.get("/workflows").body, `href="/deploy"`) {
			t.Errorf("a %s is offered to deploy", role)
		}
		c.get("/deploy").want(t, http.StatusForbidden)
		c.send("/deploy", "check", f).want(t, http.StatusForbidden)
	}
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host})
	author = w.as("anna", access.Author)
	author.get("/deploy").want(t, http.StatusOK, "takes its scripts from files", "keep deploy PATH")
	author.send("/deploy", "deploy", f).want(t, http.StatusNotImplemented, "keep deploy PATH")
	if strings.Contains(author.get("/workflows").body, `href="/deploy"`) {
		t.Error("a host that takes no scripts offers to deploy one")
	}
}
