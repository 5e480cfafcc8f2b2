//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// programs are real processes on one Postgres: programs written in Go, of several builds, and keep
// serve, which has none of their handlers.
type programs struct {
	*testing.T
	dir, db string
}

func (p *programs) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "GO_PROGRAM_DB="+p.db, "XDG_CACHE_HOME="+cacheHome(p), "XDG_RUNTIME_DIR="+p.dir)
	return cmd
}

// start starts a process, and returns what stops it as an operator does.
func (p *programs) start(name string, args ...string) (stop func()) {
	p.Helper()
	cmd := p.command(name, args...)
	out := new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || p.Failed() {
			p.Logf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	p.Cleanup(stop)
	return stop
}

// keep runs the command, and returns what it printed and how it ended.
func (p *programs) keep(args ...string) (out, errs string, code int) {
	p.Helper()
	cmd := p.command("keep", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		p.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// untilHeld waits until the host of a name has the workflow.
func (p *programs) untilHeld(db *postgres.DB, by string) {
	p.Helper()
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // asks the world outside
		all, err := api.ListHosts(p.Context(), db)
		if err != nil {
			p.Fatal(err)
		}
		last = ""
		for _, h := range all {
			held := slices.ContainsFunc(h.Workflows, func(l api.Lease) bool { return l.Workflow == "reminders" })
			if last += fmt.Sprintf(" %s:%v", h.Name, held); held && strings.Contains(h.Name, by) {
				return
			}
		}
	}
	p.Fatalf("%s does not have the workflow:%s", by, last)
}

// Of programs written in Go that share a Postgres with keep serve, the one that has the handlers has
// the workflow; while there is none, it is said where people look, and what to do.
func TestProgramsInGoTakeTurns(t *testing.T) {
	t.Parallel()
	p := &programs{t, t.TempDir(), pgtest.URL(t)}
	if err := os.WriteFile(filepath.Join(p.dir, "keep.toml"), []byte("db = \"${env:GO_PROGRAM_DB}\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := p.start("keep-go", "first")
	db := postgres.New(p.db, postgres.Config{})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if ws, err := db.Workflows(t.Context()); err == nil && len(ws) > 0 {
			break
		} else if err != nil && time.Now().Before(deadline) {
			_ = db.Close()
			db = postgres.New(p.db, postgres.Config{})
			_ = db.Open(t.Context()) // it is made by the program
		} else if time.Now().After(deadline) {
			t.Fatalf("no workflow was deployed: %v", err)
		}
	}
	t.Cleanup(func() { db.Close() })
	p.untilHeld(db, "first")
	p.start("keep", "serve", "--listen", "127.0.0.1:0")
	stop()
	p.untilHeld(db, ":") // keep serve, since nobody else is there: its name has its process
	missing := "version 1.0 of workflow reminders is written in Go, and no host that is there has its handlers: start the program "
	p.says(missing, "(build first)", "status")
	p.says(missing, "(build first)", "why", "reminders@1.0")
	out, _, code := p.keep("status", "--json", "--exit-code")
	var st api.Status
	if err := json.Unmarshal([]byte(out), &st); err != nil || code != 1 || len(st.NoProgram) != 1 || st.NoProgram[0].Build != "first" || st.NoProgram[0].Version != "1.0" || !strings.Contains(st.NoProgram[0].Program, "/cmd/keep") {
		t.Errorf("keep status --json: %v, exit code %d: %+v", err, code, st.NoProgram)
	}
	for _, of := range []string{"reminders", "."} {
		if _, errs, code := p.keep("plan", of); code != 2 || !strings.Contains(errs, "workflow reminders, version 1.0, is not planned: its handlers are Go functions of the program ") {
			t.Errorf("keep plan %s: exit code %d: %s", of, code, errs)
		}
	}

	second := p.start("keep-go", "second") // deploys 2.0, and gets it from keep serve
	p.untilHeld(db, "second")
	p.start("keep-go", "third") // deploys 3.0, and gets it from the second
	p.untilHeld(db, "third")
	second()
	if out, _, code := p.keep("status", "--exit-code"); code != 0 || strings.Contains(out, "Executed by no host") {
		t.Errorf("keep status while a program has the workflow: exit code %d\n%s", code, out)
	}
}

// says fails the test if the command does not print all of that.
func (p *programs) says(what, more string, args ...string) {
	p.Helper()
	if out, errs, _ := p.keep(args...); !strings.Contains(out, what) || !strings.Contains(out, more) {
		p.Errorf("keep %s does not say %q and %q:\n%s%s", strings.Join(args, " "), what, more, out, errs)
	}
}
