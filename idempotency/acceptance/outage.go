package acceptance

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
)

// outage returns the cases that need the store to be gone.
func outage() []testCase {
	c := func(name string, needs need, run func(*probe) error) testCase {
		return testCase{"store outage", name, needs | store, run}
	}
	return []testCase{
		c("a new key is refused and not run", anything, func(p *probe) error {
			return p.without(func() error { return p.refused(request{}, 0, 503) })
		}),
		c("a refused key runs once afterwards", anything, func(p *probe) error {
			if err := p.without(func() error { _, err := p.send(request{}); return err }); err != nil {
				return err
			}
			return p.once(request{}, request{})
		}),
		c("an answered key is not run again", anything, func(p *probe) error {
			first, err := p.first(request{})
			if err != nil {
				return err
			}
			err = p.without(func() error {
				a, err := p.send(request{})
				if err == nil && a.status != 503 && !(a.replayed() && bytes.Equal(a.body, first.body)) {
					err = fmt.Errorf("the retry got %s, want the first answer or 503", a)
				}
				return err
			})
			if err != nil {
				return err
			}
			return p.still(first, request{})
		}),
		c("a request without a key passes", programmable, func(p *probe) error {
			return p.without(func() error {
				a, err := p.send(request{noKey: true})
				if err == nil && a.status != 201 {
					err = fmt.Errorf("it got %s", a)
				}
				return errors.Join(err, p.ran(1))
			})
		}),
		c("a refusal says when to come back", anything, func(p *probe) error {
			return p.without(func() error {
				a, err := p.send(request{})
				if err == nil && (a.status != 503 || a.header.Get("Retry-After") == "") {
					err = fmt.Errorf("got %s, want 503 with Retry-After", a)
				}
				return err
			})
		}),
		c("an answer that can't be recorded is withheld, and not run again", programmable, (*probe).outageDuring),
	}
}

// outageDuring takes the store away while the server executes a request.
func (p *probe) outageDuring() error {
	q := request{do: []string{"X-Do-Wait", "300ms"}}
	var a response
	var failed error
	var first sync.WaitGroup
	first.Go(func() { a, failed = p.send(q) })
	defer first.Wait()
	if err := p.soon("the request was not run", func() bool { return p.ran(1) == nil }); err != nil {
		return err
	}
	err := p.without(func() error {
		first.Wait()
		if failed == nil && a.status != 503 {
			failed = fmt.Errorf("it was answered with %s, want 503", a)
		}
		return failed
	})
	if err != nil {
		return err
	}
	a, err = p.settled(q)
	if err == nil && a.status != 409 && !a.replayed() {
		err = fmt.Errorf("the retry got %s", a)
	}
	return errors.Join(err, p.ran(1))
}

// without calls f while the store is gone.
func (p *probe) without(f func() error) error {
	if err := p.t.StoreDown(p.ctx); err != nil {
		return fmt.Errorf("store down: %w", err)
	}
	err := f()
	if up := p.t.StoreUp(p.ctx); up != nil {
		return errors.Join(err, fmt.Errorf("store up: %w", up))
	}
	return errors.Join(err, p.soon("the server does not find its store again", func() bool {
		q := *p
		q.key = newKey()
		a, err := q.send(request{})
		return err == nil && a.status < 500
	}))
}
