//go:build unix

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
)

// Who made and ended access is on record, also of what is gone since, and of what was not done nothing is.
func TestAudit(t *testing.T) {
	t.Parallel()
	sh := sealedDir{t, t.TempDir()}
	sh.must(`printf 'name = "p"\n' > keep.toml; keep db migrate`)
	sh.must("id=$(keep token add ada --role viewer | cut -d_ -f2); keep token revoke $id; keep token revoke $id && exit 1 || true")
	sh.must("echo one | keep secrets set s; echo two | keep secrets set s; keep secrets rm s; keep secrets rm s && exit 1 || true")
	sh.must("echo a-key | keep connect stripe --name shop; echo long-enough-it-is | keep accounts export shop --out shop.age; keep accounts revoke shop --yes")
	sh.must("echo a-key | keep connect stripe --name shop; keep accounts revoke none --yes && exit 1 || true")
	var got []string
	var entries []api.AuditEntry
	if err := json.Unmarshal([]byte(sh.must("keep audit --json")), &entries); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.By != daemon.User() || e.From != "cli" || e.At == (api.Time{}) || e.Workflow != nil {
			t.Errorf("entry %+v", e)
		}
		line := string(e.What) + " " + string(e.Kind)
		if e.Kind != "token" {
			line += " " + e.ID
		} else if e.Note == nil || *e.Note != "viewer, of ada" {
			t.Errorf("entry %+v", e)
		}
		got = append(got, line)
	}
	slices.Reverse(got)
	want := []string{"issue token", "revoke token", "set secret s", "set secret s", "remove secret s", "connect account shop", "export account shop", "revoke account shop",
		"connect account shop"}
	if !slices.Equal(got, want) {
		t.Errorf("the audit has\n%q, want\n%q", got, want)
	}
	if out := sh.must("keep audit --global --limit 4"); strings.Count(out, "shop") != 4 || !strings.Contains(out, "export") {
		t.Errorf("keep audit says\n%s", out)
	}
}
