// Package trust decides whose keep.toml is believed. A configuration runs commands
// ([notify]) and holds addresses that secrets are sent to. One that was found by looking
// upwards may have been put there by somebody else: in a directory that others may write,
// such as /tmp, it would speak for every project below. So it is refused unless it is
// this user's own and nobody else may change it, nor the members of a group, nor who an access
// list of Linux names, or the user allowed it, as with git's safe.directory.
package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/internal/regular"
)

// Variable names directories that are trusted, as a list of paths.
const Variable = "KEEP_TRUST"

// An Error says why a keep.toml is not believed, and how to allow it.
type Error struct {
	File string
	Why  string
}

// Error names the file, the reason and the command that allows it.
func (e *Error) Error() string {
	return fmt.Sprintf("%s is not trusted: %s. It can run commands and receive secrets; look at it, and then: keep trust %s",
		e.File, e.Why, shell.Word(filepath.Dir(e.File)))
}

// Check returns an *Error if file must not be believed.
//
// The directory is looked at as well as the file: who may write there can put another file into its place. Of a
// link both directories are: packs, secrets and the database are looked for where the link is. Packs and pairings
// say where secrets are sent, as the file itself does.
func Check(file string) error {
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	link := abs
	if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		link = filepath.Join(dir, filepath.Base(abs))
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	for _, c := range [][2]string{{abs, abs}, {abs, filepath.Dir(abs)}, {link, filepath.Dir(link)}} {
		if err := check(c[0], c[1]); err != nil {
			return err
		}
	}
	for _, library := range [...]string{"packs", "pairings"} {
		dir := filepath.Join(filepath.Dir(link), library)
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // there is none, or who reads it says why not
		}
		names := []string{dir}
		for _, f := range files {
			if filepath.Ext(f.Name()) == ".toml" {
				names = append(names, filepath.Join(dir, f.Name()))
			}
		}
		for _, name := range names {
			if err := check(link, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// CheckOwn is Check for a file alone, in whatever directory it is.
func CheckOwn(file string) error { return check(file, file) }

// check returns an *Error about a file if somebody else decides what a name is, which is that file or its directory.
func check(file, name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	why := foreign(name, info)
	if why == "" {
		return nil
	}
	if trusted, err := isTrusted(filepath.Dir(file)); err != nil || trusted {
		return err
	}
	return &Error{file, why}
}

// MayPut says who else may put files into a directory; empty: nobody.
func MayPut(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	return foreign(dir, info)
}

// isTrusted reports whether the user allowed a directory.
func isTrusted(dir string) (bool, error) {
	if slices.Contains(filepath.SplitList(os.Getenv(Variable)), dir) {
		return true, nil
	}
	all, err := List()
	return slices.Contains(all, dir), err
}

// file returns where the user's list is.
func file() (string, error) {
	base, err := os.UserConfigDir()
	return filepath.Join(base, "keep", "trusted"), err
}

// maxList bounds the list, in bytes.
const maxList = 1 << 20

// List returns the directories that the user allowed, of which each is a line. There is none without a home.
func List() ([]string, error) {
	name, err := file()
	if err != nil {
		return nil, nil
	}
	data, err := regular.Read(name, maxList)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			all = append(all, line)
		}
	}
	return all, err
}

// Add allows a directory, and returns its path as it was recorded.
//
// What the path leads to is recorded, and not the links on the way: these may lead elsewhere tomorrow.
func Add(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	there, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no directory %s; name the one that its keep.toml is in", abs)
	}
	if err != nil {
		return "", err
	}
	abs = there
	if info, err := os.Stat(abs); err == nil && !info.IsDir() {
		return "", fmt.Errorf("%s is no directory; name the one that its keep.toml is in: keep trust %s", abs, shell.Word(filepath.Dir(abs)))
	}
	if strings.ContainsFunc(abs, unicode.IsControl) {
		return "", fmt.Errorf("%q has a control character: name it in %s instead", abs, Variable)
	}
	all, err := List()
	if err != nil || slices.Contains(all, abs) {
		return abs, err
	}
	name, err := file()
	if err != nil {
		return "", fmt.Errorf("find the user's directory of configuration: %w; set %s instead", err, Variable)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	text, err := regular.Read(name, maxList)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		abs = "\n" + abs // the last line was written by hand
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintln(f, abs)
	return strings.TrimPrefix(abs, "\n"), errors.Join(err, f.Close())
}
