package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/echo"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/match"
)

// Bounds of a list that comes in pages (law: bounded). What does not fit is left for the
// next call, and the result says so.
const (
	defaultItems = 1000
	maxItems     = 10_000
	maxListBytes = 768 << 10
	maxPages     = 1000
)

// Params of a list in pages that are the connector's and are not sent.
const (
	limitParam  = "limit"
	cursorParam = "cursor"
)

// ourCursor begins a cursor that says how many items of a page were given before.
const ourCursor = "keep:"

// A pager knows how a list comes in pages.
type pager struct {
	style     string
	items     match.Path
	param     string
	next      match.Path // nil: from and more
	more      match.Path
	from      match.Path
	first     int
	size      int
	sizeParam string
	mayLack   bool // no items at all are an empty page
	inBody    bool // param and sizeParam are members of the body
	thorough  bool // a page that is not full is the last one only if it says so
}

// pageStyles are the values of style in configuration.
var pageStyles = []string{"cursor", "page", "offset", "link"}

// pagesOf reads the pages of a list tool.
func (b *builder) pagesOf(t *tool) {
	if b.cfg.Pages == nil {
		return
	}
	if b.cfg.Effect != connector.List {
		b.addf("pages", "is for list tools")
	}
	t.pages, t.spec.Pages = b.pager("pages", *b.cfg.Pages), true
	for _, p := range []string{limitParam, cursorParam} {
		if slices.Contains(slices.Concat(t.path.params(), t.query.params()), p) {
			b.addf("pages", "the param %q says how much of the list is wanted, and is not sent; use size_param or param", p)
		}
	}
}

// pager checks cfg, which stands at key.
func (b *builder) pager(key string, cfg Pages) *pager {
	p := &pager{style: cfg.Style, param: cfg.Param, first: 1, size: cfg.Size, sizeParam: cfg.SizeParam, mayLack: cfg.MayLackItems}
	switch p.inBody = cfg.In == "body"; {
	case p.inBody && cfg.Style == "link":
		b.addf(key+".in", "is for every style but link")
	case cfg.In != "" && cfg.In != "query" && !p.inBody:
		b.addf(key+".in", "is %q, want \"body\" or \"query\"", cfg.In)
	}
	if !slices.Contains(pageStyles, cfg.Style) {
		b.addf(key+".style", "is %q, want one of %s", cfg.Style, strings.Join(pageStyles, ", "))
	}
	if (cfg.Param == "") != (cfg.Style == "link") {
		b.addf(key+".param", "is needed for every style but link, and for no other")
	}
	if cfg.First != nil {
		p.first = *cfg.First
	}
	if cfg.Size < 0 || cfg.Size > maxItems || cfg.SizeParam != "" && cfg.Size == 0 {
		b.addf(key+".size", "is %d, want 1 to %d", cfg.Size, maxItems)
	}
	for _, f := range []struct {
		name, text string
		to         *match.Path
	}{{"items", cfg.Items, &p.items}, {"next", cfg.Next, &p.next}, {"more", cfg.More, &p.more}, {"from", cfg.From, &p.from}} {
		if f.text == "" {
			continue
		}
		path, err := match.ParsePath(f.text)
		if err != nil {
			b.addf(key+"."+f.name, "%v", err)
		}
		*f.to = path
	}
	if cursor := cfg.Next != "" || cfg.From != ""; cursor != (cfg.Style == "cursor") {
		b.addf(key+".next", "next, or from with more, is needed for the style cursor, and for no other")
	}
	if (cfg.From != "") != (cfg.More != "" && cfg.Style == "cursor") || cfg.From != "" && cfg.Next != "" {
		b.addf(key+".from", "from and more belong together, and stand in place of next")
	}
	return p
}

// start returns the address of the first page, or of the page that a cursor names, and
// what its request has in the body.
func (p *pager) start(s *service, target, cursor string) (string, url.Values, *keep.Failure) {
	more := url.Values{}
	if p.sizeParam != "" {
		more.Set(p.sizeParam, strconv.Itoa(p.size))
	}
	switch {
	case cursor == "" && p.style == "page":
		more.Set(p.param, strconv.Itoa(p.first))
	case cursor == "":
	case p.style == "link":
		next, f := p.link(s, target, cursor)
		return next, nil, f
	default:
		more.Set(p.param, cursor)
	}
	if p.inBody {
		return target, more, nil
	}
	for _, name := range []string{p.sizeParam, p.param} {
		if more.Has(name) {
			target = withQuery(target, name, more.Get(name))
		}
	}
	return target, nil, nil
}

// addMembers returns a JSON body with further members. Numbers stay numbers, since sizes
// and numbers of pages are.
func addMembers(body []byte, more url.Values) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if len(body) > 0 {
		var err error
		if fields, err = jsonval.Fields(body); err != nil {
			return nil, err
		}
	}
	fields = maps.Clone(fields)
	for name := range more {
		value := any(more.Get(name))
		if n, err := strconv.Atoi(more.Get(name)); err == nil && strconv.Itoa(n) == more.Get(name) { // 007 is a text
			value = n
		}
		raw, err := jsonval.Encode(value)
		if err != nil {
			return nil, err
		}
		fields[name] = raw
	}
	return jsonval.Encode(fields)
}

// link returns the address of a link, which must be of the same origin: the credentials
// of the connection go there.
func (p *pager) link(s *service, target, link string) (string, *keep.Failure) {
	base, errA := url.Parse(target)
	next, errB := base.Parse(link)
	if errA != nil || errB != nil || next.Scheme != base.Scheme || next.Host != base.Host || next.User != nil {
		return "", keep.Failf(keep.ClassLogic, "pages_elsewhere", "the link to the next page leaves %s, and is not followed", s.base)
	}
	return next.String(), nil
}

// after returns the cursor of the page after one with n items, and whether there is one.
// At and cursor are the address and the cursor of the page itself. A page that does not say
// whether there is one, or not where, is a failure: the list may not end here.
func (p *pager) after(at string, a answer, body json.RawMessage, cursor string, n int) (string, bool, *keep.Failure) {
	if p.more != nil {
		switch more, _ := p.more.Find(body); string(more) {
		case "true":
		case "false":
			return "", false, nil
		default:
			return "", false, keep.Failf(keep.ClassTransient, "page-without-next", "a page has neither true nor false at %s; it may work later", p.more)
		}
	}
	next, goesOn, err := p.nextCursor(at, a, body, cursor, n)
	switch {
	case err != nil && p.style == "link":
		return "", false, keep.Failf(keep.ClassTransient, "page-without-next", "it cannot be told whether there is another page, since the header Link of one cannot be read: %v; it may work later", err)
	case err != nil || p.more != nil && !goesOn:
		return "", false, keep.Failf(keep.ClassTransient, "page-without-next", "a page says that there is another, and not where; it may work later")
	}
	return next, goesOn, nil
}

// nextCursor returns the cursor of the next page, and whether the page names one. Without
// more, a page that is not full is the last one if it does not say that there is another, or an empty one to who is thorough: services cap
// how many they give. It returns an error for what is no cursor.
func (p *pager) nextCursor(at string, a answer, body json.RawMessage, cursor string, n int) (string, bool, error) {
	switch p.style {
	case "link":
		return linkedFrom(at, a.header)
	case "page", "offset":
		at, err := strconv.Atoi(cursor)
		if err != nil {
			at = map[string]int{"page": p.first}[p.style]
		}
		if p.more == nil && (n == 0 || n < p.size && !(p.thorough && silent(a, body)) && !flagged(body)) {
			return "", false, nil
		}
		if p.style == "page" {
			return strconv.Itoa(at + 1), true, nil
		}
		return strconv.Itoa(at + n), n > 0, nil
	}
	path := p.next
	if path == nil {
		path = p.from
	}
	raw, ok := path.Find(body)
	if !ok || string(raw) == "null" || string(raw) == "false" {
		return "", false, nil
	}
	next, err := scalar("next", raw)
	return next, next != "", err
}

// counts reports whether pages are asked for by a number that each has.
func (p *pager) counts() bool { return p.style == "page" || p.style == "offset" }

// withQuery sets a query parameter.
func withQuery(target, name, value string) string {
	between := "?"
	if strings.Contains(target, "?") {
		between = "&"
	}
	return target + between + url.QueryEscape(name) + "=" + url.QueryEscape(value)
}

// A page is one answer with items.
type page struct {
	items []json.RawMessage
	next  string
	more  bool
}

// each reads pages from a cursor on, until take returns false or there are no more. Fetch
// returns an answer that is a success, and its JSON. The failure names no tool.
func (p *pager) each(s *service, target, cursor string, fetch func(string, url.Values) (answer, json.RawMessage, *keep.Failure), take func(string, page) bool) *keep.Failure {
	seen, last := map[string]bool{}, json.RawMessage(nil)
	for range maxPages {
		if seen[cursor] {
			return keep.Failf(keep.ClassLogic, "pages_loop", "the service named the same next page twice")
		}
		seen[cursor] = true
		at, more, f := p.start(s, target, cursor)
		if f != nil {
			return f
		}
		a, body, f := fetch(at, more)
		if f != nil {
			return f
		}
		found := body
		if p.items != nil {
			found, _ = p.items.Find(body)
		}
		items, ok := match.Elements(found)
		if fields, err := jsonval.Fields(body); !ok && p.mayLack && err == nil && !echo.Denies(fields, false) {
			ok = len(found) == 0
		}
		if !ok {
			return keep.Failf(keep.ClassTransient, "page-without-items", "a page has no list at %s; it may work later", p.items)
		}
		if (p.thorough || p.counts() && len(items) < p.size) && len(items) > 0 && bytes.Equal(found, last) {
			return keep.Failf(keep.ClassTransient, "page-without-next", "it cannot be told where the list ends, since two pages are the same")
		}
		last = found
		next, goesOn, f := p.after(at, a, body, cursor, len(items))
		if !take(cursor, page{items, next, goesOn}) || !goesOn {
			return f
		}
		cursor = next
	}
	return keep.Failf(keep.ClassLogic, "too-many-pages", "the list has more than %d pages; ask for less at a time", maxPages)
}

// A listing is what was read of a list. Its JSON form is what scripts get as an array with
// two more properties.
type listing struct {
	Items     []json.RawMessage `json:"$list"`
	Truncated bool              `json:"truncated"`
	Next      *string           `json:"next"`
}

// readPages reads a list to its limit.
func (r *reader) readPages(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	fields, err := jsonval.Fields(params)
	if err != nil {
		return nil, r.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	limit, cursor, skip, err := listParams(fields)
	if err != nil {
		return nil, r.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	fields = maps.Clone(fields)
	delete(fields, limitParam)
	delete(fields, cursorParam)
	rest, err := jsonval.Encode(fields)
	if err != nil {
		return nil, r.failf(keep.ClassLogic, "bad-params", "%v", err)
	}
	first, err := r.request(rest, nil)
	if err != nil {
		return nil, err
	}
	out, size := listing{Items: []json.RawMessage{}}, 0
	fetch := func(target string, more url.Values) (answer, json.RawMessage, *keep.Failure) {
		return r.fetchPage(ctx, rest, target, more)
	}
	failure := r.pages.each(r.service, first.URL.String(), cursor, fetch, func(at string, p page) bool {
		for i, item := range p.items[min(skip, len(p.items)):] {
			if len(out.Items) == limit || size+len(item) > maxListBytes && len(out.Items) > 0 {
				out.stop(at, min(skip, len(p.items))+i)
				return false
			}
			out.Items, size = append(out.Items, item), size+len(item)
		}
		if skip = 0; len(out.Items) == limit && p.more {
			out.stop(p.next, 0)
			return false
		}
		return true
	})
	if failure != nil {
		failure.Tool = keep.ToolName(r.service.name + "." + r.spec.Name)
		return nil, failure
	}
	raw, err := jsonval.Encode(out)
	if err != nil {
		return nil, r.failf(keep.ClassPrecondition, "not-json", "%v", err)
	}
	return r.service.hide.JSON(raw), nil
}

// stop notes that the list continues at a page, after skip of its items.
func (l *listing) stop(cursor string, skip int) {
	next := cursor
	if skip > 0 || cursor == "" || strings.HasPrefix(cursor, ourCursor) { // which a service may say, too
		next = fmt.Sprintf("%s%d:%s", ourCursor, skip, cursor)
	}
	l.Truncated, l.Next = true, &next
}

// listParams returns how much of a list is wanted, and from where.
func listParams(fields map[string]json.RawMessage) (limit int, cursor string, skip int, err error) {
	limit = defaultItems
	if raw := bytes.TrimSpace(fields[limitParam]); len(raw) > 0 {
		if limit, err = strconv.Atoi(string(raw)); err != nil || limit < 1 || limit > maxItems {
			return 0, "", 0, fmt.Errorf("limit must be a number from 1 to %d", maxItems)
		}
	}
	if raw := bytes.TrimSpace(fields[cursorParam]); len(raw) > 0 && string(raw) != "null" {
		if json.Unmarshal(raw, &cursor) != nil {
			return 0, "", 0, fmt.Errorf("cursor must be what next was")
		}
	}
	if rest, ours := strings.CutPrefix(cursor, ourCursor); ours {
		count, at, _ := strings.Cut(rest, ":")
		if skip, err = strconv.Atoi(count); err != nil || skip < 0 {
			return 0, "", 0, fmt.Errorf("cursor must be what next was")
		}
		cursor = at
	}
	return limit, cursor, skip, nil
}

// fetchPage reads the page at target, with more in the body.
func (r *reader) fetchPage(ctx context.Context, params json.RawMessage, target string, more url.Values) (answer, json.RawMessage, *keep.Failure) {
	req, err := r.requestWith(params, nil, more)
	if err != nil {
		return answer{}, nil, asFailure(err)
	}
	if req.URL, err = url.Parse(target); err != nil {
		return answer{}, nil, r.failf(keep.ClassLogic, "bad-params", "the address of a page cannot be built")
	}
	a, result, err := r.perform(ctx, req)
	if err != nil {
		return a, nil, asFailure(err)
	}
	return a, result, nil
}

// asFailure returns err, which is a failure of this package.
func asFailure(err error) *keep.Failure {
	if f, ok := err.(*keep.Failure); ok {
		return f
	}
	return keep.Failf(keep.ClassTransient, "no-answer", "%v", err)
}
