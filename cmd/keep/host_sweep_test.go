package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/store/sqlite"
)

// fillOld makes a project whose database has 200 finished runs, a year older than
// the time of a synctest bubble, that [retention] of keep.toml deletes.
func fillOld(t *testing.T, dir string) (file string) {
	t.Helper()
	if status := run(t.Context(), []string{"init", dir}, io.Discard, io.Discard); status != exit.Done {
		t.Fatalf("init: status %d", status)
	}
	edit(t, filepath.Join(dir, "keep.toml"), "# [policy]", "[retention]\nafter = \"30d\"\n# [policy]")
	file = filepath.Join(dir, "keep.db")
	db := sqlite.New(file, sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	payload := json.RawMessage(`{"text":"` + strings.Repeat("x", 20_000) + `"}`)
	if err := db.Commit(t.Context(), keep.Commit{Workflow: "journal", At: at, Changes: []keep.Change{keep.Deploy{Deployment: keep.Deployment{
		Workflow: "journal", Version: keep.Version{Major: 1}, Definition: keep.Definition{Name: "journal"}, CreatedAt: at}}}}); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		id := keep.RunID(fmt.Sprintf("run_old%03d", i))
		m := keep.Mutation{Key: keep.MutationKey("mut_" + id), Workflow: "journal", Run: id, Tool: "journal.write", Connector: "log", Level: keep.LevelKey,
			Payload: payload, Token: string(id), State: keep.Applied, ResolvedBy: "call", Attempts: 1, CallDeadline: at, CreatedAt: at, UpdatedAt: at}
		if err := db.Commit(t.Context(), keep.Commit{Workflow: "journal", At: at, Changes: []keep.Change{
			keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: "journal", Handler: "note", Kind: keep.Consumer, Phase: keep.Committed,
				Status: keep.StatusCommitted, Closed: true, Mutation: m.Key, CreatedAt: at, UpdatedAt: at}},
			keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: at, By: "call", To: keep.InFlight, Evidence: "sent"},
				{At: at, By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "happened"}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

func sizeOf(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Every command that is a host deletes what [retention] says, and gives the space
// back to the file system.
func TestHostSweeps(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	for name, args := range map[string][]string{
		"serve": {"serve", "--listen", "off"},
		"dev":   {"dev", ".", "--listen", "off", "--poll"},
		"run":   {"run", "."}, // it is idle long before the first hourly sweep
	} {
		t.Run(name, func(t *testing.T) {
			// No socket has so long a name: who waits at one is in no bubble, in which time would stand still.
			dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			file := fillOld(t, dir)
			t.Chdir(dir)
			before := sizeOf(t, file)
			said := newListener()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer time.AfterFunc(3*time.Minute, stop).Stop()
				if status := run(ctx, append(args, "-v"), io.Discard, said); status != exit.Done {
					t.Errorf("keep %v: status %d\n%s", args, status, said)
				}
			})
			if text := string(said.said); !strings.Contains(text, "swept what is over and old") {
				t.Errorf("keep %v swept nothing; it said:\n%s", args, text)
			}
			if after := sizeOf(t, file); after > before/2 {
				t.Errorf("keep %v: the file has %d bytes, and had %d before the sweep", args, after, before)
			}
		})
	}
}
