package files

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/native"
)

// Kind is what configuration calls this connector.
const Kind = "files"

// Bounds. A script gets at most 1 MiB from one call.
const (
	maxRead    = 512 << 10 // bytes of one read
	maxContent = 8 << 20   // bytes of one write or append
	maxName    = 1024
)

// A Config is one connection of keep.toml.
type Config struct {
	Connector string `toml:"connector"` // Kind, or empty
	Root      string `toml:"root"`      // directory; relative to the working directory
	ReadOnly  bool   `toml:"read_only"` // without the tools write and append
}

// New returns the connection of that name. It touches no file.
func New(name string, cfg Config) (*connector.Connection, error) {
	c := connector.NewChecker(name)
	c.Kind(cfg.Connector, Kind)
	if cfg.Root == "" || strings.ContainsRune(cfg.Root, 0) {
		c.Addf("root", "a directory is required")
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	d := &dir{name: name, path: cfg.Root, step: func(string) {}, marks: defaultMarks, busy: make(chan struct{}, 1)}
	conn := &connector.Connection{Name: name, Connector: Kind, Tools: []connector.Tool{
		native.NewReader(listSpec, d.failf, d.list),
		native.NewReader(readSpec, d.failf, d.read),
		native.NewReader(mailSpec, d.failf, d.readMail),
	}}
	if !cfg.ReadOnly {
		conn.Tools = append(conn.Tools, &writer{mutator{native.Change{Tool: writeSpec}, d}}, &appender{mutator{native.Change{Tool: appendSpec}, d}})
	}
	return conn, nil
}

// A dir is the directory that the tools of a connection share.
type dir struct {
	name string
	path string

	// step is called between the durable steps of a change; tests die there.
	step func(point string)

	marks   marks
	busy    chan struct{} // holds one value while this process changes something
	changes atomic.Int64  // made by this process
}

// open returns the root. Each call opens its own, so that a directory that is
// mounted or replaced later is the one that is used.
func (d *dir) open(tool string) (*os.Root, error) {
	r, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, d.fail(tool, "open the root", err)
	}
	return r, nil
}

// failf returns a failure of a tool.
func (d *dir) failf(tool string, class keep.Class, code, format string, args ...any) *keep.Failure {
	f := keep.Failf(class, code, format, args...)
	f.Tool = keep.ToolName(d.name + "." + tool)
	return f
}

// fail classes an error of the file system by its number. It is for steps
// before the effect, so that no class of it is a doubt.
func (d *dir) fail(tool, doing string, err error) *keep.Failure {
	class, code := keep.ClassTransient, "io"
	var inner *fs.PathError
	var link *os.LinkError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code = "timeout"
	case errors.Is(err, fs.ErrNotExist):
		class, code = keep.ClassPrecondition, "missing"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		class, code = keep.ClassPermission, "denied"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		class, code = keep.ClassPrecondition, "disk-full"
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP),
		errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, fs.ErrInvalid), errors.Is(err, fs.ErrExist), isEscape(err):
		class, code = keep.ClassLogic, "bad-name"
	}
	// The inner error doesn't repeat paths that the script didn't pass.
	if errors.As(err, &inner) {
		err = inner.Err
	} else if errors.As(err, &link) {
		err = link.Err
	}
	return d.failf(tool, class, code, "%s: %v", doing, err)
}

// isEscape reports whether os.Root refused to leave the root. It has no
// exported error for that.
func isEscape(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "path escapes from parent" {
			return true
		}
	}
	return false
}

// checkName refuses what isn't a plain relative path, and hidden files.
func (d *dir) checkName(tool, name string) error {
	why := ""
	switch {
	case name == "" || name == ".":
		why = "is empty"
	case len(name) > maxName:
		why = "is too long"
	case !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00"):
		why = "must be a relative path with slashes, without . and .."
	case hidden(name):
		why = "is hidden: no part of it may start with a dot"
	default:
		return nil
	}
	return d.failf(tool, keep.ClassLogic, "bad-name", "name %q %s", name, why)
}

// hidden reports whether a part of the name starts with a dot. The connector's own
// files are among those.
func hidden(name string) bool { return name[0] == '.' || strings.Contains(name, "/.") }

// decode reads params.
func (d *dir) decode(tool string, params json.RawMessage, into any) error {
	if err := native.Decode(params, into); err != nil {
		return d.failf(tool, keep.ClassLogic, "bad-params", "%v", err)
	}
	return nil
}
