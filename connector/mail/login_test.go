package mail_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mail"
)

// A tokenServer is an SMTP server that takes XOAUTH2, and keeps what it was told.
type tokenServer struct {
	mu   sync.Mutex
	said []string
	took int
}

func (s *tokenServer) NewSession(*smtp.Conn) (smtp.Session, error) { return &tokenSession{s}, nil }

type tokenSession struct{ *tokenServer }

func (s *tokenSession) AuthMechanisms() []string { return []string{"XOAUTH2"} }
func (s *tokenSession) Auth(string) (sasl.Server, error) {
	return s, nil
}

// Next takes the token good, and tells why it does not take another before it says no.
func (s *tokenSession) Next(response []byte) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, string(response))
	switch string(response) {
	case "user=ann@example.com\x01auth=Bearer good\x01\x01":
		return nil, true, nil
	case "":
		return nil, true, &smtp.SMTPError{Code: 535, Message: "not this token"}
	}
	return []byte(`{"status":"401"}`), false, nil
}
func (s *tokenSession) Mail(string, *smtp.MailOptions) error { return nil }
func (s *tokenSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (s *tokenSession) Data(r io.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took++
	_, err := io.Copy(io.Discard, r)
	return err
}
func (s *tokenSession) Reset()        {}
func (s *tokenSession) Logout() error { return nil }

// TestXOAUTH2 logs in with a token, and asks for another credential if it is refused.
func TestXOAUTH2(t *testing.T) {
	backend := &tokenServer{}
	server := smtp.NewServer(backend)
	server.AllowInsecureAuth = true
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(ln) })
	t.Cleanup(func() { server.Close(); wg.Wait() })
	cfg := mail.Config{SMTP: "smtp://" + ln.Addr().String(), TLS: "none", User: "ann@example.com", Token: "good", From: "ann@example.com"}
	if _, err := mutate(t, open(t, cfg), "send", "t", `{"to":"b@example.com"}`); err != nil || backend.took != 1 {
		t.Errorf("%v, and the server took %d mails", err, backend.took)
	}
	cfg.Token = "stale-token"
	_, err = mutate(t, open(t, cfg), "send", "t", `{"to":"b@example.com"}`)
	if f := failure(t, err); f.Class != keep.ClassPermission || f.Code != keep.CodeUnauthenticated || backend.took != 1 {
		t.Errorf("a stale token: %+v; the server was told %q", f, backend.said)
	}
}

// TestWhatIsDefinite answers to the end of a mail in each way.
func TestWhatIsDefinite(t *testing.T) {
	for answer, want := range map[int]keep.Class{451: keep.ClassTransient, 452: keep.ClassTransient, 554: keep.ClassLogic, 421: keep.ClassUnknown} {
		backend := smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &refusing{answer}, nil })
		server := smtp.NewServer(backend)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { server.Serve(ln) })
		t.Cleanup(func() { server.Close(); wg.Wait() })
		_, err = mutate(t, open(t, mail.Config{SMTP: "smtp://" + ln.Addr().String(), TLS: "none", From: "a@example.com"}), "send", "t", `{"to":"b@example.com"}`)
		if f := failure(t, err); f.Class != want {
			t.Errorf("%d to the end of a mail: %+v, want %s", answer, f, want)
		}
	}
}

type refusing struct{ code int }

func (*refusing) Mail(string, *smtp.MailOptions) error { return nil }
func (*refusing) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (r *refusing) Data(io.Reader) error {
	return &smtp.SMTPError{Code: r.code, Message: "no"}
}
func (*refusing) Reset()        {}
func (*refusing) Logout() error { return nil }

// TestConfig names everything that is wrong, with where.
func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  mail.Config
		path string // empty: it is right
	}{
		"nothing":             {mail.Config{From: "a@b.example"}, "connections.mail"},
		"SMTP alone":          {mail.Config{SMTP: "smtps://x", From: "a@b.example"}, ""},
		"no sender":           {mail.Config{SMTP: "smtps://x"}, "connections.mail.from"},
		"bad sender":          {mail.Config{SMTP: "smtps://x", From: "ann"}, "connections.mail.from"},
		"plain elsewhere":     {mail.Config{SMTP: "smtp://mail.example.com", TLS: "none", From: "a@b.example"}, "connections.mail.tls"},
		"plain here":          {mail.Config{SMTP: "smtp://127.0.0.1:25", TLS: "none", From: "a@b.example"}, ""},
		"plain and smtps":     {mail.Config{SMTP: "smtps://127.0.0.1", TLS: "none", From: "a@b.example"}, "connections.mail.tls"},
		"another scheme":      {mail.Config{SMTP: "http://x", From: "a@b.example"}, "connections.mail.smtp"},
		"user in the address": {mail.Config{SMTP: "smtps://a:b@x", From: "a@b.example"}, "connections.mail.smtp"},
		"IMAP without user":   {mail.Config{IMAP: "imaps://x", From: "a@b.example"}, "connections.mail.user"},
		"user alone":          {mail.Config{SMTP: "smtps://x", User: "u", From: "a@b.example"}, "connections.mail.password"},
		"both credentials":    {mail.Config{SMTP: "smtps://x", User: "u", Password: "p", Token: "t", From: "a@b.example"}, "connections.mail.token"},
		"sent without IMAP":   {mail.Config{SMTP: "smtps://x", From: "a@b.example", Sent: "Sent"}, "connections.mail.imap"},
		"sent and copy":       {mail.Config{SMTP: "smtps://x", IMAP: "imaps://x", User: "u", Password: "p", From: "a@b.example", Sent: "Sent", CopyToSelf: true}, "connections.mail.copy_to_self"},
		"a copy settles":      {mail.Config{SMTP: "smtps://x", IMAP: "imaps://x", User: "u", Password: "p", From: "a@b.example", CopyToSelf: true, SettleAfter: &settled}, "connections.mail.settle_after"},
	} {
		_, err := mail.New("mail", c.cfg)
		if got := firstPath(err); got != c.path {
			t.Errorf("%s: %v, want a problem at %q", name, err, c.path)
		}
	}
}

// firstPath returns where the first problem is.
func firstPath(err error) string {
	var e *connector.ConfigError
	if !errors.As(err, &e) {
		return ""
	}
	return e.Problems[0].Path
}
