package examples_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/mailtest"
)

// mailInvoices returns a copy of the example for a new user of the servers.
func mailInvoices(t *testing.T) (dir, user string, s *mailtest.Server) {
	t.Helper()
	s = mailtest.Shared(t)
	dir, user = copyOf(t, "mail-invoices"), s.User(mailtest.Unfiled)
	file := filepath.Join(dir, "keep.toml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("imap.example.com:993", s.IMAPS, "ann@example.com", user, "\nfrom ", fmt.Sprintf("\nca        = %q\nfrom ", s.CA)).Replace(string(raw))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".secrets", "mail"), []byte(mailtest.Password), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, user, s
}

// plantInvoices puts n invoices into INBOX, and one mail that is none.
func plantInvoices(t *testing.T, s *mailtest.Server, user string, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		s.Plant(t, user, fmt.Sprintf("17%08d.host", n), fmt.Appendf(nil,
			"From: billing%d@example.com\r\nSubject: Your invoice %d\r\nMessage-ID: <inv-%d@example.com>\r\n\r\nInvoice: NW-%d\r\nTotal: %d.50 EUR\r\n", n, n, n, n, n))
	}
}

// checkMailInvoices compares the lines and the folders with the n invoices.
func checkMailInvoices(t *testing.T, s *mailtest.Server, dir, user string, n int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "out", "invoices.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Sorted(strings.Lines(string(raw)))
	var want []string
	for i := 1; i <= n; i++ {
		want = append(want, fmt.Sprintf("\"NW-%d\",\"%d.50 EUR\",\"billing%d@example.com\"\n", i, i, i))
	}
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("invoices.csv is\n%s\nwant\n%s", strings.Join(lines, ""), strings.Join(want, ""))
	}
	if got := s.Count(t, user, "Archive", "Invoice: NW-"); got != n {
		t.Errorf("%d mails in Archive, want %d", got, n)
	}
	if got := s.Count(t, user, "", "Invoice: NW-"); got != 0 {
		t.Errorf("%d invoices are left in INBOX", got)
	}
	if got := s.Count(t, user, "", "about your invoice"); got != 1 {
		t.Errorf("%d mails that are no invoice in INBOX, want 1", got)
	}
}

func TestMailInvoices(t *testing.T) {
	t.Parallel()
	dir, user, s := mailInvoices(t)
	s.Plant(t, user, "1600000000.host", []byte("From: bob@example.com\r\nSubject: invoice?\r\nMessage-ID: <q@example.com>\r\n\r\nI ask about your invoice.\r\n"))
	plantInvoices(t, s, user, 1, 6)
	if w := runOnce(t, dir).Workflows[0]; w.Failed != 0 {
		t.Errorf("first run: %+v", w)
	}
	checkMailInvoices(t, s, dir, user, 5)
	plantInvoices(t, s, user, 6, 9)
	if w := runOnce(t, dir).Workflows[0]; w.Failed != 0 {
		t.Errorf("second run: %+v", w)
	}
	checkMailInvoices(t, s, dir, user, 8)
}

// TestMailInvoicesOfOneID has invoices to which their senders gave one Message-ID, and one whose Message-ID is longer than
// an event's id may be. Each is an invoice of its own.
func TestMailInvoicesOfOneID(t *testing.T) {
	t.Parallel()
	dir, user, s := mailInvoices(t)
	for n, id := range []string{"same@example.com", "same@example.com", strings.Repeat("l", 600) + "@example.com"} {
		s.Plant(t, user, fmt.Sprintf("17%08d.host", n), fmt.Appendf(nil,
			"From: bob@example.com\r\nSubject: invoice\r\nMessage-ID: <%s>\r\n\r\nInvoice: NW-%d\r\n", id, n+1))
	}
	if w := runOnce(t, dir).Workflows[0]; w.Failed != 0 {
		t.Errorf("%+v", w)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "out", "invoices.csv"))
	for n := range 3 {
		if strings.Count(string(raw), fmt.Sprintf(`"NW-%d"`, n+1)) != 1 {
			t.Errorf("%v, invoices.csv is\n%s\nwant one line of NW-%d", err, raw, n+1)
		}
	}
	if got := s.Count(t, user, "Archive", "Invoice: NW-"); got != 3 {
		t.Errorf("%d mails in Archive, want 3", got)
	}
}

// TestMailInvoicesRenumbered does what the error says when the server has numbered INBOX anew.
func TestMailInvoicesRenumbered(t *testing.T) {
	t.Parallel()
	dir, user, s := mailInvoices(t)
	s.Plant(t, user, "1600000000.host", []byte("From: bob@example.com\r\nSubject: invoice?\r\n\r\nI ask about your invoice.\r\n"))
	plantInvoices(t, s, user, 1, 3)
	runOnce(t, dir)
	s.Renumber(t, user)
	plantInvoices(t, s, user, 3, 5)
	if out := keep(t, dir, nil, 4, "run", ".", "--json", "--timeout", "2m"); !strings.Contains(out, "keep checkpoints reset") {
		t.Errorf("keep run does not say what helps: %s", out)
	}
	keep(t, dir, nil, 0, "checkpoints", "reset", "mail-invoices", "newMail", "--yes")
	keep(t, dir, nil, 0, "inbox", "do", "--all", "retry", "--yes")
	runOnce(t, dir)
	checkMailInvoices(t, s, dir, user, 4)
}

// TestMailInvoicesKilled kills the host at moments by chance. At the end each invoice is
// one line, and its mail is in Archive once.
func TestMailInvoicesKilled(t *testing.T) {
	t.Parallel()
	dir, user, s := mailInvoices(t)
	s.Plant(t, user, "1600000000.host", []byte("From: bob@example.com\r\nSubject: invoice?\r\nMessage-ID: <q@example.com>\r\n\r\nI ask about your invoice.\r\n"))
	const n = 12
	plantInvoices(t, s, user, 1, 1+n)
	r := rand.New(rand.NewPCG(3, 5))
	for range 6 {
		p := start(t, dir)
		timer := time.NewTimer(time.Duration(300+r.IntN(1200)) * time.Millisecond)
		select {
		case <-timer.C:
		case <-p.ended:
		}
		p.kill()
	}
	runOnce(t, dir)
	checkMailInvoices(t, s, dir, user, n)
}

// TestMailInvoicesAtOnce serves the example, whose producer looks into the mailbox each five
// minutes. A mail that comes after its first look is found at once: the server tells of it.
func TestMailInvoicesAtOnce(t *testing.T) {
	t.Parallel()
	dir, user, s := mailInvoices(t)
	cmd := command(t, dir, nil, "serve", ".", "--listen", "127.0.0.1:0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		checkBackstop(t, out.String())
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 1; n <= 3; n++ { // the first one may be there before the first look
		plantInvoices(t, s, user, n, n+1)
		for began := time.Now(); s.Count(t, user, "Archive", "Invoice: NW-") < n; <-tick.C {
			if time.Since(began) > 2*time.Minute {
				t.Fatalf("invoice %d was not found within two minutes:\n%s", n, out.String())
			}
		}
	}
}
