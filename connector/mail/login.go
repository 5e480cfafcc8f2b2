package mail

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/emersion/go-sasl"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/redact"
)

// A login is how a session shows who it is.
type login struct {
	client     sasl.Client          // nil: there is no user
	credential connector.Credential // of the account; zero: there is none
}

// used is what is remembered of a credential of a connected account.
type used struct {
	hide       redact.Redactor
	generation int64
}

// login returns how to log in now.
func (a *account) login(ctx context.Context) (login, error) {
	switch {
	case a.connected != "":
		return a.loginOf(ctx)
	case a.user == "":
		return login{}, nil
	case a.token != "":
		return login{client: &xoauth2{a.user, a.token}}, nil
	}
	return login{client: sasl.NewPlainClient("", a.user, a.password)}, nil
}

// loginOf logs in with what the connected account holds: an access token with XOAUTH2, and
// a password, or user:password, with PLAIN.
func (a *account) loginOf(ctx context.Context) (login, error) {
	if a.accounts == nil {
		return login{}, keep.Failf(keep.ClassPermission, keep.CodeAccount, "the account %s is in the database, which is not open", a.connected)
	}
	c, err := a.accounts.Credential(ctx, a.connected)
	if err != nil {
		return login{}, err
	}
	a.used.Store(&used{redact.New(append(c.Secrets, c.Value)...), c.Generation})
	user, password := cmp.Or(a.user, c.Subject), c.Value
	if name, rest, ok := strings.Cut(c.Value, ":"); ok && !c.OAuth && name == cmp.Or(a.user, name) {
		user, password = name, rest
	}
	switch {
	case user == "" || strings.ContainsAny(user+password, "\x00\r\n"):
		return login{}, keep.Failf(keep.ClassPermission, keep.CodeUnauthenticated, "the account %s names no user; write user = \"…\" beside account", a.connected)
	case c.OAuth:
		return login{&xoauth2{user, password}, c}, nil
	}
	return login{sasl.NewPlainClient("", user, password), c}, nil
}

// anew reports whether a session whose login was refused is to be opened once more, because
// the account holds something else now.
func (a *account) anew(ctx context.Context, l login, err error) bool {
	if _, refused := errors.AsType[*loginError](err); !refused || a.connected == "" || l.client == nil {
		return false
	}
	class, code := classify(ctx, err)
	return class == keep.ClassPermission && code == keep.CodeUnauthenticated && a.accounts.Refused(ctx, a.connected, l.credential)
}

// accepted says that the server let the account in, if err is nil.
func (a *account) accepted(ctx context.Context, err error) {
	if err == nil && a.connected != "" && a.accounts != nil {
		a.accounts.Accepted(context.WithoutCancel(ctx), a.connected)
	}
}

// clean returns a text without secrets.
func (a *account) clean(text string) string {
	if u := a.used.Load(); u != nil {
		text = u.hide.Text(text)
	}
	return a.hide.Text(text)
}

// xoauth2 is the SASL mechanism of Google and Microsoft, which is no standard.
type xoauth2 struct{ user, token string }

// Start returns the mechanism and its only message.
func (x *xoauth2) Start() (string, []byte, error) {
	return "XOAUTH2", []byte("user=" + x.user + "\x01auth=Bearer " + x.token + "\x01\x01"), nil
}

// Next answers the challenge that tells why the token was refused: the server says no
// only after an answer.
func (*xoauth2) Next([]byte) ([]byte, error) { return []byte{}, nil }

// imapLogin is a mechanism on IMAP. An answer that is empty would be sent as "=", which is
// for the first message only and no base64; servers that are strict find a protocol error
// in it and do not say no. What stands for it is the dummy of OAUTHBEARER (RFC 7628, 3.2.3).
type imapLogin struct{ sasl.Client }

// Next answers a challenge.
func (l imapLogin) Next(challenge []byte) ([]byte, error) {
	answer, err := l.Client.Next(challenge)
	if err == nil && len(answer) == 0 {
		answer = []byte{1}
	}
	return answer, err
}
