package mailtest_test

import (
	"crypto/tls"
	"net/smtp"
	"os"
	"testing"

	"github.com/keep-run/keep/internal/mailtest"
)

func TestMain(m *testing.M) { os.Exit(mailtest.Main(m)) }

// TestDelivers sends a mail, which is delivered, and filed if the domain says so.
func TestDelivers(t *testing.T) {
	s := mailtest.Shared(t)
	for domain, filed := range map[string]int{mailtest.Filed: 1, mailtest.Unfiled: 0} {
		from, to := s.User(domain), s.User(mailtest.Unfiled)
		c, err := smtp.Dial(s.SMTP)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.StartTLS(&tls.Config{InsecureSkipVerify: true}); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{c.Auth(smtp.PlainAuth("", from, mailtest.Password, "127.0.0.1")), c.Mail(from), c.Rcpt(to)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		w, err := c.Data()
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte("Subject: hello\r\n\r\nthere\r\n"))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		s.Settle(t)
		if n := s.Count(t, to, "", "there"); n != 1 {
			t.Errorf("%d mails, want 1\n%s", n, s.Log())
		}
		if n := s.Count(t, from, "Sent", "there"); n != filed {
			t.Errorf("%d mails in Sent, want %d\n%s", n, filed, s.Log())
		}
	}
}
