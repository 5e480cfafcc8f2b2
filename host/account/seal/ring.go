package seal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/regular"
)

// ErrNoKey is returned when there is no key yet.
var ErrNoKey = errors.New("there is no key")

// A PermissionError is returned for a key that others could read or put there.
type PermissionError struct {
	Path string
	Why  string
}

// Error says what to do.
func (e *PermissionError) Error() string {
	path := strconv.Quote(e.Path)
	switch e.Why {
	case isLink: // whose mode is that of nothing
		own := strconv.Quote(e.Path + ".own")
		return fmt.Sprintf("the key %s %s; run: cp %s %s && chmod 600 %[4]s && mv %[4]s %[3]s", e.Path, e.Why, path, own)
	case isNoFile:
		return fmt.Sprintf("the key %s %s; put the file of the key in its place", e.Path, e.Why)
	}
	return fmt.Sprintf("the key %s %s; run: chmod 600 %s", e.Path, e.Why, path)
}

// Why a key is refused that no chmod makes one.
const (
	isLink   = "is a symbolic link, want a file of its own"
	isNoFile = "is not a file"
)

// A Ring finds the key: in the text of a variable, in a keychain, or in a file, which are
// read at each use. While the key is replaced there is a second file or entry, and both keys
// open.
type Ring struct {
	Text     string   // of KEEP_KEY; empty: the keychain or the file is used
	Path     string   // of keep.key
	Keychain Keychain // nil: the file is used
}

// A Keychain keeps texts, each of which is whole or not there.
type Keychain interface {
	// Where says to people where the key is.
	Where() string

	// Get returns an entry; the error is fs.ErrNotExist if there is none.
	Get(entry string) (string, error)

	// Create makes an entry; the error is fs.ErrExist if there is one.
	Create(entry, text string) error

	// Move puts the text of an entry into another one, in the place of what is there, and
	// deletes the first. The error is fs.ErrNotExist, and nothing is moved, if the first has another text.
	Move(from, to, text string) error
}

// A slot is where a key is: what its file is called, or its entry, after the name of both.
type slot string

const (
	current slot = ""
	next    slot = ".new" // about to replace the current one
)

// read returns the key of a slot; the error is fs.ErrNotExist if there is none.
func (r Ring) read(s slot) (Key, error) {
	if r.Keychain == nil {
		return readKey(r.Path + string(s))
	}
	text, err := r.Keychain.Get(string(s))
	if err != nil {
		return Key{}, err
	}
	k, err := ParseKey(text)
	if err != nil {
		return k, fmt.Errorf("%s: %w", r.Keychain.Where(), err)
	}
	return k, nil
}

// create puts a key into a slot; the error is fs.ErrExist if there is one.
func (r Ring) create(s slot, k Key) error {
	if r.Keychain == nil {
		return writeKey(r.Path+string(s), k)
	}
	return r.Keychain.Create(string(s), k.Text())
}

// Where says to people where the key is.
func (r Ring) Where() string {
	if r.Text != "" {
		return "KEEP_KEY"
	}
	if r.Keychain != nil {
		return r.Keychain.Where()
	}
	return r.Path
}

// Keys returns the keys that may open, the one that seals first. The error is ErrNoKey if
// there is none.
func (r Ring) Keys() ([]Key, error) {
	if r.Text != "" {
		k, err := ParseKey(r.Text)
		if err != nil {
			return nil, fmt.Errorf("KEEP_KEY %w", err)
		}
		return []Key{k}, nil
	}
	var keys []Key
	for _, s := range []slot{next, current} { // a rename in between: the new one is read twice
		k, err := r.read(s)
		switch {
		case err == nil:
			keys = append(keys, k)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	if len(keys) == 0 {
		k, err := r.read(current)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", r.Where(), ErrNoKey)
		}
		return []Key{k}, err
	}
	return keys, nil
}

// Make makes the key at first need, and returns it or the one that somebody else made
// meanwhile.
func (r Ring) Make() (Key, error) {
	if r.Text != "" {
		return ParseKey(r.Text)
	}
	k, err := NewKey()
	if err == nil {
		err = r.create(current, k)
	}
	if errors.Is(err, fs.ErrExist) {
		return r.read(current)
	}
	return k, err
}

// Open opens the sealed content of a row with any of the keys.
func (r Ring) Open(a keep.Account) (Content, error) {
	keys, err := r.Keys()
	if err != nil {
		return Content{}, err
	}
	for _, k := range keys {
		if c, err := k.Open(a.Kind, a.Name, a.Sealed); err == nil {
			return c, nil
		}
	}
	return Content{}, ErrOtherKey
}

// Next returns the key that will replace the one that seals: that of a change which was
// begun and not finished, or a new one, which is on disk then.
func (r Ring) Next() (Key, error) {
	if r.Text != "" {
		return Key{}, errors.New("the key is in KEEP_KEY, which Keep cannot change: put it into " + r.Path + " (mode 0600) and unset KEEP_KEY first")
	}
	k, err := r.read(next)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if k, err = NewKey(); err != nil {
		return k, err
	}
	if err = r.create(next, k); errors.Is(err, fs.ErrExist) {
		return r.read(next) // another process began at the same time
	}
	return k, err
}

// ErrReplaced is returned if another process put another key in the place of the one of Next.
var ErrReplaced = errors.New("the key was replaced by another process")

// Replace puts k, a key of Next, in the place of the old one, which is gone then, also where
// a process that was killed left a copy of it. It puts no other key there: rows that nobody sealed
// with that one would be lost.
func (r Ring) Replace(k Key, now time.Time) error {
	if r.Keychain != nil {
		return r.replace(k, now)
	}
	err := alone(r.Path, func() error { return r.replace(k, now) })
	if _, unlocked := errors.AsType[*lockError](err); unlocked {
		return fmt.Errorf("%w; everything is sealed with the new key, and both open it: if no other process replaces the key, finish it with: mv %s %s",
			err, strconv.Quote(r.Path+string(next)), strconv.Quote(r.Path))
	}
	return err
}

// A lockError says that a key could not be locked, as on a file system without locks.
type lockError struct {
	file string
	err  error
}

// Error names the file.
func (e *lockError) Error() string { return "lock " + e.file + ": " + e.err.Error() }

// Unwrap returns why.
func (e *lockError) Unwrap() error { return e.err }

// alone does something while no other process puts a key in the place of a file: the next key stays the one that was read, since
// nobody makes another one before it is gone.
func alone(path string, f func() error) error {
	lock := flock.New(filepath.Join(filepath.Dir(path), ".keep-rekey.lock"), flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		if inner, ok := errors.AsType[*fs.PathError](err); ok {
			err = inner.Err
		}
		return &lockError{lock.Path(), err}
	}
	return errors.Join(f(), lock.Close())
}

// replace is Replace. A crash after the rename leaves the new key alone, or both: all that is sealed with it can be opened.
func (r Ring) replace(k Key, now time.Time) error {
	if at, err := r.read(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if err != nil || !at.Is(k) {
		if at, err = r.read(current); err == nil && !at.Is(k) {
			err = ErrReplaced
		}
		return err // nil: another process did it
	}
	if r.Keychain != nil {
		return r.moveEntry(k, now)
	}
	if err := os.Rename(r.Path+string(next), r.Path); err != nil {
		return err
	}
	return errors.Join(regular.SyncDir(filepath.Dir(r.Path)), tidy(filepath.Dir(r.Path), now))
}

// moveEntry is replace in a keychain, which moves nothing if another process has moved something since.
func (r Ring) moveEntry(k Key, now time.Time) error {
	text, err := r.Keychain.Get(string(next))
	if err == nil {
		var at Key
		if at, err = ParseKey(text); err == nil && !at.Is(k) {
			err = fs.ErrNotExist
		}
	}
	if err == nil {
		err = r.Keychain.Move(string(next), string(current), text)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return r.replace(k, now)
	}
	return err
}

// readKey reads a key's file, which nobody else may read and which is no link. What is
// judged is the file that is read: another one may have its name by then.
func readKey(path string) (Key, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Key{}, err
	}
	if why := openTo(info); why != "" {
		return Key{}, &PermissionError{path, why}
	}
	f, err := regular.Open(path)
	if err != nil {
		return Key{}, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return Key{}, err
	}
	if why := openTo(opened); why != "" || !os.SameFile(info, opened) {
		return Key{}, &PermissionError{path, cmp.Or(why, "was replaced while it was read")}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err == nil && len(text) > maxKey {
		err = fmt.Errorf("%s has more than %d bytes, which is no key", path, maxKey)
	}
	if err != nil {
		return Key{}, err
	}
	k, err := ParseKey(string(text))
	if err != nil {
		return k, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// maxKey bounds a key's file, in bytes.
const maxKey = 64 << 10

// openTo says why others could read or replace a key; empty: they cannot.
func openTo(info fs.FileInfo) string {
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return isLink
	case !mode.IsRegular():
		return isNoFile
	case runtime.GOOS != "windows" && mode.Perm()&0o077 != 0:
		return fmt.Sprintf("can be read by others (mode %04o)", mode.Perm())
	}
	return ""
}

// unfinished begins the names of files that are about to be a key.
const unfinished = ".keep.key-"

// tidy removes what killed processes left of writing a key. What is young may be about to
// be used.
func tidy(dir string, now time.Time) error {
	all, err := os.ReadDir(dir)
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), unfinished) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		if info, statErr := e.Info(); statErr == nil && now.Sub(info.ModTime()) > time.Minute {
			err = errors.Join(err, os.Remove(name))
		}
	}
	return err
}

// link is os.Link but in tests.
var link = os.Link

// writeKey writes a key to a file that is not there yet. It is whole or not there.
func writeKey(path string, k Key) error {
	f, err := os.CreateTemp(filepath.Dir(path), unfinished+"*")
	if err != nil {
		return err
	}
	err = f.Chmod(0o600) // a umask may have taken that from its owner too
	if err == nil {
		_, err = f.WriteString("# Opens the accounts and secrets of Keep. Keep it safe, and apart from the database.\n" + k.Text() + "\n")
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = place(f.Name(), path)
	}
	gone := os.Remove(f.Name())
	if errors.Is(gone, fs.ErrNotExist) { // it was renamed
		gone = nil
	}
	return errors.Join(err, gone, regular.SyncDir(filepath.Dir(path)))
}

// place gives a file the name to, where nothing is.
func place(part, to string) error {
	err := link(part, to) // unlike a rename it replaces nothing
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// A file system without links: others that make a key there wait.
	return alone(to, func() error {
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return cmp.Or(err, fs.ErrExist)
		}
		return os.Rename(part, to)
	})
}
