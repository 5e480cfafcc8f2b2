package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// TestServiceWhoseClockIsBehind looks for what was made at a service whose clock is behind ours, or ours ahead, by more than a search
// by time allows for: it is found, and an absence counts for what the service's clock says. Laws: once, witnessed.
func TestServiceWhoseClockIsBehind(t *testing.T) {
	t.Parallel()
	const head = "[tools.create]\neffect = \"mutate\"\npath = \"/\"\nidentity = [\"id\"]\ntoken = { body = \"ref\" }\n"
	for _, pages := range []string{"", ", pages = { style = \"cursor\", param = \"after\", next = \"$.next\" }"} {
		for _, behind := range []time.Duration{-time.Hour, 0, 45 * time.Second, 10 * time.Minute, 100 * 24 * time.Hour} {
			for _, made := range []bool{false, true} {
				asked := 0
				conn := openTools(t, head+"reconcile = { path = \"/\", query = [\"since={sent_at:unix}\"], items = \"$.data\", match = { ref = \"{token}\" }, complete = true"+pages+" }\n",
					func(w http.ResponseWriter, r *http.Request) {
						asked++
						now := time.Now().Add(-behind)
						w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
						w.Header().Set("Content-Type", "application/json")
						since, err := strconv.ParseInt(r.FormValue("since"), 10, 64)
						if err != nil {
							t.Error(err)
						}
						list := "[]"
						if created := now.Add(-20 * time.Second); made && created.Unix() >= since {
							list = `[{"ref":"tok-1"}]`
						}
						fmt.Fprintf(w, `{"data":%s}`, list)
					})
				m := mutation(`{"id":1}`)
				m.CreatedAt = time.Now().Add(-20 * time.Second)
				want := connector.Absent
				if made {
					want = connector.Happened
				}
				a, err := tool(t, conn, "create").(connector.Reconciler).Reconcile(t.Context(), m)
				if err != nil || a.Verdict != want || asked > 2 {
					t.Errorf("%q, %s behind, made %t: %q%s, %v, after %d requests; want %q", pages, behind, made, a.Verdict, a.Detail, err, asked, want)
				}
				if said := strings.Contains(a.Detail, "clock"); said != (behind > time.Minute && !made) && behind != 45*time.Second && !made {
					t.Errorf("%s behind: %q", behind, a.Detail)
				}
			}
		}
	}
	conn := openTools(t, head+"reconcile = { path = \"/\", since = \"{sent_at:unix}\", items = \"$.data\", match = { ref = \"{token}\" }, complete = true }\n", func(http.ResponseWriter, *http.Request) {})
	if !tool(t, conn, "create").Spec().ComparesAge {
		t.Error("it does not say that it compares how long ago a call was")
	}
}

// TestSentAgainAsItWasRecorded sends a call again with the time of its record, by whatever clock its age is told: a service may refuse
// another request under the same key. So it looks for it.
func TestSentAgainAsItWasRecorded(t *testing.T) {
	t.Parallel()
	recorded := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	var got []string
	conn := openTools(t, "[tools.send]\neffect = \"mutate\"\npath = \"/\"\nidentity = [\"id\"]\nfixed = { at = \"{created_at:rfc3339}\" }\nidempotency_header = \"K\"\ndeduplicates = true\n"+
		"[tools.make]\neffect = \"mutate\"\npath = \"/\"\nidentity = [\"id\"]\nfixed = { at = \"{created_at:rfc3339}\" }\nreconcile = { path = \"/{id}\", match = { id = \"{id}\", at = \"{created_at:rfc3339}\" } }\n",
		func(w http.ResponseWriter, r *http.Request) {
			var sent struct{ At string }
			if r.Method == http.MethodPost {
				if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
					t.Error(err)
				}
				got = append(got, sent.At)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":1,"at":"2026-05-04T03:02:01Z"}`)
		})
	m := mutation(`{"id":1}`)
	m.CreatedAt = recorded.Add(90 * time.Minute) // by the clock of this machine
	ctx := connector.WithRecorded(t.Context(), recorded)
	for _, name := range []string{"send", "make"} {
		a, err := tool(t, conn, name).(connector.Reconciler).Reconcile(ctx, m)
		if err != nil || a.Verdict != connector.Happened {
			t.Errorf("%s: %q%s, %v", name, a.Verdict, a.Detail, err)
		}
	}
	if len(got) != 1 || got[0] != "2026-05-04T03:02:01Z" {
		t.Errorf("sent again: %q", got)
	}
	if at := connector.Recorded(context.Background(), keep.Mutation{CreatedAt: recorded}); !at.Equal(recorded) {
		t.Errorf("a call that the host does not age was recorded at %s", at)
	}
}
