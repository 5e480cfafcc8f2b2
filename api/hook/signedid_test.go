package hook_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/keep-run/keep/api/hook"
)

// GitHub signs the body and not the id. With id = "body" what was signed is one event, whatever else a copy of it says.
func TestIDThatIsSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hook.Config{Name: "gh", Verify: hook.GitHub, Secrets: []string{"s"}, ID: "body"})
	const body, other = `{"at":1}`, `{"at":2}`
	for _, header := range [][]string{github("s", "one", body), github("s", "two", body), append(github("s", "two", body), "Content-Type", "application/x-www-form-urlencoded"), github("s", "one", other)} {
		name := body
		if header[3] == github("s", "one", other)[3] {
			name = other
		}
		if a := w.send("POST", "gh", name, header...); a.status != http.StatusOK {
			t.Errorf("%v: %d %s", header, a.status, a.body)
		}
	}
	if events := w.events(); len(events) != 2 {
		t.Errorf("%d events of two signed bodies: %+v", len(events), events)
	}
}

// Stripe and Slack sign the body that their id is in, and not the header that says how it is to be read: fields that a text within it would have
// as a form are none.
func TestFieldsThatWereNotSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hook.Config{Name: "pay", Verify: hook.Stripe, Secrets: []string{"s"}}, hook.Config{Name: "chat", Verify: hook.Slack, Secrets: []string{"s"}})
	for name, body := range map[string]string{
		"pay":  `{"id":"evt_1","type":"charge.failed","data":{"description":"x&id=evt_2&type=charge.succeeded&y="}}`,
		"chat": `{"event_id":"Ev1","event":{"name":"x&event_id=Ev2&y="}}`,
	} {
		header := stripe("s", noon, body)
		if name == "chat" {
			header = slack("s", noon, body)
		}
		for media, want := range map[string]int{"application/json": http.StatusOK, "application/x-www-form-urlencoded": http.StatusBadRequest} {
			if a := w.send("POST", name, body, append(slices.Clone(header), "Content-Type", media)...); a.status != want {
				t.Errorf("%s as %s: %d %s, want %d", name, media, a.status, a.body, want)
			}
		}
	}
	if events := w.events(); len(events) != 2 {
		t.Errorf("%d events of two signed bodies: %+v", len(events), events)
	}
}
