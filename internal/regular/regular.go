// Package regular opens files that people name. What is no regular file is refused at once:
// a named pipe would be waited for, and a device may never end. It also makes the names of new ones durable.
package regular

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// Causes of an *Error.
var (
	ErrDirectory = errors.New("is a directory")
	ErrSpecial   = errors.New("is not a regular file")
	ErrDangling  = errors.New("is a link to nothing")
	ErrLarge     = errors.New("is too large")
)

// An Error says that a name leads to no regular file. It wraps one of the causes.
type Error struct {
	Name, Text string
	cause      error
}

// Error says what there is, and what is wanted.
func (e *Error) Error() string { return e.Name + " " + e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Open opens a regular file to read it. The error is an *Error if there is something else,
// and wraps fs.ErrNotExist if there is nothing: a link to nothing is something.
func Open(name string) (*os.File, error) {
	return open(name, func(flags int) (*os.File, error) { return os.OpenFile(name, flags, 0) }, os.Stat, os.Lstat)
}

// OpenIn is Open for a file below a directory, never outside of it.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	return open(name, func(flags int) (*os.File, error) { return root.OpenFile(name, flags, 0) }, root.Stat, root.Lstat)
}

// open looks before it opens, since opening a device may do something, and again after it,
// since the name may lead elsewhere by then. Opening does not wait.
func open(name string, openFile func(flags int) (*os.File, error), stat, lstat func(string) (fs.FileInfo, error)) (*os.File, error) {
	info, err := stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if link, err := lstat(name); err == nil && link.Mode()&fs.ModeSymlink != 0 {
			return nil, &Error{name, "is a link to a file that does not exist", ErrDangling}
		}
	}
	if err == nil {
		err = check(name, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := openFile(os.O_RDONLY | noWait)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = check(name, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read returns the text of a regular file of up to limit bytes; see Open.
func Read(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &Error{name, fmt.Sprintf("has more than %d bytes", limit), ErrLarge}
	}
	return text, err
}

// maxPEM bounds a certificate with its chain, and a key, in bytes.
const maxPEM = 1 << 20

// KeyPair is tls.LoadX509KeyPair for regular files.
func KeyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := Read(certFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := Read(keyFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// check returns an *Error unless info is of a regular file.
func check(name string, info fs.FileInfo) error {
	what := ""
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return &Error{name, "is a directory; name a file", ErrDirectory}
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = "something else"
	}
	return &Error{name, fmt.Sprintf("is %s and not a regular file; copy what it gives into a file, and name that", what), ErrSpecial}
}

// IsUTF16 reports whether a text is in UTF-16, as some editors and shells of Windows write it: it begins with the mark of that.
func IsUTF16(text []byte) bool {
	return bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff"))
}

// Sync makes what is in a file that Open opened durable, whoever wrote it.
func Sync(f *os.File) error {
	err := f.Sync()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	w, err := os.OpenFile(f.Name(), os.O_WRONLY, 0) // Windows flushes by a handle that may write
	if err != nil {
		return err
	}
	defer w.Close()
	is, err := w.Stat()
	was, err2 := f.Stat()
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if !os.SameFile(is, was) {
		return &Error{f.Name(), "was replaced meanwhile", fs.ErrNotExist}
	}
	return w.Sync()
}

// SyncDir makes the names in a directory durable, where the system can.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
