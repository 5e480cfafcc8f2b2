package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/emersion/go-smtp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/ontime"
	"github.com/keep-run/keep/internal/regular"
)

// dial connects to e. With TLS from the beginning the handshake is over when it returns.
// Nothing is written after the end that ctx has of ontime.
func (a *account) dial(ctx context.Context, e endpoint) (net.Conn, *tls.Config, error) {
	cfg, err := a.tlsConfig(e)
	if err != nil {
		return nil, nil, err
	}
	conn, err := new(ontime.Dialer).DialContext(ctx, "tcp", e.addr)
	if err != nil || e.tls != implicit {
		return conn, cfg, err
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return secure, cfg, nil
}

// maxCertificates bounds the file of certificates to trust, in bytes.
const maxCertificates = 1 << 20

// tlsConfig trusts the certificates of the file ca, which is read each time: it may be
// replaced while the host runs.
func (a *account) tlsConfig(e endpoint) (*tls.Config, error) {
	cfg := &tls.Config{ServerName: e.host, MinVersion: tls.VersionTLS12}
	if a.ca == "" || e.tls == none {
		return cfg, nil
	}
	pem, err := regular.Read(a.ca, maxCertificates)
	if err != nil {
		return nil, keep.Failf(keep.ClassPrecondition, "ca", "read the certificates to trust: %v", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, keep.Failf(keep.ClassPrecondition, "ca", "there is no certificate in %s", a.ca)
	}
	return cfg, nil
}

// submission opens a session with the SMTP server that is ready for MAIL. stop ends it.
func (a *account) submission(ctx context.Context) (*smtp.Client, func(), error) {
	for first := true; ; first = false {
		l, err := a.login(ctx)
		if err != nil {
			return nil, nil, err
		}
		c, stop, err := a.submissionAs(ctx, l)
		if err == nil || !first || !a.anew(ctx, l, err) {
			a.accepted(ctx, err)
			return c, stop, err
		}
	}
}

func (a *account) submissionAs(ctx context.Context, l login) (*smtp.Client, func(), error) {
	conn, cfg, err := a.dial(ontime.WithEnd(ctx), a.smtp)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", a.smtp.addr, err)
	}
	cancel := context.AfterFunc(ctx, func() { conn.Close() })
	stop := func() { cancel(); conn.Close() }
	c, err := a.greet(bound(conn, a.smtp.addr), cfg, l)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return c, stop, nil
}

// greet says hello, begins TLS and logs in.
func (a *account) greet(conn net.Conn, cfg *tls.Config, l login) (*smtp.Client, error) {
	var c *smtp.Client
	if a.smtp.tls == startTLS {
		var err error
		if c, err = smtp.NewClientStartTLS(conn, cfg); err != nil {
			return nil, fmt.Errorf("STARTTLS at %s: %w", a.smtp.addr, err)
		}
	} else {
		c = smtp.NewClient(conn)
	}
	if err := c.Hello("localhost"); err != nil {
		return nil, fmt.Errorf("greet %s: %w", a.smtp.addr, err)
	}
	if l.client != nil {
		if err := c.Auth(l.client); err != nil {
			return nil, &loginError{a.smtp.addr, err}
		}
	}
	return c, nil
}

// A box is a session with the IMAP server that is logged in.
type box struct {
	*imapclient.Client
	conn *bounded
}

// mailbox opens a session that writes nothing after the end of ctx, and ends with it.
// stop ends it.
func (a *account) mailbox(ctx context.Context) (b *box, stop func(), err error) {
	if b, err = a.openBox(ontime.WithEnd(ctx)); err != nil {
		return nil, nil, err
	}
	cancel := b.during(ctx)
	return b, func() { cancel(); b.end() }, nil
}

// during ends the session if ctx ends, unless the result is called before.
func (b *box) during(ctx context.Context) func() {
	cancel := context.AfterFunc(ctx, func() { b.conn.Close() })
	return func() { cancel() }
}

// end closes the connection and waits for the session's goroutine.
func (b *box) end() { b.Close() } // the connection is of no more use, whatever the error

// openBox opens a session. It ends if ctx ends before it is logged in.
func (a *account) openBox(ctx context.Context) (*box, error) { return a.openBoxWith(ctx, nil) }

// openBoxWith opens a session whose news go to a handler; nil: nobody wants them.
func (a *account) openBoxWith(ctx context.Context, news *imapclient.UnilateralDataHandler) (*box, error) {
	for first := true; ; first = false {
		l, err := a.login(ctx)
		if err != nil {
			return nil, err
		}
		b, err := a.openBoxAs(ctx, l, news)
		if err == nil || !first || !a.anew(ctx, l, err) {
			a.accepted(ctx, err)
			return b, err
		}
	}
}

func (a *account) openBoxAs(ctx context.Context, l login, news *imapclient.UnilateralDataHandler) (*box, error) {
	conn, cfg, err := a.dial(ctx, a.imap)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", a.imap.addr, err)
	}
	b := &box{conn: bound(conn, a.imap.addr)}
	defer b.during(ctx)()
	options := &imapclient.Options{TLSConfig: cfg, UnilateralDataHandler: news, DebugWriter: shallow{b.conn}}
	if a.imap.tls == startTLS {
		if b.Client, err = imapclient.NewStartTLS(b.conn, options); err != nil {
			conn.Close()
			return nil, fmt.Errorf("STARTTLS at %s: %w", a.imap.addr, b.cause(err))
		}
	} else {
		b.Client = imapclient.New(b.conn, options)
	}
	if err := b.WaitGreeting(); err != nil {
		b.end()
		return nil, fmt.Errorf("greet %s: %w", a.imap.addr, b.cause(err))
	}
	if err := b.Authenticate(imapLogin{l.client}); err != nil {
		b.end()
		return nil, &loginError{a.imap.addr, b.cause(err)}
	}
	return b, nil
}

// A loginError is a login that failed.
type loginError struct {
	addr string
	err  error
}

// Error says where.
func (e *loginError) Error() string { return "log in at " + e.addr + ": " + e.err.Error() }

// Unwrap returns what the server said.
func (e *loginError) Unwrap() error { return e.err }

// errOver reports whether err says that the time for the call is over.
func errOver(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ontime.ErrLate) || errors.Is(err, os.ErrDeadlineExceeded)
}
