package mail_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Law doubt-is-not-failure: a mail to which something on its way added a Message-ID of its own is ours, wherever ours stands.
func TestMailWithTwoMessageIDs(t *testing.T) {
	for _, fields := range []string{
		"Message-ID: <other@example.com>\r\nMessage-ID: <token-7@example.com>\r\n\r\n",
		"Message-ID: <token-7@example.com>\r\nMessage-ID: <other@example.com>\r\n\r\n",
		"Message-ID: <other@example.com> <token-7@example.com>\r\n\r\n",
		"Message-ID: (by a gateway)\r\n <token-7@example.com>\r\n\r\n",
	} {
		s := serve(t, &scripted{instead: map[string]write{"FETCH": lines(fmt.Sprintf("* 1 FETCH (UID 1 FLAGS () %s {%d}\r\n%s)\r\n", looked, len(fields), fields))}}, imapSession)
		for _, try := range []string{"lookup send", "lookup append"} {
			if said, err := use(t.Context(), t, open(t, s.cfg(t)), try); err != nil || said != string(connector.Happened) {
				t.Errorf("%q: %s: %q, %v", fields, try, said, err)
			}
		}
	}
}

// selected answers how a folder is numbered.
func selected(validity string, next int) map[string]write {
	text := "* 1 EXISTS\r\n" + validity + fmt.Sprintf("* OK [UIDNEXT %d] next\r\n", next)
	return map[string]write{"SELECT": lines(text), "EXAMINE": lines(text)}
}

// Law nothing-lost: a server that gives numbers again which a search has passed, under the same UIDVALIDITY, as after a restore, would have
// new mails passed over. The search says so.
func TestCursorBeyondTheFolder(t *testing.T) {
	const valid = "* OK [UIDVALIDITY 7] valid\r\n"
	for next, want := range map[int]string{2: "numbered", 50: "numbered", 51: "", 60: ""} {
		s := serve(t, &scripted{instead: selected(valid, next)}, imapSession)
		out, err := tool(t, open(t, s.cfg(t)), "search").(connector.Reader).Read(t.Context(), json.RawMessage(`{"cursor":"7;50"}`))
		if want == "" {
			if err != nil || !strings.Contains(string(out), fmt.Sprintf(`"next":"7;%d"`, next-1)) {
				t.Errorf("UIDNEXT %d: %s, %v", next, out, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("UIDNEXT %d: %s, want that the numbers are of before", next, out)
			continue
		}
		if f := failure(t, err); f.Class != keep.ClassTransient || f.Code != "uidvalidity" || !strings.Contains(f.Message, want) {
			t.Errorf("UIDNEXT %d: %v", next, f)
		}
	}
}

// Law once: where a server has no UIDVALIDITY, its numbers do not last, and an id would name another mail later.
func TestFolderWithoutUIDValidity(t *testing.T) {
	for _, c := range []struct{ tool, params string }{
		{"search", `{}`}, {"search", `{"cursor":"0;1"}`}, {"get", `{"id":"INBOX;0;1"}`},
		{"move", `{"id":"INBOX;0;1","to":"Archive"}`}, {"flag", `{"id":"INBOX;0;1","add":["seen"]}`},
	} {
		s := serve(t, &scripted{instead: selected("", 2)}, imapSession)
		used := tool(t, open(t, s.cfg(t)), c.tool)
		err := call(t.Context(), used, c.params)
		if err == nil {
			t.Errorf("%s %s is done", c.tool, c.params)
			continue
		}
		if f := failure(t, err); f.Class != keep.ClassPrecondition || f.Code != "no-uidvalidity" {
			t.Errorf("%s %s: %v", c.tool, c.params, f)
		}
	}
}

// call reads, or makes a change.
func call(ctx context.Context, used connector.Tool, params string) error {
	if r, ok := used.(connector.Reader); ok {
		_, err := r.Read(ctx, json.RawMessage(params))
		return err
	}
	_, err := used.(connector.Mutator).Mutate(ctx, keep.Mutation{Token: "token-7", Payload: json.RawMessage(params)})
	return err
}
