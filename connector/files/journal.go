package files

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// The hidden directory of marks and notes.
const keepDir = ".keep"

// Marks bounds the marks of a root. A mark is kept for as long as somebody is likely to
// ask about its change; after that the horizon says that there were such marks.
type marks struct {
	least int           // the newest that are kept, however old
	most  int           // the newest that are kept, however young the others are
	age   time.Duration // of the others, counted from the newest mark
	each  int64         // changes between two looks at their number
}

// defaultMarks are the bounds of every root.
var defaultMarks = marks{least: 10_000, most: 100_000, age: 30 * 24 * time.Hour, each: 500}

// horizonFile holds a record with the time of the latest change whose mark was removed, or before which keepDir was not there: nothing
// is known of changes until then.
const horizonFile = "horizon"

// freshPrefix begins the name of what becomes keepDir, with its horizon. Each process makes its own: one of them becomes it.
const freshPrefix = ".keep.new-"

// Prefixes of the files in keepDir. The rest of the name is a hash.
const (
	markPrefix = "mark-" // of a token: its change has begun (write) or was made (append)
	notePrefix = "note-" // of a file name: an append that may not be finished
	lostPrefix = "lost-" // of a token: an append that nobody can tell about
)

// A record is the content of a mark, a note or a lost append.
type record struct {
	Tool   string `json:"tool"`
	Token  string `json:"token"` // hash of it
	Name   string `json:"name"`
	Size   int64  `json:"size"`           // write: of the file; append: of the text
	Offset int64  `json:"offset"`         // append: size of the file before
	SHA256 string `json:"sha256"`         // of the content or text
	Text   []byte `json:"text,omitempty"` // append: for a note, to finish it

	// Made is when the host recorded the change; zero in marks of older versions.
	Made time.Time `json:"made,omitzero"`
}

// receipt is what the script gets.
func (r record) receipt() connector.Receipt {
	v := map[string]any{"name": r.Name, "size": r.Size, "sha256": r.SHA256}
	if r.Tool == "append" {
		v = map[string]any{"name": r.Name, "offset": r.Offset, "size": r.Offset + r.Size}
	}
	raw, _ := json.Marshal(v) // of strings and integers
	return connector.Receipt{Result: raw}
}

// hash makes a file name of a token or a name.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// checksum returns the SHA-256 in hex.
func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// A change is one call that may change files. It holds the lock of the root.
type change struct {
	dir  *dir
	tool string
	root *os.Root
	lock *flock.Flock
}

// begin opens the root and waits for its lock until ctx ends. An error means
// that nothing was changed. It is for a change that was recorded at a time; nil: for a question, to
// which a root without marks has no answer.
func (d *dir) begin(ctx context.Context, tool string, made *time.Time) (*change, error) {
	root, err := d.open(tool)
	if err != nil {
		return nil, err
	}
	c := &change{dir: d, tool: tool, root: root}
	if err = c.prepare(made); err == nil {
		err = c.acquire(ctx)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return c, nil
}

// prepare makes the directory of marks for a change that was recorded at a time, with the horizon before it: where there are no marks,
// they may have been removed, and the root may be another one, such as the place of a volume that is not mounted.
func (c *change) prepare(made *time.Time) error {
	info, err := c.root.Lstat(keepDir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return c.dir.failf(c.tool, keep.ClassPrecondition, "not-a-directory", "%s in the root must be a directory", keepDir)
	case !errors.Is(err, fs.ErrNotExist):
		return c.dir.fail(c.tool, "look for "+keepDir, err)
	case made == nil:
		return c.dir.failf(c.tool, keep.ClassPrecondition, "mark-forgotten",
			"the root has no directory %s, which has the marks of changes: it was removed, or this is another directory than that of the call; only a person can look", keepDir)
	}
	fresh := freshPrefix + rand.Text()
	if err = c.makeFresh(fresh, *made); err == nil {
		err = c.root.Rename(fresh, keepDir)
	}
	if err != nil {
		c.root.RemoveAll(fresh)
		if now, gone := c.root.Lstat(keepDir); gone == nil && now.IsDir() { // another process was faster
			err = nil
		}
	}
	if err == nil {
		err = c.syncDir(".")
	}
	if err != nil {
		return c.dir.fail(c.tool, "make "+keepDir, err)
	}
	return nil
}

// makeFresh makes what becomes the directory of marks.
func (c *change) makeFresh(name string, made time.Time) error {
	raw, err := json.Marshal(record{Tool: horizonFile, Made: made.Add(-time.Millisecond)})
	if err != nil {
		return err
	}
	if err := c.root.Mkdir(name, 0o700); err != nil {
		return err
	}
	if err := c.writeDurable(path.Join(name, horizonFile), raw, 0o600); err != nil {
		return err
	}
	return c.syncDir(name)
}

// acquire waits for the other changes of this process, and then for those of
// other processes.
func (c *change) acquire(ctx context.Context) error {
	busy := c.dir.failf(c.tool, keep.ClassTransient, "locked", "the root was locked by another change until the time was over")
	select {
	case c.dir.busy <- struct{}{}:
	case <-ctx.Done():
		return busy
	}
	c.lock = flock.New(filepath.Join(c.dir.path, keepDir, "lock"))
	ok, err := c.lock.TryLockContext(ctx, 5*time.Millisecond)
	if ok {
		return nil
	}
	<-c.dir.busy
	if ctx.Err() != nil {
		return busy
	}
	return c.dir.fail(c.tool, "lock the root", err)
}

// end releases the lock. The process's end does so too.
func (c *change) end() {
	c.lock.Close()
	c.root.Close()
	<-c.dir.busy
}

// load reads a record. It returns false if there is none.
func (c *change) load(file string) (record, bool, error) {
	raw, err := c.root.ReadFile(path.Join(keepDir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r, err == nil, err
}

// save makes a record durable, whole or not at all.
func (c *change) save(file string, r record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	target := path.Join(keepDir, file)
	if err := c.writeDurable(target+".new", raw, 0o600); err != nil {
		return err
	}
	if err := c.root.Rename(target+".new", target); err != nil {
		return err
	}
	return c.syncDir(keepDir)
}

// drop removes a record durably, before what it speaks of may be removed.
func (c *change) drop(file string) error {
	err := c.root.Remove(path.Join(keepDir, file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return c.syncDir(keepDir)
}

// writeDurable writes a file and flushes it, but not its directory.
func (c *change) writeDurable(name string, content []byte, mode fs.FileMode) error {
	f, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

// syncDir makes the entries of a directory durable.
func (c *change) syncDir(name string) error {
	f, err := c.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncPath makes the entries of every directory down to name durable.
func (c *change) syncPath(name string) error {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if err := c.syncDir(dir); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}

// maxLinks bounds the links that lead to one file, as systems do.
const maxLinks = 40

// place returns the one name of the file to which a name leads: where links on the way lead. What is not there has
// the name that it would get.
func (c *change) place(name string) string {
	at, rest := ".", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		link, err := c.root.Readlink(next)
		if err != nil { // it is none
			at = next
			continue
		}
		if links++; links > maxLinks || filepath.IsAbs(link) {
			return name // which nothing opens
		}
		rest = append(strings.Split(filepath.ToSlash(link), "/"), rest...)
	}
	return at
}

// mkdirs makes the directories above name.
func (c *change) mkdirs(name string) error {
	if dir := path.Dir(name); dir != "." {
		return c.root.MkdirAll(dir, 0o755)
	}
	return nil
}

// agree refuses a token that stands for another change. Only a bug makes one.
func (c *change) agree(r record, name, sum string) error {
	if r.Name == name && r.SHA256 == sum {
		return nil
	}
	return c.dir.failf(c.tool, keep.ClassInternal, "token-reused", "the token was used for another change, of %q", r.Name)
}

// prune removes old marks beyond the bounds, now and then. A failure leaves them for the
// next time.
func (c *change) prune() {
	bounds := c.dir.marks
	if c.dir.changes.Add(1)%bounds.each != 0 {
		return
	}
	entries, err := fs.ReadDir(c.root.FS(), keepDir)
	if err != nil {
		return
	}
	type mark struct {
		name string
		at   time.Time
	}
	var all []mark // newest first
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), markPrefix) {
			all = append(all, mark{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b mark) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(a.name, b.name)) })
	for i, m := range all {
		if i < bounds.least || i < bounds.most && all[0].at.Sub(m.at) < bounds.age {
			continue
		}
		if c.forget(m.name, m.at) != nil {
			return
		}
	}
}

// forget removes a mark, after the horizon says durably that there may have been one.
func (c *change) forget(name string, at time.Time) error {
	r, _, err := c.load(name)
	if err != nil {
		return err
	}
	if r.Made.IsZero() {
		r.Made = at
	}
	horizon, _, err := c.load(horizonFile)
	if err != nil {
		return err
	}
	if r.Made.After(horizon.Made) {
		if err := c.save(horizonFile, record{Tool: horizonFile, Made: r.Made}); err != nil {
			return err
		}
	}
	return c.root.Remove(path.Join(keepDir, name))
}

// remembered returns an error if the mark of a change that the host recorded at that time, by the
// clock of the records, may have been removed: no mark means nothing then.
func (c *change) remembered(made time.Time) error {
	horizon, found, err := c.load(horizonFile)
	switch {
	case err != nil:
		return c.dir.fail(c.tool, "read the horizon of the marks", err)
	case found && !made.After(horizon.Made):
		return c.dir.failf(c.tool, keep.ClassPrecondition, "mark-forgotten",
			"the marks of changes until %s were removed; only a person can look", horizon.Made.UTC().Format(time.RFC3339))
	}
	return nil
}

// unknown is a doubt about the effect itself.
func (c *change) unknown(doing string, err error) *keep.Failure {
	f := c.dir.fail(c.tool, doing, err)
	f.Class = keep.ClassUnknown
	f.Message = fmt.Sprintf("%s; the change may have happened", f.Message)
	return f
}
