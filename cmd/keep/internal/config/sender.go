package config

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A sentSecret is a secret with which a connection sends, by what records call it.
type sentSecret struct{ ref, value string }

// sentSecrets returns the secrets that a table of the file has: those that it refers to, and what stands
// there in plain text under a name of secrets. A tool has no secrets of its own.
func (v *vault) sentSecrets(n *node) []sentSecret {
	var out []sentSecret
	n.each(func(c *node) {
		for _, ref := range reference().FindAllString(c.raw, -1) {
			kind, name, _ := strings.Cut(strings.Trim(ref, "${}"), ":")
			if value, ok := v.found[ref]; ok && (kind == "secret" || kind == "env" && guarded().MatchString(name)) {
				if kind == "env" {
					name = ref
				}
				out = append(out, sentSecret{keep.SecretRef(name), value})
			}
		}
	})
	plain(n, "", func(path, value string) { out = append(out, sentSecret{keep.SecretRef(path), value}) })
	return out
}

// plain calls f for what stands in a table in plain text under a name of secrets.
func plain(n *node, path string, f func(path, value string)) {
	for _, key := range slices.Sorted(maps.Keys(n.table())) {
		c := n.table()[key]
		if s, ok := c.string(); ok && c.raw == "" && s != "" && guarded().MatchString(key) {
			f(dotted(path, key), s)
		} else if dotted(path, key) != "tools" {
			plain(c, dotted(path, key), f)
		}
	}
}

// sender returns what connector.Connection has as Sender, of a table that names accounts.
func (v *vault) sender(n *node, accounts []string) connector.Sender {
	secrets := v.sentSecrets(n)
	if len(secrets)+len(accounts) == 0 {
		return nil
	}
	return func(ctx context.Context, mac func(string) string) (map[string]string, error) {
		as := make(map[string]string, len(secrets)+len(accounts))
		for _, s := range secrets {
			as[s.ref] = mac(s.value)
		}
		for _, name := range accounts {
			owner, err := liveAccounts{v, ""}.Owner(ctx, name)
			if err != nil {
				return nil, err
			}
			if owner != "" {
				as[keep.AccountRef(name)] = owner
			}
		}
		return as, nil
	}
}

// Owner implements connector.Accounts.
func (l liveAccounts) Owner(ctx context.Context, account string) (string, error) {
	if l.v.accounts == nil {
		return "", nil // what needs its credential says so
	}
	return l.v.accounts.Owner(ctx, account)
}
