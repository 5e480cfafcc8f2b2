package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// pathVerbs are the commands that take a path of scripts, as they are written before it.
var pathVerbs = []string{"check", "plan", "test", "test --watch", "run", "deploy", "deploy --compare", "dev --listen off", "serve --listen off", "runs replay last --with"}

// Every command that takes a path of scripts says of one with nothing to work on what is wrong with
// it, where it looked, and what is there instead.
func TestPathsWithNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if wd, err := os.Getwd(); err == nil {
		dir = wd // without links
	}
	for _, d := range []string{"empty", "sub/pay", "many"} {
		noError(t, os.MkdirAll(filepath.Join(dir, filepath.FromSlash(d)), 0o755))
	}
	for _, f := range []string{"notes.txt", "sub/pay/pay.js", "sub/pay/types.d.ts", "sub/pay/pay.test.js", "many/a.js", "many/b.ts", "many/c.js", "many/d.js", "many/e.js", "many/f.js", "many/g.js"} {
		noError(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(f)), []byte("\n"), 0o644))
	}
	wide := filepath.Join(t.TempDir(), "wide.js")
	noError(t, os.WriteFile(wide, []byte("\xff\xfee\x00x\x00"), 0o644))
	at := filepath.FromSlash
	for _, tt := range []struct {
		path     string
		status   int
		says     []string
		notTests bool // they are asked for another file
	}{
		{"none.js", exit.NotFound, []string{"none.js does not exist: there is no file none.js in " + dir, "Scripts there: " + at("many/a.js") + ", " + at("many/b.ts") + ", "}, false},
		{"sub/pay/none.js", exit.NotFound, []string{"there is no file none.js in " + filepath.Join(dir, "sub", "pay"), "Scripts there: " + at("sub/pay/pay.js") + "\n"}, false},
		{"sub/none/none.js", exit.NotFound, []string{"there is no directory none in " + filepath.Join(dir, "sub"), "Scripts there: " + at("sub/pay/pay.js") + "\n"}, false},
		{"empty/none", exit.NotFound, []string{"there is no file or directory none in " + filepath.Join(dir, "empty"), "No scripts are there. To make a project with a first workflow: keep init DIR"}, false},
		{"many/none.ts", exit.NotFound, []string{at("many/e.js") + " and 2 more\n"}, false},
		{"empty", exit.Misused, []string{"empty ", "No scripts are there."}, true},
		{"sub", exit.Misused, []string{"sub ", "Scripts there: " + at("sub/pay/pay.js")}, true},
		{"notes.txt", exit.Misused, []string{"notes.txt is no workflow: that is a file that ends in .js or .ts", "Scripts there: "}, true},
		{"sub/pay/pay.js", exit.Misused, []string{at("sub/pay/pay.js") + ": the file is empty", "keep init DIR"}, true},
		{wide, exit.Misused, []string{"wide.js: the file is in UTF-16", "save it as UTF-8"}, true},
	} {
		for _, verb := range pathVerbs {
			// What keep dev is given may be filled while it runs; a replay needs a database before it reads the file.
			waits := strings.HasPrefix(verb, "dev") && tt.status == exit.Misused && tt.path != "notes.txt"
			if waits || tt.notTests && strings.HasPrefix(verb, "test") || strings.HasPrefix(verb, "runs") && (tt.path == "sub/pay/pay.js" || tt.path == wide) {
				continue
			}
			var said bytes.Buffer
			line := append(strings.Fields(verb), tt.path)
			if status := run(t.Context(), line, &said, &said); status != tt.status {
				t.Errorf("keep %s: status %d, want %d", strings.Join(line, " "), status, tt.status)
			}
			for _, want := range tt.says {
				if !strings.Contains(said.String(), want) {
					t.Errorf("keep %s does not say %q:\n%s", strings.Join(line, " "), want, said.String())
				}
			}
		}
	}
	if runtime.GOOS == "windows" {
		return // links are for administrators there
	}
	noError(t, os.Symlink("gone.js", "link.js"))
	var said bytes.Buffer
	if status := run(t.Context(), []string{"plan", "link.js"}, io.Discard, &said); status != exit.NotFound || !strings.Contains(said.String(), "link.js is a link to gone.js, which does not exist") {
		t.Errorf("keep plan of a dangling link: status %d\n%s", status, said.String())
	}
}

// A command that takes a path is tried by TestPathsWithNothing.
func TestPathVerbs(t *testing.T) {
	t.Parallel()
	listed := make(map[string]bool)
	for _, verb := range pathVerbs {
		word, _, _ := strings.Cut(verb, " ")
		listed[word] = true
	}
	for _, cmd := range newApp(io.Discard, io.Discard).root().Commands() {
		if takesPath(cmd) && !listed[cmd.Name()] {
			t.Errorf("keep %s takes a path that TestPathsWithNothing does not try", cmd.Name())
		}
	}
}

// takesPath reports whether a command takes a path of files, by its usage.
func takesPath(cmd *cobra.Command) bool {
	return strings.Contains(cmd.Use, "PATH") && cmd.Name() != "api" // whose paths are those of requests
}
