package mail

import (
	"context"
	"encoding/json"
	"net/mail"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/native"
	"github.com/keep-run/keep/internal/redact"
)

// An account is what the tools of a connection share.
type account struct {
	name       string
	smtp, imap endpoint
	ca         string
	hide       redact.Redactor      // of the configuration
	used       atomic.Pointer[used] // what the connected account held last; nil: it was not used yet
	pinned     json.RawMessage

	user, password, token string
	connected             string // an account whose credential logs in; empty: none
	accounts              connector.Accounts

	from       *mail.Address
	sent       string
	copyToSelf bool
	settle     *time.Duration // nil: an absence shows nothing
	timeout    time.Duration

	reads pool

	watched string                   // folder whose new mails the server announces
	seen    atomic.Pointer[position] // how far it went when it was searched last; nil: it was not
}

// tools returns the tools that the servers allow.
func (a *account) tools() []connector.Tool {
	var out []connector.Tool
	if a.smtp.addr != "" {
		out = append(out, a.sendTool())
	}
	if a.imap.addr != "" {
		out = append(out, a.readTools()...)
		out = append(out, a.changeTools()...)
	}
	return out
}

// close ends what is kept open.
func (a *account) close() error {
	a.reads.close()
	return nil
}

// idle is how long a session of reads is kept for the next read.
const idle = 5 * time.Second

// A pool keeps at most one session for reads.
type pool struct {
	mu     sync.Mutex // protects the fields below
	kept   *box
	timer  *time.Timer
	closed bool
	ending sync.WaitGroup
}

// take returns the session that is kept; nil if there is none.
func (p *pool) take() *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.kept
	p.kept = nil
	if p.timer != nil {
		p.timer.Stop()
	}
	return b
}

// put keeps b for a while, or ends it.
func (p *pool) put(b *box) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept != nil || p.closed {
		p.ending.Go(b.end)
		return
	}
	p.kept = b
	p.timer = time.AfterFunc(idle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.kept == b {
			p.kept = nil
			p.ending.Go(b.end)
		}
	})
}

// close ends the session that is kept, and waits for all.
func (p *pool) close() {
	if b := p.take(); b != nil {
		b.end()
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.ending.Wait()
}

// read runs f with a session. One that was kept may have died meanwhile; a read can be
// repeated on a new one.
func (a *account) read(ctx context.Context, f func(*box) error) error {
	if b := a.reads.take(); b != nil {
		err := a.use(ctx, b, f)
		if err == nil || said(err) || isFailure(err) || ctx.Err() != nil {
			return err
		}
	}
	b, err := a.openBox(ctx)
	if err != nil {
		return err
	}
	return a.use(ctx, b, f)
}

// use runs f and keeps the session if it is in order afterwards.
func (a *account) use(ctx context.Context, b *box, f func(*box) error) error {
	cancel := b.during(ctx)
	err := f(b)
	cancel()
	if ctx.Err() == nil && (err == nil || said(err) || isFailure(err)) {
		a.reads.put(b)
	} else {
		b.end()
	}
	return err
}

// isFailure reports whether a connection is in order although err is not nil.
func isFailure(err error) bool {
	_, ok := err.(*keep.Failure)
	return ok
}

// bad is the failure of a call that the script must change.
func (a *account) bad(tool string, err error) *keep.Failure {
	return a.failf(tool, keep.ClassLogic, "bad-params", "%v", err)
}

// A change is what all mutate tools have.
type change struct {
	native.Change
	a *account
}

// Pin implements connector.Pinner.
func (c *change) Pin() json.RawMessage { return c.a.pinned }

// notFound is the answer about a mail that a lookup did not find.
func (c *change) notFound(detail string) connector.Answer {
	if c.Tool.NeedsControl {
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail}
	}
	return connector.Answer{Verdict: connector.Retry, Detail: detail}
}
