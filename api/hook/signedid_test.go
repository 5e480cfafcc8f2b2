package hook_test

import (
	"net/http"
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
