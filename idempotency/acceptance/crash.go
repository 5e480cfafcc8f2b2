package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// crash returns the cases that need the server to die.
func crash() []testCase {
	return append(crashedAfter(), crashedDuring()...)
}

// crashedAfter returns the cases of a server that dies after it answered.
func crashedAfter() []testCase {
	return []testCase{
		{"crash", "an answer survives a kill", restart, func(p *probe) error {
			a, err := p.first(request{})
			if err != nil {
				return err
			}
			if err := p.restart(); err != nil {
				return err
			}
			return p.still(a, request{})
		}},
		{"crash", "another body is still refused after a kill", restart, func(p *probe) error {
			other := `{"other":true}`
			if err := p.once(request{}, request{}); err != nil {
				return err
			}
			if err := p.restart(); err != nil {
				return err
			}
			return p.refused(request{body: &other}, 1, 422)
		}},
		{"crash", "two callers stay apart after a kill", restart | otherCaller, func(p *probe) error {
			a, err := p.send(request{})
			if err != nil {
				return err
			}
			if _, err := p.send(request{caller: true}); err != nil {
				return err
			}
			if err := p.restart(); err != nil {
				return err
			}
			again, err := p.send(request{})
			if err == nil && (!again.replayed() || !bytes.Equal(a.body, again.body)) {
				err = fmt.Errorf("the first caller's retry got %s, want %s", again, a)
			}
			return err
		}},
		{"crash", "a freed key is free after a kill", restart | programmable, func(p *probe) error {
			if _, err := p.send(request{do: []string{"X-Do-Status", "429"}}); err != nil {
				return err
			}
			if err := p.restart(); err != nil {
				return err
			}
			if a, err := p.settled(request{}); err != nil || a.status != 201 {
				return errors.Join(err, fmt.Errorf("the retry got %s", a))
			}
			return p.ran(2)
		}},
		{"crash", "a stream is not run again after a kill", restart | programmable, func(p *probe) error {
			q := request{do: []string{"X-Do-Header", "Content-Type: text/event-stream", "X-Do-Status", "200"}}
			if _, err := p.send(q); err != nil {
				return err
			}
			if err := p.restart(); err != nil {
				return err
			}
			return p.refused(q, 1, 409)
		}},
	}
}

// crashedDuring returns the cases of a server that dies while it executes a request.
func crashedDuring() []testCase {
	return []testCase{
		{"crash", "a request under way is not run again, and not stuck", restart | programmable, func(p *probe) error {
			if err := p.killed(); err != nil {
				return err
			}
			return p.doubtful()
		}},
		{"crash", "a doubt survives another kill", restart | programmable, func(p *probe) error {
			if err := p.killed(); err != nil {
				return err
			}
			if err := p.doubtful(); err != nil {
				return err
			}
			if err := p.restart(); err != nil {
				return err
			}
			return p.doubtful()
		}},
		{"crash", "a doubt says nothing to another request", restart | programmable, func(p *probe) error {
			if err := p.killed(); err != nil {
				return err
			}
			other := `{"other":true}`
			return p.refused(request{body: &other}, 1, 422)
		}},
	}
}

// killed kills the server while it executes the case's request.
func (p *probe) killed() error {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	during := *p
	during.ctx = ctx
	var answered error
	var first sync.WaitGroup
	first.Go(func() { _, answered = during.send(request{do: []string{"X-Do-Wait", "30s"}}) })
	err := p.soon("the request was not run", func() bool { return p.ran(1) == nil })
	err = errors.Join(err, p.restart())
	cancel() // if the connection did not end with the server
	first.Wait()
	if answered == nil && err == nil {
		err = errors.New("the request was answered although the server was killed")
	}
	return err
}

// doubtful wants a retry to be told that nobody knows, and no second run.
func (p *probe) doubtful() error {
	a, err := p.settled(request{})
	if err != nil {
		return err
	}
	var problem struct{ Type, Reference string }
	_ = json.Unmarshal(a.body, &problem)
	if a.status != http.StatusConflict || !strings.HasSuffix(problem.Type, "outcome-unknown") || problem.Reference == "" {
		return fmt.Errorf("the retry got %s, want 409 outcome-unknown with a reference", a)
	}
	return p.ran(1)
}

// settled sends q again for as long as the first request is said to be in
// progress, which may be for the lease of an owner that died.
func (p *probe) settled(q request) (a response, err error) {
	err = p.soon("it is stuck", func() bool {
		if a, err = p.send(q); err != nil {
			return true
		}
		var problem struct{ Type string }
		_ = json.Unmarshal(a.body, &problem)
		return a.status != http.StatusConflict || !strings.HasSuffix(problem.Type, "in-progress")
	})
	return a, err
}

// soon waits for a fact, for as long as the lease and a while.
func (p *probe) soon(otherwise string, fact func() bool) error {
	for until := time.Now().Add(p.t.Lease + 30*time.Second); !fact(); {
		if time.Now().After(until) {
			return errors.New(otherwise + " after " + (p.t.Lease + 30*time.Second).String())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
	return nil
}

// restart kills the server and waits until it is there again. One that is dying
// may still answer, so it has to answer for a while.
func (p *probe) restart() error {
	if err := p.t.Restart(p.ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	answered := 0
	return p.soon("the server does not come back", func() bool {
		p.t.Client.CloseIdleConnections() // they may lead to the dead
		if _, err := p.send(request{method: http.MethodGet, noKey: true, do: []string{"X-Do-Count", "none"}}); err != nil {
			answered = 0
			return false
		}
		answered++
		return answered == 5
	})
}
