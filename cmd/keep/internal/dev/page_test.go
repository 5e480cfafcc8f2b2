package dev

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// A slowDB is a database whose answers about a workflow come when the test says so.
type slowDB struct {
	database.DB
	asked, answer chan struct{}
}

func (db slowDB) TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error) {
	db.asked <- struct{}{}
	<-db.answer
	return db.DB.TopicCounts(ctx, w)
}

// A commit does not wait for the page of keep dev while that reads the database.
func TestPageHoldsNoCommitUp(t *testing.T) {
	db, err := database.Open(t.Context(), &config.Config{DB: filepath.Join(t.TempDir(), "keep.db")}, database.ToHost)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at := time.Now().UTC().Truncate(time.Millisecond)
	if err := db.Commit(t.Context(), keep.Commit{Workflow: "journal", At: at, Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: "journal", Version: keep.Version{Major: 1}, CreatedAt: at}}}}); err != nil {
		t.Fatal(err)
	}
	slow := slowDB{db, make(chan struct{}), make(chan struct{})}
	p := newPage(terminal.New(io.Discard, io.Discard))
	p.attach(&daemon.Session{DB: slow, Only: []keep.WorkflowName{"journal"}})
	read := make(chan bool)
	go func() { read <- p.read(t.Context()) }()
	<-slow.asked
	p.commit(keep.Commit{Workflow: "journal"}) // would wait for slow.answer
	close(slow.answer)
	if !<-read || len(p.body) < 2 {
		t.Errorf("the page shows %q", p.body)
	}
}

// A page shows problems, what the database says and the log, within the size of
// the screen and without anything hostile.
func TestPage(t *testing.T) {
	var screen bytes.Buffer
	p := newPage(terminal.New(io.Discard, io.Discard))
	p.terminal = &screen
	p.problems([]terminal.Problem{{Severity: "error", File: "a.js", Line: 3, Column: 5, Message: "no \x1b[2J\u202e", Source: "\tx = \x1b"}})
	p.body = []string{"journal 1.0, on", strings.Repeat("wide", 50)}
	p.commit(keep.Commit{Workflow: "journal", Changes: []keep.Change{keep.AppendLogs{Lines: []keep.LogLine{
		{Level: "warn", Text: "hello\x1b]0;x\a"},
	}}}})
	if _, err := p.Write([]byte("level=WARN first\nlevel=WARN half")); err != nil {
		t.Fatal(err)
	}
	p.draw()
	got := screen.String()
	for _, want := range []string{"These files have errors", `a.js:3:5: no \u001b[2J\u202e`, `x = \u001b`,
		"journal 1.0, on", `[journal] warn hello\u001b]0;x\u0007`, "level=WARN first"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page has no %q:\n%q", want, got)
		}
	}
	if strings.Contains(got, "half") {
		t.Error("a line is shown before it ends")
	}
	for line := range strings.SplitSeq(got, "\r\n") {
		line = strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "", "\x1b[0m", "").Replace(line)
		if terminal.Columns(line) > 80 {
			t.Errorf("a line of %d columns: %q", terminal.Columns(line), line)
		}
	}
	for i := range 100 {
		p.say("line %d", i)
	}
	screen.Reset()
	p.draw()
	if n := strings.Count(screen.String(), "\r\n"); n >= 24 {
		t.Errorf("the page has %d lines, and the screen 24", n+1)
	}
}
