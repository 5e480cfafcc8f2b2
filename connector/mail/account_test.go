package mail_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mail"
	"github.com/keep-run/keep/internal/mailtest"
)

// holdings are the credentials of an account, one after the other: each that is refused is
// followed by the next.
type holdings struct {
	list []connector.Credential
	now  int
	err  error
}

func (h *holdings) Credential(_ context.Context, account string) (connector.Credential, error) {
	if h.err != nil || account != "work" {
		return connector.Credential{}, h.err
	}
	return h.list[h.now], nil
}

func (h *holdings) Owner(context.Context, string) (string, error) { return "ann", nil }

func (h *holdings) Accepted(context.Context, string) {}

func (h *holdings) Refused(_ context.Context, _ string, c connector.Credential) bool {
	if c.Generation != int64(h.now) || h.now+1 == len(h.list) {
		return false
	}
	h.now++
	return true
}

// A connection logs in with what its account holds at that moment, at a real Dovecot that
// asks whose a token is, and at Postfix, which asks Dovecot. A token that is refused is
// renewed once; nothing was sent before.
func TestAccount(t *testing.T) {
	s := mailtest.Shared(t)
	user := s.User(mailtest.Filed)
	s.Allow("good-token", user)
	token := func(generation int64, value string) connector.Credential {
		return connector.Credential{Value: value, OAuth: true, Subject: user, Generation: generation, Secrets: []string{value, "refresh-" + value}}
	}
	cfg := mail.Config{SMTP: "smtps://" + s.SMTPS, IMAP: "imaps://" + s.IMAPS, CA: s.CA, From: user, Sent: "Sent", Account: "work"}
	for name, c := range map[string]struct {
		user string
		list []connector.Credential
	}{
		"a token":         {"", []connector.Credential{token(0, "good-token")}},
		"a stale token":   {user, []connector.Credential{token(0, "stale-token"), token(1, "good-token")}},
		"an app password": {user, []connector.Credential{{Value: mailtest.Password}}},
		"user:password":   {"", []connector.Credential{{Value: user + ":" + mailtest.Password}}},
	} {
		for _, first := range []string{"SMTP", "IMAP"} {
			with := cfg
			with.User, with.Accounts = c.user, &holdings{list: c.list}
			conn := open(t, with)
			if first == "IMAP" {
				read(t, conn, "folders", `{}`)
			}
			id := fmt.Sprintf("t-%s-%s", strings.NewReplacer(" ", "-", ":", "-").Replace(name), first)
			if _, err := mutate(t, conn, "send", id, fmt.Sprintf(`{"to":%q,"subject":"s"}`, user)); err != nil {
				t.Errorf("%s, %s first: %v", name, first, err)
				continue
			}
			s.Settle(t)
			if a, err := reconcile(t, conn, "send", id, `{}`); err != nil || a.Verdict != connector.Happened {
				t.Errorf("%s, %s first: %+v, %v", name, first, a, err)
			}
		}
	}
	// One that stays refused asks a person, says nothing of the token, and sends nothing.
	held := &holdings{list: []connector.Credential{token(0, "stale-one"), token(1, "stale-two")}}
	cfg.Accounts = held
	_, err := mutate(t, open(t, cfg), "send", "refused", fmt.Sprintf(`{"to":%q}`, user))
	if f := failure(t, err); f.Class != keep.ClassPermission || f.Code != keep.CodeUnauthenticated || f.Account != "work" || f.Generation != 1 || held.now != 1 || strings.Contains(err.Error(), "stale") {
		t.Errorf("a token that stays refused: %+v after %d", f, held.now)
	}
	cfg.Accounts = &holdings{err: keep.Failf(keep.ClassPermission, keep.CodeReconnect, "it must be connected again")}
	_, err = mutate(t, open(t, cfg), "send", "reconnect", fmt.Sprintf(`{"to":%q}`, user))
	if f := failure(t, err); f.Code != keep.CodeReconnect || f.Tool != "mail.send" {
		t.Errorf("an account that must be connected again: %+v", f)
	}
}
