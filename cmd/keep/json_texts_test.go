package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// With --json there is JSON on stdout, also of what is a text.
func TestTextsAreJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, ".", "keep.toml", "[gateway.servers.files]\ncommand = \"npx\"\n")
	for _, line := range []string{"gateway install", "docs guide --print", "guide --llms"} {
		out, talk, status := runCommand(t, append(strings.Fields(line), "--json")...)
		if status != exit.Done || !json.Valid([]byte(out)) {
			t.Errorf("keep %s --json: status %d: %.200s %s", line, status, out, talk)
		}
	}
}

// What is wrong with several scripts, and with a file of tests, is one object on stderr.
func TestBrokenScriptsAreOneObject(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a", "b"} {
		put(t, ".", name+".js", "export default Keep.workflow({ name: 7 });")
		put(t, ".", name+".test.toml", "[[test]]\nname = \"x\"\n[test.expect]\ncalls = []\n")
	}
	put(t, ".", "c.test.js", "export default [;")
	put(t, ".", "c.js", `export default Keep.workflow({ name: "c", topics: {}, producers: { async poll(ctx) {} } });`)
	put(t, ".", "d.test.toml", "nonsense")
	out, talk, status := runCommand(t, "test", ".", "--json")
	in := json.NewDecoder(strings.NewReader(talk))
	var said struct {
		Exit     int `json:"exit_code"`
		Errors   []struct{ Message string }
		Problems []struct{ File string }
	}
	err := in.Decode(&said)
	files := make(map[string]bool)
	for _, p := range said.Problems {
		files[p.File] = true
	}
	if status != exit.Misused || err != nil || said.Exit != status || len(said.Errors) != 1 || len(files) != 3 || !errors.Is(in.Decode(&said), io.EOF) {
		t.Errorf("status %d, %v: %+v\n%s%s", status, err, said, out, talk)
	}
}
