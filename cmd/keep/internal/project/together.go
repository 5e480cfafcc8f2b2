package project

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/keep-run/keep/internal/regular"
)

// A File is one that is to be written.
type File struct {
	Name string `json:"name"` // below the project's directory, with slashes
	Text string `json:"text"`
}

// pendingName is the file that holds what is to be written together. While it is there, the files
// may be partly those of before.
const pendingName = ".keep-pending.json"

// maxPending bounds that file, in bytes (law: bounded).
const maxPending = 32 << 20

// WriteTogether writes files below a directory so that no script is ever read with some of them as
// before and some as after: all of them are on disk before the first is replaced, and whoever reads
// scripts replaces the rest first, also if this process ended in between.
func WriteTogether(dir string, files []File) error {
	for _, f := range files {
		if err := mayBeWritten(f.Name); err != nil {
			return err
		}
	}
	text, err := json.Marshal(files)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range files { // what cannot be written is refused before anything is
		if err := placeFor(root, path.Dir(f.Name)); err != nil {
			return fmt.Errorf("write %s: %w", f.Name, err)
		}
	}
	if err := replaceIn(root, File{pendingName, string(text)}); err != nil {
		return err
	}
	return FinishWrites(dir)
}

// FinishWrites writes what WriteTogether began to write. It may be called beside another one: both
// write the same.
func FinishWrites(dir string) error {
	text, err := regular.Read(filepath.Join(dir, pendingName), maxPending)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var files []File
	if err := json.Unmarshal(text, &files); err != nil {
		return fmt.Errorf("%s: %w; remove it, and look at the scripts beside it", pendingName, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range files {
		if err := mayBeWritten(f.Name); err != nil {
			return fmt.Errorf("%s: %w", pendingName, err)
		}
		if err := errors.Join(placeFor(root, path.Dir(f.Name)), replaceIn(root, f)); err != nil {
			return fmt.Errorf("%w; %s has the files that an edit replaces", err, pendingName)
		}
	}
	if err := root.Remove(pendingName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// mayBeWritten refuses names that are no files of a script. A link that leads out of the directory
// is refused when it is followed.
func mayBeWritten(name string) error {
	hidden := strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
	ext := path.Ext(name)
	if !fs.ValidPath(name) || !filepath.IsLocal(filepath.FromSlash(name)) || strings.ContainsAny(name, "\\:\x00") || hidden ||
		ext != ".js" && ext != ".ts" && ext != ".json" && !strings.HasSuffix(name, ".test.toml") && !strings.HasSuffix(name, ".grants.toml") {
		return fmt.Errorf("%q is no name of a file of a script", name)
	}
	return nil
}

// placeFor makes a directory, if it is not there and nothing leads out of the root.
func placeFor(root *os.Root, dir string) error {
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := root.Stat(dir)
	return err
}

// replaceIn writes a file whole, with its name when it is on disk.
//
// The directory is synced after the rename: before that a crash may bring the file of before back. What is
// left of a write that failed is removed; after a kill it stays, hidden and with a name of its own.
func replaceIn(root *os.Root, f File) (err error) {
	dir := path.Dir(f.Name)
	temp := path.Join(dir, ".keep-write-"+rand.Text())
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	defer func() {
		if gone := root.Remove(temp); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	_, err = out.WriteString(f.Text)
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil {
		err = root.Rename(temp, f.Name)
	}
	if err == nil {
		err = syncDir(root, dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	return nil
}

// syncDir makes the names in a directory durable, where the system can.
func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}
