package mail

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/emersion/go-imap/v2"

	"github.com/keep-run/keep/connector/internal/eml"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/native"
)

// A pageOf is what a page is made from.
type pageOf struct {
	folder string
	data   *imap.SelectData
	uids   []imap.UID // sorted; one more than limit says that there are others
	limit  int
	after  imap.UID
}

// Bounds of a page.
const (
	maxListing = native.MaxResult - 1024 // bytes; leaves room for the rest of a result
	maxAtOnce  = 100                     // mails whose headers are held at the same time
)

// page reads the headers of the first mails.
func (a *account) page(ctx context.Context, b *box, p pageOf) (listing, error) {
	out := listing{Items: []json.RawMessage{}, Truncated: len(p.uids) > p.limit}
	l := &lister{a: a, folder: p.folder, validity: p.data.UIDValidity, b: b}
	defer l.close()
	last, size := p.after, 0
	for uids := range slices.Chunk(p.uids[:min(len(p.uids), p.limit)], maxAtOnce) {
		read, err := l.headers(ctx, uids)
		if err != nil {
			return out, err
		}
		for _, uid := range uids {
			s, ok := read[uid]
			if !ok {
				continue // it was deleted a moment ago
			}
			s.short()
			raw, err := jsonval.Encode(s)
			if err != nil {
				return out, err
			}
			if size += len(raw) + 1; size > maxListing {
				break
			}
			out.Items, last = append(out.Items, raw), uid
		}
		if size > maxListing {
			out.Truncated = true
			break
		}
	}
	if !out.Truncated && p.data.UIDNext > 0 {
		last = max(last, p.data.UIDNext-1) // whatever else is there was searched, too
	}
	next := fmt.Sprintf("%d;%d", p.data.UIDValidity, last)
	out.Next = &next
	return out, nil
}

var headerSection = &imap.FetchItemBodySection{Specifier: imap.PartSpecifierHeader, Peek: true, Partial: &imap.SectionPartial{Size: maxHeader}}

// maxOdd bounds the mails of a page that a server cannot deliver, before it is the
// server that is out of order.
const maxOdd = 20

// A lister reads the headers of mails of a folder. After a session that failed it continues
// in one of its own.
type lister struct {
	a        *account
	folder   string
	validity uint32
	b        *box
	stop     func() // ends b; nil: it is not a session of its own
	odd      int    // mails that the server did not deliver
}

// headers reads the headers of mails. One that the server cannot deliver, or delivers in
// a form that nobody can read, costs its own place and no other. One that is not in the result was deleted.
func (l *lister) headers(ctx context.Context, uids []imap.UID) (map[imap.UID]summary, error) {
	out := map[imap.UID]summary{}
	first := l.read(uids, out)
	if first == nil || ctx.Err() != nil {
		return out, first
	}
	err := l.reopen(ctx)
	for _, uid := range uids {
		if _, ok := out[uid]; ok {
			continue
		}
		if err != nil {
			return nil, first
		}
		if problem := l.read([]imap.UID{uid}, out); problem != nil {
			if l.odd++; l.odd > maxOdd || ctx.Err() != nil {
				return nil, first
			}
			s := summarize(mailID{l.folder, l.validity, uid}, nil, nil, nil)
			s.Problems = append(s.Problems, l.a.fail(ctx, "search", fmt.Errorf("the server cannot deliver it: %w", problem)).Message)
			out[uid] = s
			err = l.reopen(ctx)
		}
	}
	return out, nil
}

// read adds what it can read to out. It returns an error if the server still finds one of the mails of which it says
// nothing, or less than it was asked: only what it does not find was deleted.
func (l *lister) read(uids []imap.UID, out map[imap.UID]summary) error {
	options := &imap.FetchOptions{Flags: true, RFC822Size: true, BodySection: []*imap.FetchItemBodySection{headerSection}}
	err := l.b.fetch(imap.UIDSetNum(uids...), options, maxHeader, func(m told) {
		if m.section { // it may tell of new flags first
			out[m.uid] = summarize(mailID{l.folder, l.validity, m.uid}, m.flags, &m.size, eml.Parse(m.raw))
		}
	})
	if err != nil {
		return fmt.Errorf("read the headers of mails: %w", err)
	}
	missing := slices.DeleteFunc(slices.Clone(uids), func(uid imap.UID) bool { _, ok := out[uid]; return ok })
	if len(missing) == 0 {
		return nil
	}
	there, err := l.b.find(l.folder, &imap.SearchCriteria{UID: []imap.UIDSet{imap.UIDSetNum(missing...)}}, 0, len(missing))
	if err == nil && len(there) > 0 {
		err = fmt.Errorf("read the headers of mails: the server finds mail %d, and leaves it out or its header", there[0])
	}
	return err
}

// reopen opens a session of its own in the folder, which must be the same still.
func (l *lister) reopen(ctx context.Context) error {
	l.close()
	b, stop, err := l.a.mailbox(ctx)
	if err != nil {
		return err
	}
	l.b, l.stop = b, stop
	return b.openFor(mailID{l.folder, l.validity, 1}, false)
}

// close ends a session of its own. Whoever reads after it gets an error.
func (l *lister) close() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}
