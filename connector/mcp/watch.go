package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep/internal/pause"
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
	if !c.modern() {
		var kept sync.WaitGroup
		kept.Go(func() {
			if again {
				s.subscribeAgain(ctx, sl, c)
			}
			s.giveUp(ctx, sl, c)
		})
		defer kept.Wait() // before ctx ends: a server may tell nothing outside of requests
	}
	for wait := watchFirst; ; wait = min(2*wait, watchMax) {
		if !s.listen(ctx, c) {
			return
		}
		if pause.For(ctx, wait) != nil {
			return
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

// maxUnwanted is how many subscriptions of a connection wait to be given up (law: bounded). More than that stay at the server.
const maxUnwanted = 1024

// subscriptions are what a server with a handshake was asked for by resources/subscribe, on the connections of one slot. A server
// may work on two requests that are out at once in any order. So each ends with a look at what is wanted by then, and is followed
// by the opposite one if that is something else: the last one of a resource begins when all others were answered.
type subscriptions struct {
	took     map[string]bool     // resources; false: the server was asked, and did not answer yet
	unwanted map[string]struct{} // resources to be given up
}

// drop notes that a resource is to be given up.
func (t *subscriptions) drop(uri string) {
	delete(t.took, uri)
	if len(t.unwanted) < maxUnwanted {
		t.unwanted[uri] = struct{}{}
	}
}

// next returns a resource that is to be given up, and forgets it.
func (t *subscriptions) next() (uri string, ok bool) {
	for uri = range t.unwanted {
		delete(t.unwanted, uri)
		return uri, true
	}
	return "", false
}

// subscribes notes that a client asks for a resource, before the request is sent: a connection that is lost since must not miss
// it. What is returned notes the answer.
func (s *Server) subscribes(c *Client, params json.RawMessage) func(*Message, *error) {
	var p struct {
		URI string `json:"uri"`
	}
	_ = json.Unmarshal(params, &p)
	sl, err := s.slot(c)
	if err != nil {
		return func(*Message, *error) {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &sl.subscriptions
	_, unwanted := t.unwanted[p.URI]
	delete(t.unwanted, p.URI)
	if !t.took[p.URI] {
		t.took[p.URI] = false
	}
	return func(m *Message, err *error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, unsent := errors.AsType[*UnsentError](*err)
		refused := unsent || m.Error != nil
		_, wanted := slices.BinarySearch(s.watched, p.URI)
		switch {
		case wanted && *err == nil && !refused:
			t.took[p.URI] = true
		case wanted && t.took[p.URI]: // for another client
		case refused && !unwanted:
			delete(t.took, p.URI)
		default: // it may have it
			t.drop(p.URI)
			s.wake()
		}
	}
}

// subscribeAgain subscribes to what a server with a handshake took on a connection that was lost.
func (s *Server) subscribeAgain(ctx context.Context, sl *slot, c *connection) {
	s.mu.Lock()
	took := slices.Sorted(maps.Keys(sl.took))
	s.mu.Unlock()
	for _, uri := range took {
		s.ask(ctx, c, "resources/subscribe", uri)
		if ctx.Err() != nil {
			return
		}
	}
}

// giveUp has a server with a handshake end what nobody wants any more, until the connection is over. It forgets what the server does
// not end in time.
func (s *Server) giveUp(ctx context.Context, sl *slot, c *connection) {
	for {
		s.mu.Lock()
		if c.dead() {
			s.mu.Unlock()
			return // what is unwanted now may be of the next connection
		}
		uri, more := sl.next()
		changed := s.rewatch
		s.mu.Unlock()
		if !more {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		s.ask(ctx, c, "resources/unsubscribe", uri)
		s.mu.Lock()
		_, again := sl.took[uri]
		s.mu.Unlock()
		if again { // the server may have taken that subscription before it gave up this one
			s.ask(ctx, c, "resources/subscribe", uri)
		}
	}
}

// ask makes a request about a resource that no client waits for.
func (s *Server) ask(ctx context.Context, c *connection, method, uri string) {
	params, _ := json.Marshal(map[string]string{"uri": uri})
	once, late := context.WithTimeout(ctx, answerTime)
	defer late()
	ans, err := c.call(once, request{method: method, params: params})
	if err == nil && ans.Error != nil {
		err = ans.Error
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn("a request about a subscription failed at an MCP server", "server", s.cfg.Name, "method", method, "err", s.hidden(err))
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

// Watch says of which resources the server is to tell changes, and waits for nothing. A server of 2026-07-28 is asked for all of
// them. One with a handshake is asked by resources/subscribe; what it took and is none of them any more, it is asked to end.
func (s *Server) Watch(uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris = slices.Sorted(slices.Values(uris))
	if slices.Equal(s.watched, uris) {
		return
	}
	s.watched = uris
	for _, sl := range s.slots {
		for uri, took := range sl.took {
			if _, wanted := slices.BinarySearch(uris, uri); took && !wanted {
				sl.drop(uri)
			}
		}
	}
	s.wake()
}

// wake has those who ask the server look at what is wanted; mu is held.
func (s *Server) wake() {
	close(s.rewatch)
	s.rewatch = make(chan struct{})
}
