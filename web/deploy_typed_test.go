package web_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/web"
)

// outage is a database that cannot be read while it is down.
type outage struct {
	database
	down atomic.Bool
}

func (o *outage) Workflow(ctx context.Context, name keep.WorkflowName) (keep.Workflow, error) {
	if o.down.Load() {
		return keep.Workflow{}, errors.New("the database is away")
	}
	return o.database.Workflow(ctx, name)
}

// A script that was typed comes back also if the database is away before the form is read.
func TestTypedScriptOutlivesTheDatabase(t *testing.T) {
	w := newWorld(t, "mails.js")
	w.site.Close()
	db := &outage{database: w.db}
	w.serve(web.Config{Deployer: w.bench, Planner: w.bench, Store: db, Actor: w.host, Feed: w.host.Changes(), Connections: w.conns, Logger: slog.New(slog.DiscardHandler)})
	author := w.as("anna", access.Author)
	f := formIn(t, author.get(deployMails))
	const typed = "// typed for an hour\n"
	f.set("text", typed)
	db.down.Store(true)
	for _, do := range []string{"check", "deploy"} {
		a := author.send(deployMails, do, f)
		a.want(t, http.StatusInternalServerError, "Something went wrong")
		if back := formIn(t, a); back.text() != typed {
			t.Errorf("%s: the text came back as %q", do, back.text())
		}
	}
	db.down.Store(false)
	author.send("/workflows/nothing/deploy", "check", f).want(t, http.StatusNotFound, "Not found")
}
