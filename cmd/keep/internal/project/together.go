package project

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/keep-run/keep/cmd/keep/internal/trust"
	"github.com/keep-run/keep/internal/regular"
)

// A File is one that is to be written.
type File struct {
	Name string `json:"name"` // below the project's directory, with slashes
	Text string `json:"text"`
	Was  string `json:"was"` // hash of what it replaces, as Hashes has it; empty: nothing has the name
}

// A ChangedError says that a file that was to be written is neither as before nor as after, so that
// none was.
type ChangedError struct{ Name string }

// Error names the file, and says what to do.
func (e *ChangedError) Error() string {
	return e.Name + " was changed meanwhile, and no file was replaced: deploy what it has now, or put it aside, and give the same command again"
}

// pendingName is the file that holds what is to be written together. While it is there, the files
// may be partly those of before.
const pendingName = ".keep-pending.json"

// maxPending bounds that file, in bytes (law: bounded).
const maxPending = 32 << 20

// WriteTogether writes files below a directory so that no script is ever read with some of them as
// before and some as after: all of them are on disk before the first is replaced, and whoever reads
// scripts replaces the rest first, also if this process ended in between.
//
// What was saved since Was is not replaced: if a file is neither as before nor as after, none is
// written, and the error is a *ChangedError. Decide is called when all are on disk, and before the first is
// replaced: its error means that none is to be. It is returned with whether the files are as they were: another
// command that reads scripts meanwhile writes them.
func WriteTogether(dir string, files []File, decide func() error) error {
	for _, f := range files {
		if err := MayBeWritten(f.Name); err != nil {
			return err
		}
	}
	text, err := json.Marshal(files)
	if err != nil {
		return err
	}
	if err := FinishWrites(dir); err != nil { // of a process that ended
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := unwritten(root, files); err != nil {
		return err
	}
	for _, f := range files { // what cannot be written is refused before anything is
		if err := placeFor(root, path.Dir(f.Name)); err != nil {
			return fmt.Errorf("write %s: %w", f.Name, err)
		}
	}
	if err := replaceIn(root, File{Name: pendingName, Text: string(text)}); err != nil {
		return err
	}
	if err := decide(); err != nil {
		switch gone := forget(root, text); {
		case gone == nil:
			return fmt.Errorf("%w. The files are as they were", err)
		case errors.Is(gone, fs.ErrNotExist):
			return fmt.Errorf("%w. Another command, which read the scripts at this moment, has written the files all the same", err)
		default:
			return errors.Join(err, gone)
		}
	}
	return finish(root, files, text)
}

// FinishWrites writes what WriteTogether began to write. It may be called beside another one: both
// write the same. A file that somebody saved meanwhile is not replaced, and neither are the others: a person
// has to look, since some of them may be as after.
func FinishWrites(dir string) error {
	text, err := regular.Read(filepath.Join(dir, pendingName), maxPending)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := trust.CheckOwn(filepath.Join(dir, pendingName)); err != nil { // in a shared directory it would replace a person's scripts
		return fmt.Errorf("%w; if it is of no edit of yours, remove it", err)
	}
	var list []struct {
		File
		Was *string `json:"was"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("%s: %w; remove it, and look at the scripts beside it", pendingName, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var files []File
	for _, f := range list {
		if err := MayBeWritten(f.Name); err != nil {
			return fmt.Errorf("%s: %w", pendingName, err)
		}
		if f.Was != nil {
			f.File.Was = *f.Was
		} else if f.File.Was, err = hashIn(root, f.Name); err != nil { // of a version that replaced whatever was there
			return err
		}
		files = append(files, f.File)
	}
	return finish(root, files, text)
}

// finish replaces the files that are as before, and then removes the list of them. If that is not there
// any more, another process has done both, and what the files are now is newer.
func finish(root *os.Root, files []File, list []byte) error {
	err := isPending(root, list)
	if err == nil {
		files, err = unwritten(root, files)
	}
	for i := 0; err == nil && i < len(files); i++ {
		err = errors.Join(placeFor(root, path.Dir(files[i].Name)), replaceIn(root, files[i]))
	}
	if err != nil && errors.Is(isPending(root, list), fs.ErrNotExist) {
		return nil
	}
	if changed, ok := errors.AsType[*ChangedError](err); ok {
		return fmt.Errorf("%s was changed while an edit replaced files. %s has what they were to be: make each as you want it, and remove that one; no script is read before",
			changed.Name, pendingName)
	}
	if err != nil {
		return fmt.Errorf("%w; %s has the files that an edit replaces", err, pendingName)
	}
	if err := forget(root, list); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// isPending returns fs.ErrNotExist unless what is to be written is this list. Another edit writes its own only
// when the one before it is worked off.
func isPending(root *os.Root, list []byte) error {
	is, err := hashIn(root, pendingName)
	if err == nil && is != Hash(string(list)) {
		err = fs.ErrNotExist
	}
	return err
}

// forget removes the list of what is to be written, durably: after a crash it would be worked off again. It
// returns fs.ErrNotExist, and removes nothing, if that is another list by now. No system removes a file only if
// it has a given text: between the two, another edit would have to write all files of this one, and its list.
func forget(root *os.Root, list []byte) error {
	if err := isPending(root, list); err != nil {
		return err
	}
	if err := root.Remove(pendingName); err != nil {
		return err
	}
	return syncDir(root, ".")
}

// unwritten returns the files that are as before. The error is a *ChangedError if one is neither that nor
// as after.
func unwritten(root *os.Root, files []File) (out []File, err error) {
	for _, f := range files {
		is, err := hashIn(root, f.Name)
		switch {
		case err != nil:
			return nil, err
		case is == Hash(f.Text):
		case is != f.Was:
			return nil, &ChangedError{f.Name}
		default:
			out = append(out, f)
		}
	}
	return out, nil
}

// Hash returns the hash of a text, as Hashes has it.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Hashes returns the hashes of files below a directory, by their names; empty: nothing has the name. What
// WriteTogether began to write is written first.
func Hashes(dir string, names ...string) (map[string]string, error) {
	if err := FinishWrites(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	out := make(map[string]string, len(names))
	for _, name := range names {
		if out[name], err = hashIn(root, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// hashIn returns the hash of a file; empty: nothing has the name.
func hashIn(root *os.Root, name string) (string, error) {
	f, err := regular.OpenIn(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// MayBeWritten refuses names that are no files of a script. A link that leads out of the directory
// is refused when it is followed.
func MayBeWritten(name string) error {
	hidden := strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
	ext := path.Ext(name)
	if !fs.ValidPath(name) || !filepath.IsLocal(filepath.FromSlash(name)) || strings.ContainsAny(name, "\\:\x00") || hidden ||
		ext != ".js" && ext != ".ts" && ext != ".json" && !strings.HasSuffix(name, ".test.toml") && !strings.HasSuffix(name, ".grants.toml") {
		return fmt.Errorf("%q is no name of a file of a script", name)
	}
	return nil
}

// placeFor makes a directory, if it is not there and nothing leads out of the root. It is on disk then, also one that
// was made before by a process which ended.
func placeFor(root *os.Root, dir string) error {
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for made := dir; made != "."; made = path.Dir(made) {
		if err := syncDir(root, path.Dir(made)); err != nil {
			return err
		}
	}
	_, err := root.Stat(dir)
	return err
}

// modeOf returns the mode that a file is written with, and whether it is that of what it replaces. What is still to be written is
// for its owner alone: it has the texts of files that may be.
func modeOf(root *os.Root, f File) (mode fs.FileMode, kept bool) {
	if f.Name == pendingName {
		return 0o600, false
	}
	if info, err := root.Stat(f.Name); err == nil && f.Was != "" {
		return info.Mode().Perm(), true
	}
	return 0o644, false
}

// replaceIn writes a file whole, with its name when it is on disk, if what has the name is as before. It keeps its mode.
//
// The directory is synced after the rename: before that a crash may bring the file of before back. What is
// left of a write that failed is removed; after a kill it stays, hidden and with a name of its own.
func replaceIn(root *os.Root, f File) (err error) {
	dir := path.Dir(f.Name)
	temp := path.Join(dir, ".keep-write-"+rand.Text())
	mode, kept := modeOf(root, f)
	out, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	defer func() {
		if gone := root.Remove(temp); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	if _, err = out.WriteString(f.Text); err == nil && kept { // whatever the umask is
		err = out.Chmod(mode)
	}
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil {
		err = put(root, temp, f)
	}
	if err == nil {
		err = syncDir(root, dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name, err)
	}
	return nil
}

// put gives a file its name, in the place of what is as before. No system replaces a file only if it
// has a given text: what is saved in the moment between the comparison and the rename is lost. A file
// that comes where there was none is safe, since a link refuses a name that is taken.
func put(root *os.Root, temp string, f File) error {
	todo, err := unwritten(root, []File{f})
	if err != nil || len(todo) == 0 {
		return err
	}
	if f.Was != "" {
		return root.Rename(temp, f.Name)
	}
	err = root.Link(temp, f.Name)
	if err == nil {
		return nil
	}
	// Another process may have written it at the same time, or the file system has no links.
	todo, changed := unwritten(root, []File{f})
	switch {
	case changed != nil || len(todo) == 0:
		return changed
	case errors.Is(err, fs.ErrExist):
		return &ChangedError{f.Name} // it was there, and is gone
	}
	return root.Rename(temp, f.Name)
}

// onSync is called by syncDir. It is of tests.
var onSync = func(dir string) {}

// syncDir makes the names in a directory durable, where the system can.
func syncDir(root *os.Root, dir string) error {
	onSync(dir)
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
