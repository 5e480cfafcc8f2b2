package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/keep-run/keep/connector/mcp"
)

// What servers tell without being asked reaches clients by their sessions, and those of the version of
// 2026-07-28 by the streams that they open for it.

// Bounds of what a client listens to.
const (
	maxListens = 64 // of a session
	maxWatched = 256
)

// A listen is what a client of 2026-07-28 wants to be told.
type listen struct {
	x       *exchange
	id      json.RawMessage
	methods map[string]bool
	watches map[string]*watch // resources
}

// A watch is the subscription of a client to a resource: which servers tell it of that. A watch that its session does not have any
// more counts for nothing, whatever is still out for it.
type watch struct {
	asking int             // requests that are out: until it is known who takes them, all servers of the client tell it
	at     map[string]bool // servers, see taker
}

// tells reports whether a server tells the client of the resource; w may be nil.
func (w *watch) tells(server string) bool { return w != nil && (w.asking > 0 || w.at[server]) }

// listChanges are the members of a subscription, by the notifications that they are for.
var listChanges = map[string]string{
	"notifications/tools/list_changed": "toolsListChanged", "notifications/prompts/list_changed": "promptsListChanged", "notifications/resources/list_changed": "resourcesListChanged",
}

// listen answers subscriptions/listen: it tells until ctx ends.
func (s *session) listen(ctx context.Context, x *exchange, m mcp.Message) answer {
	var p struct {
		Notifications map[string]json.RawMessage `json:"notifications"`
	}
	if json.Unmarshal(m.Params, &p) != nil || p.Notifications == nil {
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: "subscriptions/listen takes {notifications}"}}
	}
	l := &listen{x: x, id: m.ID, methods: make(map[string]bool), watches: make(map[string]*watch)}
	agreed := make(map[string]any)
	for method, member := range listChanges {
		var wants bool
		if _ = json.Unmarshal(p.Notifications[member], &wants); wants {
			l.methods[method] = true
			agreed[member] = true
		}
	}
	var uris []string
	_ = json.Unmarshal(p.Notifications["resourceSubscriptions"], &uris)
	if len(uris) > maxWatched {
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: fmt.Sprintf("at most %d resources are watched at once", maxWatched)}}
	}
	for _, uri := range uris {
		l.watches[uri] = &watch{asking: 1}
	}
	if len(uris) > 0 {
		agreed["resourceSubscriptions"] = uris
	}
	if !s.add(l) {
		return answer{err: &mcp.RPCError{Code: invalidRequest, Message: fmt.Sprintf("at most %d streams listen at once", maxListens)}}
	}
	defer s.remove(l)
	params, _ := json.Marshal(map[string]any{"notifications": agreed, "_meta": map[string]any{metaSubscription: l.id}})
	if err := x.send(mcp.Message{Version: "2.0", Method: "notifications/subscriptions/acknowledged", Params: params}); err != nil {
		return answer{err: &mcp.RPCError{Code: internalError, Message: err.Error()}}
	}
	s.g.watch()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.work(func() { s.subscribeAll(ctx, l) })
	if len(agreed) > 0 {
		select {
		case <-ctx.Done():
		case <-s.over:
		}
	}
	result, _ := json.Marshal(map[string]any{"_meta": map[string]any{metaSubscription: l.id}})
	return answer{result: result}
}

func (s *session) add(l *listen) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listens) >= maxListens {
		return false
	}
	s.listens[l] = struct{}{}
	return true
}

func (s *session) remove(l *listen) {
	s.mu.Lock()
	delete(s.listens, l)
	s.mu.Unlock()
	s.g.watch()
}

// subscribeAll has the servers take what a client of 2026-07-28 listens to.
func (s *session) subscribeAll(ctx context.Context, l *listen) {
	if len(l.watches) == 0 {
		return
	}
	servers := s.g.serversOf(s.agent)
	infos := s.g.infos(ctx, servers)
	for _, uri := range slices.Sorted(maps.Keys(l.watches)) {
		params, _ := json.Marshal(map[string]string{"uri": uri})
		_, at := s.g.taker(ctx, servers, infos, params)
		s.mu.Lock()
		l.watches[uri].asking, l.watches[uri].at = 0, at
		s.mu.Unlock()
	}
	s.g.watch()
}

// subscribe answers resources/subscribe. A server is asked even if it tells another client of the resource: it may have begun
// anew since.
func (s *session) subscribe(ctx context.Context, m mcp.Message) answer {
	uri, wrong := uriOf(m)
	if wrong != nil {
		return answer{err: wrong}
	}
	s.mu.Lock()
	w := s.watches[uri]
	full := w == nil && len(s.watches) >= maxWatched
	if w == nil && !full {
		w = new(watch)
		s.watches[uri] = w
	}
	if !full {
		w.asking++
	}
	s.mu.Unlock()
	if full {
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: fmt.Sprintf("at most %d resources are watched at once", maxWatched)}}
	}
	s.g.watch() // before a server answers: what it tells by then is passed on
	servers := s.g.serversOf(s.agent)
	a, at := s.g.taker(ctx, servers, s.g.infos(ctx, servers), with(m.Params, "", nil))
	s.mu.Lock()
	if w.asking--; a.err == nil {
		w.at = at
	}
	if w.asking == 0 && len(w.at) == 0 && s.watches[uri] == w { // one that was given up is another one by now, or none
		delete(s.watches, uri)
	}
	s.mu.Unlock()
	s.g.watch()
	return a
}

// taker has the first server with a handshake that takes a subscription take it, and returns which servers tell of the resource:
// that one, and those of 2026-07-28, which watch has listen. One that cannot be reached may be of these.
func (g *Gateway) taker(ctx context.Context, servers []*mcp.Server, infos []mcp.Info, params json.RawMessage) (a answer, at map[string]bool) {
	a = answer{err: &mcp.RPCError{Code: methodNotFound, Message: "no server has resources"}}
	at = make(map[string]bool)
	listens := false
	for i, info := range infos {
		name := servers[i].Name()
		switch {
		case info.Version == "":
			at[name] = true
		case info.Version == mcp.Modern:
			at[name] = mcp.Subscribes(info)
			listens = listens || at[name]
		case a.err != nil && can(info, "resources"):
			a = g.relay(ctx, servers[i], "resources/subscribe", params)
			at[name] = a.err == nil
		}
	}
	if listens && a.err != nil {
		a = answer{}
	}
	return a, at
}

// unsubscribe answers resources/unsubscribe. Servers that tell no other client of the resource give it up, which is not waited for:
// the client is told no more, whatever they do.
func (s *session) unsubscribe(m mcp.Message) answer {
	uri, wrong := uriOf(m)
	if wrong != nil {
		return answer{err: wrong}
	}
	s.mu.Lock()
	delete(s.watches, uri)
	s.mu.Unlock()
	s.g.watch()
	return answer{}
}

// uriOf returns the resource that a request names.
func uriOf(m mcp.Message) (string, *mcp.RPCError) {
	var p struct {
		URI string `json:"uri"`
	}
	if json.Unmarshal(m.Params, &p) != nil || p.URI == "" {
		return "", &mcp.RPCError{Code: invalidParams, Message: m.Method + " takes {uri}"}
	}
	return p.URI, nil
}

// sessionsOf returns the sessions of agents that reach a server.
func (g *Gateway) sessionsOf(server string) []*session {
	g.mu.Lock()
	all := slices.Collect(maps.Keys(g.sessions))
	g.mu.Unlock()
	return slices.DeleteFunc(all, func(s *session) bool { return !g.opens(s.agent, server) })
}

// watched returns the resources of which a server is to tell clients.
func (g *Gateway) watched(server string) []string {
	all := make(map[string]bool)
	add := func(watches map[string]*watch) {
		for uri, w := range watches {
			if w.tells(server) {
				all[uri] = true
			}
		}
	}
	for _, s := range g.sessionsOf(server) {
		s.mu.Lock()
		add(s.watches)
		for l := range s.listens {
			add(l.watches)
		}
		s.mu.Unlock()
	}
	return slices.Sorted(maps.Keys(all))
}

// watch says to the servers what clients watch. It is called after each change of that, and waits for no server.
func (g *Gateway) watch() {
	g.watching.Lock()
	defer g.watching.Unlock() // what is said last is what is so
	for _, s := range g.servers {
		s.Watch(g.watched(s.Name()))
	}
}

// announce passes on to the session what a server tells all of its clients; of a resource, if it is to tell this one.
func (s *session) announce(server string, m mcp.Message) {
	var p struct {
		URI string `json:"uri"`
	}
	isUpdate := m.Method == "notifications/resources/updated"
	if isUpdate {
		_ = json.Unmarshal(m.Params, &p)
	}
	s.mu.Lock()
	own := !isUpdate || s.watches[p.URI].tells(server)
	listens := slices.Collect(maps.Keys(s.listens))
	told := slices.DeleteFunc(slices.Clone(listens), func(l *listen) bool {
		return !l.methods[m.Method] && !(isUpdate && l.watches[p.URI].tells(server))
	})
	s.mu.Unlock()
	for _, l := range told {
		_ = l.x.send(mcp.Message{Version: "2.0", Method: m.Method, Params: tagged(m.Params, l.id)})
	}
	if own && len(listens) == 0 {
		_ = s.write(mcp.Message{Version: "2.0", Method: m.Method, Params: m.Params})
	}
}

// tagged returns params that say to which subscription they belong.
func tagged(params, id json.RawMessage) json.RawMessage {
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	return withMeta(params, map[string]any{metaSubscription: id})
}

// notified passes on what a server tells without being asked.
func (g *Gateway) notified(server string, m mcp.Message) {
	switch m.Method {
	case "notifications/progress":
		g.passProgress(server, m)
		return
	case "notifications/cancelled", "notifications/subscriptions/acknowledged":
		return
	case "notifications/tools/list_changed":
		g.mu.Lock()
		g.changes[server]++
		g.mu.Unlock()
	}
	_, isList := listChanges[m.Method]
	toAll := isList || m.Method == "notifications/resources/updated"
	if toAll {
		for _, s := range g.sessionsOf(server) {
			s.announce(server, m)
		}
	} else if s := g.only(server); s != nil {
		s.announce(server, m)
	}
}

// only returns the one client of a server; nil: it has several, or one that is gone has a call out there still. What is about a request
// of another agent is for nobody else.
func (g *Gateway) only(server string) *session {
	all := g.sessionsOf(server)
	if len(all) != 1 || !all[0].alone {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.flights {
		if f.server == server && f.x.s != all[0] {
			return nil
		}
	}
	return all[0]
}

// asked passes a request of a server that is a process on, if there is only one client.
func (g *Gateway) asked(ctx context.Context, server string, m mcp.Message) mcp.Message {
	s := g.only(server)
	if s == nil {
		return mcp.Refused(m)
	}
	x := &exchange{s: s, send: s.write}
	return x.ask(ctx, m)
}
