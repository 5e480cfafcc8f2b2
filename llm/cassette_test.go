package llm_test

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/llmtest"
	"github.com/keep-run/keep/llm"
)

// A conversation that is recorded over HTTP is replayed as it was, and nothing that is secret comes
// to the disk: neither the key, wherever the service repeats it, nor secrets of a project, nor ids of
// accounts, also where the stream cuts them in two.
func TestCassette(t *testing.T) {
	const canary, account = "hunter2-canary-of-a-project", "org-4f6c1e9a7b3d"
	both(t, func(t *testing.T, chat bool) {
		service := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply {
			if q.N == 2 {
				return llmtest.Reply{Status: 400, Kind: "invalid_request_error"}
			}
			return llmtest.Reply{Text: account + " has " + llmtest.Key + " and " + account, In: 11, Out: 7, Calls: []llmtest.Call{
				{Name: "check", Arguments: map[string]string{"source": "x" + canary + "y"}}, {Name: "check", Arguments: map[string]string{"source": "b"}}}}
		})
		file := filepath.Join(t.TempDir(), "cassette.json")
		recorder := llmtest.NewRecorder(service.URL, file, canary)
		between := httptest.NewServer(recorder)
		t.Cleanup(between.Close)
		base := between.URL + strings.TrimPrefix(service.Base(chat), service.URL)
		ask := func(base string) (answers []llm.Answer, used []llm.Usage) {
			c := client(t, base, chat, nil)
			q := question
			q.Messages = []llm.Message{{Text: "Use " + canary + " of " + account + "."}}
			for range 3 {
				a, u, err := c.Ask(context.Background(), q)
				if err != nil {
					a.Text = "failed: " + err.Error()
				}
				answers, used = append(answers, a), append(used, u)
			}
			return answers, used
		}
		said, spent := ask(base)
		between.Close() // a turn is written when its answer was passed on
		if err := recorder.Err(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{canary, account, llmtest.Key, llmtest.Key[8:], "hunter2"} {
			if strings.Contains(string(text), secret) {
				t.Errorf("the cassette has %q: %s", secret, text)
			}
		}
		if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
			t.Errorf("beside the cassette there is %v, %v", left, err)
		}
		again, spentAgain := ask(llmtest.Replay(t, file).Base(chat))
		clean := strings.NewReplacer(canary, "SCRUBBED", account, "SCRUBBED", llmtest.Key, "SCRUBBED")
		for i := range said {
			said[i].Text = clean.Replace(said[i].Text)
			for j := range said[i].Calls {
				said[i].Calls[j].Arguments = []byte(clean.Replace(string(said[i].Calls[j].Arguments)))
			}
		}
		if !reflect.DeepEqual(said, again) || !reflect.DeepEqual(spent, spentAgain) {
			t.Errorf("replayed as %+v (%v), want %+v (%v)", again, spentAgain, said, spent)
		}
		if len(said[0].Calls) != 2 || !strings.Contains(said[1].Text, "400") {
			t.Errorf("the service said %+v", said)
		}
	})
}
