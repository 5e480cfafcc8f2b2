package examples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Orders fan out into lines at once; their digest is due two seconds later, and
// a later run writes it, once.
func TestDigest(t *testing.T) {
	t.Parallel()
	dir := copyOf(t, "digest")
	leavesClean(t, filepath.Dir(dir))
	for pending := -1; pending != 0; {
		runOnce(t, dir)
		pending = pendingLines(t, dir)
	}
	runOnce(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "out", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("digests = %v, %v; want some", files, err)
	}
	got := map[string]int{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var n int
			var article string
			if _, err := fmt.Sscanf(line, "%d × %s", &n, &article); err != nil {
				t.Fatalf("line %q of %s: %v", line, f, err)
			}
			got[article] += n
		}
	}
	want := map[string]int{"Bread": 3, "Butter": 1, "Crème": 3, "Honey": 3, "Tea": 7}
	if d := cmp.Diff(got, want); d != "" {
		t.Errorf("all digests together (-got +want):\n%s", d)
	}
}

// Digests of orders whose names differ in a sign are two files: the second one takes nothing from the first.
func TestDigestNames(t *testing.T) {
	t.Parallel()
	dir := copyOf(t, "digest")
	orders := filepath.Join(dir, "orders")
	if err := os.RemoveAll(orders); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(orders, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, o := range [][2]string{{"a b.csv", "Bread"}, {"a-b.csv", "Tea"}} {
		if err := os.WriteFile(filepath.Join(orders, o[0]), []byte("article,quantity\n"+o[1]+",1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for pending := -1; pending != 0; {
			runOnce(t, dir)
			pending = pendingLines(t, dir)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "out", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	if got, want := all.String(), "1 × Bread\n1 × Tea\n"; got != want {
		t.Errorf("the digests %q have\n%s\nwant\n%s", files, got, want)
	}
}

// pendingLines returns how many lines of orders are in no digest yet.
func pendingLines(t *testing.T, dir string) int {
	t.Helper()
	var events []struct{ Topic, Status string }
	out := keep(t, dir, nil, 0, "events", "list", "--topic", "line", "--status", "pending", "--all", "--json")
	if err := json.Unmarshal([]byte(out), &events); err != nil {
		t.Fatalf("keep events list --json printed %s: %v", out, err)
	}
	return len(events)
}

// A contact or a message of the server, as far as the tests look at it.
type effect struct{ Email, To string }

// effects returns how often each contact and each message was made.
func effects(t *testing.T, s *server) (contacts, messages map[string]int) {
	t.Helper()
	contacts, messages = map[string]int{}, map[string]int{}
	var list []effect
	s.get(t, "/contacts", &list)
	for _, c := range list {
		contacts[c.Email]++
	}
	s.get(t, "/messages", &list)
	for _, m := range list {
		messages[m.To]++
	}
	return contacts, messages
}

// checkOnce asks for what each run must come to: one contact and one message for everybody.
func checkOnce(t *testing.T, s *server) {
	t.Helper()
	once := map[string]int{}
	for _, name := range []string{"ada", "grace", "linus", "margaret", "zoe"} {
		once[name+"@example.com"] = 1
	}
	contacts, messages := effects(t, s)
	if d := cmp.Diff(contacts, once); d != "" {
		t.Errorf("contacts (-got +want):\n%s", d)
	}
	if d := cmp.Diff(messages, once); d != "" {
		t.Errorf("messages (-got +want):\n%s", d)
	}
}

func TestREST(t *testing.T) {
	t.Parallel()
	dir, s := copyOf(t, "rest"), serve(t)
	runOnce(t, dir, s.env("crm"))
	checkOnce(t, s)
	runOnce(t, dir, s.env("crm"))
	checkOnce(t, s)
}

// The first answers are lost: level C looks for its contact, level A sends its
// message again.
func TestRESTLostAnswers(t *testing.T) {
	t.Parallel()
	dir, s := copyOf(t, "rest"), serve(t, "-silent", "7")
	quick := []string{s.env("crm"),
		"KEEP_CONNECTIONS_CRM_TOOLS_CREATE_TIMEOUT=500ms", "KEEP_CONNECTIONS_CRM_TOOLS_SEND_TIMEOUT=500ms"}
	runOnce(t, dir, quick...)
	checkOnce(t, s)
}

// The process dies after the service made the contact and before it answered.
func TestRESTKilledInACall(t *testing.T) {
	t.Parallel()
	dir, s := copyOf(t, "rest"), serve(t, "-silent", "1")
	p := start(t, dir, s.env("crm"))
	s.waitFor(t, "(no answer)")
	p.kill()
	runOnce(t, dir, s.env("crm"))
	checkOnce(t, s)
}

// The declaration and the producer of S3 run as they are printed there, given a
// connection called gmail.
func TestS3(t *testing.T) {
	t.Parallel()
	dir, s := copyOf(t, "s3"), serve(t)
	runOnce(t, dir, s.env("gmail"))
	runOnce(t, dir, s.env("gmail"))
	var events []struct {
		Topic  string
		ID     string `json:"message_id"`
		Status string
	}
	out := keep(t, dir, nil, 0, "events", "list", "--all", "--json")
	if err := json.Unmarshal([]byte(out), &events); err != nil {
		t.Fatalf("keep events list --json printed %s: %v", out, err)
	}
	got := map[string]string{}
	for _, e := range events {
		got[e.Topic+" "+e.ID] = e.Status
	}
	want := map[string]string{}
	for _, id := range []string{"m1", "m2", "m3"} {
		want["email.received "+id] = "consumed"
		want["row.created row:"+id] = "pending"
	}
	if d := cmp.Diff(got, want); d != "" {
		t.Errorf("events (-got +want):\n%s", d)
	}
}
