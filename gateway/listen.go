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
	uris    map[string]bool
}

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
	l := &listen{x: x, id: m.ID, methods: make(map[string]bool), uris: make(map[string]bool)}
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
		l.uris[uri] = true
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

// subscribe answers resources/subscribe. A server is asked even if it tells another client of the resource: it may have begun
// anew since.
func (s *session) subscribe(ctx context.Context, m mcp.Message) answer {
	uri, wrong := uriOf(m)
	if wrong != nil {
		return answer{err: wrong}
	}
	s.mu.Lock()
	_, known := s.watches[uri]
	full := !known && len(s.watches) >= maxWatched
	if !known && !full {
		s.watches[uri] = "" // what the server tells before its answer is read is passed on
	}
	s.mu.Unlock()
	if full {
		return answer{err: &mcp.RPCError{Code: invalidParams, Message: fmt.Sprintf("at most %d resources are watched at once", maxWatched)}}
	}
	a, server := s.g.taker(ctx, s.agent, m)
	s.mu.Lock()
	switch {
	case a.err == nil:
		s.watches[uri] = server
	case !known:
		delete(s.watches, uri)
	}
	s.mu.Unlock()
	s.g.watch()
	return a
}

// taker has the first server of an agent that takes a subscription take it, and returns which that is; empty: it is one of
// 2026-07-28, which watch tells.
func (g *Gateway) taker(ctx context.Context, agent string, m mcp.Message) (a answer, server string) {
	a = answer{err: &mcp.RPCError{Code: methodNotFound, Message: "no server has resources"}}
	modern := false
	servers := g.serversOf(agent)
	for i, info := range g.infos(ctx, servers) {
		switch {
		case !can(info, "resources"):
		case info.Version == mcp.Modern:
			modern = modern || mcp.Subscribes(info)
		default:
			if a = g.relay(ctx, servers[i], m.Method, with(m.Params, "", nil)); a.err == nil {
				return a, servers[i].Name()
			}
		}
	}
	if modern {
		return answer{}, ""
	}
	return a, ""
}

// unsubscribe answers resources/unsubscribe. The server that took the subscription is asked, unless it tells another client of the
// resource, too.
func (s *session) unsubscribe(ctx context.Context, m mcp.Message) answer {
	uri, wrong := uriOf(m)
	if wrong != nil {
		return answer{err: wrong}
	}
	s.mu.Lock()
	server := s.g.server(s.watches[uri])
	delete(s.watches, uri)
	s.mu.Unlock()
	s.g.watch()
	wanted := func() bool { return s.g.isWatched(server.Name(), uri) }
	if server == nil || wanted() {
		return answer{}
	}
	params := with(m.Params, "", nil)
	a := s.g.relay(ctx, server, m.Method, params)
	if wanted() { // the server may have taken that subscription before it gave up this one
		ctx, late := context.WithTimeout(context.WithoutCancel(ctx), mcp.DefaultTimeout)
		defer late()
		_ = s.g.relay(ctx, server, "resources/subscribe", params)
	}
	return a
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

// isWatched reports whether a client watches a resource at a server with a handshake, or may do so: who takes its subscription is
// not known yet.
func (g *Gateway) isWatched(server, uri string) bool {
	return slices.ContainsFunc(g.sessionsOf(server), func(s *session) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		at, watches := s.watches[uri]
		return watches && (at == "" || at == server)
	})
}

// watched returns the resources that clients which reach a server watch, at whatever server: one with a handshake may take a
// subscription to what it does not have.
func (g *Gateway) watched(server string) []string {
	all := make(map[string]bool)
	for _, s := range g.sessionsOf(server) {
		s.mu.Lock()
		for uri := range s.watches {
			all[uri] = true
		}
		for l := range s.listens {
			maps.Copy(all, l.uris)
		}
		s.mu.Unlock()
	}
	return slices.Sorted(maps.Keys(all))
}

// watch has servers of 2026-07-28 tell of the resources that clients watch.
func (g *Gateway) watch() {
	for _, s := range g.servers {
		s.Watch(g.watched(s.Name()))
	}
}

// announce passes on to the session what a server tells all of its clients.
func (s *session) announce(m mcp.Message) {
	var p struct {
		URI string `json:"uri"`
	}
	isUpdate := m.Method == "notifications/resources/updated"
	if isUpdate {
		_ = json.Unmarshal(m.Params, &p)
	}
	s.mu.Lock()
	_, watches := s.watches[p.URI]
	own := !isUpdate || watches
	listens := slices.Collect(maps.Keys(s.listens))
	s.mu.Unlock()
	for _, l := range listens {
		if l.methods[m.Method] || isUpdate && l.uris[p.URI] {
			_ = l.x.send(mcp.Message{Version: "2.0", Method: m.Method, Params: tagged(m.Params, l.id)})
		}
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
	to := g.sessionsOf(server)
	for _, s := range to {
		if toAll || s.alone && len(to) == 1 { // what is about a request of another agent is for nobody else
			s.announce(m)
		}
	}
}

// asked passes a request of a server that is a process on, if there is only one client.
func (g *Gateway) asked(ctx context.Context, server string, m mcp.Message) mcp.Message {
	all := g.sessionsOf(server)
	if len(all) != 1 || !all[0].alone {
		return mcp.Refused(m)
	}
	x := &exchange{s: all[0], send: all[0].write}
	return x.ask(ctx, m)
}
