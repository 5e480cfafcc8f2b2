package config

import (
	"errors"
	"log/slog"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/law/policy"
)

type (
	notifyTable struct {
		Webhook      webhookTable  `toml:"webhook"`       // that is notified of each question
		OnEscalation []string      `toml:"on_escalation"` // program and arguments, started for each question
		Retry        backoffTable  `toml:"retry"`         // between attempts to notify
		Timeout      time.Duration `toml:"timeout"`       // of one attempt
		Links        bool          `toml:"links"`         // messages have a link that answers without a login
	}

	webhookTable struct {
		URL    string `toml:"url"`    // that is posted to
		Secret string `toml:"secret"` // that messages are signed with (Standard Webhooks)
	}
)

// A Notify says how people are notified of questions. The zero Notify tells nobody.
type Notify struct {
	URL     string         // of the webhook; empty: none
	Secret  string         // that it is signed with
	Command []string       // program and arguments; empty: none
	Dir     string         // where the program runs, absolute
	Retry   policy.Backoff // between attempts
	Timeout time.Duration  // of one attempt
	Links   bool           // messages have a link by which the question is answered without a login
}

// Targets returns what tells people. log gets what the program prints; nil is
// slog.Default(). A missing secret is an error; Config.Connect reports it with
// its line.
func (n Notify) Targets(log *slog.Logger) ([]notify.Target, error) {
	var out []notify.Target
	if n.URL != "" {
		key, err := notify.ParseSecret(n.Secret)
		if err != nil {
			return nil, err
		}
		hook, err := notify.NewWebhook(n.URL, key)
		if err != nil {
			return nil, err
		}
		out = append(out, hook)
	}
	if len(n.Command) > 0 {
		cmd, err := notify.NewCommand(n.Command, n.Dir, log)
		if err != nil {
			return nil, err
		}
		out = append(out, cmd)
	}
	return out, nil
}

// Sinks returns the sinks of the targets.
func (n Notify) Sinks() (out []keep.Sink) {
	if n.URL != "" {
		out = append(out, notify.SinkWebhook)
	}
	if len(n.Command) > 0 {
		out = append(out, notify.SinkCommand)
	}
	return out
}

// notify checks the table and returns what it means.
//
// A table that names no target is as none: there is nobody to tell, whatever else it says.
func (b *binder) notify(t notifyTable, pages string, root *node, dir string) Notify {
	n := root.table()["notify"]
	if n.table() == nil {
		return Notify{}
	}
	out := Notify{Dir: dir, Links: t.Links, Timeout: t.Timeout, Retry: policy.Backoff{First: t.Retry.First, Max: t.Retry.Max, Attempts: t.Retry.Attempts}}
	if r := out.Retry; r.First <= 0 || r.Max < r.First || r.Attempts < 0 {
		b.addf(n.table()["retry"], "notify.retry", "want 0 < first <= max and attempts >= 0: first %s, max %s, attempts %d", r.First, r.Max, r.Attempts)
	}
	if t.Timeout <= 0 {
		b.addf(n.table()["timeout"], "notify.timeout", "must be more than zero")
	}
	if t.Links {
		b.links(pages, n.table()["links"])
	}
	if hook := n.table()["webhook"]; hook != nil {
		b.webhook(t.Webhook, hook)
		out.URL, out.Secret = t.Webhook.URL, t.Webhook.Secret
	}
	if command := n.table()["on_escalation"]; command != nil {
		b.command(t.OnEscalation, command, dir)
		out.Command = t.OnEscalation
	}
	if out.URL == "" && len(out.Command) == 0 {
		return Notify{}
	}
	return out
}

// links checks that links lead somewhere: people open them on other machines.
func (b *binder) links(pages string, n *node) {
	const at = "notify.links"
	switch {
	case pages == "":
		b.addf(n, at, `needs server.url, where people open the pages, such as "https://keep.example.com"`)
	case insecure(pages):
		p := b.problem(n, at, "anybody on the way can read the links, and decide by them")
		p.Fix = "use https:// in server.url"
		b.warnings = append(b.warnings, p)
	}
}

// isSite reports whether a text is an address at which browsers find pages.
func isSite(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// webhook checks where questions are sent to, and with which secret.
func (b *binder) webhook(t webhookTable, n *node) {
	const at = "notify.webhook"
	target, secret := n.table()["url"], n.table()["secret"]
	switch _, err := notify.NewWebhook(t.URL, nil); {
	case target == nil:
		b.addf(n, at+".url", "is missing; it is where questions are sent to")
	case isOpen(t.URL): // reported as missing
	case err != nil:
		b.addf(target, at+".url", "%v", err)
	case insecure(t.URL):
		p := b.problem(target, at+".url", "questions are sent as anybody on the way can read them")
		p.Fix = "use https://"
		b.warnings = append(b.warnings, p)
	}
	switch _, err := notify.ParseSecret(t.Secret); {
	case secret == nil:
		b.addf(n, at+".secret", `is missing; write "${secret:webhook}", and put whsec_ and the base64 of 32 random bytes into .secrets/webhook`)
	case isOpen(t.Secret): // reported as missing
	case err != nil:
		b.addf(secret, at+".secret", "%v", err)
	case secret.raw == "" && secret.source == "":
		p := b.problem(secret, at+".secret", "looks like a secret in plain text")
		p.Fix = `write "${secret:webhook}" and put the value into .secrets/webhook`
		b.warnings = append(b.warnings, p)
	}
}

// isOpen reports whether a value still has a reference, to something missing.
func isOpen(s string) bool { return strings.Contains(s, "${") }

// command checks the program that is run for each question. One that is not
// there is a warning: it may be there where the host runs.
func (b *binder) command(argv []string, n *node, dir string) {
	const at = "notify.on_escalation"
	if len(argv) == 0 || argv[0] == "" {
		b.addf(n, at, `is empty; write a list such as ["./tell.sh", "team"]`)
		return
	}
	// A name without a separator is looked for in PATH, as a shell does it.
	program := argv[0]
	if strings.ContainsAny(program, `/\`) && !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	if _, err := exec.LookPath(program); err != nil {
		if e, ok := errors.AsType[*exec.Error](err); ok {
			err = e.Err
		}
		b.warnings = append(b.warnings, b.problem(n, at, "%s cannot be run here: %v", argv[0], err))
	}
}
