package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// How long a stream that broke is waited with before it is opened again.
const (
	watchFirst = time.Second
	watchMax   = 10 * time.Second
)

// watch has a server tell of its changes, until the connection of a slot is over. Again says that it follows one that was lost.
func (s *Server) watch(sl *slot, c *connection, again bool) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	over := c.link
	switch l := over.(type) {
	case *httpLink:
		defer context.AfterFunc(l.ctx, stop)()
	case *process:
		done := make(chan struct{})
		defer close(done)
		s.watches.Go(func() {
			select {
			case <-l.over:
				stop()
			case <-done:
			}
		})
	}
	if again && !c.modern() {
		var asked sync.WaitGroup
		asked.Go(func() { s.subscribeAgain(ctx, sl, c) })
		defer asked.Wait() // before ctx ends: a server may tell nothing outside of requests
	}
	for wait := watchFirst; ; wait = min(2*wait, watchMax) {
		if !s.listen(ctx, c) {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// listen reads what a server tells outside of requests until that ends. False: it tells nothing, or
// tells it without being asked.
func (s *Server) listen(ctx context.Context, c *connection) bool {
	if !c.modern() {
		h, ok := c.link.(*httpLink)
		return ok && h.listen()
	}
	for ctx.Err() == nil {
		s.mu.Lock()
		watched, changed := slices.Clone(s.watched), s.rewatch
		s.mu.Unlock()
		again, err := s.subscribe(ctx, c, wanted(c.info.Capabilities, watched), changed)
		if err != nil || !again {
			return err != nil
		}
	}
	return false
}

// subscribes notes what a request changes of the subscriptions of a client's connection, before it is sent: one that follows must
// not miss it. What is returned takes a subscription back that the server did not take.
func (s *Server) subscribes(c *Client, method string, params json.RawMessage) func(*Message, *error) {
	var p struct {
		URI string `json:"uri"`
	}
	_ = json.Unmarshal(params, &p)
	sl, err := s.slot(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
	case method == "resources/unsubscribe":
		for _, one := range s.slots {
			delete(one.took, p.URI)
		}
	case method == "resources/subscribe" && !sl.took[p.URI]:
		if sl.took == nil {
			sl.took = make(map[string]bool)
		}
		sl.took[p.URI] = true
		return func(m *Message, err *error) {
			if *err != nil || m.Error != nil {
				s.mu.Lock()
				delete(sl.took, p.URI)
				s.mu.Unlock()
			}
		}
	}
	return func(*Message, *error) {}
}

// subscribeAgain subscribes to what a server with a handshake took on a connection that was lost.
func (s *Server) subscribeAgain(ctx context.Context, sl *slot, c *connection) {
	s.mu.Lock()
	took := slices.Sorted(maps.Keys(sl.took))
	s.mu.Unlock()
	for _, uri := range took {
		params, _ := json.Marshal(map[string]string{"uri": uri})
		once, late := context.WithTimeout(ctx, answerTime)
		ans, err := c.call(once, request{method: "resources/subscribe", params: params})
		late()
		if err == nil && ans.Error != nil {
			err = ans.Error
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.cfg.Logger.Warn("an MCP server that begins anew does not tell of a resource any more", "server", s.cfg.Name, "err", s.hidden(err))
		}
	}
}

// subscribe has a server of 2026-07-28 tell of what is wanted, until the server ends that. Again says that
// something else is wanted now. An error says that it may work later.
func (s *Server) subscribe(ctx context.Context, c *connection, want map[string]any, changed <-chan struct{}) (again bool, err error) {
	if want == nil {
		select {
		case <-changed:
		case <-ctx.Done():
		}
		return true, nil
	}
	params, err := json.Marshal(map[string]any{"notifications": want})
	if err != nil {
		return false, nil
	}
	r, err := s.modernRequest(new(Client), "subscriptions/listen", params)
	if err != nil {
		return false, nil
	}
	once, stop := context.WithCancel(WithClient(ctx, &Client{Modern: true, Cancels: true}))
	defer stop()
	s.watches.Go(func() {
		select {
		case <-changed:
			stop()
		case <-once.Done():
		}
	})
	ans, err := c.call(once, r)
	if once.Err() != nil {
		return true, nil
	}
	if err == nil && ans.Error == nil {
		err = errEnded
	}
	return false, err
}

var errEnded = errors.New("the server ended what it tells")

// tells are the capabilities of a server by which it tells of changes.
type tells struct {
	Tools, Prompts, Resources struct {
		ListChanged bool `json:"listChanged"`
		Subscribe   bool `json:"subscribe"`
	}
}

// Subscribes reports whether a server tells of changes of a resource to who asks for it.
func Subscribes(i Info) bool {
	var can tells
	_ = json.Unmarshal(i.Capabilities, &can)
	return can.Resources.Subscribe
}

// wanted is what a server is to tell of; nil: it tells of nothing.
func wanted(capabilities json.RawMessage, watched []string) map[string]any {
	var can tells
	_ = json.Unmarshal(capabilities, &can)
	want := make(map[string]any)
	for name, is := range map[string]bool{"toolsListChanged": can.Tools.ListChanged, "promptsListChanged": can.Prompts.ListChanged, "resourcesListChanged": can.Resources.ListChanged} {
		if is {
			want[name] = true
		}
	}
	if can.Resources.Subscribe && len(watched) > 0 {
		want["resourceSubscriptions"] = watched
	}
	if len(want) == 0 {
		return nil
	}
	return want
}

// Watch says of which resources a server of 2026-07-28 is to tell changes. One with a handshake is asked by resources/subscribe.
func (s *Server) Watch(uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.watched, uris) {
		return
	}
	s.watched = slices.Clone(uris)
	close(s.rewatch)
	s.rewatch = make(chan struct{})
}
