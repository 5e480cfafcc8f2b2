package seal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// On a file system without links a key is made as elsewhere: whole, once, and in the place of nothing.
func TestKeyWithoutLinks(t *testing.T) {
	was := link
	link = func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EPERM} }
	defer func() { link = was }()
	dir := t.TempDir()
	r := Ring{Path: filepath.Join(dir, "keep.key")}
	var made [8]Key
	var errs [len(made)]error
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() { made[i], errs[i] = r.Make() })
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	keys, err := r.Keys()
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, k := range made {
		if !k.Is(keys[0]) {
			t.Error("a process seals with a key that is not there")
		}
	}
	k, err := r.Next()
	if err == nil {
		err = r.Replace(k, time.Now())
	}
	if now, unread := r.Keys(); err != nil || unread != nil || len(now) != 1 || !now[0].Is(k) {
		t.Errorf("replace it: %v; %d keys, %v", err, len(now), unread)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v are left, %v; want the key and the lock", left, err)
	}
}

// Where a key cannot be locked, the error says what to do: everything is sealed with the next one already.
func TestReplaceWithoutLocks(t *testing.T) {
	r := Ring{Path: filepath.Join(t.TempDir(), "keep.key")}
	if _, err := r.Make(); err != nil {
		t.Fatal(err)
	}
	k, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(filepath.Dir(r.Path), ".keep-rekey.lock")
	if err := os.Mkdir(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	err = r.Replace(k, time.Now())
	if err == nil || strings.Count(err.Error(), lock) != 1 || !strings.Contains(err.Error(), fmt.Sprintf("mv %q %q", r.Path+".new", r.Path)) {
		t.Errorf("Replace = %v", err)
	}
	if keys, err := r.Keys(); err != nil || len(keys) != 2 {
		t.Errorf("%d keys, %v; want both", len(keys), err)
	}
}
