package logsink_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/logsink"
)

// older is a line of a call before those of mutation.
const older = `{"time":"2026-11-20T09:59:59.9Z","token":"z","text":""}` + "\n"

func mutation(token, params string) keep.Mutation {
	return keep.Mutation{Token: token, Payload: json.RawMessage(params), CreatedAt: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
}

func open(t testing.TB, path string) connector.Mutator {
	t.Helper()
	conn, err := logsink.New("audit", logsink.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return conn.Tools[0].(connector.Mutator)
}

func TestLinesAndTheirWitness(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	m := open(t, path)
	ask := func(token string) connector.Verdict {
		t.Helper()
		a, err := m.(connector.Reconciler).Reconcile(t.Context(), mutation(token, `{}`))
		if err != nil {
			t.Error(err)
		}
		return a.Verdict
	}
	if v := ask("a"); v != connector.Retry {
		t.Errorf("before there is a file: %q", v)
	}
	for _, token := range []string{"a", "b"} {
		if _, err := m.Mutate(t.Context(), mutation(token, `{"text":"<hi>","data":{"n":9007199254740993}}`)); err != nil {
			t.Fatal(err)
		}
	}
	raw, _ := os.ReadFile(path)
	const first = `{"time":"2026-11-20T10:00:00Z","token":"a","text":"<hi>","data":{"n":9007199254740993}}` + "\n"
	if !strings.HasPrefix(string(raw), first) {
		t.Errorf("file is %s", raw)
	}
	if err := os.WriteFile(path, append([]byte(older), raw...), 0o600); err != nil {
		t.Fatal(err)
	}
	if ask("a") != connector.Happened || ask("b") != connector.Happened || ask("c") != connector.Absent || ask("hi") != connector.Absent {
		t.Error("the tokens that were written are not those that are found")
	}
	// A crash in the middle of a line.
	if err := os.WriteFile(path, []byte(older+first[:len(first)-10]), 0o600); err != nil {
		t.Fatal(err)
	}
	if v := ask("a"); v != connector.Absent {
		t.Errorf("torn line: %q, want absent", v)
	}
	if _, err := m.Mutate(t.Context(), mutation("a", `{"text":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if v := ask("a"); v != connector.Happened {
		t.Errorf("after a torn line: %q", v)
	}
	// Everything but the line end is a whole line.
	os.WriteFile(path, []byte(first[:len(first)-1]), 0o600)
	if v := ask("a"); v != connector.Happened {
		t.Errorf("line without end: %q", v)
	}
}

// A file that was rotated after a call does not have its line, and shows nothing. Law: witnessed.
func TestRotatedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(older), 0o600); err != nil {
		t.Fatal(err)
	}
	m := open(t, path)
	write := func(token string) {
		t.Helper()
		if _, err := m.Mutate(t.Context(), mutation(token, `{"text":"x"}`)); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(what string, want connector.Verdict) {
		t.Helper()
		a, err := m.(connector.Reconciler).Reconcile(t.Context(), mutation("a", `{}`))
		if err != nil || a.Verdict != want {
			t.Errorf("%s: %q, %v, want %q", what, a.Verdict, err, want)
		}
	}
	ask("never written", connector.Absent)
	write("a")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	ask("the file was moved away", connector.Retry)
	write("b")
	ask("another file has later lines", connector.Retry)
}

// Law bounded: a line of another program has no end, and is gone through all the same, without all of it in memory. What is no line of
// ours is not written.
func TestLineWithoutEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	m := open(t, path)
	if err := os.WriteFile(path, []byte(older), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 256<<20); err != nil { // the rest is zeros
		t.Fatal(err)
	}
	ask := func() connector.Verdict {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a, err := m.(connector.Reconciler).Reconcile(t.Context(), mutation("a", `{}`))
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; err != nil || took > 100 {
			t.Errorf("the lookup takes %d MiB, %v", took, err)
		}
		return a.Verdict
	}
	if v := ask(); v != connector.Retry {
		t.Errorf("before it is written: %q, want that nobody knows what the long line is", v)
	}
	if _, err := m.Mutate(t.Context(), mutation("a", `{"text":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if v := ask(); v != connector.Happened {
		t.Errorf("after it is written: %q", v)
	}
	_, err := m.Mutate(t.Context(), mutation("b", `{"text":"`+strings.Repeat("x", 16<<20)+`"}`))
	var f *keep.Failure
	if !errors.As(err, &f) || f.Class != keep.ClassLogic {
		t.Errorf("a line of 16 MiB: %v", err)
	}
}

func TestFailuresAreDefinite(t *testing.T) {
	dir := t.TempDir()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name, path, params string
		ctx                context.Context
		want               keep.Class
	}{
		{"bad params", dir + "/x", `{"txt":1}`, t.Context(), keep.ClassLogic},
		{"no directory", dir + "/none/x", `{"text":""}`, t.Context(), keep.ClassPrecondition},
		{"a directory", dir, `{"text":""}`, t.Context(), keep.ClassPrecondition},
		{"too late", dir + "/x", `{"text":""}`, ended, keep.ClassTransient},
	} {
		_, err := open(t, c.path).Mutate(c.ctx, mutation("a", c.params))
		var f *keep.Failure
		if !errors.As(err, &f) || f.Class != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := logsink.New("a b", logsink.Config{Connector: "http"}); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three mistakes gave %v", err)
	}
}

func TestWriterIsLevelD(t *testing.T) {
	var b bytes.Buffer
	tool := logsink.NewWriter("out", &b).Tools[0]
	if _, err := tool.(connector.Mutator).Mutate(t.Context(), keep.Mutation{Token: "t", Payload: json.RawMessage(`{"text":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	if _, asks := tool.(connector.Reconciler); asks || tool.Spec().Level != keep.LevelNone || b.String() != `{"token":"t","text":"x"}`+"\n" {
		t.Errorf("level %s, can be asked %t, wrote %q", tool.Spec().Level, asks, b.String())
	}
}
