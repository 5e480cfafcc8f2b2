package mail_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// first answers the first time so, and then otherwise.
func first(one, then write) write {
	var asked atomic.Int64
	return func(w io.Writer, tag string) error {
		if asked.Add(1) == 1 {
			return one(w, tag)
		}
		return then(w, tag)
	}
}

// whole is what the scripted server says of its mail to a search.
const whole = "* 1 FETCH (UID 1 FLAGS (\\Seen) RFC822.SIZE 35 BODY[HEADER]<0> {35}\r\nMessage-ID: <other@example.com>\r\n\r\n)\r\n"

// Law nothing-lost: a mail that the server finds is in the list, whatever it says of it and when. The cursor is behind it.
func TestEachMailThatIsFoundIsListed(t *testing.T) {
	for name, c := range map[string]struct {
		search, fetch write // nil: as an honest server
		messageID     string
		problem       string
		none          bool // the list is empty
	}{
		"news of a mail come before what was asked for": {fetch: first(lines("* 1 FETCH (UID 1 FLAGS (\\Seen))\r\n"+whole), lines(whole)), messageID: "other@example.com"},
		"the server leaves it out once":                 {fetch: first(lines(""), lines(whole)), messageID: "other@example.com"},
		"the server leaves it out":                      {fetch: lines(""), problem: "the server cannot deliver it"},
		"the server leaves its header out":              {fetch: lines("* 1 FETCH (UID 1 FLAGS () RFC822.SIZE 35)\r\n"), problem: "the server cannot deliver it"},
		"it was deleted":                                {search: first(lines("* SEARCH 1\r\n"), lines("* SEARCH\r\n")), fetch: lines(""), none: true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := serve(t, &scripted{instead: map[string]write{"SEARCH": c.search, "FETCH": c.fetch}}, imapSession)
			text, err := use(t.Context(), t, open(t, s.cfg(t)), "read search")
			var list struct {
				Items []struct {
					ID        string
					MessageID *string `json:"message_id"`
					Problems  []string
				} `json:"$list"`
				Next string
			}
			if err == nil {
				err = json.Unmarshal([]byte(text), &list)
			}
			if c.none && err == nil && len(list.Items) == 0 {
				return
			}
			if err != nil || len(list.Items) != 1 || list.Items[0].ID != "INBOX;7;1" || list.Next != "7;1" {
				t.Fatalf("%s, %v; want the mail and the cursor behind it", text, err)
			}
			got := list.Items[0]
			if c.messageID != "" && (got.MessageID == nil || *got.MessageID != c.messageID) || c.problem != "" && !strings.Contains(fmt.Sprint(got.Problems), c.problem) {
				t.Errorf("%s", text)
			}
		})
	}
}

// Law doubt-is-not-failure: a server that says OK to a MOVE, and does not say where the mail is now, may have moved it.
// RFC 4315 has none said for a folder whose UIDs do not stay.
func TestMoveThatNamesNoMail(t *testing.T) {
	for name, still := range map[string]bool{"the mail has gone": false, "the mail is still there": true} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			var moved atomic.Bool
			s := serve(t, &scripted{instead: map[string]write{
				"MOVE": func(io.Writer, string) error { moved.Store(!still); return nil },
				"FETCH": func(w io.Writer, tag string) error {
					if moved.Load() {
						return nil
					}
					return lines("* 1 FETCH (UID 1 FLAGS () "+looked+" {35}\r\nMessage-ID: <other@example.com>\r\n\r\n)\r\n")(w, tag)
				},
			}}, imapSession)
			conn := open(t, s.cfg(t))
			_, err := use(t.Context(), t, conn, "call move")
			if f := failure(t, err); f.Class != keep.ClassUnknown {
				t.Errorf("%v, want a doubt", f)
			}
			if said, err := use(t.Context(), t, conn, "lookup move"); still && (err != nil || said != string(connector.Absent)) {
				t.Errorf("the lookup says %q, %v", said, err)
			}
		})
	}
}

// A server that removes what is marked as deleted leaves nothing to look at: the doubt says that, and not that something could not be
// read because of nothing.
func TestFlagOfAMailThatGoes(t *testing.T) {
	t.Parallel()
	var marked atomic.Bool
	s := serve(t, &scripted{instead: map[string]write{
		"STORE": func(io.Writer, string) error { marked.Store(true); return nil },
		"FETCH": func(w io.Writer, tag string) error {
			if marked.Load() {
				return nil
			}
			return lines("* 1 FETCH (UID 1 FLAGS () "+looked+" {35}\r\nMessage-ID: <other@example.com>\r\n\r\n)\r\n")(w, tag)
		},
	}}, imapSession)
	_, err := mutate(t, open(t, s.cfg(t)), "flag", "t", `{"id":"INBOX;7;1","add":["deleted"]}`)
	if f := failure(t, err); f.Class != keep.ClassUnknown || !strings.Contains(f.Message, "INBOX;7;1 is gone") || strings.Contains(f.Message, "nil") {
		t.Errorf("%s: %s", f.Class, f.Message)
	}
}

// TestEachRecipientOnce sends to one mailbox that is named in several ways: a domain has no case.
func TestEachRecipientOnce(t *testing.T) {
	var asked atomic.Int64
	s := serve(t, &scripted{instead: map[string]write{"RCPT": func(w io.Writer, _ string) error {
		asked.Add(1)
		_, err := io.WriteString(w, "250 fine\r\n")
		return err
	}}}, smtpSession)
	cfg := s.cfg(t)
	cfg.IMAP, cfg.Sent, cfg.SettleAfter, cfg.User, cfg.Password = "", "", nil, "", ""
	m := keep.Mutation{Token: "token-7", Payload: json.RawMessage(`{"to":["bob@example.com","Bob <bob@Example.COM>"],"cc":"bob@EXAMPLE.com","bcc":"Bob@example.com"}`)}
	if _, err := tool(t, open(t, cfg), "send").(connector.Mutator).Mutate(t.Context(), m); err != nil || asked.Load() != 2 {
		t.Errorf("%d recipients, %v; want bob and Bob, which may be two", asked.Load(), err)
	}
}

// A server that says in the middle that it has no MOVE any more is not asked to copy the mail, and to remove all that are marked as
// deleted, which the client would do in its place.
func TestMoveIsOneStep(t *testing.T) {
	var others atomic.Int64
	other := func(io.Writer, string) error { others.Add(1); return nil }
	s := serve(t, &scripted{instead: map[string]write{
		"FETCH": lines("* CAPABILITY IMAP4rev1\r\n* 1 FETCH (UID 1 FLAGS () " + looked + " {35}\r\nMessage-ID: <other@example.com>\r\n\r\n)\r\n"),
		"COPY":  other, "STORE": other, "EXPUNGE": other,
	}}, imapSession)
	_, err := use(t.Context(), t, open(t, s.cfg(t)), "call move")
	if n := others.Load(); n != 0 || err == nil || failure(t, err).Code != "no-move" {
		t.Errorf("%d other commands, and %v", n, err)
	}
}
