package mail

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/mail"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/internal/redact"
)

// maxResult bounds what a script gets from one call.
const maxResult = 1 << 20

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

// decode reads params strictly, so that a typo is an error.
func decode(params json.RawMessage, into any) error {
	if len(bytes.TrimSpace(params)) == 0 {
		params = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(params))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("params: %w", err)
	}
	return nil
}

// bad is the failure of a call that the script must change.
func (a *account) bad(tool string, err error) *keep.Failure {
	return a.failf(tool, keep.ClassLogic, "bad-params", "%v", err)
}

// object returns a JSON Schema of an object with those properties.
func object(required, properties string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"object","additionalProperties":false,"required":[%s],"properties":{%s}}`, required, properties))
}

// A reader is a tool that reads.
type reader struct {
	a    *account
	spec connector.Spec
	read func(ctx context.Context, params json.RawMessage) (any, error)
}

// Spec returns the description of the tool.
func (r *reader) Spec() connector.Spec { return r.spec }

// Read performs the call.
func (r *reader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	v, err := r.read(ctx, params)
	if err != nil {
		return nil, r.a.fail(ctx, r.spec.Name, err)
	}
	raw, err := jsonval.Encode(v)
	if err != nil {
		return nil, r.a.failf(r.spec.Name, keep.ClassInternal, "encode", "result: %v", err)
	}
	if len(raw) > maxResult {
		return nil, r.a.failf(r.spec.Name, keep.ClassLogic, "answer-too-large",
			"the result has %d bytes, more than %d; ask for less at a time", len(raw), maxResult)
	}
	return raw, nil
}

// A change is what all mutate tools have.
type change struct {
	a    *account
	spec connector.Spec
}

// Spec returns the description of the tool.
func (c *change) Spec() connector.Spec { return c.spec }

// Pin implements connector.Pinner.
func (c *change) Pin() json.RawMessage { return c.a.pinned }

// ComparePayload finds equal params equivalent, and others significant.
func (c *change) ComparePayload(old, new json.RawMessage) connector.Difference {
	if jsonval.Equal(old, new) {
		return connector.Equivalent
	}
	return connector.Significant
}

// notFound is the answer about a mail that a lookup did not find.
func (c *change) notFound(detail string) connector.Answer {
	if c.spec.NeedsControl {
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail}
	}
	return connector.Answer{Verdict: connector.Retry, Detail: detail}
}

// cut bounds a target for people.
func cut(s string) string {
	r := []rune(strings.ToValidUTF8(s, ""))
	return string(r[:min(len(r), 120)])
}
