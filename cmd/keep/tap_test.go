package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/sqlite"
)

// A tap hides nothing of its database that a host looks for.
func TestTap(t *testing.T) {
	t.Parallel()
	var told []keep.WorkflowName
	for name, url := range map[string]func(testing.TB) string{
		"sqlite":   func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "keep.db") },
		"postgres": pgtest.SchemaURL,
	} {
		t.Run(name, func(t *testing.T) {
			db, err := openDatabase(t.Context(), url(t), toHost)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			tap := newTap(db, func(c keep.Commit) { told = append(told, c.Workflow) })
			_, watches := db.(host.Watcher)
			if _, ok := tap.(host.Watcher); ok != watches {
				t.Errorf("the tap is a Watcher: %t, and the database: %t", ok, watches)
			}
			if leasesOf(db) == nil && !watches {
				t.Error("a host of this database would not hear of what others commit")
			}
			bad := keep.Commit{Workflow: "w", At: time.Now(), Changes: []keep.Change{keep.RequestRun{Handler: "nothing"}}}
			if err := tap.Commit(t.Context(), bad); err == nil {
				t.Error("a request for a handler that is not there was taken")
			}
			good := keep.Commit{Workflow: keep.WorkflowName(name), At: time.Now().UTC().Truncate(time.Millisecond), Changes: []keep.Change{
				keep.Deploy{Deployment: keep.Deployment{Workflow: keep.WorkflowName(name), Version: keep.Version{Major: 1}, CreatedAt: time.Now().UTC().Truncate(time.Millisecond)}}}}
			if err := tap.Commit(t.Context(), good); err != nil {
				t.Error(err)
			}
			if len(told) == 0 || told[len(told)-1] != good.Workflow {
				t.Errorf("told of %v, want the commit to %s", told, name)
			}
		})
	}
}

// What another process does to the database of keep dev is done, and seen: a request
// that it writes to the file runs a producer, and every change shows on the pages.
func TestDevHearsOthers(t *testing.T) {
	dir, said := startDev(t, "--listen", "127.0.0.1:0")
	said.wait(t, "[journal] hello.txt applied")
	said.mu.Lock()
	link := regexp.MustCompile(`(http://[0-9.:]+)/login\?code=(\S+)`).FindSubmatch(said.said)
	said.mu.Unlock()
	if link == nil {
		t.Fatalf("keep dev printed no link: %s", said.said)
	}
	d := &serving{t: t, base: string(link[1])}
	res, _ := d.ask("POST", "/login", "code="+string(link[2]), "Content-Type", "application/x-www-form-urlencoded")
	cookie, _, _ := strings.Cut(res.Header.Get("Set-Cookie"), ";")
	page := d.stream("/live?kind=workflow&workflow=journal", "Cookie", cookie)
	events := d.stream("/api/v1/events", "Cookie", cookie)

	other := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{})
	if err := other.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	commit := func(change keep.Change) {
		t.Helper()
		c := keep.Commit{Workflow: "journal", At: time.Now().UTC().Truncate(time.Millisecond), Changes: []keep.Change{change}}
		if err := other.Commit(context.WithoutCancel(t.Context()), c); err != nil {
			t.Fatal(err)
		}
		events.until("event: reset")
		page.until("event: keep-changed")
	}
	commit(keep.SetPaused{Paused: true})
	commit(keep.SetPaused{Paused: false})
	if err := os.WriteFile(filepath.Join(dir, "inbox", "second.txt"), []byte("second"), 0o644); err != nil {
		t.Fatal(err)
	}
	commit(keep.RequestRun{Handler: "look"})
	said.wait(t, "[journal] second.txt applied")
}
