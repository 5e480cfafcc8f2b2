package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/match"
	"github.com/keep-run/keep/connector/once"
	"github.com/keep-run/keep/law/grant"
)

// New returns the connection of that name. It makes no call. The error is a
// *connector.ConfigError with everything that is wrong.
func New(name string, cfg Config) (*connector.Connection, error) {
	c := connector.NewChecker(name)
	c.Kind(cfg.Connector, Kind)
	s := &service{
		name:   name,
		header: checkHeaders(c, cfg.Headers),
		query:  cfg.Query,
		signer: cfg.Sign,

		references: cfg.References,

		hide:   newHider(cfg),
		auth:   cfg.Auth,
		config: cfg,
		reads:  once.NewTransport(true),
		writes: once.NewTransport(false),
	}
	s.base = checkBase(c, cfg.BaseURL)
	if len(cfg.Tools) == 0 {
		c.Addf("tools", "at least one tool is required")
	}
	conn := &connector.Connection{Name: name, Connector: Kind, Close: s.close}
	for _, toolName := range slices.Sorted(maps.Keys(cfg.Tools)) {
		b := builder{Checker: c, at: "tools." + toolName, cfg: cfg.Tools[toolName], service: s}
		if from := b.cfg.Now; from != "" && cfg.Tools[from].Effect != connector.Get {
			b.addf("now", "is %q, want the name of a get tool of this connection", from)
		}
		if from := b.cfg.ResultFrom; from != "" && cfg.Tools[from].Effect != connector.Get {
			b.addf("result_from", "is %q, want a get tool of this connection", from)
		}
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
	h := checkHeadersAt(c, "headers", headers)
	for name, value := range map[string]string{"Accept": "application/json", "User-Agent": "keep"} {
		if h.Get(name) == "" {
			h.Set(name, value)
		}
	}
	return h
}

// checkHeadersAt returns the headers that the key at has.
func checkHeadersAt(c *connector.Checker, key string, headers map[string]string) http.Header {
	h := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		at := key + "." + name
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
	b.bodyConfig(t)
	b.verdicts(t)
	t.spec = connector.Spec{
		Name:        name,
		Was:         b.cfg.Was,
		New:         b.cfg.New,
		Effect:      b.cfg.Effect,
		Cost:        b.cfg.Cost,
		Description: b.service.hide.Text(b.cfg.Description),
		Timeout:     b.duration("timeout", time.Duration(b.cfg.Timeout), maxTimeout),
	}
	if b.cfg.Cost && b.cfg.Effect != connector.Get {
		b.addf("cost", "is for get tools: a change is made once anyway, and a list has pages")
	}
	t.header, t.keyHeader = checkHeadersAt(b.Checker, b.at+".headers", b.cfg.Headers), b.cfg.CredentialHeader
	switch b.cfg.Effect {
	case connector.List, connector.Get:
		b.readOnly()
		b.pagesOf(t)
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
		b.addf("path", "{token} is the host's key and belongs into reconcile; use token or idempotency_header to send it")
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
		"key_lasts":          b.cfg.KeyLasts != 0,
		"token":              b.cfg.Token != nil,
		"on_resend":          b.cfg.OnResend != nil,
		"sets":               b.cfg.Sets,
		"start":              b.cfg.Start != nil,
		"mail":               b.cfg.Mail != nil,
		"answer":             b.cfg.Answer != "",
		"not_executed":       len(b.cfg.NotExecuted) > 0,
		"payload_ignore":     len(b.cfg.PayloadIgnore) > 0,
		"approve":            b.cfg.Approve != "",
		"unique":             b.cfg.Unique,
		"result_from":        b.cfg.ResultFrom != "",
		"view":               len(b.cfg.View) > 0,
		"now":                b.cfg.Now != "",
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
	if len(cfg.Headers) > 0 {
		b.addf("headers", "is for list and get tools only, or of the connection")
	}
	if len(cfg.NullOn) > 0 {
		b.addf("null_on", "is for list and get tools only")
	}
	if cfg.Pages != nil {
		b.addf("pages", "is for list tools, and in reconcile")
	}
	b.identity()
	b.statuses("not_executed", cfg.NotExecuted, 300, 599)
	t.notExecuted = cfg.NotExecuted
	b.token(t)
	b.mailConfig(t, "mail", b.cfg.Mail)
	b.startConfig(t)
	b.answer(t)
	if t.spec.Approve = cfg.Approve; cfg.Approve != "" {
		if _, err := grant.CompileApprovals([]string{cfg.Approve}); err != nil {
			b.addf("approve", "%v", err)
		}
	}
	t.spec.Identity, t.spec.Unique = slices.Clone(cfg.Identity), cfg.Unique
	t.spec.VerifyByHand, t.spec.ResultFrom = b.service.hide.Text(cfg.VerifyByHand), cfg.ResultFrom
	t.spec.View, t.spec.Now = b.view(), cfg.Now
	if cfg.Reconcile != nil {
		t.lookup = b.lookup(t, *cfg.Reconcile)
		b.lookupParams(t)
		t.needs = slices.DeleteFunc(paramsOf(t.lookup.names()), t.isHostParam)
	}
	b.level(t)
	t.pinned = b.pin(t)
	b.schemas(t)
	if t.spec.Level == keep.LevelNone {
		return &mutator{t}
	}
	if t.start != nil {
		return &claimer{reconciler{mutator{t}}}
	}
	return &reconciler{mutator{t}}
}

// view returns how a person reads a call.
func (b *builder) view() keep.View {
	v := keep.View{Kind: keep.ViewKind(b.cfg.View["kind"])}
	if len(b.cfg.View) > 0 && v.Kind == "" {
		b.addf("view", "needs a kind: %v", keep.ViewKinds())
	}
	for _, role := range slices.Sorted(maps.Keys(b.cfg.View)) {
		if role != "kind" {
			v.Parts = append(v.Parts, keep.ViewPart{Role: role, Param: b.cfg.View[role]})
		}
	}
	if err := v.Validate(); err != nil {
		b.addf("view", "%v", err)
	}
	return v
}

// lookupParams refuses a name in the lookup's templates that is nearly {token}: as a
// param it would be asked of each call, and the host's key would be in none.
func (b *builder) lookupParams(t *tool) {
	known := slices.Concat(t.path.params(), t.query.params(), b.cfg.Identity)
	declared, _ := b.cfg.Params["properties"].(map[string]any)
	for _, p := range paramsOf(t.lookup.names()) {
		if _, ok := declared[p]; ok || p == tokenParam || slices.Contains(known, p) || !nearToken(p) {
			continue
		}
		b.addf("reconcile", "{%s} is no param of this tool: did you mean {token}?", p)
	}
}

// nearToken reports whether p is the name of the token with one letter too many, too
// few or wrong, or in another case.
func nearToken(p string) bool {
	p = strings.ToLower(p)
	if len(p) < len(tokenParam)-1 || len(p) > len(tokenParam)+1 {
		return false
	}
	before := 0
	for before < min(len(p), len(tokenParam)) && p[before] == tokenParam[before] {
		before++
	}
	after := 0
	for after < min(len(p), len(tokenParam))-before && p[len(p)-1-after] == tokenParam[len(tokenParam)-1-after] {
		after++
	}
	return max(len(p), len(tokenParam))-before-after <= 1
}

// identity checks what says which thing is changed.
func (b *builder) identity() {
	if len(b.cfg.Identity) == 0 {
		b.addf("identity", "at least one param must say what is changed")
	}
	for i, p := range b.cfg.Identity {
		if !paramName().MatchString(p) || slices.Contains(b.cfg.Identity[:i], p) {
			b.addf("identity", "%q is not a param name, or is there twice", p)
		}
		if slices.Contains(b.cfg.PayloadIgnore, p) {
			b.addf("payload_ignore", "%q is identity", p)
		}
	}
}

// verdicts reads what is said about answers.
func (b *builder) verdicts(t *tool) {
	for i, c := range b.cfg.AppliedIf {
		key := fmt.Sprintf("applied_if[%d]", i)
		if c.Class != "" {
			b.addf(key+".class", "is for refused_if only")
		}
		t.appliedIf = append(t.appliedIf, b.condition(key, c))
	}
	for i, c := range b.cfg.RefusedIf {
		key := fmt.Sprintf("refused_if[%d]", i)
		if err := match.CheckClass(c.Class); c.Class != "" && err != nil {
			b.addf(key+".class", "%v", err)
		}
		t.refusedIf = append(t.refusedIf, b.condition(key, c))
	}
	t.statuses = make(map[int]keep.Class, len(b.cfg.Statuses))
	for _, text := range slices.Sorted(maps.Keys(b.cfg.Statuses)) {
		status, err := strconv.Atoi(text)
		if err != nil || status < 300 || status > 599 {
			b.addf("statuses."+text, "is not a status from 300 to 599")
		} else if err := match.CheckClass(b.cfg.Statuses[text]); err != nil {
			b.addf("statuses."+text, "%v", err)
		}
		t.statuses[status] = b.cfg.Statuses[text]
	}
}

// answer reads what the service answers to a change, and to a repeated one.
func (b *builder) answer(t *tool) {
	switch b.cfg.Answer {
	case "", "json":
	case "text", "any":
		t.answersText = true
		if len(b.cfg.AppliedIf) > 0 {
			b.addf("answer", "is %q, but applied_if looks into JSON", b.cfg.Answer)
		}
	default:
		b.addf("answer", "is %q, want \"json\" or \"text\"", b.cfg.Answer)
	}
	if r := b.cfg.OnResend; r != nil {
		b.statuses("on_resend.happened", r.Happened, 300, 599)
		t.happened, t.thenLookup = r.Happened, r.Then == "lookup"
		if r.Then != "" && !t.thenLookup {
			b.addf("on_resend.then", "is %q, want \"lookup\" or nothing", r.Then)
		}
		if !b.cfg.Deduplicates && !b.cfg.Sets {
			b.addf("on_resend", "needs deduplicates = true or sets = true: nothing else is sent again while it is in doubt")
		}
		if t.thenLookup && b.cfg.Reconcile == nil {
			b.addf("on_resend.then", "is \"lookup\", but there is no reconcile")
		}
	}
}

// level says how a lost outcome can be known.
func (b *builder) level(t *tool) {
	if b.cfg.Sets && b.cfg.Deduplicates || t.start != nil && (b.cfg.Sets || b.cfg.Deduplicates) {
		b.addf("sets", "a tool has one of sets, deduplicates and start")
	}
	switch {
	case b.cfg.Deduplicates:
		t.spec.Level = keep.LevelKey
		t.spec.KeyLasts = DefaultKeyLasts
		if d := max(b.cfg.KeyLasts, b.cfg.DeduplicatesFor); d > 0 {
			t.spec.KeyLasts = time.Duration(d)
		}
	case b.cfg.Sets:
		t.spec.Level, t.spec.KeyLasts, t.spec.Sets = keep.LevelKey, DefaultSetLasts, true
		if b.cfg.KeyLasts > 0 {
			t.spec.KeyLasts = time.Duration(b.cfg.KeyLasts)
		}
	case t.start != nil:
		t.spec.Level = keep.LevelClaim
	case t.lookup != nil:
		t.spec.Level = keep.LevelWitness
		t.spec.ByTarget = !t.lookup.marked() && !t.lookup.comparesCall()
	default:
		t.spec.Level = keep.LevelNone
	}
	t.spec.ComparesAge = t.lookup != nil && t.lookup.sinceCall()
	t.spec.Marked = t.lookup != nil && t.lookup.showsToken()
	t.spec.NeedsControl = t.lookup != nil && t.start == nil && t.lookup.absentIf == nil && !t.lookup.complete
	t.spec.CarriesToken = t.token.sent() && t.token.format == ""
	if b.cfg.SettleAfter != nil {
		t.spec.SettleAfter = b.duration("settle_after", time.Duration(*b.cfg.SettleAfter), 24*time.Hour)
	} else if t.spec.Level != keep.LevelNone {
		t.spec.SettleAfter = DefaultSettle
	}
}
