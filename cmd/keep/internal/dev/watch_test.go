package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Where more directories are made than are watched, the files are polled from then on: those of the new
// directory are seen, too.
func TestMoreDirectoriesThanAreWatched(t *testing.T) {
	t.Parallel()
	w := &Watcher{Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	for n := 1; n < maxWatched; n++ { // the root is one, too
		if err := os.Mkdir(filepath.Join(w.Root, fmt.Sprint(n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	notify, err := w.subscribe()
	if err != nil {
		t.Skip("so many directories cannot be watched here: ", err)
	}
	defer notify.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	late := filepath.Join(w.Root, "late")
	for _, step := range []func() error{
		func() error { return os.Mkdir(filepath.Join(w.Root, "1", ".git"), 0o700) }, // holds nothing of the project's own
		func() error { return os.Mkdir(late, 0o700) },
		func() error { return os.WriteFile(filepath.Join(late, "w.js"), nil, 0o600) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	changed := make(chan struct{}, 1)
	if err := w.follow(ctx, notify, changed); err == nil {
		t.Fatal("a directory that is not watched is no error")
	}
	go w.runPoll(ctx, changed, 0)
	for range 2 { // what came with the directory, and what comes later
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("a change below the new directory is not seen")
		}
		if err := os.WriteFile(filepath.Join(late, "w.js"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory that is moved into the project brings its scripts along: the system notifies of the directory alone.
func TestDirectoryThatIsMovedIn(t *testing.T) {
	t.Parallel()
	w := &Watcher{Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	from := filepath.Join(t.TempDir(), "flows")
	if err := errors.Join(os.Mkdir(from, 0o700), os.WriteFile(filepath.Join(from, "w.js"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	notify, err := w.subscribe()
	if err != nil {
		t.Skip("nothing can be watched here: ", err)
	}
	defer notify.Close()
	if err := os.Rename(from, filepath.Join(w.Root, "flows")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	changed := make(chan struct{}, 1)
	go w.follow(ctx, notify, changed)
	select {
	case <-changed:
	case <-ctx.Done():
		t.Error("the scripts that came with a directory are not seen")
	}
}

// A directory that is moved out of the project takes its scripts along, and another one may come in the place of the project.
func TestDirectoryThatIsMovedAway(t *testing.T) {
	t.Parallel()
	w := &Watcher{Root: filepath.Join(t.TempDir(), "project"), Log: slog.New(slog.DiscardHandler)}
	flows := filepath.Join(w.Root, "flows")
	if err := errors.Join(os.MkdirAll(flows, 0o700), os.WriteFile(filepath.Join(flows, "w.js"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	notify, err := w.subscribe()
	if err != nil {
		t.Skip("nothing can be watched here: ", err)
	}
	defer notify.Close()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	changed, over := make(chan struct{}, 1), make(chan error, 1)
	go func() { over <- w.follow(ctx, notify, changed) }()
	if err := os.Rename(flows, filepath.Join(t.TempDir(), "flows")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		t.Error("that scripts went with their directory is not seen")
	}
	if err := os.Rename(w.Root, w.Root+".old"); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err == nil {
		t.Error("a project that is gone is watched on")
	}
}

// A project that is reached by a link is watched like any other.
func TestProjectBehindALink(t *testing.T) {
	t.Parallel()
	for _, poll := range []bool{false, true} {
		dir := t.TempDir()
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Skip("no links here: ", err)
		}
		w := &Watcher{Root: link, Poll: poll, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		changed, over := make(chan struct{}, 1), make(chan struct{})
		go func() { defer close(over); w.Run(ctx, changed) }()
		for again := time.NewTicker(5 * settleFor); ; { // nobody says since when it is watched
			if err := os.WriteFile(filepath.Join(dir, "w.js"), []byte(time.Now().String()), 0o600); err != nil {
				t.Fatal(err)
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Errorf("poll %t: a change is not seen", poll)
			case <-again.C:
				continue
			}
			break
		}
		stop()
		<-over
	}
}
