package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// followEvery is how often a list is read again while no host says what changes.
const followEvery = time.Second

// follow prints the newest rows of a list, oldest first, and then those that are made or
// change, until ctx ends. A change only says that the list is to be read again, so none needs to
// be kept: however many come during a read, one more read shows them all. If the host ends,
// the list is read each second from then on.
func follow[T any](ctx context.Context, a *app, f listFlags, l listing[T], c *api.Client) error {
	w := &followed[T]{a: a, l: l, f: f, c: c}
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var changes chan struct{}                      // nil: no host says what changes; the list is read again and again
	if stream, err := c.Changes(ctx); err == nil { // before the list is read, so that nothing is missed
		changes = make(chan struct{}, 1)
		reading.Go(func() {
			defer close(changes)
			stream.Each(func() {
				select {
				case changes <- struct{}{}:
				default: // it will be read anyway
				}
			}, l.kinds...)
		})
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := w.show(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		// While a host says what changes, the tick is not needed.
		again := tick.C
		if changes != nil {
			again = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-changes:
			if !open { // the host ended
				changes = nil
			}
		case <-again:
		}
	}
}

// A followed list is one that is read again and again. It remembers the rows of the last reading
// alone: what falls out of the newest ones is not followed any more.
type followed[T any] struct {
	a *app
	l listing[T]
	f listFlags
	c *api.Client

	seen map[string]string // what was printed of the newest rows, by key; nil: nothing was read
}

// show prints what is new, or is not as it was: a row counts as changed if its JSON differs, also
// where the table does not show it.
func (w *followed[T]) show(ctx context.Context) error {
	rows, err := w.newest(ctx)
	if err != nil {
		return err
	}
	// The first reading prints the header and is a whole table; later ones are rows of it.
	began := w.seen != nil
	now := make(map[string]string, len(rows))
	t := terminal.Table{Header: w.l.header}
	for _, r := range slices.Backward(rows) {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		key := w.l.key(r)
		now[key] = string(text)
		if w.seen[key] == string(text) {
			continue
		}
		if !w.a.JSON {
			t.Add(w.l.row(r)...)
		} else if err := w.a.printLine(r); err != nil {
			return err
		}
	}
	w.seen = now
	switch {
	case w.a.JSON:
		return nil
	case !began:
		return t.Print(w.a.Out, w.a.OutInk)
	}
	return t.PrintRows(w.a.Out)
}

// newest reads the newest rows, as many as were asked for, and all that came since the last
// time.
func (w *followed[T]) newest(ctx context.Context) (rows []T, err error) {
	p := api.Paging{Limit: min(w.f.limit, pageSize), Full: w.a.JSON}
	for {
		page, err := w.l.fetch(ctx, w.c, w.f, p)
		if err != nil {
			return nil, err
		}
		rows = append(rows, page.Items...)
		known := slices.ContainsFunc(page.Items, func(r T) bool { _, ok := w.seen[w.l.key(r)]; return ok })
		// If none of this page was there before, more came than fit on it: the next page is needed, too.
		missed := len(w.seen) > 0 && !known
		if page.Next == nil || len(rows) >= w.f.limit && !missed {
			return rows, nil
		}
		p.Cursor = *page.Next
	}
}

// printLine prints v as JSON on one line that is safe to show: who follows with a program reads
// line by line.
func (a *app) printLine(v any) error {
	text, err := terminal.SafeJSON(v, "")
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, []byte(text)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Out, line.String())
	return err
}
