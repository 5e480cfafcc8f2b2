package mail_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mail"
	"github.com/keep-run/keep/internal/mailtest"
	"github.com/keep-run/keep/testkit/connectortest"
)

func TestMain(m *testing.M) {
	if os.Getenv("KEEP_MAIL_CHILD") != "" {
		child()
	}
	os.Exit(mailtest.Main(m))
}

// plain returns the configuration of a user, without TLS, so that a proxy sees bytes.
func plain(s *mailtest.Server, user string) mail.Config {
	return mail.Config{
		SMTP: "smtp://" + s.SMTP, IMAP: "imap://" + s.IMAP, TLS: "none", User: user, Password: mailtest.Password,
		From: "Ann Example <" + user + ">",
	}
}

// open returns a connection that the end of the test closes.
func open(tb testing.TB, cfg mail.Config) *connector.Connection {
	tb.Helper()
	conn, err := mail.New("mail", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
	})
	return conn
}

func tool(tb testing.TB, conn *connector.Connection, name string) connector.Tool {
	tb.Helper()
	for _, t := range conn.Tools {
		if t.Spec().Name == name {
			return t
		}
	}
	tb.Fatalf("no tool %q", name)
	return nil
}

// read returns the result of a read.
func read(tb testing.TB, conn *connector.Connection, name, params string) json.RawMessage {
	tb.Helper()
	out, err := tool(tb, conn, name).(connector.Reader).Read(tb.Context(), json.RawMessage(params))
	if err != nil {
		tb.Fatalf("%s %s: %v", name, params, err)
	}
	return out
}

// into decodes a result.
func into[T any](tb testing.TB, raw json.RawMessage) T {
	tb.Helper()
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		tb.Fatalf("%v: %s", err, raw)
	}
	return out
}

func proxy(tb testing.TB, addr string) *connectortest.Proxy {
	tb.Helper()
	p, err := connectortest.NewProxy(addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// a way is one way in which sent mails can be found again.
type way struct {
	domain string
	set    func(*mail.Config)
	again  bool // a mail that is not found asks again
}

var settled = connector.Duration(time.Nanosecond)

var ways = map[string]way{
	"sent":              {mailtest.Filed, func(c *mail.Config) { c.Sent = "Sent" }, true},
	"sent that settles": {mailtest.Filed, func(c *mail.Config) { c.Sent, c.SettleAfter = "Sent", &settled }, false},
	"copy to self":      {mailtest.Unfiled, func(c *mail.Config) { c.CopyToSelf = true }, true},
	"neither":           {mailtest.Unfiled, func(*mail.Config) {}, false},
}

// TestSendConformance holds send to the promises of a mutate tool on a real server, with
// the connection cut at many points of the conversation.
func TestSendConformance(t *testing.T) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connectortest.Run(t, func(tb testing.TB) *connectortest.Bench { b, _ := sendBench(tb, w); return b })
		})
	}
}

func sendBench(tb testing.TB, w way) (*connectortest.Bench, *connectortest.Proxy) {
	s := mailtest.Shared(tb)
	from, to := s.User(w.domain), s.User(mailtest.Unfiled)
	p := proxy(tb, s.SMTP)
	cfg := plain(s, from)
	cfg.SMTP = "smtp://" + p.Addr()
	w.set(&cfg)
	conn, err := mail.New("mail", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	b := &connectortest.Bench{
		Connection: conn, Tool: "send", AbsenceIsAgain: w.again, Settle: func() { s.Settle(tb) },
		Params: func(n int) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(`{"to":%q,"subject":"Invoice %d","text":"Hello\n.\nGrüße"}`, to, n))
		},
		Effects: func(n int) int { return s.Count(tb, to, "", fmt.Sprintf("<token-%d@", n)) },
		Refused: []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"to":7}`), json.RawMessage(`{"to":"a@b.example","subject":"a\nBcc: x@y"}`),
			json.RawMessage(`{"to":"a@b.example","x":1}`), json.RawMessage(`[]`)},
		Secrets:  []string{mailtest.Password},
		Troubles: cuts(p),
	}
	return b, p
}

// cuts are the ways in which the connection of a change can end.
func cuts(p *connectortest.Proxy) []connectortest.Trouble {
	list := []connectortest.Trouble{
		{Name: "a refused connection", Want: keep.ClassTransient, Arm: p.Down, End: func() { p.Up() }},
		{Name: "silence from the beginning", Want: keep.ClassTransient, Stalls: true, Arm: func() { p.Next(connectortest.Cut{Request: connectortest.All, Stall: true}) }},
	}
	for _, n := range []int{0, 1, 40, 120, 170, 200, 400, 600, 700} {
		list = append(list,
			connectortest.Trouble{Name: fmt.Sprintf("a cut at byte %d of the request", n), Arm: func() { p.Next(connectortest.Cut{Request: n, Response: connectortest.All}) }},
			connectortest.Trouble{Name: fmt.Sprintf("a cut at byte %d of the answer", n), Arm: func() { p.Next(connectortest.Cut{Request: connectortest.All, Response: n}) }},
			connectortest.Trouble{Name: fmt.Sprintf("a reset at byte %d of the answer", n), Arm: func() { p.Next(connectortest.Cut{Request: connectortest.All, Response: n, Reset: true}) }},
		)
	}
	return list
}

// TestChangeConformance does the same for the tools that change a mailbox.
func TestChangeConformance(t *testing.T) {
	for _, name := range []string{"append", "append that settles", "move", "flag"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connectortest.Run(t, func(tb testing.TB) *connectortest.Bench { return changeBench(tb, name) })
		})
	}
}

func changeBench(tb testing.TB, name string) *connectortest.Bench {
	s := mailtest.Shared(tb)
	user := s.User(mailtest.Unfiled)
	p := proxy(tb, s.IMAP)
	cfg := plain(s, user)
	ids := plantAndFind(tb, s, cfg)
	cfg.IMAP = "imap://" + p.Addr()
	if strings.HasSuffix(name, "settles") {
		cfg.SettleAfter = &settled
	}
	conn, err := mail.New("mail", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	b := &connectortest.Bench{Connection: conn, Secrets: []string{mailtest.Password}, Troubles: cuts(p), Settle: func() { s.Still(tb, user) }}
	b.Tool, _, _ = strings.Cut(name, " ")
	switch b.Tool {
	case "append":
		b.AbsenceIsAgain = cfg.SettleAfter == nil
		b.Params = func(n int) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(`{"folder":"Drafts","to":"ann@example.com","subject":"Draft %d","text":"Hello","flags":["draft"]}`, n))
		}
		b.Effects = func(n int) int { return s.Count(tb, user, "Drafts", fmt.Sprintf("<token-%d@", n)) }
		b.Refused = []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"folder":""}`), json.RawMessage(`{"folder":"Drafts","x":1}`)}
	case "move":
		b.Params = func(n int) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(`{"id":%q,"to":"Archive","message_id":"m-%d@planted"}`, ids[n], n))
		}
		b.Effects = func(n int) int { return s.Count(tb, user, "Archive", fmt.Sprintf("<m-%d@planted>", n)) }
		b.Refused = []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"id":"x"}`), json.RawMessage(`{"id":"INBOX;1;1"}`)}
	case "flag":
		b.NoMore = true
		b.Params = func(n int) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(`{"id":%q,"add":["flagged"]}`, ids[n]))
		}
		b.Effects = func(n int) int { return s.Flagged(tb, user, "", fmt.Sprintf("<m-%d@planted>", n), "F") }
		b.Refused = []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"id":"x"}`), json.RawMessage(`{"id":"INBOX;1;1","add":[""]}`)}
	}
	return b
}

// plantAndFind puts three mails into INBOX and returns their ids, from 1.
func plantAndFind(tb testing.TB, s *mailtest.Server, cfg mail.Config) []string {
	tb.Helper()
	for n := 1; n <= 3; n++ {
		s.Plant(tb, cfg.User, fmt.Sprintf("1700000000.%d.host", n), fmt.Appendf(nil, "From: b@example.com\r\nSubject: mail %d\r\nMessage-ID: <m-%d@planted>\r\n\r\nhello\r\n", n, n))
	}
	found := into[page](tb, read(tb, open(tb, cfg), "search", `{}`))
	ids := make([]string, 4)
	for _, m := range found.Items {
		var n int
		fmt.Sscanf(*m.MessageID, "m-%d@", &n)
		ids[n] = m.ID
	}
	return ids
}

// A page is the result of search.
type page struct {
	Items []struct {
		ID        string                    `json:"id"`
		MessageID *string                   `json:"message_id"`
		Folder    string                    `json:"folder"`
		UID       int                       `json:"uid"`
		Subject   *string                   `json:"subject"`
		From      *struct{ Address string } `json:"from"`
		Flags     []string                  `json:"flags"`
		Problems  []string                  `json:"problems"`
	} `json:"$list"`
	Truncated bool    `json:"truncated"`
	Next      *string `json:"next"`
}
