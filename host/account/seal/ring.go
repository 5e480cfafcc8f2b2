package seal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/keep-run/keep"
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
	return fmt.Sprintf("the key %s %s; run: chmod 600 %s", e.Path, e.Why, strconv.Quote(e.Path))
}

// A Ring finds the key: in the text of a variable, or in a file, which is read at each
// use. While the key is replaced there is a second file, and both keys open.
type Ring struct {
	Text string // of KEEP_KEY; empty: the file is used
	Path string // of keep.key
}

// next is the file of a key that is about to replace the one at path.
func (r Ring) next() string { return r.Path + ".new" }

// Where says to people where the key is.
func (r Ring) Where() string {
	if r.Text != "" {
		return "KEEP_KEY"
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
	for _, path := range []string{r.next(), r.Path} { // a rename in between: the new one is read twice
		k, err := readKey(path)
		switch {
		case err == nil:
			keys = append(keys, k)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	if len(keys) == 0 {
		k, err := readKey(r.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", r.Path, ErrNoKey)
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
		err = writeKey(r.Path, k)
	}
	if errors.Is(err, fs.ErrExist) {
		return readKey(r.Path)
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
	k, err := readKey(r.next())
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if k, err = NewKey(); err != nil {
		return k, err
	}
	return k, writeKey(r.next(), k)
}

// Replace puts the key of Next in the place of the old one, which is gone then.
func (r Ring) Replace() error {
	if err := os.Rename(r.next(), r.Path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(r.Path))
}

// readKey reads a key's file, which nobody else may read and which is no link.
func readKey(path string) (Key, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return Key{}, err
	case info.Mode()&fs.ModeSymlink != 0:
		return Key{}, &PermissionError{path, "is a symbolic link, want a file of its own"}
	case !info.Mode().IsRegular():
		return Key{}, &PermissionError{path, "is not a file"}
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return Key{}, &PermissionError{path, fmt.Sprintf("can be read by others (mode %04o)", info.Mode().Perm())}
	case info.Size() > 64<<10:
		return Key{}, fmt.Errorf("%s has %d bytes, which is no key", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Key{}, err
	}
	k, err := ParseKey(string(text))
	if err != nil {
		return k, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// writeKey writes a key to a file that is not there yet. It is whole or not there.
func writeKey(path string, k Key) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".keep.key-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString("# Opens the accounts and secrets of Keep. Keep it safe, and apart from the database.\n" + k.Text() + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path) // unlike a rename it replaces nothing
	}
	return errors.Join(err, os.Remove(f.Name()), syncDir(filepath.Dir(path)))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
