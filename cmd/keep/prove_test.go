package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/prove"
	"github.com/keep-run/keep/internal/twin"
)

// A proof is keep prove against a twin.
type proof struct {
	service twin.Service
	pack    string
	path    string // of the base URL
	tool    string // of keep.toml, in addition
	args    []string
}

// run runs the real command, and returns its report, its output and its status.
func (p proof) run(t *testing.T) (prove.Report, *twin.Twin, string, int) {
	t.Helper()
	service, err := twin.Start(p.service)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	dir := t.TempDir()
	toml := fmt.Sprintf("[connections.box]\nconnector = %q\nbase_url = \"http://%s%s\"\n", p.pack, service.Addr(), p.path)
	if p.pack != "http" {
		toml += "secret = \"${secret:box}\"\n"
	}
	toml += p.tool
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, buildKeep(t), append([]string{"prove"}, p.args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KEEP_SECRET_BOX="+service.Secret)
	var talk, out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err = cmd.Run()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	var r prove.Report
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
		page, err := os.ReadFile(filepath.Join(dir, "proofs", "box.html"))
		if err != nil || !bytes.Contains(page, []byte("</html>")) {
			t.Errorf("the page: %v", err)
		}
		if bytes.Contains(page, []byte(service.Secret)) {
			t.Error("the page shows the secret")
		}
	}
	if strings.Contains(out.String()+talk.String(), service.Secret) {
		t.Error("the output shows the secret")
	}
	return r, service, out.String() + talk.String(), cmd.ProcessState.ExitCode()
}

// What keep prove shows of twins that do what their vendors document, and of twins that lie.
func TestProve(t *testing.T) {
	t.Parallel()
	const params = `{"email":"{n}@example.com","description":"{n}"}`
	for name, c := range map[string]struct {
		proof
		grade  keep.Level
		status int
		faults string // part of them
		advice string // part of it
	}{
		"a key that is honoured": {
			proof{new(twin.Stripe), "stripe", "", "", []string{"box.createCustomer", "--params", params}},
			keep.LevelKey, exit.Done, "", "deduplicates = true",
		},
		"a key that is not honoured": {
			proof{twin.Forgetful{Service: new(twin.Stripe), Header: "Idempotency-Key"}, "stripe", "", "", []string{"box.createCustomer", "--params", params}},
			keep.LevelWitness, exit.Failed, "2 effects under one key", "take deduplicates out",
		},
		"a key that is not honoured, and no list to see it": {
			proof{twin.Forgetful{Service: new(twin.Stripe), Header: "Idempotency-Key"}, "http", "",
				"[connections.box.headers]\nAuthorization = \"Bearer ${secret:box}\"\n[connections.box.tools.make]\neffect = \"mutate\"\npath = \"/v1/customers\"\nbody = \"form\"\nidentity = [\"description\"]\nidempotency_header = \"Idempotency-Key\"\ndeduplicates = true\nexample = { description = \"{n}\" }\n",
				[]string{"box.make"}},
			keep.LevelNone, exit.Failed, "the key is not honoured", "take deduplicates out",
		},
		"a key of which nothing shows": {
			proof{new(twin.Webhook), "webhook", "/in", "", []string{"box.send", "--params", `{"type":"{n}","data":{}}`}},
			keep.LevelNone, exit.Failed, "", "look by hand",
		},
		"a mark that is found": {
			proof{new(twin.Slack), "slack", "/api", "", []string{"box.postMessage", "--params", `{"channel":"C1","text":"{n}"}`}},
			keep.LevelWitness, exit.Done, "", "settle_after = ",
		},
		"a list that is later than settle_after": {
			proof{&twin.Lagging{Service: new(twin.Slack), Replica: new(twin.Slack), Lag: 700 * time.Millisecond}, "slack", "/api",
				"[connections.box.tools.postMessage]\nsettle_after = \"300ms\"\n", []string{"box.postMessage", "--calls", "6", "--params", `{"channel":"C1","text":"{n}"}`}},
			keep.LevelNone, exit.Failed, "until then it would have been called absent", "settle_after = ",
		},
		"a list that is late, and within settle_after": {
			proof{&twin.Lagging{Service: new(twin.Slack), Replica: new(twin.Slack), Lag: 300 * time.Millisecond}, "slack", "/api", "",
				[]string{"box.postMessage", "--calls", "6", "--params", `{"channel":"C1","text":"{n}"}`}},
			keep.LevelWitness, exit.Done, "", "settle_after = ",
		},
		"a list that never shows it": {
			proof{&twin.Lagging{Service: new(twin.Slack), Replica: new(twin.Slack), Lag: time.Hour}, "slack", "/api", "",
				[]string{"box.postMessage", "--wait", "1s", "--params", `{"channel":"C1","text":"{n}"}`}},
			keep.LevelNone, exit.Failed, "did not show", "not shown",
		},
		"a draft that is used up": {
			proof{new(twin.Gmail), "gmail", "/gmail/v1/users/me", "", []string{"box.send", "--params", `{"to":["a@example.com"],"subject":"{n}","text":"x"}`}},
			keep.LevelClaim, exit.Done, "", "settle_after = ",
		},
		"a call that sets": {
			proof{new(twin.Slack), "slack", "/api", "", []string{"box.updateMessage"}},
			keep.LevelKey, exit.Done, "", "",
		},
		"a call that does not set": {
			proof{new(twin.Slack), "http", "/api",
				"[connections.box.headers]\nAuthorization = \"Bearer ${secret:box}\"\n[connections.box.tools.post]\neffect = \"mutate\"\npath = \"/chat.postMessage\"\nidentity = [\"channel\"]\nsets = true\nexample = { channel = \"C1\", text = \"{n}\" }\n",
				[]string{"box.post"}},
			keep.LevelNone, exit.Failed, "a repeat was answered with another result", "take sets out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.args = append(c.args, "--yes", "--json")
			r, _, out, status := c.proof.run(t)
			if len(r.Tools) != 1 {
				t.Fatalf("status %d:\n%s", status, out)
			}
			got := r.Tools[0]
			if got.Grade != c.grade || status != c.status {
				t.Errorf("grade %s, want %s; status %d, want %d\n%s", got.Grade, c.grade, status, c.status, out)
			}
			if !strings.Contains(strings.Join(got.Faults, "\n"), c.faults) || c.faults == "" && len(got.Faults) > 0 {
				t.Errorf("faults %q, want %q", got.Faults, c.faults)
			}
			if !strings.Contains(strings.Join(got.Advice, "\n"), c.advice) {
				t.Errorf("advice %q, want %q", got.Advice, c.advice)
			}
			if r.Spent > r.Budget || got.Calls != r.Spent || r.Spent == 0 {
				t.Errorf("%d calls of %d, %d told", r.Spent, r.Budget, got.Calls)
			}
		})
	}
}

// Nothing is sent that nobody agreed to.
func TestProveAsksFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want int
		say  string
	}{
		"no terminal":        {[]string{"box.postMessage"}, exit.Misused, "nothing was sent"},
		"all of the params":  {[]string{"box.postMessage", "--params", `{"channel":"C1","text":"` + strings.Repeat("x", 200) + ` to all"}`}, exit.Misused, "x to all"},
		"params that do not": {[]string{"box.postMessage", "--yes", "--params", `{"channel":"C1"}`}, exit.Misused, "text"},
		"too few calls":      {[]string{"box.postMessage", "--yes", "--calls", "2"}, exit.Misused, "--calls"},
		"no such connection": {[]string{"bx", "--yes"}, exit.NotFound, "bx"},
		"no such tool":       {[]string{"box.history", "--yes"}, exit.NotFound, "history"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, service, out, status := proof{service: new(twin.Slack), pack: "slack", path: "/api", args: c.args}.run(t)
			if status != c.want || !strings.Contains(out, c.say) {
				t.Errorf("status %d, want %d:\n%s", status, c.want, out)
			}
			if n := service.Requests(); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}
