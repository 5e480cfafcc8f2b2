package config

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/hook"
)

// A hookTable is a [hooks.NAME] as it is written; what it means is a hook.Config. The secret is of any type,
// since it is a text or a list of two; hookSecrets says so of what is neither.
type hookTable struct {
	Workflow  string        `toml:"workflow"`   // that the events are for
	Topic     string        `toml:"topic"`      // of the workflow, where each delivery becomes an event
	Verify    string        `toml:"verify"`     // how a delivery proves where it comes from
	Secret    any           `toml:"secret"`     // that deliveries are verified with: a text, or a list of two while it is replaced
	ID        string        `toml:"id"`         // path to the id of a delivery, which becomes the messageId, such as "$.id"; "body": its hash
	Header    string        `toml:"header"`     // that holds the secret, with verify = "token"
	Tolerance time.Duration `toml:"tolerance"`  // how old a signed delivery may be
	BodyLimit size          `toml:"body_limit"` // largest delivery
}

// hooks checks the tables of hooks and returns what they mean, sorted by name.
//
// What a hook must be is checked by hook.New, as when a host begins to receive; its error is put at the line
// of the key that it names. Only a zero that was written is refused here: to hook.New it means the default.
func (b *binder) hooks(tables map[string]hookTable, root *node) []hook.Config {
	var out []hook.Config
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t, n, at := tables[name], root.table()["hooks"].table()[name], dotted("hooks", name)
		c := hook.Config{
			Name: name, Workflow: keep.WorkflowName(t.Workflow), Topic: keep.TopicName(t.Topic), Verify: hook.Scheme(t.Verify),
			ID: t.ID, Header: t.Header, Tolerance: t.Tolerance, BodyLimit: int(t.BodyLimit),
		}
		secret := n.table()["secret"]
		open := false
		for _, s := range b.hookSecrets(secret, at+".secret") {
			c.Secrets, open = append(c.Secrets, s), open || isOpen(s)
		}
		for key, zero := range map[string]bool{"tolerance": t.Tolerance == 0, "body_limit": t.BodyLimit == 0} {
			if zero && n.table()[key] != nil {
				b.addf(n.table()[key], at+"."+key, "must be more than zero")
			}
		}
		_, err := hook.New(c)
		wrong, _ := errors.AsType[*hook.FieldError](err)
		switch {
		case wrong != nil && wrong.Field == "secret" && open: // reported as missing
		case wrong != nil && wrong.Field == "name":
			b.addf(n, at, "%v", wrong.Err)
		case wrong != nil:
			where := n.table()[wrong.Field]
			if where == nil {
				where = n
			}
			b.addf(where, at+"."+wrong.Field, "%v", wrong.Err)
		}
		out = append(out, c)
	}
	return out
}

// hookSecrets returns the secrets of a hook, and warns of those in plain text.
//
// Two may hold at once, so that no delivery is refused while the service changes from one to the other.
func (b *binder) hookSecrets(n *node, at string) (out []string) {
	if n == nil {
		return nil
	}
	list := []*node{n}
	if many, ok := n.value.([]*node); ok {
		list = many
	}
	for _, one := range list {
		s, ok := one.string()
		if !ok {
			b.addf(one, at, `want a text such as "${secret:hook}", or a list of two while it is replaced, not %s`, one.show())
			continue
		}
		if one.raw == "" && one.source == "" {
			p := b.problem(one, at, "looks like a secret in plain text")
			p.Fix = `write "${secret:hook}" and put the value into .secrets/hook`
			b.warnings = append(b.warnings, p)
		}
		out = append(out, s)
	}
	return out
}
