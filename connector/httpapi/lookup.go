package httpapi

import (
	"fmt"
	"github.com/keep-run/keep/connector/internal/match"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// lookup reads the reconcile table.
func (b *builder) lookup(t *tool, cfg Reconcile) *lookup {
	l := &lookup{method: strings.ToUpper(cfg.Method), applied: cfg.Applied, failed: cfg.Failed, complete: cfg.Complete, token: t.token, started: t.start != nil}
	switch l.method {
	case "":
		l.method = http.MethodGet
	case http.MethodGet, http.MethodPost:
	case http.MethodHead:
		b.addf("reconcile.method", "is HEAD, whose answer has no body to find the effect in")
	default:
		b.addf("reconcile.method", "is %q, want GET or POST: a lookup changes nothing", cfg.Method)
	}
	var err error
	if l.path, err = parsePath(cfg.Path); err != nil {
		b.addf("reconcile.path", "%v", err)
	}
	l.query = b.fields("reconcile.query", b.entries("reconcile.query", cfg.Query))
	if cfg.Since != "" {
		l.query = append(l.query, b.fields("reconcile.since", []string{"since=" + cfg.Since})...)
	}
	l.match = b.fields("reconcile.match", b.entries("reconcile.match", cfg.Match))
	for _, name := range slices.Sorted(maps.Keys(cfg.Contains)) {
		l.contains = append(l.contains, b.fields("reconcile.contains", []string{name + "=" + cfg.Contains[name]})...)
	}
	b.lookupStatuses(l)
	if cfg.Items != "" {
		if l.items, err = match.ParsePath(cfg.Items); err != nil {
			b.addf("reconcile.items", "%v", err)
		}
	}
	if cfg.Pages != nil {
		l.pages = b.pager("reconcile.pages", *cfg.Pages)
		l.pages.thorough = true
		if l.pages.items == nil {
			l.pages.items = l.items
		}
	}
	if cfg.AbsentIf != nil {
		if cfg.AbsentIf.Path == "" && cfg.AbsentIf.Header == "" {
			b.addf("reconcile.absent_if", "needs path or header: a gateway has statuses too")
		}
		c := b.condition("reconcile.absent_if", *cfg.AbsentIf)
		l.absentIf = &c
	}
	b.emptyIf(l, cfg)
	if cfg.Fixed != nil {
		if l.fixed, err = parseFixed(cfg.Fixed); err != nil {
			b.addf("reconcile.fixed", "%v", err)
		}
		if l.method != http.MethodPost {
			b.addf("reconcile.fixed", "a GET request has no body")
		}
	}
	b.finds(t, l)
	return l
}

// emptyIf reads how a service says that a list is empty by leaving it out.
func (b *builder) emptyIf(l *lookup, cfg Reconcile) {
	if cfg.EmptyIf == nil {
		return
	}
	if cfg.EmptyIf.Path == "" && cfg.EmptyIf.Header == "" {
		b.addf("reconcile.empty_if", "needs path or header: an answer of somebody else lacks the list, too")
	}
	if cfg.Items == "" || cfg.Pages != nil {
		b.addf("reconcile.empty_if", "is for a list at items that comes at once")
	}
	c := b.condition("reconcile.empty_if", *cfg.EmptyIf)
	l.emptyIf = &c
}

// lookupStatuses fills in and checks the statuses of a lookup.
func (b *builder) lookupStatuses(l *lookup) {
	if l.applied == nil {
		l.applied = []int{http.StatusOK}
	}
	if l.failed == nil {
		l.failed = []int{http.StatusNotFound}
	}
	b.statuses("reconcile.applied", l.applied, 200, 299)
	b.statuses("reconcile.failed", l.failed, 200, 599)
	for _, status := range l.applied {
		if slices.Contains(l.failed, status) {
			b.addf("reconcile.failed", "%d is also in applied", status)
		}
	}
}

// finds adds a problem if the lookup cannot find what the tool sends, or cannot tell it from
// what others sent: it would prove an absence, or an effect, each time (law: witnessed).
func (b *builder) finds(t *tool, l *lookup) {
	switch {
	case l.marked() && !t.token.sent():
		b.addf("reconcile", "looks for {token}, which the call never sends, so it would never find anything; "+
			"set token or idempotency_header, or look for params")
	case !ofCall(l.names()):
		b.addf("reconcile", "asks for nothing of the call, so it would take other records for it: a time is not enough; "+
			"put {token} or {param} into path, query or fixed, or say match = { FIELD = \"{param}\" }")
	case len(b.unasked(l)) > 0:
		b.addf("reconcile", "does not ask for %s, which is in identity, so a record of another call would count as this one's; "+
			"name it in path, query, fixed or match, or take it out of identity if the rest says which call it is", strings.Join(b.unasked(l), ", "))
	case len(l.contains) > 0 && !slices.Contains(l.compared(), tokenParam):
		b.addf("reconcile.contains", "must contain {token}: other texts may be somebody else's")
	}
}

// fields reads entries of a query or of match.
func (b *builder) fields(key string, entries []string) query {
	var out query
	for _, entry := range entries {
		f, err := parseField(entry)
		if err != nil {
			b.addf(key, "%v", err)
			continue
		}
		out = append(out, f)
	}
	return out
}

// entries returns the entries of a list, or of a table in the order of the keys.
func (b *builder) entries(key string, v any) []string {
	var out []string
	switch v := v.(type) {
	case nil:
	case []string:
		out = v
	case []any:
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				b.addf(key, "has an entry that is no string")
			}
			out = append(out, s)
		}
	case map[string]string:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, k+"="+v[k])
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			s, ok := v[k].(string)
			if !ok {
				b.addf(key+"."+k, "must be a string")
			}
			out = append(out, k+"="+s)
		}
	default:
		b.addf(key, "must be a list or a table, not %s", fmt.Sprintf("%T", v))
	}
	return out
}

// unasked returns the params of the identity of which a lookup names nothing. One that asks by our token, or by what
// was made before the call, needs none.
func (b *builder) unasked(l *lookup) []string {
	names := l.names()
	for i, name := range names {
		names[i], _, _ = strings.Cut(name, ".")
	}
	if slices.Contains(names, tokenParam) || slices.Contains(names, startParam) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.cfg.Identity), func(name string) bool { return slices.Contains(names, name) })
}
