package mail_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/mailtest"
)

// oddMails returns n mails that break every rule that a program can break: ours and those of
// public libraries as they are, and cut, mixed and bent by chance, with a seed.
func oddMails(tb testing.TB, n int) [][]byte {
	tb.Helper()
	var good [][]byte
	files, err := filepath.Glob("../../examples/invoices/mails/*.eml")
	if err != nil || len(files) == 0 {
		tb.Fatalf("%v: %d mails", err, len(files))
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		good = append(good, raw)
	}
	for _, text := range []string{
		"", "\r\n", "\r\n\r\n", "no header at all", "Subject: only\r\n", "From: \r\nTo: ,,,;\r\nSubject:\r\n\r\n",
		"Subject: =?utf-8?b?////?= =?x?q?=\r\nDate: Mon, 99 Foo 0000\r\nFrom: <<>>@@\r\nMessage-ID: not an id\r\n\r\nx",
		"Content-Type: multipart/mixed; boundary=\"\"\r\n\r\n----\r\n", "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n",
		strings.Repeat("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n", 300), strings.Repeat("Received: by x\r\n", 5000) + "\r\nhello",
		"Subject: " + strings.Repeat("long ", 20000) + "\r\n\r\nhello", "To: " + strings.Repeat("a@b, ", 3000) + "\r\n\r\nhello",
		"Content-Type: text/html; charset=utf-7\r\nContent-Transfer-Encoding: x-unknown\r\n\r\n+ADw-", "Subject: \x00\x01\xff\xfe\r\n\r\n\x00\x00",
		"Content-Type: message/rfc822\r\n\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\nx", "From nobody Mon\r\nX: y\r\n\r\nz",
		"Content-Type: application/pdf; name*0*=utf-8''%; name*1=\r\nContent-Transfer-Encoding: base64\r\n\r\n====",
		"Content-Disposition: attachment; filename=\"../../etc/passwd\x00.pdf\"\r\n\r\nx", "Message-ID: <" + strings.Repeat("x", 5000) + "@y>\r\n\r\n",
	} {
		good = append(good, []byte(text))
	}
	good = append(good, publicMails(tb)...)
	r := rand.New(rand.NewPCG(7, 14))
	out := append([][]byte{}, good...)
	for len(out) < n {
		m := bytes.Clone(good[r.IntN(len(good))])
		for range 1 + r.IntN(6) {
			m = bend(r, m, good[r.IntN(len(good))])
		}
		out = append(out, m)
	}
	return out[:n]
}

// A corpus is a module whose tests have mails. Each is under the MIT licence, comes as a module of
// Go, checked by its hash, and no program of ours is built of it.
type corpus struct {
	module, sum string
	under, ext  string // where the mails are, and how their names end
	least       int    // mails
}

var corpora = []corpus{
	{"github.com/jhillyerd/enmime@v1.3.0", "h1:LV5kzfLidiOr8qRGIpYYmUZCnhrPbcFAnAFUnWn99rw=", ".", ".raw", 90},
	{"github.com/mnako/letters@v0.2.3", "h1:giw7XHuNfb07atYN/2BSY3tZBEURVXvl1HOqGP1dI0g=", "tests", ".txt", 160}, // charsets of three languages
}

// publicMails returns the mails with which public libraries for mails are tested, of each as many
// as it has, or none if it cannot be fetched, which is an error in CI.
func publicMails(tb testing.TB) (list [][]byte) {
	tb.Helper()
	for _, c := range corpora {
		n := len(list)
		list = append(list, c.mails(tb)...)
		tb.Logf("%d mails of %s", len(list)-n, c.module)
	}
	return list
}

// mails returns the mails of a corpus.
func (c corpus) mails(tb testing.TB) (list [][]byte) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "go", "mod", "download", "-json", c.module)
	cmd.Dir, cmd.Env = tb.TempDir(), append(os.Environ(), "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if e := json.Unmarshal(out, &got); err != nil || e != nil || got.Error != "" {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("%s: %v, %s", c.module, err, out)
		}
		tb.Logf("without the mails of %s, which cannot be fetched: %v, %s", c.module, err, got.Error)
		return nil
	}
	if got.Sum != c.sum {
		tb.Fatalf("%s has the hash %s, want %s", c.module, got.Sum, c.sum)
	}
	err = filepath.WalkDir(filepath.Join(got.Dir, c.under), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != c.ext {
			return err
		}
		raw, err := os.ReadFile(path)
		list = append(list, raw)
		return err
	})
	if err != nil || len(list) < c.least {
		tb.Fatalf("%s: %v, %d mails", c.module, err, len(list))
	}
	return list
}

// bend breaks one thing.
func bend(r *rand.Rand, m, other []byte) []byte {
	if len(m) == 0 {
		return other
	}
	at := r.IntN(len(m))
	switch r.IntN(8) {
	case 0: // cut off
		return m[:at]
	case 1: // a byte is another
		m[at] = byte(r.IntN(256))
	case 2: // the rest of another mail
		return append(m[:at:at], other[r.IntN(len(other)+1):]...)
	case 3: // bare newlines
		return bytes.ReplaceAll(m, []byte("\r\n"), []byte("\n"))
	case 4: // bare returns
		return bytes.ReplaceAll(m, []byte("\r\n"), []byte("\r"))
	case 5: // a line twice
		end := at + bytes.IndexByte(m[at:], '\n') + 1
		return append(append(bytes.Clone(m[:end]), m[at:end]...), m[end:]...)
	case 6: // eight bits
		for range 20 {
			m[r.IntN(len(m))] |= 0x80
		}
	case 7: // without its boundaries
		return bytes.ReplaceAll(m, []byte("--"), []byte("-"))
	}
	return m
}

// TestOddMails puts 1,000 odd mails into a mailbox. The list has all of them, each can be
// read with its problems named, and a good mail behind them is read as ever.
func TestOddMails(t *testing.T) {
	t.Parallel()
	s := mailtest.Shared(t)
	user := s.User(mailtest.Unfiled)
	mails := oddMails(t, 1000)
	for n, m := range mails {
		s.Plant(t, user, fmt.Sprintf("16%08d.odd.host", n), m)
	}
	s.Plant(t, user, "1700000000.good.host", []byte("From: ann@example.com\r\nSubject: good\r\nMessage-ID: <good@x>\r\n\r\nhello\r\n"))
	conn := open(t, plain(s, user))
	var ids []string
	cursor, odd, noID := "null", 0, 0
	for {
		p := into[page](t, read(t, conn, "search", `{"limit":300,"cursor":`+cursor+`}`))
		for _, m := range p.Items {
			ids = append(ids, m.ID)
			if len(m.Problems) > 0 {
				odd++
			}
			if m.MessageID != nil && keep.MessageID(*m.MessageID).Validate() != nil {
				t.Errorf("the Message-ID of %s, with %d bytes, is no id of an event", m.ID, len(*m.MessageID))
			}
			if slices.ContainsFunc(m.Problems, func(p string) bool { return strings.Contains(p, "message_id is null") }) {
				noID++
			}
		}
		if cursor = fmt.Sprintf("%q", *p.Next); !p.Truncated {
			break
		}
	}
	if len(ids) != len(mails)+1 {
		t.Fatalf("the list has %d mails, want %d", len(ids), len(mails)+1)
	}
	refused := 0
	get := tool(t, conn, "get").(connector.Reader)
	for _, id := range ids {
		raw, err := get.Read(t.Context(), json.RawMessage(fmt.Sprintf(`{"id":%q}`, id)))
		if err != nil {
			if f := failure(t, err); f.Message == "" {
				t.Errorf("%s is refused without a reason", id)
			}
			refused++
			continue
		}
		var m struct {
			Text        *string
			MessageID   *string `json:"message_id"`
			Problems    []string
			Subject     *string
			Attachments []struct{ Part string }
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if m.MessageID != nil && keep.MessageID(*m.MessageID).Validate() != nil {
			t.Errorf("the Message-ID of %s, with %d bytes, is no id of an event", id, len(*m.MessageID))
		}
		if len(raw) > 1<<20 {
			t.Errorf("%s: %d bytes", id, len(raw))
		}
		for _, a := range m.Attachments {
			read(t, conn, "attachment", fmt.Sprintf(`{"id":%q,"part":%q}`, id, a.Part))
		}
		if id == ids[len(ids)-1] && (m.Subject == nil || *m.Subject != "good" || *m.Text != "hello\n") {
			t.Errorf("the good mail is %s", raw)
		}
	}
	t.Logf("%d mails, %d with problems in the list, %d refused", len(ids), odd, refused)
	if noID == 0 {
		t.Error("no list says that a Message-ID is too long for an event")
	}
	if odd < 100 {
		t.Errorf("only %d mails have problems", odd)
	}
}

// A mail over 25 MiB is listed, and read without its text.
func TestHugeMail(t *testing.T) {
	s := mailtest.Shared(t)
	user := s.User(mailtest.Unfiled)
	s.Plant(t, user, "1700000000.huge.host", append([]byte("Subject: huge\r\nMessage-ID: <huge@x>\r\nTo: "+
		strings.Repeat(strings.Repeat("\x01", 900)+" <a@b>, ", 250)+"\r\n\r\n"), bytes.Repeat([]byte("0123456789abcde\r\n"), 26<<20/17)...))
	conn := open(t, plain(s, user))
	list := into[page](t, read(t, conn, "search", `{}`))
	m := into[struct {
		Text      *string
		Subject   string
		Truncated bool
		Problems  []string
	}](t, read(t, conn, "get", fmt.Sprintf(`{"id":%q}`, list.Items[0].ID)))
	if m.Text != nil || m.Subject != "huge" || !m.Truncated || len(m.Problems) == 0 {
		t.Errorf("%+v", m)
	}
}

// A stranger whose name, or whose address, takes more than a whole list may have does not hide the mails that come after it, and can be
// read. Law: bounded.
func TestHugeSender(t *testing.T) {
	t.Parallel()
	s := mailtest.Shared(t)
	for name, from := range map[string]string{
		"an encoded name":   "=?utf-8?B?" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("\x01"), 190_000)) + "?= <evil@example.com>",
		"a broken name":     strings.Repeat("\x01", 250_000) + " <evil@example.com>",
		"a broken address":  "<" + strings.Repeat("\x01", 250_000) + "@example.com>",
		"a name in a group": "friends: =?utf-8?B?" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("\x01"), 190_000)) + "?= <evil@example.com>;",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := s.User(mailtest.Unfiled)
			for n, m := range []string{"From: ann@example.com\r\nSubject: before\r\n\r\nx\r\n", "From: " + from + "\r\nSubject: odd\r\n\r\nx\r\n", "From: ann@example.com\r\nSubject: after\r\n\r\nx\r\n"} {
				s.Plant(t, user, fmt.Sprintf("170000000%d.x.host", n), []byte(m))
			}
			conn := open(t, plain(s, user))
			var subjects []string
			cursor := "null"
			for range 3 {
				p := into[page](t, read(t, conn, "search", `{"cursor":`+cursor+`}`))
				for _, m := range p.Items {
					if subjects = append(subjects, *m.Subject); *m.Subject == "odd" {
						if len(m.Problems) == 0 {
							t.Error("the odd mail has no problem")
						}
						if got := into[struct{ Text string }](t, read(t, conn, "get", fmt.Sprintf(`{"id":%q}`, m.ID))); got.Text != "x\n" {
							t.Errorf("its text is %q", got.Text)
						}
					}
				}
				if cursor = fmt.Sprintf("%q", *p.Next); !p.Truncated {
					break
				}
			}
			if !slices.Equal(subjects, []string{"before", "odd", "after"}) {
				t.Errorf("the list has %q", subjects)
			}
		})
	}
}
