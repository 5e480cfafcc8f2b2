package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/store/sqlite"
)

// A hook is the receiver of a webhook.
type hook struct {
	*testing.T
	*httptest.Server

	mu     sync.Mutex // protects the fields below
	status int
	onHear func() // called before a request is answered; nil: nothing
	ids    []string
	bodies []string
	heard  chan struct{} // gets a value for each request
}

func startHook(t *testing.T) *hook {
	h := &hook{T: t, status: http.StatusNoContent, heard: make(chan struct{}, 10_000)}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.Error(err)
	}
	h.mu.Lock()
	h.ids, h.bodies = append(h.ids, r.Header.Get("webhook-id")), append(h.bodies, string(body))
	status, onHear := h.status, h.onHear
	h.onHear = nil
	h.mu.Unlock()
	if onHear != nil {
		onHear()
	}
	h.heard <- struct{}{}
	w.WriteHeader(status)
}

func (h *hook) set(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *hook) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.ids...)
}

// A notifyWorld is a project whose one call nobody can know the outcome of, and
// a webhook that is told.
type notifyWorld struct {
	*testing.T
	bin, dir string
	hook     *hook
	env      []string
}

func newNotifyWorld(t *testing.T) *notifyWorld {
	w := &notifyWorld{T: t, bin: buildKeep(t), dir: t.TempDir(), hook: startHook(t)}
	crm := startService()
	t.Cleanup(crm.Close)
	crm.set("mute")
	if err := os.CopyFS(w.dir, os.DirFS("testdata/crm")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.dir, "keep.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, `
[notify]
webhook = { url = "${env:HOOK_URL}", secret = "${secret:hook}" }
timeout = "1s"
retry = { first = "10ms", max = "20ms", attempts = 100000 }
`...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "CRM_URL="+crm.URL, "HOOK_URL="+w.hook.URL,
		"KEEP_SECRET_CRM=hunter2", "KEEP_SECRET_HOOK=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	return w
}

func (w *notifyWorld) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Context(), w.bin, args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	return cmd
}

// run runs keep run to its end, which is a question.
func (w *notifyWorld) run() {
	w.Helper()
	out, err := w.command("run", ".").CombinedOutput()
	if exited, ok := errors.AsType[*exec.ExitError](err); !ok || exited.ExitCode() != exit.NeedsPerson {
		w.Fatalf("keep run: %v\n%s", err, out)
	}
}

// notice returns the one question and the record of telling the webhook of it.
func (w *notifyWorld) notice() (keep.Escalation, keep.Notice) {
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
	if err != nil || len(ns) != 1 {
		w.Fatalf("notices = %v, %v, want one", ns, err)
	}
	return qs[0], ns[0]
}

// sameID wants every request to have the id of the question.
func (w *notifyWorld) sameID(id keep.EscalationID) {
	w.Helper()
	for _, got := range w.hook.all() {
		if got != string(id) {
			w.Errorf("a request has the id %s, want %s", got, id)
		}
	}
}

// What keep run cannot tell before it ends is told after the next start, and what
// was told is not told again.
func TestRunTellsPeople(t *testing.T) {
	t.Parallel()
	w := newNotifyWorld(t)
	w.hook.set(http.StatusInternalServerError)
	w.run()
	q, n := w.notice()
	if len(w.hook.all()) == 0 || n.Status != keep.NoticePending || !strings.Contains(n.Error, "answered 500") {
		t.Errorf("after %d requests the notice is %+v, want a failed attempt", len(w.hook.all()), n)
	}
	w.hook.set(http.StatusNoContent)
	w.run()
	if _, n = w.notice(); n.Status != keep.NoticeDelivered {
		t.Errorf("notice = %+v, want delivered", n)
	}
	told := len(w.hook.all())
	w.run()
	if again := len(w.hook.all()); again != told {
		t.Errorf("the question was told again: %d requests, then %d", told, again)
	}
	w.sameID(q.ID)
	w.sameQuestion(q.ID)
}

// sameQuestion wants the message to have the question as keep inbox prints it,
// and no secret.
func (w *notifyWorld) sameQuestion(id keep.EscalationID) {
	w.Helper()
	var message struct {
		Type string
		Data any
	}
	var shown map[string]any
	out, err := w.command("inbox", "show", string(id), "--json").Output()
	if err != nil {
		w.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal([]byte(w.hook.bodies[0]), &message), json.Unmarshal(out, &shown)); err != nil {
		w.Fatal(err)
	}
	delete(shown, "closed_at") // a message is about a question that was just opened
	delete(shown, "decision")
	if diff := cmp.Diff(any(shown), message.Data); diff != "" || message.Type != "question.opened" {
		w.Errorf("message of type %s differs from what keep inbox shows (-inbox +message):\n%s", message.Type, diff)
	}
	if strings.Contains(w.hook.bodies[0], "hunter2") {
		w.Errorf("the message has a secret: %s", w.hook.bodies[0])
	}
}

// The host is killed after the webhook took the question and before that is
// recorded. The next one tells it again, with the same id, and then no more.
func TestKilledWhileItTellsPeople(t *testing.T) {
	t.Parallel()
	w := newNotifyWorld(t)
	if out, err := w.command("deploy", ".").CombinedOutput(); err != nil {
		t.Fatalf("deploy: %v\n%s", err, out)
	}
	first := w.command("serve")
	w.hook.mu.Lock() // nobody is told before onHear can kill
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	w.hook.onHear = func() { _ = first.Process.Kill() }
	w.hook.mu.Unlock()
	<-w.hook.heard
	_ = first.Wait() // it was killed
	q, n := w.notice()
	if n.Status != keep.NoticePending || n.Attempts != 1 || n.Error != "" {
		t.Errorf("the dead host left %+v, want an attempt that it began", n)
	}
	second := w.command("serve")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	<-w.hook.heard
	if err := second.Process.Signal(os.Interrupt); err != nil { // what has begun is recorded
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, n = w.notice(); n.Status != keep.NoticeDelivered || n.Attempts != 2 || len(w.hook.all()) != 2 {
		t.Errorf("after %d requests the notice is %+v, want the second delivered", len(w.hook.all()), n)
	}
	w.sameID(q.ID)
}
