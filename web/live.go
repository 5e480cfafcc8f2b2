package web

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/internal/pause"
)

// Times of a stream of changes.
const (
	liveGap   = 250 * time.Millisecond // least time between two messages
	liveBeat  = 25 * time.Second       // a comment after so much silence keeps proxies from closing
	liveWrite = 10 * time.Second       // who does not read for so long is gone
)

// liveURL is the stream of the changes that a page watches.
func liveURL(p page, after string) string {
	q := url.Values{"after": {after}}
	for _, k := range p.Watch {
		q.Add("kind", string(k))
	}
	if p.Of != "" {
		q.Set("workflow", string(p.Of))
	}
	return "/live?" + q.Encode()
}

// live tells a page, as server-sent events, that something it shows changed. The
// message has no data: the page asks for itself again. The stream ends with the
// session, at once or with the next message.
func (s *site) live(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Feed == nil {
		s.fail(w, r, &keep.NotFoundError{What: "page", ID: "/live"})
		return
	}
	q := r.URL.Query()
	watch := func(c feed.Change) bool {
		of := keep.WorkflowName(q.Get("workflow"))
		if c.IsReset() {
			return true
		}
		return (of == "" || c.Workflow == "" || c.Workflow == of) &&
			slices.ContainsFunc(c.Kinds, func(k feed.Kind) bool { return slices.Contains(q["kind"], string(k)) })
	}
	out := newStream(w)
	ctx := r.Context()
	// A browser that connects again names the last change that it heard of; a new page, the one that it was
	// read after. What happened between is told at once, so nothing is missed.
	sub := s.cfg.Feed.Subscribe(ctx, cmp.Or(r.Header.Get("Last-Event-ID"), q.Get("after")))
	if err := out.beat(); err != nil { // the stream is open
		return
	}
	for sent := time.Now(); ; {
		batch, err := nextWithin(ctx, sub, time.Until(sent.Add(liveBeat)))
		told, quiet := slices.ContainsFunc(batch, watch), errors.Is(err, errBeat)
		if told || quiet || slices.ContainsFunc(batch, ends) {
			if access.Still(ctx) != nil { // nothing more is for them
				return
			}
		}
		switch {
		case told:
			sent, err = time.Now(), out.changed(batch[len(batch)-1].ID)
		case quiet:
			sent, err = time.Now(), out.beat()
		}
		// Changes that come in the pause are one message after it: a busy host doesn't make each page
		// load itself for each commit.
		if err != nil || pause.For(ctx, liveGap) != nil {
			return
		}
	}
}

// ends reports whether a change may have revoked the reader's credential.
func ends(c feed.Change) bool { return slices.Contains(c.Kinds, feed.Credential) }

// A stream writes server-sent events.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func newStream(w http.ResponseWriter) stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	// nginx would keep messages back until its buffer is full.
	h.Set("X-Accel-Buffering", "no")
	return stream{w, http.NewResponseController(w)}
}

// changed tells that something changed, up to the change with that id.
func (s stream) changed(id string) error {
	var b strings.Builder
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	b.WriteString("event: keep-changed\ndata:\n\n")
	return s.send(b.String())
}

// beat sends a comment, which browsers ignore.
func (s stream) beat() error { return s.send(": \n\n") }

func (s stream) send(text string) error {
	// Not every writer has deadlines; the server's own has.
	if err := s.rc.SetWriteDeadline(time.Now().Add(liveWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}
