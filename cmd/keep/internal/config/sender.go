package config

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A sentSecret is a secret with which a connection sends, by what records call it.
type sentSecret struct{ ref, value string }

// where are the keys that say where and how a connection sends, and not as whom. What of that makes a call
// another one is in its pin.
var where = []string{"base_url", "bucket", "ca", "cwd", "endpoint", "host", "idle", "imap", "path", "port", "region", "root", "settle_after", "smtp", "timeout", "tls", "url"}

// unsent are the keys of a tool that are for people and for Keep itself.
var unsent = []string{"approve", "description", "settle_source", "verify_by_hand"}

// isSent reports whether a call may have what stands at a path of a table. With an account, the OAuth client
// only gets its tokens.
func isSent(path string, account bool) bool {
	parts := strings.Split(path, ".")
	switch {
	case account && (path == "client_id" || path == "client_secret"):
		return false
	case len(parts) == 3 && parts[0] == "tools":
		return !slices.Contains(unsent, parts[2])
	}
	return true
}

// sentSecrets returns what a table of the file sends with that may be a user's: the secrets and the variables
// that it refers to, but for where it says only where; what stands there in plain text under a name of secrets;
// and all that a server of MCP gets as its environment and headers. A tool has no plain secrets of its own.
// Account says that the table names an account.
func (v *vault) sentSecrets(n *node, server, account bool) (out []sentSecret) {
	n.walk("", "", func(path, key string, c *node) {
		s, ok := c.string()
		if !ok || !isSent(path, account) {
			return
		}
		part, _, _ := strings.Cut(path, ".")
		given := part == "env" || part == "headers"
		place := slices.Contains(where, key) && !given && !strings.Contains(s, "@")
		for _, ref := range reference().FindAllString(c.raw, -1) {
			kind, name, _ := strings.Cut(strings.Trim(ref, "${}"), ":")
			if value, ok := v.found[ref]; ok && (kind == "secret" || kind == "env" && (!place || guarded().MatchString(name))) {
				if kind == "env" {
					name = ref
				}
				out = append(out, sentSecret{keep.SecretRef(name), value})
			}
		}
		if c.raw == "" && s != "" && (guarded().MatchString(key) && part != "tools" || server && given) {
			out = append(out, sentSecret{keep.SecretRef(path), s})
		}
	})
	return out
}

// walk calls f for n and all that is in it, with its path and its last key.
func (n *node) walk(path, key string, f func(path, key string, c *node)) {
	if n == nil {
		return
	}
	f(path, key, n)
	for _, k := range slices.Sorted(maps.Keys(n.table())) {
		n.table()[k].walk(dotted(path, k), k, f)
	}
	list, _ := n.value.([]*node)
	for i, c := range list {
		c.walk(dotted(path, strconv.Itoa(i)), key, f)
	}
}

// sender returns what connector.Connection has as Sender, of a table that names accounts, and may be that
// of a server of MCP.
func (v *vault) sender(n *node, accounts []string, server bool) connector.Sender {
	secrets := v.sentSecrets(n, server, len(accounts) > 0)
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
			as[keep.AccountRef(name)] = owner
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
