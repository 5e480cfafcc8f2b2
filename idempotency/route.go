package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep/law/key"
)

// A route is a rule that is ready to be used.
type route struct {
	Rule
	name            string         // its path, or "default"
	mux             *http.ServeMux // has the one pattern; nil: every path
	origins         origins
	callerMayChange bool // the caller is a credential, which may be renewed
}

// compile checks a rule and fills in its defaults.
func compile(r Rule) (rt *route, err error) {
	rt = &route{Rule: r, name: cmp.Or(r.Path, "default")}
	defer func() {
		if err != nil {
			err = fmt.Errorf("idempotency: route %s: %w", rt.name, err)
		}
	}()
	rt.TTL = cmp.Or(r.TTL, DefaultTTL)
	rt.Policy = cmp.Or(r.Policy, key.AtMostOnce)
	rt.AfterCrash = cmp.Or(r.AfterCrash, AfterCrashUnknown)
	rt.SettleAfter = cmp.Or(r.SettleAfter, DefaultSettleAfter)
	rt.BodyLimit = cmp.Or(r.BodyLimit, DefaultBodyLimit)
	rt.ResponseLimit = cmp.Or(r.ResponseLimit, DefaultResponseLimit)
	if rt.Caller == nil {
		rt.Caller, rt.callerMayChange = byCredential, true
	}
	if len(r.Methods) == 0 {
		rt.Methods = []string{http.MethodPost, http.MethodPut, http.MethodPatch}
	}
	if err := errors.Join(rt.checkLists(), rt.Key.check()); err != nil {
		return rt, err
	}
	switch {
	case rt.TTL < MinTTL && !r.AllowShortTTL:
		return rt, fmt.Errorf("ttl %s is under 24h: set AllowShortTTL if you mean it", rt.TTL)
	case rt.TTL < 0, rt.Wait < 0, rt.EffectTimeout < 0, rt.SettleAfter < 0, rt.BodyLimit < 0, rt.ResponseLimit < 0:
		return rt, errors.New("a duration or size is negative")
	case rt.Policy != key.AtMostOnce && rt.Policy != key.Retry5xx:
		return rt, fmt.Errorf("unknown policy %q", rt.Policy)
	case rt.AfterCrash != AfterCrashUnknown && rt.AfterCrash != AfterCrashRetry:
		return rt, fmt.Errorf("unknown after-crash %q", rt.AfterCrash)
	}
	return rt, rt.pattern()
}

// checkLists checks the methods and statuses of a rule. Methods are case-sensitive,
// but no server has two that differ in case alone: "post" is what browsers send for
// a method of that name, and means POST.
func (rt *route) checkLists() error {
	methods := make([]string, 0, len(rt.Methods))
	for _, m := range rt.Methods {
		switch m = strings.ToUpper(m); m {
		case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
			return fmt.Errorf("method %s can't be guarded: it changes nothing", m)
		}
		if m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			return fmt.Errorf("method %q: want one such as POST", m)
		}
		methods = append(methods, m)
	}
	rt.Methods = methods
	for _, status := range rt.NotExecuted {
		if status < 400 || status > 599 {
			return fmt.Errorf("not-executed status %d: want 400 to 599", status)
		}
	}
	return nil
}

// pattern makes the mux that matches the rule's path.
func (rt *route) pattern() (err error) {
	if rt.Path == "" {
		return nil
	}
	defer func() { // that is how a mux reports a pattern it can't read
		if p := recover(); p != nil {
			err = fmt.Errorf("path: %v", p)
		}
	}()
	pattern := rt.Path
	if slash := strings.IndexByte(pattern, '/'); slash >= 0 { // before it are a method, which is in upper case, and a host
		host := strings.LastIndexAny(pattern[:slash], " \t") + 1
		pattern = pattern[:host] + strings.ToLower(pattern[host:slash]) + pattern[slash:]
	}
	rt.mux = http.NewServeMux()
	rt.mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// takes reports whether the rule is about a request: its path and its method.
func (rt *route) takes(r *http.Request) bool {
	return slices.Contains(rt.Methods, strings.ToUpper(r.Method)) && rt.isAbout(r)
}

// isAbout reports whether the rule is about the request's path. A mux compares methods and hosts to the letter;
// the case of a host (RFC 9110 §4.2.3) and a dot behind it are of no matter here, as they are none in a key.
func (rt *route) isAbout(r *http.Request) bool {
	if rt.mux == nil {
		return true
	}
	host := strings.ToLower(strings.Replace(strings.TrimSuffix(r.Host, "."), ".:", ":", 1))
	if method := strings.ToUpper(r.Method); host != r.Host || method != r.Method {
		plain := *r
		plain.Host, plain.Method = host, method
		r = &plain
	}
	_, pattern := rt.mux.Handler(r)
	return pattern != ""
}

// reached returns an error if no request comes to rt past the routes before it: who wrote it believes that it guards.
func (rt *route) reached(before []*route) error {
	own := slices.DeleteFunc(rt.samples(before), func(r *http.Request) bool { return !rt.takes(r) })
	if len(own) == 0 {
		return fmt.Errorf("idempotency: route %s: no request comes to it: its path matches none with one of its methods (%s)", rt.name, strings.Join(rt.Methods, ", "))
	}
	for _, r := range own {
		if !slices.ContainsFunc(before, func(b *route) bool { return b.takes(r) }) {
			return nil
		}
	}
	return fmt.Errorf("idempotency: route %s: no request comes to it: the routes before it take all that its path and its methods (%s) match", rt.name, strings.Join(rt.Methods, ", "))
}

// unnamed is a host and a segment of a path that no pattern has.
const unnamed = "any-7f3a9c.invalid"

// wildcard is a segment of a pattern that is any.
var wildcard = regexp.MustCompile(`\{[^/{}]*\}`)

// samples returns requests that rt matches, such that a route that takes one of them takes all like it. The
// segments that are any have a name that no pattern has; below a pattern that has no end they are deeper than all others.
func (rt *route) samples(before []*route) (list []*http.Request) {
	pattern := cmp.Or(rt.Path, "/")
	if i := strings.LastIndexAny(pattern, " \t"); i >= 0 { // after a method
		pattern = pattern[i+1:]
	}
	host, path := unnamed, pattern
	if i := strings.IndexByte(pattern, '/'); i > 0 {
		host, path = pattern[:i], pattern[i:]
	}
	depth := strings.Count(path, "/")
	for _, b := range before {
		depth = max(depth, strings.Count(b.Path, "/"))
	}
	path, exact := strings.CutSuffix(path, "{$}")
	base, _, rest := strings.Cut(path, "...}")
	if rest { // "/a/{x" without its end
		base = base[:strings.LastIndexByte(base, '/')+1]
	}
	paths := []string{wildcard.ReplaceAllString(base, unnamed)}
	for range depth + 1 {
		if last := paths[len(paths)-1]; strings.HasSuffix(last, "/") && !exact {
			paths = append(paths, last+unnamed, last+unnamed+"/")
		}
	}
	for _, path := range paths {
		u, err := url.ParseRequestURI(path)
		for _, method := range rt.Methods {
			if err == nil {
				list = append(list, &http.Request{Method: method, Host: host, URL: u})
			}
		}
	}
	return list
}

// route returns the first rule that is about a request; nil if none is.
func (g *Guard) route(r *http.Request) *route {
	for _, rt := range g.routes {
		if rt.takes(r) {
			return rt
		}
	}
	return nil
}

// learn remembers what an answer allows an origin, for the refusals of all rules about the path: what a browser asks
// before it sends a key has another method.
func (g *Guard) learn(origin string, h http.Header, r *http.Request) {
	asked := *r
	for _, rt := range g.routes {
		if slices.ContainsFunc(rt.Methods, func(method string) bool { asked.Method = method; return rt.isAbout(&asked) }) {
			rt.origins.learn(origin, h)
		}
	}
}

// maxWarned is how many requests are logged that have a key and no route.
const maxWarned = 50

// warned are the methods and paths that were logged.
type warned struct {
	// mu protects the field below.
	mu   sync.Mutex
	seen map[string]bool
}

// first reports whether a request is to be logged, and whether it is the last one that is.
func (w *warned) first(what string) (first, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[what] || len(w.seen) >= maxWarned {
		return false, false
	}
	if w.seen == nil {
		w.seen = make(map[string]bool)
	}
	w.seen[what] = true
	return true, len(w.seen) == maxWarned
}

// unmatched counts a request with a key that no rule is about, and logs each method and path once, up to a bound: its
// client believes that it is safe to retry.
func (g *Guard) unmatched(r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
		return
	}
	if r.Header[key.Header] == nil && r.Header[key.LegacyHeader] == nil {
		return
	}
	g.warn(r, "a request has a key that no route guards: a retry is executed again")
	if g.cfg.Observe != nil {
		g.cfg.Observe(r.Context(), Observation{Outcome: OutcomeUnmatched})
	}
}

// keyless logs a request that has no key where its rule says that keys are, each method and path once, up to a bound: whoever sends it
// again is executed again.
func (g *Guard) keyless(r *http.Request, rt *route) {
	switch coding := r.Header.Get("Content-Encoding"); {
	case rt.Key.Field != "" && coding != "" && !strings.EqualFold(coding, "identity"):
		g.warn(r, fmt.Sprintf("the body of a request is encoded (Content-Encoding: %.60s), so its key %s is not found: a retry is executed again", coding, rt.Key.Field))
	case rt.Key != KeySource{}:
		g.warn(r, fmt.Sprintf("a request has no key in %s: a retry is executed again", cmp.Or(rt.Key.Field, rt.Key.Header)))
	}
}

// warn logs something of requests once for each method and path, up to a bound.
func (g *Guard) warn(r *http.Request, what string) {
	method := r.Method[:min(len(r.Method), 32)]
	first, last := g.warned.first(method + " " + shownPath(r))
	if first {
		g.cfg.Logger.WarnContext(r.Context(), "idempotency keys: "+what+"; logged once for each method and path", "method", method, "path", shownPath(r))
	}
	if last {
		g.cfg.Logger.WarnContext(r.Context(), "idempotency keys: of further requests nothing is logged that a retry executes again")
	}
}
