package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// New returns the connection of that name. It makes no call. The error is a
// *connector.ConfigError with everything that is wrong.
func New(name string, cfg Config) (*connector.Connection, error) {
	c := connector.NewChecker(name)
	c.Kind(cfg.Connector, Kind)
	s := &service{
		name:   name,
		header: checkHeaders(c, cfg.Headers),
		hide:   newRedactor(cfg.Headers),
		reads:  newTransport(true),
		writes: newTransport(false),
	}
	s.base = checkBase(c, cfg.BaseURL)
	if len(cfg.Tools) == 0 {
		c.Addf("tools", "at least one tool is required")
	}
	conn := &connector.Connection{Name: name, Connector: Kind, Close: s.close}
	for _, toolName := range slices.Sorted(maps.Keys(cfg.Tools)) {
		b := builder{Checker: c, at: "tools." + toolName, cfg: cfg.Tools[toolName], service: s}
		conn.Tools = append(conn.Tools, b.build(toolName))
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	return conn, nil
}

// checkBase returns the base URL without a slash at its end.
func checkBase(c *connector.Checker, base string) string {
	u, err := url.Parse(base)
	switch {
	case base == "":
		c.Addf("base_url", "is required")
	case err != nil:
		// The error would quote the URL, and with it a password.
		c.Addf("base_url", "is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		c.Addf("base_url", "must be http://host or https://host, with or without a path")
	case u.User != nil:
		c.Addf("base_url", "must not hold a user or password; put an Authorization header into headers")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		c.Addf("base_url", "must not have a query or a fragment")
	default:
		return strings.TrimRight(u.String(), "/")
	}
	return ""
}

// Headers that belong to the transport.
var reserved = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Expect", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// checkHeaders returns the headers of each request.
func checkHeaders(c *connector.Checker, headers map[string]string) http.Header {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {"keep"}}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		at := "headers." + name
		switch {
		case !isHeaderName(name):
			c.Addf(at, "is not a header name")
		case slices.Contains(reserved, http.CanonicalHeaderKey(name)):
			c.Addf(at, "is set by the connector")
		case !isHeaderValue(headers[name]):
			c.Addf(at, "has a character that a header cannot hold")
		default:
			h.Set(name, headers[name])
		}
	}
	return h
}

// isHeaderName reports whether s is a token of RFC 9110.
func isHeaderName(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isHeaderValue reports whether s can be sent without ending the header.
func isHeaderValue(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) < 0
}

// A builder makes one tool of its configuration.
type builder struct {
	*connector.Checker
	at      string
	cfg     Tool
	service *service
}

// addf adds a problem at a key of the tool.
func (b *builder) addf(key, format string, args ...any) { b.Addf(b.at+"."+key, format, args...) }

// build returns the tool. It is of use only if no problem was found.
func (b *builder) build(name string) connector.Tool {
	t := &tool{service: b.service, method: b.method(), ignore: b.cfg.PayloadIgnore, nullOn: b.cfg.NullOn}
	if !connector.IsName(name) {
		b.Addf(b.at, "the name must be letters, digits and underscores")
	}
	var err error
	if t.path, err = parsePath(b.cfg.Path); err != nil {
		b.addf("path", "%v", err)
	}
	for _, q := range b.cfg.Query {
		f, err := parseField(q)
		if err != nil {
			b.addf("query", "%v", err)
			continue
		}
		t.query = append(t.query, f)
	}
	b.reservedParams(t)
	t.spec = connector.Spec{
		Name:        name,
		Effect:      b.cfg.Effect,
		Description: b.cfg.Description,
		Timeout:     b.duration("timeout", time.Duration(b.cfg.Timeout), maxTimeout),
	}
	switch b.cfg.Effect {
	case connector.List, connector.Get:
		b.readOnly()
		b.statuses("null_on", b.cfg.NullOn, 300, 499)
		b.schemas(t)
		return &reader{t}
	case connector.Mutate:
		return b.mutator(t)
	default:
		b.addf("effect", "is %q, want list, get or mutate", b.cfg.Effect)
		return &reader{t}
	}
}

// method refuses methods that would make a read of a change, or the reverse.
func (b *builder) method() string {
	m, mutates := strings.ToUpper(b.cfg.Method), b.cfg.Effect == connector.Mutate
	allowed := []string{"GET", "HEAD", "POST"}
	if mutates {
		allowed = []string{"POST", "PUT", "PATCH", "DELETE"}
	}
	switch {
	case m == "" && mutates:
		return "POST"
	case m == "":
		return "GET"
	case !slices.Contains(allowed, m):
		b.addf("method", "is %q, want one of %s", b.cfg.Method, strings.Join(allowed, ", "))
	}
	return m
}

// reservedParams refuses names that mean something else to the host.
func (b *builder) reservedParams(t *tool) {
	lists := map[string][]string{"path": t.path.params(), "query": t.query.params(), "identity": b.cfg.Identity}
	for _, key := range slices.Sorted(maps.Keys(lists)) {
		if slices.Contains(lists[key], "subkey") {
			b.addf(key, "subkey is the host's param and is never sent")
		}
	}
	if slices.Contains(t.path.params(), tokenParam) && b.cfg.Effect == connector.Mutate {
		b.addf("path", "{token} is the host's key and belongs into reconcile; use idempotency_header to send it")
	}
}

// readOnly refuses keys that would mislead the reader of a configuration.
func (b *builder) readOnly() {
	given := map[string]bool{
		"identity":           len(b.cfg.Identity) > 0,
		"settle_after":       b.cfg.SettleAfter != nil,
		"idempotency_header": b.cfg.IdempotencyHeader != "",
		"deduplicates":       b.cfg.Deduplicates,
		"deduplicates_for":   b.cfg.DeduplicatesFor != 0,
		"not_executed":       len(b.cfg.NotExecuted) > 0,
		"payload_ignore":     len(b.cfg.PayloadIgnore) > 0,
		"approve":            b.cfg.Approve != "",
		"verify_by_hand":     b.cfg.VerifyByHand != "",
		"reconcile":          b.cfg.Reconcile != nil,
	}
	for key, set := range given {
		if set {
			b.addf(key, "is for mutate tools only")
		}
	}
}

// duration returns d if it is within bounds.
func (b *builder) duration(key string, d, limit time.Duration) time.Duration {
	if d < 0 || d > limit {
		b.addf(key, "is %s, want 0s to %s", d, limit)
	}
	return d
}

// statuses refuses what could never be answered, or is decided elsewhere.
func (b *builder) statuses(key string, list []int, low, high int) {
	for _, s := range list {
		if s < low || s > high {
			b.addf(key, "%d is not allowed here, want %d to %d", s, low, high)
		}
	}
}

// mutator completes t with what only a mutate tool has.
func (b *builder) mutator(t *tool) connector.Tool {
	cfg := b.cfg
	if len(cfg.NullOn) > 0 {
		b.addf("null_on", "is for list and get tools only")
	}
	b.identity()
	b.statuses("not_executed", cfg.NotExecuted, 300, 599)
	t.notExecuted = cfg.NotExecuted
	b.idempotency(t)
	switch cfg.Approve {
	case "", "always":
		t.spec.Approve = cfg.Approve == "always"
	default:
		b.addf("approve", "is %q, want \"always\" or nothing", cfg.Approve)
	}
	t.spec.Identity = slices.Clone(cfg.Identity)
	t.spec.VerifyByHand = cfg.VerifyByHand
	if cfg.Reconcile != nil {
		t.lookup = b.lookup(*cfg.Reconcile)
		t.needs = slices.DeleteFunc(t.lookup.params(), func(p string) bool { return p == tokenParam })
	}
	b.level(t)
	b.schemas(t)
	if t.spec.Level == keep.LevelNone {
		return &mutator{t}
	}
	return &reconciler{mutator{t}}
}

// identity checks what says which thing is changed.
func (b *builder) identity() {
	if len(b.cfg.Identity) == 0 {
		b.addf("identity", "at least one param must say what is changed")
	}
	for i, p := range b.cfg.Identity {
		if !paramName.MatchString(p) || slices.Contains(b.cfg.Identity[:i], p) {
			b.addf("identity", "%q is not a param name, or is there twice", p)
		}
		if slices.Contains(b.cfg.PayloadIgnore, p) {
			b.addf("payload_ignore", "%q is identity", p)
		}
	}
}

// idempotency reads what is said about the token.
func (b *builder) idempotency(t *tool) {
	name := b.cfg.IdempotencyHeader
	switch {
	case name == "" && b.cfg.Deduplicates:
		b.addf("idempotency_header", "is required with deduplicates = true")
	case name == "":
	case !isHeaderName(name) || slices.Contains(reserved, http.CanonicalHeaderKey(name)):
		b.addf("idempotency_header", "%q cannot carry the token", name)
	case b.service.header.Get(name) != "":
		b.addf("idempotency_header", "%q is also in headers", name)
	default:
		t.tokenHeader = http.CanonicalHeaderKey(name)
	}
	if b.cfg.DeduplicatesFor != 0 && !b.cfg.Deduplicates {
		b.addf("deduplicates_for", "needs deduplicates = true")
	}
	if b.cfg.DeduplicatesFor < 0 {
		b.addf("deduplicates_for", "must not be negative")
	}
}

// level says how a lost outcome can be known.
func (b *builder) level(t *tool) {
	switch {
	case b.cfg.Deduplicates:
		t.spec.Level = keep.LevelKey
		t.spec.KeyLasts = DefaultKeyLasts
		if b.cfg.DeduplicatesFor > 0 {
			t.spec.KeyLasts = time.Duration(b.cfg.DeduplicatesFor)
		}
	case t.lookup != nil:
		t.spec.Level = keep.LevelWitness
		marked := slices.Contains(t.lookup.params(), tokenParam)
		t.spec.ByTarget = !marked && len(t.lookup.match) == 0
	default:
		t.spec.Level = keep.LevelNone
	}
	if b.cfg.SettleAfter != nil {
		t.spec.SettleAfter = b.duration("settle_after", time.Duration(*b.cfg.SettleAfter), 24*time.Hour)
	} else if t.spec.Level != keep.LevelNone {
		t.spec.SettleAfter = DefaultSettle
	}
}

// lookup reads the reconcile table.
func (b *builder) lookup(cfg Reconcile) *lookup {
	l := &lookup{method: strings.ToUpper(cfg.Method), applied: cfg.Applied, failed: cfg.Failed, items: cfg.Items}
	if l.method == "" {
		l.method = "GET"
	}
	if !slices.Contains([]string{"GET", "HEAD", "POST"}, l.method) {
		b.addf("reconcile.method", "is %q, want GET, HEAD or POST: a lookup changes nothing", cfg.Method)
	}
	var err error
	if l.path, err = parsePath(cfg.Path); err != nil {
		b.addf("reconcile.path", "%v", err)
	}
	for _, entry := range b.lookupQuery(cfg.Query) {
		f, err := parseField(entry)
		if err != nil {
			b.addf("reconcile.query", "%v", err)
		}
		l.query = append(l.query, f)
	}
	for _, entry := range cfg.Match {
		f, err := parseField(entry)
		if err != nil {
			b.addf("reconcile.match", "%v", err)
		}
		l.match = append(l.match, f)
	}
	if l.applied == nil {
		l.applied = []int{http.StatusOK}
	}
	if l.failed == nil {
		l.failed = []int{http.StatusNotFound}
	}
	b.statuses("reconcile.applied", l.applied, 200, 599)
	b.statuses("reconcile.failed", l.failed, 200, 599)
	for _, status := range l.applied {
		if slices.Contains(l.failed, status) {
			b.addf("reconcile.failed", "%d is also in applied", status)
		}
	}
	if l.items != "" && !strings.HasPrefix(l.items, "/") {
		b.addf("reconcile.items", "is %q, want a JSON pointer such as \"/data\"", l.items)
	}
	if l.method == "HEAD" && (len(l.match) > 0 || l.items != "") {
		b.addf("reconcile.method", "HEAD has no body to look into for match or items")
	}
	return l
}

// lookupQuery returns the entries of a list, or of a table in the order of the
// keys.
func (b *builder) lookupQuery(q any) []string {
	var out []string
	switch q := q.(type) {
	case nil:
	case []string:
		out = q
	case []any:
		for _, v := range q {
			s, ok := v.(string)
			if !ok {
				b.addf("reconcile.query", "has an entry that is no string")
			}
			out = append(out, s)
		}
	case map[string]string:
		for _, k := range slices.Sorted(maps.Keys(q)) {
			out = append(out, k+"="+q[k])
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(q)) {
			s, ok := q[k].(string)
			if !ok {
				b.addf("reconcile.query."+k, "must be a string")
			}
			out = append(out, k+"="+s)
		}
	default:
		b.addf("reconcile.query", "must be a list or a table, not %s", fmt.Sprintf("%T", q))
	}
	return out
}
