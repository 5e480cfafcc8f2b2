//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// namedFiles are all files that commands open by a name from a person, beside the database
// (see drillFiles), and the commands that open them.
var namedFiles = []struct {
	file     string
	commands [][]string
}{
	{"w.js", [][]string{{"run", "w.js"}, {"dev", "w.js", "--listen", "off"}, {"check", "w.js"}, {"deploy", "w.js"}, {"plan", "w.js"}, {"test", "w.test.toml"},
		{"run", "."}, {"check", "."}, {"deploy", "."}, {"serve", ".", "--listen", "off"}}},
	{"lib/x.js", [][]string{{"run", "w.js"}, {"check", "w.js"}, {"deploy", "w.js"}}}, // an import
	{"keep.toml", [][]string{{"run", "w.js"}, {"dev", "w.js", "--listen", "off"}, {"check", "w.js"}, {"deploy", "w.js"}, {"plan", "w.js"}, {"serve", ".", "--listen", "off"},
		{"status"}, {"runs"}, {"inbox"}, {"doctor"}, {"types"}, {"db", "migrate"}, {"packs"}, {"proxy", "--upstream", "http://127.0.0.1:1"}, {"keys"}}},
	{"other.toml", [][]string{{"run", "w.js", "--config", "other.toml"}, {"status", "--config", "other.toml"}, {"proxy", "--config", "other.toml"}}},
	{".secrets/svc", [][]string{{"run", "w.js"}, {"serve", ".", "--listen", "off"}}},
	{"packs/own.toml", [][]string{{"run", "w.js"}, {"check", "w.js"}, {"packs", "show", "own"}}},
	{"w.test.toml", [][]string{{"test", "w.test.toml"}, {"test", "."}}},
	{"rows.jsonl", [][]string{{"keys", "import", "rows.jsonl"}}},
	{"client.json", [][]string{{"gateway", "import", "client.json"}}},
	{"target.toml", [][]string{{"idempotency", "test", "http://127.0.0.1:1", "--describe", "target.toml"}}},
	{"cert.pem", [][]string{{"proxy", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin-listen", "off", "--tls-cert", "cert.pem", "--tls-key", "cert.pem"}}},
}

// namedKinds are what may be there instead of a file, and a part of what is said of it.
var namedKinds = []struct {
	name, says string
	make       func(t *testing.T, path string)
}{
	{"FIFO", "is a named pipe", fifo},
	{"link to a FIFO", "is a named pipe", func(t *testing.T, path string) { fifo(t, path+".fifo"); link(t, filepath.Base(path)+".fifo", path) }},
	{"directory", "is a directory|no such file in the project", func(t *testing.T, path string) { noError(t, os.Mkdir(path, 0o700)) }},
	{"device", "is a device", device},
	{"link to a device", "is a device|leaves the project|is not trusted", func(t *testing.T, path string) { link(t, os.DevNull, path) }},
	{"dangling link", "does not exist|no such file", func(t *testing.T, path string) { link(t, filepath.Base(path)+".gone", path) }},
	{"unreadable file", "permission denied", func(t *testing.T, path string) { noError(t, os.WriteFile(path, []byte("x"), 0)) }},
}

// TestNamedFiles gives each command something that is no file where it reads one. It ends at
// once, and says what is there. In CI each kind meets some commands for each file; the long
// form, -drill, tries every pair.
func TestNamedFiles(t *testing.T) {
	t.Parallel()
	bin, cache := buildKeep(t), cacheHome(t)
	files := map[string]string{
		"w.js": `import { x } from "./lib/x.js";
export default Keep.workflow({ name: "w", topics: {}, producers: { async p(ctx) { ctx.log(x); } } });`,
		"lib/x.js":       `export const x = "x";`,
		"keep.toml":      "[connections.svc]\nconnector = \"own\"\nheaders = { X = \"${secret:svc}\" }\n",
		"other.toml":     "",
		".secrets/svc":   "secret",
		"packs/own.toml": "name = \"own\"\nversion = \"1\"\ntitle = \"Own\"\nbase_url = \"https://a.example\"\n[auth]\nstyle = \"none\"\n[tools.look]\neffect = \"get\"\npath = \"/\"\n",
		"w.test.toml":    "[[test]]\nname = \"t\"\n",
		"rows.jsonl":     "", "client.json": "{}", "target.toml": "", "cert.pem": "",
	}
	for i, named := range namedFiles {
		for j, kind := range namedKinds {
			if kind.name == "unreadable file" && os.Geteuid() == 0 {
				continue // root may read it
			}
			t.Run(kind.name+" as "+strings.ReplaceAll(named.file, "/", " "), func(t *testing.T) {
				dir := t.TempDir()
				for _, sub := range []string{".secrets", "packs", "lib"} {
					noError(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
				}
				for name, text := range files {
					noError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
				}
				path := filepath.Join(dir, named.file)
				noError(t, os.Remove(path))
				kind.make(t, path)
				for k, args := range named.commands {
					if !*drill && (i+j+k)%4 != 0 || kind.name == "directory" && len(args) > 1 && args[1] == named.file && named.file == "w.js" {
						continue // a directory is a project
					}
					env := append(os.Environ(), "XDG_CACHE_HOME="+cache, "KEEP_DB="+filepath.Join(dir, "keep.db"))
					namedRefused(t, bin, dir, env, args, kind.says, filepath.Base(named.file))
				}
			})
		}
	}
}

// namedRefused gives a command, and wants it to end soon and unsuccessfully, and to say what
// is there by what name.
func namedRefused(t *testing.T, bin, dir string, env, args []string, says, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // no signal of the terminal
	var talk lockedBuffer
	cmd.Stdout, cmd.Stderr = &talk, &talk
	if args[0] == "dev" { // it waits until its files are in order
		cmd.Stdout = &namedWaiter{&talk, says, cancel}
		cmd.Stderr = cmd.Stdout
	}
	err := cmd.Run()
	out := talk.String()
	what := "keep " + strings.Join(args, " ")
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		t.Errorf("%s does not end:\n%s", what, out)
	case err == nil:
		t.Errorf("%s works:\n%s", what, out)
	case !saysOne(out, says) || !strings.Contains(out, name) && !strings.Contains(out, os.DevNull) || strings.Contains(out, "panic"):
		t.Errorf("%s: %v, want %q of %s\n%s", what, err, says, name, out)
	}
}

// saysOne reports whether a text has one of the parts.
func saysOne(text, parts string) bool {
	return slices.ContainsFunc(strings.Split(parts, "|"), func(part string) bool { return strings.Contains(text, part) })
}

// A namedWaiter ends a command that watches its files once it has said what it should.
type namedWaiter struct {
	*lockedBuffer
	says string
	end  context.CancelFunc
}

// Write implements io.Writer.
func (w *namedWaiter) Write(p []byte) (int, error) {
	n, err := w.lockedBuffer.Write(p)
	if saysOne(w.String(), w.says) {
		w.end()
	}
	return n, err
}
