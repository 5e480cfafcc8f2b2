package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
)

const stillPack = "name = \"svc\"\nversion = \"1\"\ntitle = \"Service\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\nstyle = \"none\"\n[tools.read]\neffect = \"get\"\npath = \"/v1\"\n"

// followerIn returns a follower of the project in a directory, that looks when it is told to.
func followerIn(t *testing.T, dir string, said saidLines) *Follower {
	t.Helper()
	load := func() (*config.Config, error) { return config.Load(config.Options{Dir: dir}) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	f := &Follower{Env: Env{Log: slog.New(said)}, Session: sessionOf(t, cfg, slog.New(said)), Load: load}
	f.begin(t.Context())
	return f
}

// looks has f look so many times.
func (f *Follower) looks(t *testing.T, n int) {
	for range n {
		f.look(t.Context(), false)
	}
}

// A file that is written in parts is valid in part: it is taken when two looks found the same, and at once only for
// who asks.
func TestFilesAreTakenWhenStill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := writerIn(t, dir)
	write("keep.toml", "")
	f := followerIn(t, dir, make(saidLines, 99))
	taken := func(want int) {
		t.Helper()
		if got := len(f.Session.config().Connections); got != want {
			t.Errorf("%d connections are in force, want %d", got, want)
		}
	}
	const one, other = "[connections.a]\nconnector = \"svc\"\n", "[connections.b]\nconnector = \"svc\"\n"
	write("packs/svc.toml", stillPack)
	write("keep.toml", one)
	f.looks(t, 1)
	taken(0)
	write("keep.toml", one+other)
	f.looks(t, 1)
	taken(0)
	write("packs/svc.toml", stillPack+"# it is written still\n") // what it names counts too
	f.looks(t, 1)
	taken(0)
	f.looks(t, 1)
	taken(2)

	write("keep.toml", one)
	f.look(t.Context(), true)
	taken(1)
	write("keep.toml", "[")
	f.looks(t, 1)
	if now := f.Session.Settings(); now.Refused != nil {
		t.Errorf("refused at once: %s", now.Refused.Reason)
	}
	f.looks(t, 1)
	if now := f.Session.Settings(); now.Refused == nil {
		t.Error("a broken keep.toml is not refused")
	}
	taken(1)
}

// What a session had and finds gone stays in force, whatever is found in its place, and is watched: it is taken again when it is back.
func TestFilesThatAreGoneStayInForce(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"project/keep.toml", "project/packs/stripe.toml", "project/.secrets/k"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			dir := filepath.Join(top, "project")
			write := writerIn(t, top)
			write("project/keep.toml", "[connections.a]\nconnector = \"stripe\"\n[connections.b]\nconnector = \"http\"\nbase_url = \"http://127.0.0.1:1\"\n"+
				"headers = { Authorization = \"${secret:k}\" }\n[connections.b.tools.read]\neffect = \"get\"\npath = \"/\"\n")
			write("project/packs/stripe.toml", strings.Replace(stillPack, "svc", "stripe", 1)) // Keep has one of this name
			write("project/.secrets/k", "one")
			said := make(saidLines, 99)
			f := followerIn(t, dir, said)
			before := f.Session.config()
			f.looks(t, 2)
			name := filepath.Join(top, file)
			if err := os.Rename(name, name+".aside"); err != nil {
				t.Fatal(err)
			}
			f.looks(t, 3)
			if now := f.Session.config(); now != before {
				t.Fatalf("another configuration was taken, with %d connections", len(now.Connections))
			}
			said.until(t, "configuration refused")
			if now := f.Session.Settings(); now.Refused == nil || !strings.Contains(now.Refused.Reason, filepath.Base(file)) {
				t.Errorf("settings are %+v, want one refused, with the file", now)
			}
			f.look(t.Context(), true) // asking does not change it
			if now := f.Session.config(); now != before {
				t.Fatal("another configuration was taken when somebody asked")
			}
			if err := os.Rename(name+".aside", name); err != nil {
				t.Fatal(err)
			}
			f.looks(t, 2)
			said.until(t, "configuration taken")
			if now := f.Session.Settings(); now.Refused != nil {
				t.Errorf("refused still: %s", now.Refused.Reason)
			}
		})
	}
}

// A project that had no keep.toml takes the first one.
func TestFirstConfigIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := followerIn(t, dir, make(saidLines, 99))
	writerIn(t, dir)("keep.toml", "[connections.a]\nconnector = \"log\"\npath = \"a.jsonl\"\n")
	f.looks(t, 2)
	if got := len(f.Session.config().Connections); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}
