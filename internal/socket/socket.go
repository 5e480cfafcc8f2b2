// Package socket makes Unix sockets that only their owner can open, also not while they are made.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// Listen makes the socket in a directory of its own and moves it into place. A socket that lies
// there is replaced: whether its process is gone is for the caller to know. Anything else stays as
// it is. Close of the listener removes the file.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is no socket, and is not replaced by one", path)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".keep-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	l, err := new(net.ListenConfig).Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it knows the first name
	err = os.Chmod(made, 0o600)
	own, statErr := os.Lstat(made)
	if err = errors.Join(err, statErr); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{l, path, own}, nil
}

// A listener takes its file away when it is closed.
type listener struct {
	net.Listener
	path string
	own  fs.FileInfo // the file
}

// Close closes the socket and removes its file. One that replaced it stays: it is of another process, as where two hosts of one
// Postgres are given one place.
func (l *listener) Close() error {
	is, err := os.Lstat(l.path)
	if err == nil && os.SameFile(is, l.own) {
		err = os.Remove(l.path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // closed before
	}
	return errors.Join(l.Listener.Close(), err)
}
