package mail

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	netmail "net/mail"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/eml"
)

// FuzzID holds to this: an id that is read is written the same.
func FuzzID(f *testing.F) {
	for _, s := range []string{"INBOX;1700000000;42", "a;b;1;2", ";1;2", "x;4294967296;1", "Ünï;0;1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := parseID(s)
		if err != nil {
			return
		}
		again, err := parseID(id.String())
		if err != nil || again != id {
			t.Errorf("%q is %+v, and then %+v, %v", s, id, again, err)
		}
	})
}

// FuzzCompose writes letters from any params, and reads them again: nothing that a script
// passes adds a recipient or a header.
func FuzzCompose(f *testing.F) {
	f.Add(`{"to":"Ann <a@b.example>","subject":"hello","text":"x\n.\ny","attachments":[{"name":"a.pdf","type":"application/pdf","base64":"aGk="}]}`)
	f.Add(`{"to":["\"a\\\"b\" <a@b.example>"],"cc":"c@d.example","subject":"=?utf-8?q?x?=","html":"<b>","references":["a@b"],"in_reply_to":"<c@d>"}`)
	a := &account{from: &netmail.Address{Name: "Ann", Address: "ann@example.com"}}
	f.Fuzz(func(t *testing.T, raw string) {
		var l letter
		if json.Unmarshal([]byte(raw), &l) != nil || l.validate() != nil {
			return
		}
		out, err := a.compose(l, "token@example.com", time.Unix(1e9, 0), false)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		m := eml.Parse(out)
		if m.MessageID == nil || *m.MessageID != "token@example.com" || m.From == nil || m.From.Address != "ann@example.com" || len(m.Headers["bcc"]) != 0 {
			t.Errorf("%q became\n%s", raw, out)
		}
		if len(m.To) != len(l.To) || len(m.Attachments) != len(l.Attachments) {
			t.Errorf("%q has %d recipients and %d attachments, and became\n%s", raw, len(l.To), len(l.Attachments), out)
		}
		head, _, _ := strings.Cut(string(out), "\r\n\r\n")
		for line := range strings.SplitSeq(head, "\r\n") {
			if strings.ContainsAny(line, "\r\n") || len(line) > 998 {
				t.Errorf("the line %q", line)
			}
		}
	})
}

// FuzzSummary tells of any mail in a form that a list can hold.
func FuzzSummary(f *testing.F) {
	f.Add([]byte("Subject: x\r\nTo: a@b\r\n\r\n"))
	f.Add([]byte("Message-ID: <" + strings.Repeat("x", keep.MaxMessageID) + "@y>\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		size := int64(len(raw))
		s := summarize(mailID{"INBOX", 1, 2}, []imap.Flag{imap.FlagSeen, `\Odd`}, &size, eml.Parse(raw))
		s.short()
		out, err := json.Marshal(s)
		if err != nil || !utf8.Valid(out) || len(out) > 64<<10 {
			t.Errorf("%v: %d bytes: %.300s", err, len(out), out)
		}
		if s.MessageID != nil && keep.MessageID(*s.MessageID).Validate() != nil {
			t.Errorf("the Message-ID %q is no id of an event", *s.MessageID)
		}
	})
}

// FuzzSearch holds to this: whatever a server answers to a search, there is an error, or mails
// after the number that was asked for, in order and no more than were wanted. The session ends.
func FuzzSearch(f *testing.F) {
	for _, s := range []string{"* SEARCH 3 1 2", "* SEARCH 1 0", `* ESEARCH (TAG "T1") UID ALL 1:4294967295`, `* ESEARCH (TAG "T1") ALL 4294967290:4294967295`,
		`* ESEARCH (TAG "T1") UID COUNT 4`, "* SEARCH 1\r\n* 4294967295 EXISTS\r\n* FLAGS (a b)", "* 1 FETCH (UID 1 BODY[] {7}\r\nhello\r\n)"} {
		f.Add(s, uint32(1), 2)
	}
	f.Fuzz(func(t *testing.T, answer string, after uint32, n int) {
		n = 1 + max(n, -n)&1023
		here, there := net.Pipe()
		var server sync.WaitGroup
		server.Go(func() {
			defer there.Close()
			io.WriteString(there, "* PREAUTH [CAPABILITY IMAP4rev1] hello\r\n")
			bufio.NewReader(there).ReadString('\n')
			io.WriteString(there, answer+"\r\nT1 OK done\r\n")
		})
		defer server.Wait()
		b := &box{conn: bound(here, "server")}
		b.Client = imapclient.New(b.conn, &imapclient.Options{DebugWriter: shallow{b.conn}})
		defer b.end()
		uids, err := b.find("INBOX", &imap.SearchCriteria{}, imap.UID(after), n)
		if err != nil {
			return
		}
		if len(uids) > n || !slices.IsSorted(uids) || len(uids) > 0 && uint32(uids[0]) <= after {
			t.Errorf("%q after %d: %v, want at most %d", answer, after, uids, n)
		}
	})
}
