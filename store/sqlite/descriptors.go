package sqlite

import (
	"errors"
	"os"
	"slices"
	"sync"
)

// SQLite's locks of a file are those of the process, and end when the process closes any descriptor of the file, also one that
// SQLite does not know. Another program with SQLite then sees that nobody has the file open: when it is done, it removes the log,
// and what is committed to that is lost. So a descriptor of ours is not closed as long as a database of this process has the file open.
var openFiles descriptors

// descriptors are those of the files that databases of this process have open.
type descriptors struct {
	// mu protects the field below.
	mu    sync.Mutex
	files []*openFile
}

// An openFile is one of these files, by whatever name.
type openFile struct {
	info      os.FileInfo
	databases int
	late      []*os.File // to be closed when no database has it open any more
}

// use notes that a database has the file at a path open, before it has. It is called once for each.
func (d *descriptors) use(path string) (*openFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.of(info)
	if of == nil {
		of = &openFile{info: info}
		d.files = append(d.files, of)
	}
	of.databases++
	return of, nil
}

// done notes that a database has closed its connections.
func (d *descriptors) done(of *openFile) error {
	if of == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if of.databases--; of.databases > 0 {
		return nil
	}
	d.files = slices.DeleteFunc(d.files, func(other *openFile) bool { return other == of })
	var errs []error
	for _, f := range of.late {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// close closes f, now or when no database has its file open any more.
func (d *descriptors) close(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if of := d.of(info); of != nil {
		of.late = append(of.late, f)
		return nil
	}
	return f.Close()
}

// of returns a file; nil: no database has it open. The caller holds mu.
func (d *descriptors) of(info os.FileInfo) *openFile {
	if i := slices.IndexFunc(d.files, func(of *openFile) bool { return os.SameFile(of.info, info) }); i >= 0 {
		return d.files[i]
	}
	return nil
}
