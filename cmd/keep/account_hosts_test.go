//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/internal/pgtest"
)

// reads is a workflow that reads the diary when it is triggered.
func reads(name, call string) string {
	return fmt.Sprintf(`export default Keep.workflow({ name: %q, topics: {},
  producers: { read: { schedule: { cron: "0 0 1 1 *", timezone: "UTC" }, async handler(ctx) { %s } } } });`, name, call)
}

// statusOf waits until the newest run of each workflow has a status.
func (d *diary) statusOf(want keep.RunStatus, workflows ...string) {
	d.Helper()
	for reached := 0; reached < len(workflows); {
		reached = 0
		newest := map[string]api.Run{}
		for _, r := range list[api.Run](d, "runs") {
			if have, ok := newest[string(r.Workflow)]; !ok || time.Time(have.CreatedAt).Before(time.Time(r.CreatedAt)) {
				newest[string(r.Workflow)] = r
			}
		}
		for _, name := range workflows {
			if newest[name].Status == want {
				reached++
			}
		}
	}
}

// An account that is connected again beside one host lets the runs of another host on the
// same Postgres continue, too.
func TestReconnectOnTwoHosts(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	d := newDiary(t)
	lose := d.losing()
	toml, err := os.ReadFile(filepath.Join(d.dir, "keep.toml"))
	if err != nil {
		t.Fatal(err)
	}
	d.write("keep.toml", fmt.Sprintf("db = %q\n%s", url, toml))
	d.allow()
	other := &diary{T: t, dir: t.TempDir()}
	for _, name := range []string{"keep.toml", "keep.key", "packs/diary.toml"} {
		text, err := os.ReadFile(filepath.Join(d.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		other.write(name, string(text))
	}
	d.write("one.js", reads("one", "await ctx.diary.days({});"))
	other.write("two.js", reads("two", "await ctx.diary.days({});"))
	for _, p := range []*diary{d, other} {
		s := &serving{t: t, bin: buildKeep(t), dir: p.dir, env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
		s.keep("deploy", ".")
		s.start()
	}
	lose.Store(true)
	if out, status := d.keep("accounts", "renew", "diary"); status != exit.NeedsPerson {
		t.Fatalf("renew: status %d: %s", status, out)
	}
	for _, name := range []string{"one", "two"} {
		if out, status := d.keep("trigger", name); status != exit.Done {
			t.Fatalf("trigger: %s", out)
		}
	}
	d.statusOf(keep.StatusPerson, "one", "two")
	if q := list[api.Escalation](d, "inbox"); len(q) != 1 || q[0].Kind != keep.AskReconnect {
		t.Errorf("the inbox has %+v", q)
	}
	d.allow()
	d.statusOf(keep.StatusCommitted, "one", "two")
	if q := list[api.Escalation](d, "inbox"); len(q) != 0 {
		t.Errorf("after it was connected the inbox has %+v", q)
	}
}

// A host with another key than the one that sealed asks a clear question about what needs an
// account, and does everything else. With the right key it continues.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.allow()
	right, err := os.ReadFile(filepath.Join(d.dir, "keep.key"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	d.write("one.js", reads("one", "await ctx.diary.days({});"))
	d.write("two.js", reads("two", `ctx.log("fine");`))
	s := &serving{t: t, bin: buildKeep(t), dir: d.dir, env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))}
	s.keep("deploy", ".")
	for key, says := range map[string]string{other.Text(): "cannot be opened: another key", "": "the key is missing"} {
		d.write("keep.key", key)
		if key == "" {
			if err := os.Remove(filepath.Join(d.dir, "keep.key")); err != nil {
				t.Fatal(err)
			}
		}
		s.start()
		for _, name := range []string{"one", "two"} {
			if out, status := d.keep("trigger", name); status != exit.Done {
				t.Fatalf("trigger: %s", out)
			}
		}
		d.statusOf(keep.StatusPerson, "one")
		d.statusOf(keep.StatusCommitted, "two")
		q := list[api.Escalation](d, "inbox")
		if len(q) != 1 || q[0].Kind != keep.AskPermission || !strings.Contains(fmt.Sprintf("%+v %s", q[0], q[0].Why), says) {
			t.Fatalf("the inbox has %+v", q)
		}
		if a := d.accounts(); len(a) != 1 || a[0].Status != keep.AccountNeedsReconnect || !strings.Contains(*a[0].Error, says) {
			t.Errorf("the accounts are %+v", a)
		}
		for _, command := range []string{"status", "secrets", "runs", "workflows"} {
			if out, status := d.keep(command); status != exit.Done {
				t.Errorf("keep %s: status %d: %s", command, status, out)
			}
		}
		d.write("keep.key", string(right))
		if out, status := d.keep("inbox", "do", string(q[0].ID), "retry"); status != exit.Done {
			t.Fatalf("retry: %s", out)
		}
		d.statusOf(keep.StatusCommitted, "one")
		s.kill()
	}
}

// keep check warns of an account that is not connected, and of a scope that it lacks, and of
// nothing when all is there.
func TestCheckWarnsOfAccounts(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.write("one.js", reads("one", "await ctx.diary.days({});"))
	check := func(want string) {
		t.Helper()
		out, status := d.keep("check", ".", "--json")
		for _, code := range []string{"account-not-connected", "scope-missing"} {
			if has := strings.Contains(out, `"`+code+`"`); status != exit.Done || has != (code == want) {
				t.Errorf("status %d, want %q: %s", status, want, out)
			}
		}
	}
	if out, status := d.keep("db", "migrate"); status != exit.Done {
		t.Fatal(out)
	}
	check("account-not-connected")
	d.allow()
	check("")
	pack, err := os.ReadFile(filepath.Join(d.dir, "packs", "diary.toml"))
	if err != nil {
		t.Fatal(err)
	}
	d.write("packs/diary.toml", strings.Replace(string(pack), `scopes = ["mail.read"]`, `scopes = ["mail.read", "mail.send"]`, 1))
	check("scope-missing")
	if out, status := d.keep("accounts", "revoke", "diary", "--yes"); status != exit.Done {
		t.Fatal(out)
	}
	check("account-not-connected")
}
