package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// listenSocket binds the admin socket, so that nobody else can open it, also not
// while it is made. Without it there is still the address; a proxy on the same
// database that has it already answers as well as this one.
func (p *Proxy) listenSocket(ctx context.Context) net.Listener {
	path := p.cfg.AdminSocket
	if path == "" {
		return nil
	}
	l, err := bindSocket(ctx, path)
	if err != nil {
		p.cfg.Logger.WarnContext(ctx, "there is no admin socket", "path", path, "err", err)
		return nil
	}
	return l
}

// bindSocket makes the socket in a directory of its own and moves it into place, if nothing but the socket of
// a process that is gone is there.
func bindSocket(ctx context.Context, path string) (net.Listener, error) {
	if conn, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		return nil, errors.Join(errors.New("another process serves it"), conn.Close())
	}
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
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socket{l, path}, nil
}

// A socket takes its file away when it is closed.
type socket struct {
	net.Listener
	path string
}

// Close closes the socket and removes its file.
func (s *socket) Close() error {
	err := os.Remove(s.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil // closed before
	}
	return errors.Join(s.Listener.Close(), err)
}
