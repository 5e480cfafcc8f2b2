//go:build unix

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

var upgradeFrom = flag.String("upgrade-from", "", "a commit of this repository: TestUpgradeFrom begins with hosts of that version")

// TestRollingUpgrade puts one version of Keep in the place of another, under load
// and with migrations in between: this one, the next, whose migration this one can
// live with, and the one after, whose migration it cannot. Nothing happens twice.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	known := lastMigration(t)
	expand := fmt.Sprintf(`-- oldest: %d
ALTER TABLE lease ADD COLUMN next_note TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN next_note TEXT NOT NULL DEFAULT '';
ALTER TABLE mutation ADD COLUMN next_note TEXT NOT NULL DEFAULT '';
CREATE TABLE next_thing (id BIGINT PRIMARY KEY);
CREATE INDEX host_by_next ON host (until);
`, known)
	contract := fmt.Sprintf(`-- oldest: %d
ALTER TABLE run DROP COLUMN next_note;
`, known+1)
	next, after := buildWith(t, expand), buildWith(t, expand, contract)

	f := newFailover(t)
	// On a busy machine a host that is at work may be late for a short lease, and then it holds up no migration.
	f.write("keep.toml", strings.Replace(failoverConfig, `ttl = "2s"`, `ttl = "10s"`, 1))
	a, b, c := f.hosts[0], f.hosts[1], f.hosts[2]
	a.start()
	b.start()
	stop := f.feed()
	f.settled("two hosts of this version")

	// The next version's migration, and its first host, beside those of this version.
	c.bin = next
	f.keep(c, "db", "migrate")
	b.terminate() // and starts again, on what is a newer schema to it
	c.start()
	f.until("hosts of both versions have workflows", time.Minute, func() string {
		if x, y, z := a.holds(), b.holds(), c.holds(); x == 0 || y == 0 || z == 0 {
			return fmt.Sprintf("they have %d, %d and %d", x, y, z)
		}
		return ""
	})
	f.works("side by side")

	// The version after that: its migration waits for the hosts that cannot live with it.
	d := f.newHost(3, 0)
	d.bin = after
	f.refused(d, "hosts of an older version are at work", a.name(), "db", "migrate")
	f.refused(d, "hosts of an older version are at work", b.name(), "serve")
	f.works("although a migration was refused")

	// One of them is stopped. The other one is suspended, and does not hear that it
	// is over.
	b.signal(syscall.SIGTERM)
	b.wait()
	a.signal(syscall.SIGSTOP)
	f.takenOver("frozen", a)
	f.keep(d, "db", "migrate")
	a.signal(syscall.SIGCONT)
	a.ends("the database was made by a newer version of Keep")
	f.refused(a, "the database was made by a newer version of Keep", "install that version", "serve")

	f.works("without the old version")
	d.start()
	stop()
	f.hosts = []*failHost{c, d}
	f.finish()
}

// TestUpgradeFrom is a rolling upgrade from a version as it was released.
func TestUpgradeFrom(t *testing.T) {
	if *upgradeFrom == "" {
		t.Skip("it builds an older version: say which with -upgrade-from")
	}
	f := newFailoverWith(t, buildCommit(t, *upgradeFrom))
	a, b, c := f.hosts[0], f.hosts[1], f.hosts[2]
	a.start()
	b.start()
	stop := f.feed()
	f.until("the older version works", 2*time.Minute, func() string {
		f.crm.mu.Lock()
		defer f.crm.mu.Unlock()
		if n := len(f.crm.created); n < 10 {
			return fmt.Sprintf("%d contacts are made", n)
		}
		return ""
	})
	c.bin = ""
	f.keep(c, "db", "migrate")
	f.look()
	c.start()
	f.until("hosts of both versions have workflows", time.Minute, func() string {
		if x, y, z := a.holds(), b.holds(), c.holds(); x == 0 || y == 0 || z == 0 {
			return fmt.Sprintf("they have %d, %d and %d", x, y, z)
		}
		return ""
	})
	f.works("side by side")
	for _, h := range []*failHost{a, b} {
		h.signal(syscall.SIGTERM)
		h.wait()
	}
	f.works("without the older version")
	stop()
	f.finish()
}

// lastMigration returns the number of this version's.
func lastMigration(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("../../store/postgres/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	return len(files)
}

// buildWith builds the command as it would be with more migrations, and returns its
// file.
func buildWith(t *testing.T, scripts ...string) string {
	t.Helper()
	dir := t.TempDir()
	migrations, err := filepath.Abs("../../store/postgres/migrations")
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for i, script := range scripts {
		file := filepath.Join(dir, fmt.Sprintf("%d.sql", i))
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(migrations, fmt.Sprintf("%04d_next.sql", lastMigration(t)+1+i))] = file
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "keep")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-overlay", list, "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// buildCommit builds the command as it was at a commit.
func buildCommit(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	script := `cd "$(git rev-parse --show-toplevel)" && git archive "$1" | tar -x -C "$2" && cd "$2" && go build -trimpath -o keep ./cmd/keep`
	if out, err := exec.Command("bash", "-c", "set -o pipefail; "+script, "build", commit, dir).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	return filepath.Join(dir, "keep")
}

// keep runs a command of the version of a host, which must succeed.
func (f *failover) keep(h *failHost, args ...string) {
	f.Helper()
	if out, err := h.command(args...).CombinedOutput(); err != nil {
		f.Fatalf("keep %v: %v\n%s", args, err, out)
	}
}

// refused runs a command of the version of a host, which must fail for a reason that
// it says, with a detail.
func (f *failover) refused(h *failHost, why, detail string, args ...string) {
	f.Helper()
	cmd := h.command(args...)
	out := new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // a host that is not refused serves
	err := cmd.Wait()
	late.Stop()
	if err == nil || cmd.ProcessState.ExitCode() != exit.Unreachable || !strings.Contains(out.String(), why) || !strings.Contains(out.String(), detail) {
		f.Errorf("keep %v: %v\n%s\nwant %q with %q", args, err, out, why, detail)
	}
}

// works waits until contacts that come from now on have been made by every workflow.
func (f *failover) works(what string) {
	f.Helper()
	f.crm.mu.Lock()
	want := len(f.crm.feed) + 2
	f.crm.mu.Unlock()
	f.until(what+", contacts are made", 2*time.Minute, func() string { return f.made(want) })
}

// made says which workflow has not made that many contacts yet.
func (f *failover) made(want int) string {
	counts, err := f.db.TopicCounts(f.Context(), "")
	if err != nil {
		return err.Error()
	}
	done := 0
	for _, c := range counts {
		if c.Topic != "found" {
			continue
		}
		if c.Consumed < want {
			return fmt.Sprintf("%s has made %d of %d", c.Workflow, c.Consumed, want)
		}
		done++
	}
	if done < failoverWorkflows {
		return fmt.Sprintf("%d workflows have begun", done)
	}
	return ""
}

// name returns what hosts are called in lists: machine and process.
func (h *failHost) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint(":", h.pid)
}

// ends waits until the process has ended by itself, and said why.
func (h *failHost) ends(why string) {
	h.f.Helper()
	h.mu.Lock()
	exited := h.exited
	h.exited, h.process = nil, nil
	h.mu.Unlock()
	select {
	case err := <-exited:
		if err == nil || !strings.Contains(h.out.String(), why) {
			h.f.Errorf("host %d ended with %v and said:\n%s\nwant %q", h.n, err, h.out, why)
		}
	case <-time.After(time.Minute):
		h.f.Fatalf("host %d continues", h.n)
	}
}
