package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/script/sandbox"
)

// A deployed database has one version of a script in force, and counts how often it is read.
type deployed struct {
	database.DB
	version keep.Deployment
	read    int
	after   func() // called after the version was read
}

func (d *deployed) Workflows(context.Context) ([]keep.Workflow, error) {
	return []keep.Workflow{{Name: d.version.Workflow, Version: d.version.Version}}, nil
}

func (d *deployed) Current(context.Context) ([]keep.Deployment, error) {
	return []keep.Deployment{{Workflow: d.version.Workflow, Version: d.version.Version, Entry: d.version.Entry}}, nil
}

func (d *deployed) Deployment(context.Context, keep.WorkflowName, keep.Version) (keep.Deployment, error) {
	d.read++
	out := d.version
	if d.after != nil {
		d.after()
	}
	return out, nil
}

// A keep.toml that takes a tool away is refused for the versions that were in force when it was looked at, and is looked at
// again when others are: after a deploy that came meanwhile, and after that of a version which loads. Not before: each look
// loads every version.
func TestConfigThatTakesAToolWaitsForADeploy(t *testing.T) {
	t.Parallel()
	rt, err := sandbox.Open(t.Context(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	version := func(major int, script string) keep.Deployment {
		t.Helper()
		dir := t.TempDir()
		writerIn(t, dir)("reader.js", script)
		w, err := host.Load(t.Context(), rt, dir, "reader.js")
		if err != nil {
			t.Fatal(err)
		}
		return keep.Deployment{Workflow: "reader", Version: keep.Version{Major: major}, Entry: w.Bundle.Entry, Code: w.Bundle.Code, Map: w.Bundle.Map}
	}
	const script = `export default Keep.workflow({ name: "reader", topics: {}, producers: { async look(ctx) { CALL } } });`
	calls := version(1, strings.Replace(script, "CALL", "await ctx.svc.read({});", 1))
	other := version(2, strings.Replace(script, "CALL", "", 1))
	broken := calls
	broken.Code = []byte("(")
	for name, c := range map[string]struct {
		before keep.Deployment
		while  bool // the other version is deployed while the first is read
		want   []string
	}{
		"calls":      {calls, false, []string{"version 1.0 of the workflow reader", "calls svc.read"}},
		"meanwhile":  {calls, true, []string{"calls svc.read"}},
		"loads_not":  {broken, false, []string{"version 1.0 of the workflow reader", "does not load", "svc.read"}},
		"loads_none": {broken, true, []string{"does not load"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := writerIn(t, dir)
			const text = "[connections.svc]\nconnector = \"http\"\nbase_url = \"http://127.0.0.1:1\"\n[connections.svc.tools.read]\neffect = \"get\"\npath = \"/\"\n"
			write("keep.toml", text)
			load := func() (*config.Config, error) {
				return config.Load(config.Options{File: filepath.Join(dir, "keep.toml"), Dir: dir})
			}
			cfg, err := load()
			if err != nil {
				t.Fatal(err)
			}
			log := slog.New(slog.DiscardHandler)
			s := sessionOf(t, cfg, log)
			db := &deployed{DB: s.DB, version: c.before}
			if c.while {
				db.after = func() { db.version = other }
			}
			s.DB, s.Runtime = db, rt
			f := &Follower{Env: Env{Log: log}, Session: s, Load: load}
			f.begin(t.Context())
			write("keep.toml", "[trace]\nkeep = \"14d\"\n")
			f.look(t.Context(), false)
			f.look(t.Context(), false) // finds the same
			refused := s.Settings().Refused
			if refused == nil {
				t.Fatal("it is taken")
			}
			for _, want := range c.want {
				if !strings.Contains(refused.Reason, want) {
					t.Errorf("it is refused since %q, want %q in it", refused.Reason, want)
				}
			}
			if !c.while {
				for range 3 {
					f.look(t.Context(), false)
				}
				if db.read != 1 {
					t.Errorf("the version was read %d times", db.read)
				}
				db.version = other
			}
			f.look(t.Context(), false)
			if now := s.Settings(); now.Refused != nil {
				t.Errorf("it is still refused: %s", now.Refused.Reason)
			}
		})
	}
}
