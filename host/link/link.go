// Package link makes and checks the links with which people answer questions without a
// login: a notification has one for each question and sink.
//
// # What is promised
//
//   - Whoever has a link sees its question, and may decide it once, as law/approval says of
//     links. To look never decides: mail scanners and previews follow links.
//   - A link is used when its question is decided: that is one commit, so no crash leaves a
//     decision whose link could be used again. Of two presses at once one decides.
//   - A code is derived from the question by a key that the store keeps, so each attempt to
//     send a link has the same code, every host knows it, and it is stored nowhere.
//
// # What is not
//
// That it was the receiver who pressed: a link can be passed on, as a letter can.
package link

import (
	"context"
	"crypto/subtle"
	"net/url"
	"strings"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/approval"
	"github.com/keep-run/keep/store"
)

// Prefix is where the pages of links are.
const Prefix = "/decide/"

// A Store has the questions, and the key of their links.
type Store interface {
	store.Links

	// Escalation returns a question.
	Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error)
}

// Links makes and checks links. It is safe for concurrent use. A nil *Links makes none, and
// knows none.
type Links struct {
	store Store
	base  string
	sinks []keep.Sink

	mu  sync.Mutex // protects key
	key []byte     // nil: not read yet
}

// New returns the links of a store to the pages at base, such as https://keep.example.com, for
// what sinks are sent. A link that was sent by a sink which is not among them is no longer
// accepted.
func New(s Store, base string, sinks []keep.Sink) *Links {
	return &Links{store: s, base: strings.TrimSuffix(base, "/"), sinks: sinks}
}

// A Link is a link to one question.
type Link struct {
	URL  string
	Code string // the part of URL that nobody else may know
}

// To returns the link to q for a sink; zero if links do not answer q.
func (l *Links) To(ctx context.Context, q keep.Escalation, to keep.Sink) (Link, error) {
	if l == nil || len(approval.ByLink(q)) == 0 {
		return Link{}, nil
	}
	key, err := l.secret(ctx)
	if err != nil {
		return Link{}, err
	}
	code := approval.LinkCode(key, q, to)
	return Link{URL: l.base + Prefix + url.PathEscape(string(q.ID)) + "?" + url.Values{"code": {code}}.Encode(), Code: code}, nil
}

// Holder returns who decides by the code of a link to a question, in words. A code that is
// wrong, or a question that is not there, is keep.ErrNotFound: who guesses does not learn
// which questions there are.
func (l *Links) Holder(ctx context.Context, id keep.EscalationID, code string) (string, error) {
	wrong := &keep.NotFoundError{What: "link", ID: string(id)}
	if l == nil || code == "" {
		return "", wrong
	}
	key, err := l.secret(ctx)
	if err != nil {
		return "", err
	}
	q, err := l.store.Escalation(ctx, id)
	if err != nil {
		return "", err
	}
	if len(approval.ByLink(q)) == 0 {
		return "", wrong
	}
	holder := ""
	for _, to := range l.sinks {
		if subtle.ConstantTimeCompare([]byte(approval.LinkCode(key, q, to)), []byte(code)) == 1 {
			holder = "link sent to " + string(to)
		}
	}
	if holder == "" {
		return "", wrong
	}
	return holder, nil
}

// secret returns the key, and reads it once.
func (l *Links) secret(ctx context.Context) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.key == nil {
		key, err := l.store.LinkKey(ctx)
		if err != nil {
			return nil, err
		}
		l.key = key
	}
	return l.key, nil
}
