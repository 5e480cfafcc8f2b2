package mail_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/ceiling"
)

// A hostile is an answer that no honest server gives.
type hostile struct {
	command string
	answer  write
	slow    bool // to read all of it takes long: TestHostileAnswers alone has it
	quiet   bool // it is within the bounds
}

// counting writes head once, and then numbers, each after sep: the first one, and each a step further.
func counting(head, sep string, first, step int) write {
	return func(w io.Writer, tag string) error {
		err := lines(head)(w, tag)
		for n, wrote := first, 0; err == nil && wrote < enough; {
			var text strings.Builder
			for range 500 {
				fmt.Fprintf(&text, "%s%d", sep, n)
				n += step
			}
			wrote += text.Len()
			_, err = io.WriteString(w, text.String())
		}
		return cmp.Or(err, errEnough)
	}
}

// hugeName is endless, and takes little to read.
var hugeName = endless("* LIST () NIL {9000000000000000000}\r\n", "bbbb")

// looked is the section that a lookup asks for.
const looked = `BODY[HEADER.FIELDS ("Message-ID")]`

// hugeText is a section in quotes, which the client reads whole, with more behind it than the client holds: the length of
// the section has all of that in its buffer.
var hugeText = func() string {
	head := "* 1 FETCH (UID 1 FLAGS () " + looked + ` "`
	return head + strings.Repeat("b", 262144+4096-len(head)%4096) + `"` + strings.Repeat(" FLAGS ()", 100) + ")\r\n"
}()

var hostileAnswers = map[string]hostile{
	"an endless greeting":           {command: "*", answer: endless("* OK ", "bbbb"), slow: true},
	"endless greetings":             {command: "*", answer: endless("", "* OK hello\r\n"), slow: true},
	"endless capabilities":          {command: "AUTHENTICATE", answer: counting("* CAPABILITY", " A", 1, 1), slow: true},
	"endless challenges":            {command: "AUTHENTICATE", answer: endless("", "+ eA==\r\n"), quiet: true},
	"endless folders":               {command: "LIST", answer: endless("", "* LIST () NIL a\r\n"), slow: true},
	"endless attributes":            {command: "LIST", answer: endless("* LIST (a", " a"), slow: true},
	"a huge name":                   {command: "LIST", answer: hugeName},
	"a huge name for a greeting":    {command: "*", answer: hugeName},
	"a huge name after a login":     {command: "AUTHENTICATE", answer: hugeName},
	"a huge name after an EXAMINE":  {command: "EXAMINE", answer: hugeName},
	"a huge name after a SELECT":    {command: "SELECT", answer: hugeName},
	"endless EXISTS":                {command: "EXAMINE", answer: endless("", "* 1 EXISTS\r\n"), slow: true},
	"endless lines":                 {command: "EXAMINE", answer: endless("", "* OK still here\r\n"), slow: true},
	"an endless line":               {command: "EXAMINE", answer: endless("* OK ", "bbbb"), slow: true},
	"endless flags":                 {command: "EXAMINE", answer: endless("* FLAGS (a", " a"), slow: true},
	"endless flags of a SELECT":     {command: "SELECT", answer: endless("* FLAGS (a", " a"), slow: true},
	"all numbers":                   {command: "SEARCH", answer: lines("* ESEARCH (TAG \"$\") UID ALL 1:4294967295\r\n")},
	"all numbers twice":             {command: "SEARCH", answer: lines("* ESEARCH (TAG \"$\") UID ALL 1:4294967295,1:2147483648\r\n")},
	"too many numbers":              {command: "SEARCH", answer: lines("* ESEARCH (TAG \"$\") UID ALL 1:1048577\r\n")},
	"many ranges":                   {command: "SEARCH", answer: counting("* ESEARCH (TAG \"$\") UID ALL 1", ",", 1, 2), slow: true},
	"endless numbers":               {command: "SEARCH", answer: counting("* SEARCH", " ", 1, 2), slow: true},
	"endless numbers from the end":  {command: "SEARCH", answer: counting("* SEARCH", " ", 1<<32-1, -2), slow: true},
	"mail 0":                        {command: "SEARCH", answer: lines("* SEARCH 1 0\r\n")},
	"mail *":                        {command: "SEARCH", answer: lines("* ESEARCH (TAG \"$\") UID ALL 1:*\r\n"), quiet: true},
	"a number of mails":             {command: "SEARCH", answer: lines("* ESEARCH (TAG \"$\") UID COUNT 3\r\n")},
	"the last mail":                 {command: "SEARCH", answer: lines("* ESEARCH (TAG \"$\") UID MAX 3\r\n")},
	"no UIDs":                       {command: "SEARCH", answer: lines("* ESEARCH (TAG \"$\") ALL 1:3\r\n")},
	"mails that are not there":      {command: "SEARCH", answer: lines("* SEARCH 5 6\r\n"), quiet: true},
	"more mails than are compared":  {command: "SEARCH", answer: lines("* ESEARCH (TAG \"$\") UID ALL 1:200\r\n"), quiet: true},
	"no mail":                       {command: "FETCH", answer: lines(""), quiet: true},
	"a mail without flags":          {command: "FETCH", answer: lines("* 1 FETCH (UID 1 " + looked + " \"\")\r\n"), quiet: true},
	"a mail without its section":    {command: "FETCH", answer: lines("* 1 FETCH (UID 1 FLAGS ())\r\n"), quiet: true},
	"a huge section":                {command: "FETCH", answer: endless("* 1 FETCH (UID 1 FLAGS () "+looked+" {9000000000000000000}\r\n", "bbbb")},
	"a huge text for a section":     {command: "FETCH", answer: lines(hugeText)},
	"a huge mail":                   {command: "FETCH", answer: endless("* 1 FETCH (UID 1 FLAGS () BODY[] {9000000000000000000}\r\n", "bbbb")},
	"a huge header":                 {command: "FETCH", answer: endless("* 1 FETCH (UID 1 FLAGS () BODY[HEADER]<0> {262145}\r\n", "bbbb"), quiet: true},
	"a section again and again":     {command: "FETCH", answer: endless("* 1 FETCH (UID 1 FLAGS ()", " "+looked+" {262144}\r\n"+strings.Repeat("b", 262144))},
	"sections that were not wanted": {command: "FETCH", answer: endless("* 1 FETCH (UID 1 FLAGS ()", " BODY[1] {262144}\r\n"+strings.Repeat("b", 262144))},
	"endless flags of a mail":       {command: "FETCH", answer: endless("* 1 FETCH (UID 1 FLAGS (a", " a"), slow: true},
	"endless other mails":           {command: "FETCH", answer: endless("", "* 2 FETCH (UID 2 FLAGS ())\r\n"), slow: true},
	"endless mails without numbers": {command: "FETCH", answer: endless("", "* 2 FETCH (FLAGS ())\r\n"), slow: true},
	"a huge other mail":             {command: "FETCH", answer: endless("* 2 FETCH (UID 2 BODY[] {9000000000000000000}\r\n", "bbbb")},
	"lists in lists":                {command: "FETCH", answer: endless("* 1 FETCH (UID 1 BODYSTRUCTURE ", "((((((((((((((((("), slow: true},
	"lists behind lists":            {command: "FETCH", answer: endless("* 1 FETCH (UID 1 BODYSTRUCTURE ", `(("" "" NIL NIL NIL NIL 1)`)},
	"mails in mails":                {command: "FETCH", answer: endless("* 1 FETCH (UID 1 BODYSTRUCTURE ", `("message" "rfc822" NIL NIL NIL NIL 1 (NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL) `)},
	"threads in threads":            {command: "SEARCH", answer: endless("* THREAD ", "((((((((((((((((("), quiet: true},
	"endless threads":               {command: "SEARCH", answer: endless("* THREAD ", "(1)(1)"), slow: true},
	"a huge name after a STORE":     {command: "STORE", answer: hugeName},
	"a huge name after a MOVE":      {command: "MOVE", answer: hugeName},
	"a huge name after an APPEND":   {command: "APPEND", answer: hugeName},
}

// tries are the uses of tools that get the answer to a command: reads, calls, lookups, and
// controls of what a lookup did not find.
var tries = map[string][]string{
	"*":            {"read folders", "lookup append"},
	"AUTHENTICATE": {"read folders", "lookup append"},
	"LIST":         {"read folders"},
	"EXAMINE":      {"read get", "lookup append"},
	"SELECT":       {"call flag"},
	"SEARCH":       {"read search", "lookup append", "lookup send", "control send"},
	"FETCH":        {"read search", "read get", "call move", "lookup append", "lookup move", "lookup flag"},
	"STORE":        {"call flag"},
	"MOVE":         {"call move"},
	"APPEND":       {"call append"},
}

var paramsOf = map[string]string{
	"folders": `{}`, "search": `{}`, "get": `{"id":"INBOX;7;1"}`, "append": `{"folder":"Drafts","subject":"x"}`,
	"move": `{"id":"INBOX;7;1","to":"Archive","message_id":"other@example.com"}`, "flag": `{"id":"INBOX;7;1","add":["seen"]}`,
	"send": `{"to":"bob@example.com"}`,
}

// use makes one try. It returns what was concluded.
func use(ctx context.Context, t *testing.T, conn *connector.Connection, try string) (string, error) {
	t.Helper()
	kind, name, _ := strings.Cut(try, " ")
	used := tool(t, conn, name)
	m := keep.Mutation{Token: "token-7", Payload: json.RawMessage(paramsOf[name])}
	switch kind {
	case "read":
		out, err := used.(connector.Reader).Read(ctx, m.Payload)
		return string(out), err
	case "call":
		out, err := used.(connector.Mutator).Mutate(ctx, m)
		return string(out.Result), err
	case "control":
		found, err := used.(connector.Controller).Control(ctx, m)
		return fmt.Sprint(found), err
	}
	answer, err := used.(connector.Reconciler).Reconcile(ctx, m)
	return string(answer.Verdict), err
}

// Law bounded: whatever a mailbox answers to a read, a call or a lookup, it takes little of
// memory and processor, and no longer than the call has.
func TestHostileAnswers(t *testing.T) {
	ceiling.Need(t)
	for name, h := range hostileAnswers {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := serve(t, &scripted{instead: map[string]write{h.command: h.answer}}, imapSession)
			conn := open(t, s.cfg(t))
			ceiling.Ceiling{CPU: 6 * time.Second, Memory: 160 << 20}.Check(t, func() {
				for _, try := range tries[h.command] {
					inTime(t, conn, try)
				}
			})
			if s.asked.Load() == 0 {
				t.Error("nothing asked for it")
			}
		})
	}
}

// inTime makes one try, which has a quarter of a second to end.
func inTime(t *testing.T, conn *connector.Connection, try string) {
	t.Helper()
	const limit = 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	said, err := use(ctx, t, conn, try)
	if took := time.Since(start); took > limit+time.Minute {
		t.Errorf("%s took %v: %.100s, %.200v", try, took, said, err)
	}
}

// An answer that is over a bound, or makes no sense, is an error that says so. Its session is ended, and
// nothing is concluded from it: neither has a call happened, nor is it absent.
func TestBadAnswers(t *testing.T) {
	for name, h := range hostileAnswers {
		if h.slow {
			continue
		}
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := serve(t, &scripted{instead: map[string]write{h.command: h.answer}}, imapSession)
			for _, try := range tries[h.command] {
				conn := open(t, s.cfg(t))
				before := s.asked.Load()
				said, err := use(t.Context(), t, conn, try)
				if s.asked.Load() == before {
					t.Errorf("%s did not ask for it: %.100s, %v", try, said, err)
				}
				checkTry(t, h, try, said, err)
				if f, ok := errors.AsType[*keep.Failure](err); ok && f.Code == "bad-answer" {
					s.over(t, try)
				}
				conn.Close() // ends a session that is kept for the next read
			}
		})
	}
}

// checkTry holds a use of a tool to what is known after an answer that was hostile.
func checkTry(t *testing.T, h hostile, try, said string, err error) {
	t.Helper()
	kind, name, _ := strings.Cut(try, " ")
	f, failed := errors.AsType[*keep.Failure](err)
	switch {
	case kind == "lookup" && err == nil && said != string(connector.Retry), kind == "control" && err == nil:
		t.Errorf("%s believes the answer: %s", try, said)
	case h.quiet, kind == "control", name == "search" && err == nil: // the list says which mails it could not read
	case !failed:
		t.Errorf("%s: %.200s, %v", try, said, err)
	case kind == "call" && slices.Contains([]string{"STORE", "MOVE", "APPEND"}, h.command):
		if f.Class != keep.ClassUnknown || !strings.Contains(f.Message, "cannot be used") {
			t.Errorf("%s: %v", try, f)
		}
	case f.Class != keep.ClassTransient || f.Code != "bad-answer" || !strings.Contains(f.Message, "127.0.0.1"):
		t.Errorf("%s: %s %s: %s", try, f.Class, f.Code, f.Message)
	}
}

// The bounds are the same after STARTTLS.
func TestBadAnswersEncrypted(t *testing.T) {
	for _, name := range []string{"lists in lists", "mails in mails", "a huge mail", "endless EXISTS"} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			h := hostileAnswers[name]
			s := serve(t, &scripted{instead: map[string]write{h.command: h.answer}, tls: certificate(t)}, imapSession)
			_, err := use(t.Context(), t, open(t, s.cfg(t)), "read get")
			if f := failure(t, err); f.Code != "bad-answer" {
				t.Errorf("%v", f)
			}
			s.over(t, name)
		})
	}
}

// A session that waits for mails is ended by a server that announces them without end.
func TestEndlessNews(t *testing.T) {
	for name, answer := range map[string]write{"EXISTS": endless("", "* 2 EXISTS\r\n"), "lines": endless("", "* OK still here\r\n"), "a name": hugeName} {
		s := serve(t, &scripted{instead: map[string]write{"IDLE": answer}}, imapSession)
		if err := open(t, s.cfg(t)).Watch(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), "cannot be used") {
			t.Errorf("%s: %v", name, err)
		}
		s.over(t, name)
	}
}

// Replies of an SMTP server have bounds, too. After the end of the mail nobody knows whether it was
// taken; before it nothing was sent.
func TestHostileReplies(t *testing.T) {
	for _, command := range []string{"*", "EHLO", "MAIL", "RCPT", "DATA", "."} {
		for name, answer := range map[string]write{
			"lines": endless("", "250-still here\r\n"), "refusals": endless("", "550-no\r\n"), "a line": endless("250-", "bbbb"),
		} {
			s := serve(t, &scripted{instead: map[string]write{command: answer}}, smtpSession)
			cfg := s.cfg(t)
			cfg.IMAP, cfg.Sent, cfg.SettleAfter, cfg.User, cfg.Password = "", "", nil, "", ""
			want := keep.ClassTransient
			if command == "." {
				want = keep.ClassUnknown
			}
			_, err := use(t.Context(), t, open(t, cfg), "call send")
			if f := failure(t, err); f.Class != want || name != "a line" && !strings.Contains(f.Message, "cannot be used") {
				t.Errorf("endless %s after %s: %v", name, command, f)
			}
			s.over(t, command)
		}
	}
}
