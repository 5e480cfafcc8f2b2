package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/law/policy"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestNotify(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, `[notify]
webhook = { url = "http://127.0.0.1:9/x", secret = "${secret:hook}" }
on_escalation = ["go", "version"]
retry = { attempts = 3 }
`, "KEEP_SECRET_HOOK="+secret, "KEEP_NOTIFY_TIMEOUT=3s")
	if err != nil {
		t.Fatal(err)
	}
	told := notify.DefaultRetry()
	want := config.Notify{URL: "http://127.0.0.1:9/x", Secret: secret, Command: []string{"go", "version"}, Dir: cfg.Dir,
		Retry: policy.Backoff{First: told.First, Max: told.Max, Attempts: 3}, Timeout: 3 * time.Second}
	if diff := cmp.Diff(want, cfg.Notify); diff != "" {
		t.Error(diff)
	}
	if len(cfg.Warnings) > 0 {
		t.Errorf("warnings: %v", cfg.Warnings)
	}
	targets, err := cfg.Notify.Targets(nil)
	if err != nil || len(targets) != 2 || targets[0].Sink() != keep.Sink("webhook") || targets[1].Sink() != keep.Sink("on_escalation") {
		t.Errorf("Targets = %v, %v", targets, err)
	}
}

// Links need a place where people open the pages, and it should be one that nobody on the way
// can read.
func TestNotifyLinks(t *testing.T) {
	t.Parallel()
	const links = "[notify]\nlinks = true\non_escalation = ['go', 'version']\n"
	for server, want := range map[string]string{
		"":                                     "keep.toml:2:1: notify.links: needs server.url, where people open the pages",
		"[server]\nurl = 'keep.example.com'\n": "keep.toml:5:1: server.url: must be https:// or http:// and a host",
		"[server]\nurl = 'javascript:alert(1)//x'\n":                                        "keep.toml:5:1: server.url: must be https:// or http:// and a host",
		"[server]\nurl = 'https://a.example'\nhosts = ['b.example', 'https://c.example']\n": "keep.toml:6:1: server.hosts: must be names of hosts",
	} {
		if _, err := load(t, links+server); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v, want %s", server, err, want)
		}
	}
	for server, warnings := range map[string]int{"http://keep.example.com": 1, "http://127.0.0.1:7433": 0, "https://keep.example.com": 0} {
		cfg, err := load(t, links+"[server]\nurl = '"+server+"'\n")
		if err != nil || !cfg.Notify.Links || len(cfg.Warnings) != warnings {
			t.Errorf("at %s: %v, warnings %v, want %d", server, err, cfg.Warnings, warnings)
		}
	}
}

// What is odd is a warning with its line; a missing secret is an error with its line
// when it is needed.
func TestNotifyWarnings(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, `[notify]
webhook = { url = "http://example.com", secret = "`+secret+`" }
on_escalation = ["./tell.sh"]
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range cfg.Warnings {
		got = append(got, w.Path+": "+w.Message)
		if w.Line == 0 || strings.Contains(w.String(), secret) {
			t.Errorf("warning without a line, or with the secret: %s", w)
		}
	}
	if len(got) != 3 || !strings.Contains(got[0], "anybody on the way") || !strings.Contains(got[1], "plain text") || !strings.Contains(got[2], "./tell.sh cannot be run here") {
		t.Errorf("warnings: %q", got)
	}
	cfg, err = load(t, "[notify]\nwebhook = { url = 'https://example.com', secret = '${secret:hook}' }\n")
	if err != nil {
		t.Fatal(err)
	}
	_, err = cfg.Connect()
	if e, ok := errors.AsType[*config.Error](err); !ok || len(e.Problems) != 1 || e.Problems[0].Line != 2 || e.Problems[0].Path != "notify.webhook.secret" {
		t.Errorf("Connect without the secret = %v, want the line of notify.webhook.secret", err)
	}
}
