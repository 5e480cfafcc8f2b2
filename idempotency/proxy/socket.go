package proxy

import (
	"context"
	"errors"
	"net"

	"github.com/keep-run/keep/internal/socket"
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

// bindSocket makes the socket, if nothing but that of a process that is gone is there.
func bindSocket(ctx context.Context, path string) (net.Listener, error) {
	if conn, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		return nil, errors.Join(errors.New("another process serves it"), conn.Close())
	}
	return socket.Listen(ctx, path)
}
