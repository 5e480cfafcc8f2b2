package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/law/rename"
)

// Of two proofs of one tool that run at once, the one that ends takes the line of the other not away: that may still die.
func TestTwoProofsOfATool(t *testing.T) {
	note := filepath.Join(t.TempDir(), "proofs", "pair-s.t.txt")
	change := func(f func(string) string) string {
		t.Helper()
		if err := changeNote(note, f); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(note) // without one there is none
		return string(text)
	}
	change(func(text string) string { return text + "one\n" })
	change(func(text string) string { return text + "two\n" })
	if got := change(func(text string) string { return strings.Replace(text, "one\n", "", 1) }); got != "two\n" {
		t.Errorf("the note says %q, want that of the proof that runs", got)
	}
	change(func(text string) string { return strings.Replace(text, "two\n", "", 1) })
	if _, err := os.Stat(note); !os.IsNotExist(err) {
		t.Errorf("the note after both: %v", err)
	}
}

// The password of a backend is not among what the proxy says at its start.
func TestProxyHidesThePassword(t *testing.T) {
	t.Chdir(t.TempDir())
	in, out := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		err := newApp(io.Discard, out).proxy(ctx, proxy.Config{Upstream: "http://u:hunter2@127.0.0.1:9", Listen: "127.0.0.1:0", AdminListen: "off"})
		ended <- err
		out.CloseWithError(io.EOF)
	}()
	var said strings.Builder
	for lines := bufio.NewScanner(in); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		stop()
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(said.String(), "in front of http://u:") || strings.Contains(said.String(), "hunter2") {
		t.Errorf("the proxy says %q", said.String())
	}
	err := newApp(io.Discard, io.Discard).proxy(t.Context(), proxy.Config{Upstream: "u:hunter2@127.0.0.1:9"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("an upstream that is none: %v", err)
	}
}

// Answers that are piped in are read one by one, also those to what is asked later.
func TestRenamesAreAskedLineByLine(t *testing.T) {
	ask := func(in io.Reader) bool {
		e := &project.RenameError{Doubts: []rename.Doubt{{Kind: rename.Job, Workflow: "w", Gone: "a", Fresh: "b"}}}
		return e.AskRenames(in, io.Discard, nil, nil)
	}
	in := strings.NewReader("same\nnew\nwhat\n")
	if !ask(in) || !ask(in) || ask(in) || ask(in) {
		t.Error("of three lines the first two are answers")
	}
}
