package mail_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mail"
	"github.com/keep-run/keep/internal/mailtest"
	"github.com/keep-run/keep/testkit/connectortest"
)

// failure returns the failure in an error.
func failure(tb testing.TB, err error) *keep.Failure {
	tb.Helper()
	var f *keep.Failure
	if !errors.As(err, &f) {
		tb.Fatalf("%v is no failure", err)
	}
	return f
}

func mutate(tb testing.TB, conn *connector.Connection, name, token, params string) (connector.Receipt, error) {
	tb.Helper()
	return tool(tb, conn, name).(connector.Mutator).Mutate(tb.Context(), keep.Mutation{Token: token, Payload: json.RawMessage(params)})
}

func reconcile(tb testing.TB, conn *connector.Connection, name, token, params string) (connector.Answer, error) {
	tb.Helper()
	return tool(tb, conn, name).(connector.Reconciler).Reconcile(tb.Context(), keep.Mutation{Token: token, Payload: json.RawMessage(params)})
}

// TestEncrypted sends and reads over TLS, from the beginning and after STARTTLS, and
// never to a server whose certificate nobody vouches for.
func TestEncrypted(t *testing.T) {
	s := mailtest.Shared(t)
	for name, cfg := range map[string]mail.Config{
		"implicit": {SMTP: "smtps://" + s.SMTPS, IMAP: "imaps://" + s.IMAPS},
		"STARTTLS": {SMTP: "smtp://" + s.SMTP, IMAP: "imap://" + s.IMAP},
	} {
		user := s.User(mailtest.Filed)
		cfg.User, cfg.Password, cfg.From, cfg.Sent, cfg.CA = user, mailtest.Password, user, "Sent", s.CA
		conn := open(t, cfg)
		if _, err := mutate(t, conn, "send", "t1", fmt.Sprintf(`{"to":%q,"subject":"s"}`, user)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.Settle(t)
		if a, err := reconcile(t, conn, "send", "t1", `{}`); err != nil || a.Verdict != connector.Happened {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		if got := into[page](t, read(t, conn, "search", `{}`)); len(got.Items) != 1 {
			t.Errorf("%s: %d mails", name, len(got.Items))
		}
		cfg.CA = ""
		strange := open(t, cfg)
		_, err := mutate(t, strange, "send", "t2", fmt.Sprintf(`{"to":%q}`, user))
		if f := failure(t, err); f.Class != keep.ClassPrecondition || f.Code != "certificate" {
			t.Errorf("%s: a strange certificate: %+v", name, f)
		}
		_, err = tool(t, strange, "folders").(connector.Reader).Read(t.Context(), nil)
		if f := failure(t, err); f.Class != keep.ClassPrecondition || f.Code != "certificate" {
			t.Errorf("%s: a strange certificate: %+v", name, f)
		}
	}
}

// TestRefusals tells what each refusal means, and that nothing was sent.
func TestRefusals(t *testing.T) {
	s := mailtest.Shared(t)
	from, to := s.User(mailtest.Filed), s.User(mailtest.Unfiled)
	good := plain(s, from)
	wrong := good
	wrong.Password = "not-the-password"
	for name, c := range map[string]struct {
		cfg    mail.Config
		params string
		class  keep.Class
		say    string
	}{
		"unknown recipient": {good, fmt.Sprintf(`{"to":[%q,%q]}`, to, mailtest.Unknown), keep.ClassLogic, mailtest.Unknown},
		"busy recipient":    {good, fmt.Sprintf(`{"to":[%q,%q]}`, to, mailtest.Busy), keep.ClassTransient, "come back later"},
		"both":              {good, fmt.Sprintf(`{"to":[%q],"cc":%q,"bcc":%q}`, to, mailtest.Busy, mailtest.Unknown), keep.ClassLogic, "2 of 3"},
		"other domain":      {wrong, fmt.Sprintf(`{"to":%q}`, to), keep.ClassPermission, "log in"},
		"too large":         {good, fmt.Sprintf(`{"to":%q,"text":%q}`, to, strings.Repeat("0123456789\n", 250_000)), keep.ClassLogic, "552"},
		"bad address":       {good, `{"to":"not an address"}`, keep.ClassLogic, "not an address"},
		"another script":    {good, `{"to":"ann@bücher.example"}`, keep.ClassLogic, "xn--"},
		"header injection":  {good, fmt.Sprintf(`{"to":%q,"in_reply_to":"a@b>\r\nBcc: x@y"}`, to), keep.ClassLogic, "message id"},
		"injected name":     {good, fmt.Sprintf(`{"to":%q,"attachments":[{"name":"a\nb","base64":""}]}`, to), keep.ClassLogic, "name"},
	} {
		_, err := mutate(t, open(t, c.cfg), "send", "t", c.params)
		f := failure(t, err)
		if f.Class != c.class || !strings.Contains(f.Message, c.say) {
			t.Errorf("%s: %s %q, want %s with %q", name, f.Class, f.Message, c.class, c.say)
		}
		if strings.Contains(f.Message, wrong.Password) {
			t.Errorf("%s: the password is in %q", name, f.Message)
		}
	}
	s.Settle(t)
	if n := len(s.Mails(t, to, "")); n != 0 {
		t.Errorf("%d mails were sent", n)
	}
	_, err := tool(t, open(t, wrong), "folders").(connector.Reader).Read(t.Context(), nil)
	if f := failure(t, err); f.Class != keep.ClassPermission || f.Code != keep.CodeUnauthenticated {
		t.Errorf("IMAP with a wrong password: %+v", f)
	}
}

// TestRefusedAtTheEnd has something in front of the server refuse the end of a mail. What is in Sent was sent, whatever
// was said.
func TestRefusedAtTheEnd(t *testing.T) {
	with := func(t *testing.T, end string, instead map[string]write) *connector.Connection {
		out := serve(t, &scripted{instead: map[string]write{"AUTH": lines("235 in\r\n"), ".": lines(end + "\r\n")}}, smtpSession)
		cfg := out.cfg(t)
		cfg.IMAP = "imap://" + serve(t, &scripted{instead: instead}, imapSession).addr
		return open(t, cfg)
	}
	const params = `{"to":"bob@example.com","subject":"hi","text":"hello"}`
	first, err := mutate(t, with(t, "250 taken", nil), "send", "t", params)
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		ID string `json:"message_id"`
	}
	if err := json.Unmarshal(first.Result, &sent); err != nil {
		t.Fatal(err)
	}
	field := "Message-ID: <" + sent.ID + ">\r\n\r\n"
	filed := lines(fmt.Sprintf("* 1 FETCH (UID 1 FLAGS () %s {%d}\r\n%s)\r\n", looked, len(field), field))
	for _, tt := range []struct {
		name, says string
		instead    map[string]write // of the mailbox
		class      keep.Class
	}{
		{"taken, and refused for now", "451 later", map[string]write{"FETCH": filed}, "none"},
		{"taken, and refused", "550 spam", map[string]write{"FETCH": filed}, "none"},
		{"refused for now", "451 later", nil, keep.ClassTransient},
		{"refused", "550 spam", nil, keep.ClassLogic},
		{"refused, and nobody can look", "550 spam", map[string]write{"SELECT": lines("* BYE\r\n"), "EXAMINE": lines("* BYE\r\n"), "SEARCH": lines("* SEARCH x\r\n")}, keep.ClassUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := mutate(t, with(t, tt.says, tt.instead), "send", "t", params)
			got := keep.Class("none")
			if err != nil {
				got = failure(t, err).Class
			}
			if got != tt.class {
				t.Errorf("%v, want it %s", err, tt.class)
			}
			if err == nil && string(r.Result) != string(first.Result) {
				t.Errorf("the result is %s, want %s", r.Result, first.Result)
			}
		})
	}
}

// TestLetter sends a mail with everything, and reads it again.
func TestLetter(t *testing.T) {
	s := mailtest.Shared(t)
	from, to, hidden := s.User(mailtest.Filed), s.User(mailtest.Unfiled), s.User(mailtest.Unfiled)
	pdf := strings.Repeat("%PDF\x00\xff", 200_000)
	r, err := mutate(t, open(t, plain(s, from)), "send", "letter-1", fmt.Sprintf(`{"to":["Bob Ü <%s>"],"bcc":%q,"subject":"Rechnung für Mai €","text":"a\n.\n..\nGrüße",
		"html":"<b>Grüße</b>","reply_to":"office@example.com","in_reply_to":"<x@y>","attachments":[{"name":"Übersicht.pdf","type":"application/pdf","base64":%q}]}`,
		to, hidden, base64.StdEncoding.EncodeToString([]byte(pdf))))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"message_id":"letter-1@filed.example"}`; string(r.Result) != want {
		t.Errorf("result %s, want %s", r.Result, want)
	}
	s.Settle(t)
	for _, user := range []string{to, hidden} {
		conn := open(t, plain(s, user))
		found := into[page](t, read(t, conn, "search", `{"subject":"für","unseen":true}`))
		if len(found.Items) != 1 {
			t.Fatalf("%d mails", len(found.Items))
		}
		type mail struct {
			Subject     string `json:"subject"`
			MessageID   string `json:"message_id"`
			Text        string
			HTML        string
			InReplyTo   string              `json:"in_reply_to"`
			To          []map[string]string `json:"to"`
			Headers     map[string][]string
			Flags       []string
			Problems    []string
			Attachments []struct {
				Name, Type, Part string
				Size             int
			}
		}
		m := into[mail](t, read(t, conn, "get", fmt.Sprintf(`{"id":%q}`, found.Items[0].ID)))
		if m.Subject != "Rechnung für Mai €" || m.Text != "a\n.\n..\nGrüße" || m.HTML != "<b>Grüße</b>" || m.InReplyTo != "x@y" || m.To[0]["name"] != "Bob Ü" ||
			m.MessageID != "letter-1@filed.example" || len(m.Headers["bcc"]) != 0 || len(m.Problems) != 0 || len(m.Flags) != 0 {
			t.Errorf("mail %+v", m)
		}
		if len(m.Attachments) != 1 || m.Attachments[0].Name != "Übersicht.pdf" || m.Attachments[0].Size != len(pdf) {
			t.Fatalf("attachments %+v", m.Attachments)
		}
		// Who asks for no part gets all, or nothing: the first part is not passed on as the whole.
		_, err := tool(t, conn, "attachment").(connector.Reader).Read(t.Context(), json.RawMessage(fmt.Sprintf(`{"id":%q,"part":%q}`, found.Items[0].ID, m.Attachments[0].Part)))
		if f := failure(t, err); f.Class != keep.ClassLogic || f.Code != "answer-too-large" || !strings.Contains(f.Message, "offset: 0") {
			t.Errorf("without an offset: %v", err)
		}
		var got []byte
		for offset := 0; ; {
			piece := into[struct {
				Base64 []byte
				Next   *int
			}](t, read(t, conn, "attachment", fmt.Sprintf(`{"id":%q,"part":%q,"offset":%d}`, found.Items[0].ID, m.Attachments[0].Part, offset)))
			got = append(got, piece.Base64...)
			if piece.Next == nil {
				break
			}
			offset = *piece.Next
		}
		if string(got) != pdf {
			t.Errorf("%d bytes of the attachment, want %d", len(got), len(pdf))
		}
	}
}

// TestSearchGoesOn reads a folder page by page, and only what came since at the next look.
func TestSearchGoesOn(t *testing.T) {
	s := mailtest.Shared(t)
	user := s.User(mailtest.Unfiled)
	plant := func(from, to int) {
		for n := from; n < to; n++ {
			s.Plant(t, user, fmt.Sprintf("17%08d.x.host", n), fmt.Appendf(nil, "Subject: n%d\r\nMessage-ID: <n%d@x>\r\n\r\nhello\r\n", n, n))
		}
	}
	plant(0, 250)
	conn := open(t, plain(s, user))
	seen := map[string]int{}
	cursor := "null"
	look := func() (pages int) {
		for {
			p := into[page](t, read(t, conn, "search", `{"cursor":`+cursor+`}`))
			pages++
			for _, m := range p.Items {
				seen[*m.Subject]++
			}
			cursor = strconv.Quote(*p.Next)
			if !p.Truncated {
				return pages
			}
		}
	}
	if pages := look(); pages != 3 || len(seen) != 250 {
		t.Errorf("%d pages, %d mails", pages, len(seen))
	}
	look()
	plant(250, 260)
	look()
	for subject, n := range seen {
		if n != 1 {
			t.Errorf("%s was listed %d times", subject, n)
		}
	}
	if len(seen) != 260 {
		t.Errorf("%d mails, want 260", len(seen))
	}
	first := into[page](t, read(t, conn, "search", `{"limit":1}`)).Items[0].ID
	s.Renumber(t, user)
	conn = open(t, plain(s, user))
	search := tool(t, conn, "search").(connector.Reader)
	_, err := search.Read(t.Context(), json.RawMessage(`{"cursor":`+cursor+`}`))
	if f := failure(t, err); f.Class != keep.ClassPrecondition || f.Code != "uidvalidity" {
		t.Errorf("a cursor of before: %+v", f)
	}
	for name, params := range map[string]string{"get": `{"id":%q}`, "move": `{"id":%q,"to":"Archive"}`, "flag": `{"id":%q,"add":["seen"]}`} {
		params := fmt.Sprintf(params, first)
		if name == "get" {
			_, err = tool(t, conn, name).(connector.Reader).Read(t.Context(), json.RawMessage(params))
		} else {
			_, err = mutate(t, conn, name, "t", params)
		}
		if f := failure(t, err); f.Class != keep.ClassPrecondition || f.Code != "gone" {
			t.Errorf("%s of an id of before: %+v", name, f)
		}
	}
	if n := len(into[page](t, read(t, conn, "search", `{"limit":1000}`)).Items); n != 260 {
		t.Errorf("%d mails after the folder was numbered anew", n)
	}
}

// Law never guesses: of two mails with one Message-ID in a folder nobody can tell which was moved there last, so the lookup of a move
// says that it happened, and names none of them.
func TestMovedBesideATwin(t *testing.T) {
	s := mailtest.Shared(t)
	user := s.User(mailtest.Unfiled)
	conn := open(t, plain(s, user))
	params := func(n int) string {
		s.Plant(t, user, fmt.Sprintf("17%08d.x.host", n), fmt.Appendf(nil, "Subject: n%d\r\nMessage-ID: <twin@x>\r\n\r\nhello\r\n", n))
		id := into[page](t, read(t, conn, "search", `{}`)).Items[0].ID
		p := fmt.Sprintf(`{"id":%q,"to":"Archive","message_id":"twin@x"}`, id)
		if _, err := mutate(t, conn, "move", "t", p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for n, want := range []string{`{"id":"Archive;`, `{"id":null}`} {
		a, err := reconcile(t, conn, "move", "t", params(n))
		if err != nil || a.Verdict != connector.Happened || !strings.HasPrefix(string(a.Receipt.Result), want) {
			t.Errorf("move %d: %q with %s, %v; want that it happened, with %s", n+1, a.Verdict, a.Receipt.Result, err, want)
		}
	}
}

// An answer of a thread names the mail that it answers as the last of its references, as RFC 5322 has it (3.6.4): programs put it below
// that one.
func TestAnswerOfAThread(t *testing.T) {
	s := mailtest.Shared(t)
	user := s.User(mailtest.Filed)
	conn := open(t, plain(s, user))
	for params, want := range map[string][]string{
		`"in_reply_to":"c@x"`: {"c@x"}, `"references":["a@x","b@x"],"in_reply_to":"c@x"`: {"a@x", "b@x", "c@x"},
		`"references":["a@x","c@x"],"in_reply_to":"<c@x>"`: {"a@x", "c@x"}, `"references":["a@x","b@x"]`: {"a@x", "b@x"},
	} {
		r, err := mutate(t, conn, "append", "t", `{"folder":"Drafts","subject":"s",`+params+`}`)
		if err != nil {
			t.Fatal(err)
		}
		m := into[struct{ References []string }](t, read(t, conn, "get", string(idOf(t, r))))
		if !slices.Equal(m.References, want) {
			t.Errorf("%s: the references are %q, want %q", params, m.References, want)
		}
	}
}

// idOf returns the params of get for what a receipt names.
func idOf(t *testing.T, r connector.Receipt) json.RawMessage {
	t.Helper()
	var at struct {
		ID *string `json:"id"`
	}
	if err := json.Unmarshal(r.Result, &at); err != nil || at.ID == nil {
		t.Fatalf("%s names no mail: %v", r.Result, err)
	}
	raw, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestFolders(t *testing.T) {
	s := mailtest.Shared(t)
	list := into[[]struct {
		Name string
		Use  *string
	}](t, read(t, open(t, plain(s, s.User(mailtest.Unfiled))), "folders", `{}`))
	uses := map[string]string{}
	for _, f := range list {
		if uses[f.Name] = ""; f.Use != nil {
			uses[f.Name] = *f.Use
		}
	}
	if uses["Sent"] != "sent" || uses["Drafts"] != "drafts" {
		t.Errorf("folders %v", uses)
	}
	if _, ok := uses["INBOX"]; !ok {
		t.Errorf("no INBOX in %v", uses)
	}
}

// TestCutAtEachByte cuts the conversation of a send at many bytes, through the final dot
// and its answer byte by byte. A definite answer is true; after a doubt the mail is found
// in Sent if and only if it was sent.
func TestCutAtEachByte(t *testing.T) {
	t.Parallel()
	s := mailtest.Shared(t)
	b, p := sendBench(t, ways["sent"])
	defer b.Connection.Close()
	count := map[string]int{}
	n := 1000
	try := func(cut connectortest.Cut) bool {
		n++
		token, params := fmt.Sprint("token-", n), string(b.Params(n))
		p.Next(cut)
		_, err := mutate(t, b.Connection, "send", token, params)
		s.Settle(t)
		class := keep.Class("none")
		if err != nil {
			class = failure(t, err).Class
		}
		effects := b.Effects(n)
		count[fmt.Sprint(class, " ", effects)]++
		if effects > 1 || class == "none" && effects != 1 || class != "none" && class != keep.ClassUnknown && effects != 0 {
			t.Errorf("cut %+v: %v, and %d mails", cut, err, effects)
		}
		want := connector.Retry
		if effects == 1 {
			want = connector.Happened
		}
		if a, err := reconcile(t, b.Connection, "send", token, params); err != nil || a.Verdict != want {
			t.Errorf("cut %+v: the lookup says %q, %v, and there are %d mails", cut, a.Verdict, err, effects)
		}
		return class == "none"
	}
	for _, cut := range []func(n int) connectortest.Cut{
		func(n int) connectortest.Cut { return connectortest.Cut{Request: n, Response: connectortest.All} },
		func(n int) connectortest.Cut { return connectortest.Cut{Request: connectortest.All, Response: n} },
	} {
		end := 0
		for end < 20_000 && !try(cut(end)) {
			end += 40
		}
		for at := end - 60; at < end && !try(cut(at)); at += 2 {
		}
	}
	t.Log(count)
	if count["unknown 1"] == 0 || count["transient 0"] == 0 || count["none 1"] == 0 {
		t.Errorf("the cuts did not meet the end of the mail: %v", count)
	}
}

// child is the process that is killed while it sends.
func child() {
	conn, err := mail.New("mail", mail.Config{
		SMTP: os.Getenv("KEEP_MAIL_CHILD"), IMAP: os.Getenv("KEEP_MAIL_IMAP"), TLS: "none", User: os.Getenv("KEEP_MAIL_USER"), Password: mailtest.Password,
		From: os.Getenv("KEEP_MAIL_USER"), Sent: "Sent",
	})
	if err != nil {
		panic(err)
	}
	for _, t := range conn.Tools {
		if t.Spec().Name == "send" {
			t.(connector.Mutator).Mutate(context.Background(), keep.Mutation{Token: os.Getenv("KEEP_MAIL_TOKEN"), Payload: json.RawMessage(os.Getenv("KEEP_MAIL_PARAMS"))})
		}
	}
	os.Exit(4)
}

// TestKilled kills the process that sends at many points. Whoever asks afterwards finds
// the mail in Sent if it was sent, and is told nothing wrong if it was not.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := mailtest.Shared(t)
	from, to := s.User(mailtest.Filed), s.User(mailtest.Unfiled)
	cfg := plain(s, from)
	cfg.Sent = "Sent"
	conn, p := open(t, cfg), proxy(t, s.SMTP)
	sent, n := map[int]int{}, 0
	try := func(request, reply int) {
		n++
		token := fmt.Sprint("killed-", n)
		params := fmt.Sprintf(`{"to":%q,"subject":"Invoice %d","text":"hello"}`, to, n)
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "KEEP_MAIL_CHILD=smtp://"+p.Addr(), "KEEP_MAIL_IMAP="+cfg.IMAP, "KEEP_MAIL_USER="+from,
			"KEEP_MAIL_TOKEN="+token, "KEEP_MAIL_PARAMS="+params)
		started := make(chan struct{})
		p.Next(connectortest.Cut{Request: request, Response: reply, Then: func() { <-started; cmd.Process.Kill() }})
		err := cmd.Start()
		close(started)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // its end is looked at below
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		s.Settle(t)
		effects := s.Count(t, to, "", "<"+token+"@")
		if ws.Signal() == syscall.SIGKILL {
			sent[effects]++
		} else if effects != 1 { // the conversation is shorter
			t.Errorf("to be killed after %d and %d bytes: it ended with %d, and there are %d mails", request, reply, ws.ExitStatus(), effects)
		}
		want := connector.Retry
		if effects == 1 {
			want = connector.Happened
		}
		if a, err := reconcile(t, conn, "send", token, params); err != nil || a.Verdict != want || effects > 1 {
			t.Errorf("killed after %d and %d bytes: the lookup says %q, %v, and there are %d mails", request, reply, a.Verdict, err, effects)
		}
	}
	for _, at := range []int{0, 30, 100, 130, 200, 280, 320, 340, 350, 360, 370, 380, 390} {
		try(at, -1)
	}
	for _, at := range []int{10, 200, 260, 280, 290, 300, 305, 310, 315, 320, 325, 330, 335, 340, 345, 350} {
		try(-1, at)
	}
	t.Log(sent)
	if sent[0] == 0 || sent[1] == 0 {
		t.Errorf("the kills did not meet both sides of the end of the mail: %v", sent)
	}
}
