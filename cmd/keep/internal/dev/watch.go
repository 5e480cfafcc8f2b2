package dev

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settleFor  = 100 * time.Millisecond // an editor writes a file in several steps
	pollEvery  = time.Second
	maxWatched = 2000 // directories; a project with more is polled
)

// A Watcher notices changes of a project's scripts and configuration.
type Watcher struct {
	Root string
	Poll bool // do not use the system's notifications
	Log  *slog.Logger

	watched map[string]bool // directories that were, at some time
}

// Run sends on changed after each burst of changes, until ctx ends. Where the
// system's notifications do not work, or from when they do not reach a new directory,
// it looks at the files again and again.
func (w *Watcher) Run(ctx context.Context, changed chan<- struct{}) {
	if dir, err := filepath.EvalSymlinks(w.Root); err == nil { // nothing walks through a link
		w.Root = dir
	}
	var last uint64 // zero: what came before polling was not looked at
	notify, err := w.subscribe()
	if err != nil {
		last = w.fingerprint()
	} else {
		err = w.follow(ctx, notify, changed)
		notify.Close()
	}
	if err != nil {
		w.Log.InfoContext(ctx, "polling for changes", "dir", w.Root, "err", err)
		w.runPoll(ctx, changed, last)
	}
}

// follow sends on changed after what the system notifies of, until ctx ends, or the error is why a new directory
// cannot be watched.
func (w *Watcher) follow(ctx context.Context, notify *fsnotify.Watcher, changed chan<- struct{}) error {
	// Stopped until something changes.
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-notify.Errors:
			w.Log.WarnContext(ctx, "watch for changes", "dir", w.Root, "err", err)
			quiet.Reset(settleFor) // events may be lost: look
		case e := <-notify.Events:
			if e.Has(fsnotify.Create) {
				// A new directory may hold scripts, and may be gone again.
				if err := w.addTree(notify, e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				if slices.Contains(notify.WatchList(), e.Name) {
					quiet.Reset(settleFor) // nobody notifies of what was in it before it was watched
				}
			}
			if e.Name == w.Root && (e.Has(fsnotify.Rename) || e.Has(fsnotify.Remove)) {
				return errors.New("it was moved or removed") // another one may come in its place
			}
			// A directory that is moved away takes scripts along, of which nobody notifies.
			away := e.Has(fsnotify.Rename) && w.watched[e.Name]
			if e.Op != fsnotify.Chmod && (relevant(e.Name) || away) {
				quiet.Reset(settleFor)
			}
		case <-quiet.C:
			tell(changed)
		}
	}
}

// tell sends unless something was sent already that nobody took yet.
func tell(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// subscribe asks the system to notify of changes. It can fail on network file
// systems, and where too many directories are watched.
func (w *Watcher) subscribe() (*fsnotify.Watcher, error) {
	if w.Poll {
		return nil, fmt.Errorf("asked to")
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.addTree(notify, w.Root); err != nil {
		notify.Close()
		return nil, err
	}
	return notify, nil
}

// addTree watches a directory and those below it.
func (w *Watcher) addTree(notify *fsnotify.Watcher, top string) error {
	return filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == top:
			return err
		case err != nil || !d.IsDir():
			return nil
		case name != w.Root && ignored(d.Name()):
			return filepath.SkipDir
		case len(notify.WatchList()) >= maxWatched:
			return fmt.Errorf("more than %d directories", maxWatched)
		}
		if w.watched == nil {
			w.watched = make(map[string]bool)
		}
		w.watched[name] = true
		return notify.Add(name)
	})
}

// ignored reports whether a directory holds nothing of the project's own.
func ignored(dir string) bool { return strings.HasPrefix(dir, ".") || dir == "node_modules" }

// relevant reports whether a file can change what a project means. Databases and
// what workflows write cannot.
func relevant(name string) bool {
	return slices.Contains([]string{".js", ".ts", ".mjs", ".mts", ".cjs", ".cts", ".jsx", ".tsx", ".json", ".toml"},
		filepath.Ext(name))
}

// runPoll compares names, sizes and times of the files, with a fingerprint at first.
func (w *Watcher) runPoll(ctx context.Context, changed chan<- struct{}, last uint64) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := w.fingerprint(); now != last {
			last = now
			tell(changed)
		}
	}
}

// fingerprint returns a number that changes when a relevant file does.
func (w *Watcher) fingerprint() uint64 {
	h := fnv.New64a()
	// Files that cannot be read are as good as gone.
	_ = filepath.WalkDir(w.Root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.IsDir() && name != w.Root && ignored(d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !relevant(name):
			return nil
		}
		if info, err := d.Info(); err == nil {
			fmt.Fprintf(h, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
	return h.Sum64()
}
