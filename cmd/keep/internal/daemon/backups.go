package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/web"
)

// Backups makes copies of the database for who downloads them, one at a time. They are made
// beside the database, as keep db backup makes them, and are gone when they are closed.
type Backups struct {
	DB  database.DB
	Now func() time.Time

	one  sync.Mutex                     // held while there is a copy
	free func(dir string) (int64, bool) // bytes; nil: as the system says
}

// spare is what stays free on the disk beside a copy: a host needs space meanwhile.
const spare = 64 << 20

// Instead implements web.Backups.
func (b *Backups) Instead() string {
	if _, ok := b.DB.(*sqlite.DB); ok {
		return ""
	}
	return "The database is Postgres: copy it with pg_dump, as keep db backup --help says."
}

// Make implements web.Backups.
//
// The lock is held until the copy is closed. Where an open file can do without a name, the copy has none
// while it is sent, so that nothing is left of it if the process is killed; elsewhere the next one sweeps.
func (b *Backups) Make(ctx context.Context) (_ *web.Copy, err error) {
	file, ok := b.DB.(*sqlite.DB)
	if !ok {
		return nil, &web.BackupError{What: "There is no copy to download", Why: b.Instead(), Next: "Do it on the machine of the database."}
	}
	if !b.one.TryLock() {
		return nil, &web.BackupError{What: "Somebody downloads a backup now", Why: "there is one at a time", Next: "Try again when it is finished."}
	}
	defer func() {
		if err != nil {
			b.one.Unlock()
		}
	}()
	dir, mine := filepath.Dir(file.Path()), "."+filepath.Base(file.Path())+".download-"
	if err := sweepCopies(dir, mine); err != nil {
		return nil, err
	}
	if err := b.fits(file.Path()); err != nil {
		return nil, err
	}
	at, err := os.MkdirTemp(dir, mine)
	if err != nil {
		return nil, unmade(err)
	}
	c := &copied{dir: at, done: b.one.Unlock}
	now := b.Now()
	if err := database.Backup(ctx, file, filepath.Join(at, "copy.db"), now); err != nil {
		return nil, errors.Join(unmade(err), os.RemoveAll(at))
	}
	if c.File, err = os.Open(filepath.Join(at, "copy.db")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(at))
	}
	info, err := c.Stat()
	if err == nil && runtime.GOOS != "windows" { // an open file can be read without a name, and ends with the process
		err = os.RemoveAll(at)
	}
	if err != nil {
		return nil, errors.Join(err, c.File.Close(), os.RemoveAll(at))
	}
	return &web.Copy{ReadCloser: c, Size: info.Size(), At: now}, nil
}

// A copied is a copy that is read once.
type copied struct {
	*os.File
	dir  string
	done func()
}

// Close removes the copy.
func (c *copied) Close() error {
	defer c.done()
	return errors.Join(c.File.Close(), os.RemoveAll(c.dir))
}

// sweepCopies removes what a host that was killed has left of copies: nobody else makes any
// of this database.
func sweepCopies(dir, prefix string) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if strings.HasPrefix(e.Name(), prefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// fits returns an error if a copy would leave the host without space.
func (b *Backups) fits(path string) error {
	free := b.free
	if free == nil {
		free = freeSpace
	}
	left, known := free(filepath.Dir(path))
	info, err := os.Stat(path)
	if err != nil || !known || left >= info.Size()+spare {
		return err
	}
	return noRoom(fmt.Sprintf("a copy needs up to %d MB in %s, and %d MB are free", (info.Size()+spare)>>20, filepath.Dir(path), left>>20))
}

// noRoom is the error of a copy for which there is no space.
func noRoom(why string) error {
	return &web.BackupError{What: "There is no room for a backup", Why: why, Next: "Make room, or write the copy to another disk: keep db backup FILE."}
}

// unmade gives an error of a copy the words for a person, if he can do something.
func unmade(err error) error {
	if errors.Is(err, keep.ErrDiskFull) {
		return noRoom("the disk of the database is full")
	}
	if broken, ok := errors.AsType[*database.BrokenCopyError](err); ok {
		return &web.BackupError{What: "The database breaks laws, and so does its copy", Why: fmt.Sprintf("the check found %d", broken.Laws),
			Next: "See keep doctor; keep db backup FILE keeps such a copy."}
	}
	return err
}
