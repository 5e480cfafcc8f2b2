//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/sqlite"
)

// holds returns what the rows of a file hold that the key opens.
func (d *diary) holds(file string) (secrets []string) {
	d.Helper()
	db := sqlite.New(filepath.Join(d.dir, file), sqlite.Config{ReadOnly: true})
	if err := db.Open(d.Context()); err != nil {
		d.Fatal(err)
	}
	defer db.Close()
	for _, kind := range keep.AccountKinds() {
		rows, err := db.Accounts(d.Context(), kind)
		if err != nil {
			d.Fatal(err)
		}
		for _, row := range rows {
			c, err := seal.Ring{Path: filepath.Join(d.dir, "keep.key")}.Open(row)
			if err != nil {
				d.Fatal(err)
			}
			secrets = append(secrets, c.Secrets()...)
		}
	}
	return secrets
}

// Accounts and secrets move from SQLite to Postgres and back, and into backups, as sealed rows
// only: the same key opens them there, another one does not, and nothing of what they hold is in
// a copy. What was left behind renews nothing. The tokens of a restored backup that were used up
// since are one question.
func TestCopiedAccounts(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	toml, err := os.ReadFile(filepath.Join(d.dir, "keep.toml"))
	if err != nil {
		t.Fatal(err)
	}
	on := func(db string) { d.write("keep.toml", fmt.Sprintf("db = %q\n%s", db, toml)) }
	done := func(args ...string) string {
		t.Helper()
		out, status := d.keep(args...)
		if status != exit.Done {
			t.Errorf("keep %s: status %d: %s", strings.Join(args, " "), status, out)
		}
		return out
	}
	works := func(generation int64) {
		t.Helper()
		done("accounts", "test", "diary")
		done("accounts", "renew", "diary")
		done("accounts", "test", "diary")
		done("accounts", "rekey") // opens every row
		if list := d.accounts(); len(list) != 1 || list[0].Status != keep.AccountOK || list[0].Generation != generation {
			t.Errorf("accounts are %+v", list)
		}
	}
	d.allow()
	d.write("value.txt", "canary-of-a-stored-secret\n")
	sh := sealedDir{t, d.dir}
	sh.must("keep secrets set stored < value.txt; rm value.txt")
	held := d.holds("keep.db")
	to := pgtest.URL(t)
	done("db", "backup", "backup.db")
	done("db", "copy", "keep.db", to)
	if out, status := d.keep("accounts", "renew", "diary"); status == exit.Done || !strings.Contains(out, "it was moved to postgres://") {
		t.Errorf("renew where it was moved away from: status %d: %s", status, out)
	}
	on(to)
	works(2)
	dump, err := exec.Command(pgtest.Program(t, "pg_dump"), to).Output()
	if err != nil {
		t.Fatal(err)
	}
	right, err := os.ReadFile(filepath.Join(d.dir, "keep.key"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	d.write("keep.key", other.Text())
	if list := d.accounts(); len(list) != 1 || list[0].Status != keep.AccountNeedsReconnect || !strings.Contains(*list[0].Error, "another key") {
		t.Errorf("with another key: %+v", list)
	}
	if out, status := d.keep("accounts", "renew", "diary"); status == exit.Done || !strings.Contains(out, "another key") {
		t.Errorf("renew with another key: status %d: %s", status, out)
	}
	done("secrets")
	done("status")
	d.write("keep.key", string(right))
	done("db", "copy", to, "back.db")
	on("back.db")
	works(3)
	held = append(append(held, d.holds("back.db")...), d.tokens()...)
	if len(held) < 7 {
		t.Fatalf("%d secrets are known", len(held))
	}

	// Nobody works on a backup before keep db restored.
	on("backup.db")
	if out, status := d.keep("accounts", "renew", "diary"); status == exit.Done || !strings.Contains(out, "keep db restored") {
		t.Errorf("renew in a backup: %s", out)
	}
	look := seeker{t, map[string]string{}}
	for n, s := range append(held, strings.TrimSpace(string(right)[strings.Index(string(right), "AGE-SECRET"):])) {
		for kind, form := range encodings(s) {
			look.forms[fmt.Sprintf("secret %d, %s", n, kind)] = form
		}
	}
	look.in("the dump of Postgres", dump)
	files, err := filepath.Glob(filepath.Join(d.dir, "*.db*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("databases are %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		look.in(filepath.Base(file), text)
	}
}

// A backup is restored after its tokens were used up: they are tried once, a person is asked
// once, and other accounts and secrets work.
func TestRestoredAccounts(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.allow()
	sh := sealedDir{t, d.dir}
	sh.must("echo a-key | keep connect stripe --name shop; echo value | keep secrets set stored")
	sh.must("keep db backup backup.db; keep accounts renew diary; rm keep.db*; mv backup.db keep.db; keep db restored")
	s := &serving{t: t, bin: buildKeep(t), dir: d.dir, env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	d.write("one.js", reads("one", `ctx.log("fine");`))
	s.start() // it tries the tokens, which the service takes once
	var questions []api.Escalation
	for len(questions) == 0 {
		questions = list[api.Escalation](d, "inbox")
	}
	if len(questions) != 1 || questions[0].Kind != keep.AskReconnect {
		t.Errorf("the inbox has %+v", questions)
	}
	for _, a := range d.accounts() {
		if needs := a.Status == keep.AccountNeedsReconnect; needs != (a.Name == "diary") {
			t.Errorf("account %s is %s", a.Name, a.Status)
		}
	}
	d.allow()
	for len(list[api.Escalation](d, "inbox")) > 0 { // until the host has seen it
		continue
	}
	for _, line := range []string{"accounts test diary", "secrets", "accounts rekey"} {
		if out, status := d.keep(strings.Fields(line)...); status != exit.Done {
			t.Errorf("keep %s: status %d: %s", line, status, out)
		}
	}
}
