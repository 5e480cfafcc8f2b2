package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/port"
	"github.com/keep-run/keep/store/sqlite"
)

// A link that the webhook was sent decides its question once, also when the host is killed
// right after it, and its code is nowhere but in the message: in no log, page, answer of the
// API, metric, database or backup.
func TestLinkOfANotification(t *testing.T) {
	t.Parallel()
	w := newNotifyWorld(t)
	addr := port.Addr(t)
	file := filepath.Join(w.dir, "keep.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("[notify]\n"), []byte("[server]\nlisten = '"+addr+"'\nurl = 'http://"+addr+"'\n[notify]\nlinks = true\non_escalation = ['sh', '-c', 'tail -c 150; exit 1']\n"), 1)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	d := &serving{t: t, bin: w.bin, dir: w.dir, env: w.env, more: []string{"--listen", addr}, log: new(strings.Builder)}
	d.keep("deploy", ".")
	d.start()
	<-w.hook.heard
	var message struct {
		Link string
		Data struct{ ID keep.EscalationID }
	}
	if err := json.Unmarshal([]byte(w.hook.bodies[0]), &message); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(message.Link)
	if err != nil || u.Host != addr || u.Path != "/decide/"+string(message.Data.ID) {
		t.Fatalf("the link is %q of question %s, %v", message.Link, message.Data.ID, err)
	}
	code := u.Query().Get("code")
	for range 3 { // a scanner, a preview, a person
		res, body := d.ask("GET", u.RequestURI(), "")
		if res.StatusCode != http.StatusOK || !strings.Contains(body, `value="skip"`) || strings.Contains(body, `value="did-not-happen"`) {
			t.Fatalf("the page: %d %s", res.StatusCode, body)
		}
	}
	if q, n := linkQuestion(w); q.Decision != nil || n == 0 {
		t.Fatalf("looking decided: %+v", q.Decision)
	}
	backup := filepath.Join(w.dir, "b.db")
	d.keep("db", "backup", backup)
	form := url.Values{"code": {code}, "action": {"skip"}}.Encode()
	press := func() (*http.Response, string) {
		return d.ask("POST", u.Path, form, "Content-Type", "application/x-www-form-urlencoded")
	}
	if res, body := press(); res.StatusCode != http.StatusSeeOther {
		t.Fatalf("the press: %d %s", res.StatusCode, body)
	}
	d.kill()
	d.start()
	if res, body := press(); res.StatusCode != http.StatusConflict || !strings.Contains(body, "link sent to webhook decided “Skip") {
		t.Errorf("the second press, after a crash: %d %s", res.StatusCode, body)
	}
	if q, _ := linkQuestion(w); q.Decision == nil || q.Decision.By != "link sent to webhook" || q.Decision.From != "link" {
		t.Errorf("the decision is %+v", q.Decision)
	}
	seen := []string{d.keep("inbox", "show", string(message.Data.ID), "--json"), d.keep("status", "--json"), d.keep("why", string(message.Data.ID))}
	token := d.keep("token", "add", "canary", "--role", "admin")
	for _, path := range []string{"/inbox", "/inbox/" + string(message.Data.ID), "/settings", "/metrics", "/api/v1/escalations", "/api/v1/escalations/" + string(message.Data.ID)} {
		res, body := d.ask("GET", path, "", "Authorization", "Bearer "+lastWord(token))
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
		seen = append(seen, body)
	}
	d.kill()
	seen = append(seen, d.log.String())
	if !strings.Contains(d.log.String(), "[hidden]") {
		t.Error("the log does not have what the program printed")
	}
	for _, name := range []string{"keep.db", "keep.db-wal", "b.db"} {
		content, err := os.ReadFile(filepath.Join(w.dir, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if name == "b.db" && bytes.Contains(content, []byte("link_key")) {
			t.Error("the backup has the key of links")
		}
		seen = append(seen, string(content))
	}
	for i, text := range seen {
		if strings.Contains(text, code) {
			t.Errorf("text %d has the code: %.500s", i, text)
		}
	}
}

// linkQuestion returns the question of the world, and for how many sinks there is a notice.
func linkQuestion(w *notifyWorld) (keep.Escalation, int) {
	w.Helper()
	db := sqlite.New(filepath.Join(w.dir, "keep.db"), sqlite.Config{ReadOnly: true})
	if err := db.Open(w.Context()); err != nil {
		w.Fatal(err)
	}
	defer db.Close()
	qs, _, err := db.Escalations(w.Context(), keep.EscalationFilter{}, keep.Page{})
	if err != nil || len(qs) != 1 {
		w.Fatalf("questions = %v, %v, want one", qs, err)
	}
	ns, err := db.Notices(w.Context(), qs[0].ID)
	if err != nil {
		w.Fatal(err)
	}
	return qs[0], len(ns)
}

func lastWord(s string) string {
	words := strings.Fields(s)
	return words[len(words)-1]
}
