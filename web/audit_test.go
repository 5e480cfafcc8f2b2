package web_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/web"
)

// An admin sees what people did, of what is gone, too; nobody else sees it.
func TestAudit(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.site.Close()
	w.serve(web.Config{Store: w.db, Actor: w.host, Access: w.db.(store.Access)})
	admin := w.as("ada", access.Admin)
	admin.post("/workflows/mails/pause", "note", "for a <test>").want(t, 200)
	once := regexp.MustCompile(`name="once" value="([^"]*)"`).FindStringSubmatch(admin.get("/settings").body)[1]
	admin.post("/settings/tokens", "once", once, "name", "deploy bot", "role", "author", "days", "90").want(t, 200)
	admin.post("/settings/credentials/"+once+"/revoke").want(t, 200)
	admin.get("/settings").want(t, 200, `href="/audit"`)
	a := admin.get("/audit")
	a.want(t, 200, "Made", "Revoked", "author, of deploy bot", "Paused", "for a &lt;test&gt;", `href="/workflows/mails"`, once)
	if strings.Index(a.body, "Revoked") > strings.Index(a.body, "Made") || strings.Index(a.body, "Made") > strings.Index(a.body, "Paused") {
		t.Error("the newest is not first")
	}
	if b := admin.get("/audit?global=1"); strings.Contains(b.body, "Paused") || !strings.Contains(b.body, "Revoked") {
		t.Errorf("beside workflows there are %s", b.body)
	}
	if b := admin.get("/audit?workflow=mails"); !strings.Contains(b.body, "Paused") || strings.Contains(b.body, "Revoked") {
		t.Errorf("of the workflow there are %s", b.body)
	}
	admin.get("/audit?workflow=none").want(t, 200, "Nothing matches")
	admin.get("/audit?after=x").want(t, 400)
	for _, role := range []access.Role{access.Viewer, access.Operator, access.Author} {
		w.as("bob", role).get("/audit").want(t, 403)
	}
}
