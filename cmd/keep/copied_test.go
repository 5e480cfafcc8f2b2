//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/pair"
	"github.com/keep-run/keep/connector/mcp"
)

// copied is what a command that a person copies hands to keep.
func copied(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", "keep() { printf '%s\n' \"$@\"; }; "+command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
	return string(out)
}

// Commands that are printed to be copied say what they say: a server chooses the names of its tools, and who made a project those of its
// files, and none of them is to run something.
func TestCommandsThatAreCopied(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	var out, talk bytes.Buffer
	a := newApp(&out, &talk)
	var listed []mcp.ToolInfo
	for _, raw := range []string{
		`{"name":"note; touch made","inputSchema":{"type":"object","properties":{"body":{"type":"string"}},"required":["body"]}}`,
		`{"name":"list_notes","inputSchema":{"type":"object"}}`,
	} {
		var named struct{ Name string }
		noError(t, json.Unmarshal([]byte(raw), &named))
		listed = append(listed, mcp.ToolInfo{Name: named.Name, Raw: json.RawMessage(raw)})
	}
	noError(t, a.printDraft("shelf", pair.Draft(listed)))
	_, command, _ := strings.Cut(talk.String(), "\n  keep ")
	if got, want := copied(t, dir, "keep "+command), "gateway\npair\nshelf.note; touch made\n--params\n{\"body\":\"{n}\"}\n"; got != want {
		t.Errorf("%s is %q, want %q", command, got, want)
	}
	const of = "two words"
	script := filepath.Join(of, "$(touch made).js")
	noError(t, os.Mkdir(of, 0o700))
	put(t, of, "keep.toml", "db = \"keep.db\"\n")
	put(t, ".", script, "")
	p, err := a.OpenProject(script)
	noError(t, err)
	command = (&tester{app: a}).recordCommand(p, "run_1", testOf(p.Files()[0]))
	if got, want := copied(t, dir, command), "test\n--record\nrun_1\n--out\n$(touch made).test.toml\n"; got != want {
		t.Errorf("%s is %q, want %q", command, got, want)
	}
	for _, made := range []string{"made", filepath.Join(of, "made")} {
		if _, err := os.Stat(made); err == nil {
			t.Errorf("a name ran something: %s is there", made)
		}
	}
}
