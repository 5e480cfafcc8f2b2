//go:build unix

package main

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/project"
)

// A keep.toml that is saved just when a host has read it is taken, as one that is saved later: nobody would know that the one before is in
// force.
func TestConfigThatChangesWhenItWasRead(t *testing.T) {
	t.Chdir(shortDir(t))
	put(t, ".", "keep.toml", "[retention]\nafter = \"90d\"\n")
	said := newListener()
	a := newApp(io.Discard, said)
	noError(t, a.setUp(false))
	load := func() *daemon.Follower {
		t.Helper()
		cfg, err := a.LoadConfig(".")
		noError(t, err)
		put(t, ".", "keep.toml", "[retention]\nafter = \"91d\"\n")
		s, err := a.env().Assemble(t.Context(), &project.Project{Cfg: cfg})
		noError(t, err)
		t.Cleanup(func() { noError(t, s.Close()) })
		noError(t, s.Open(t.Context(), a.env(), daemon.Watch{}))
		return &daemon.Follower{Env: a.env(), Session: s}
	}
	f := load()
	f.Load = func() (*config.Config, error) { return a.LoadConfig(".") }
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { f.Run(ctx) })
	defer following.Wait()
	defer stop()
	said.wait(t, "configuration taken")
}
