// Canary reads the output of go test -json, which has all that tests and the programs that
// they start say, and looks for the secrets of tests in it. It prints what go test prints
// without -json. Its status is 1 if a secret is shown.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/keep-run/keep/internal/mailtest"
	"github.com/keep-run/keep/internal/redact"
	"github.com/keep-run/keep/internal/twin"
)

// secrets are what the services of tests want to know of their callers.
var secrets = []string{twin.Secret, mailtest.Password}

func main() {
	if err := watch(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "canary:", err)
		os.Exit(1)
	}
}

// An event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// A watcher prints and looks.
type watcher struct {
	to     io.Writer
	hide   redact.Redactor
	shown  []string            // where a secret is
	said   map[string][]string // by package and test, which have not ended
	failed map[string][]string // by package: what tests said that failed
}

// watch reads events to their end.
func watch(from io.Reader, to io.Writer) error {
	w := watcher{to: to, hide: redact.New(secrets...), said: map[string][]string{}, failed: map[string][]string{}}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action != "" {
			w.take(e)
		} else if len(line) > 0 {
			w.look(event{Output: string(line)})
			fmt.Fprint(to, string(line))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if len(w.shown) > 0 {
		return errors.New("a secret of a test is shown:\n" + strings.Join(w.shown, "\n"))
	}
	return nil
}

// take handles one event.
func (w *watcher) take(e event) {
	at := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		w.look(e)
		fmt.Fprint(w.to, e.Output)
	case "output":
		w.look(e)
		w.said[at] = append(w.said[at], e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			w.end(e)
		} else if e.Action == "fail" {
			w.failed[e.Package] = append(w.failed[e.Package], failure(w.said[at])...)
		}
		delete(w.said, at)
	}
}

// look notes a secret, without showing it.
func (w *watcher) look(e event) {
	if hidden := w.hide.Text(e.Output); hidden != e.Output {
		w.shown = append(w.shown, fmt.Sprintf("%s %s: %s", e.Package, e.Test, strings.TrimSpace(hidden)))
	}
}

// end prints what a package came to.
func (w *watcher) end(e event) {
	own := w.said[e.Package+" "]
	if e.Action != "fail" { // ok, or that there are no tests
		for _, line := range own {
			if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") {
				fmt.Fprint(w.to, line)
			}
		}
		return
	}
	for at, lines := range w.said { // tests that did not end: the program did
		if strings.HasPrefix(at, e.Package+" ") && at != e.Package+" " {
			w.failed[e.Package] = append(w.failed[e.Package], failure(lines)...)
			delete(w.said, at)
		}
	}
	fmt.Fprint(w.to, strings.Join(slices.Concat(w.failed[e.Package], own), ""))
	delete(w.failed, e.Package)
}

// failure returns what a test said as go test prints it: its result first.
func failure(lines []string) []string {
	var result, rest []string
	for _, line := range lines {
		switch text := strings.TrimLeft(line, " "); {
		case strings.HasPrefix(text, "=== "):
		case strings.HasPrefix(text, "--- "):
			result = append(result, line)
		default:
			rest = append(rest, line)
		}
	}
	return append(result, rest...)
}
