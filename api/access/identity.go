package access

import (
	"context"
	"fmt"
	"slices"
)

// A Role is what a caller may do. Values are stored; do not rename them. A role
// covers those before it.
type Role string

const (
	// Agent may call tools through keep gateway, and nothing else: every server refuses it.
	Agent Role = "agent"

	// Viewer may read everything but secrets, which nobody can read.
	Viewer Role = "viewer"

	// Operator may decide, skip, reprocess, pause, resume and trigger.
	Operator Role = "operator"

	// Author may deploy: what a script may do is decided by who writes it.
	Author Role = "author"

	// Admin may make and revoke tokens.
	Admin Role = "admin"
)

// Roles returns every role, the least first.
func Roles() []Role { return []Role{Agent, Viewer, Operator, Author, Admin} }

// Covers reports whether r may do what need may. An unknown role, such as the
// empty one, covers nothing and is covered by nothing.
func (r Role) Covers(need Role) bool {
	have, want := slices.Index(Roles(), r), slices.Index(Roles(), need)
	return want >= 0 && have >= want
}

// Validate reports whether r is a role.
func (r Role) Validate() error {
	if !slices.Contains(Roles(), r) {
		return fmt.Errorf("unknown role %q: it is one of %v", string(r), Roles())
	}
	return nil
}

// An Identity says who sent a request. The zero Identity is unauthenticated.
type Identity struct {
	Name string // for people and for the record of decisions
	Role Role
	Via  Via
	ID   string // of the token or session, or of the question of a link; empty for the socket
}

// A Via is how a caller authenticated. Decisions record it.
type Via string

const (
	ViaToken   Via = "token"   // a bearer token
	ViaSession Via = "session" // a browser that was logged in
	ViaSocket  Via = "socket"  // the unix socket, which only its owner can open
	ViaLink    Via = "link"    // a link to one question; has no role
)

// Surface names where the caller is, as decisions record it.
func (id Identity) Surface() string {
	switch id.Via {
	case ViaSocket:
		return "cli" // nothing else has the socket
	case ViaSession:
		return "web"
	}
	return "api"
}

// key is the key of an Identity in a context.
type key struct{}

// With returns a context that carries id.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// From returns the identity of the context, and whether it has one.
func From(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(key{}).(Identity)
	return id, ok
}
