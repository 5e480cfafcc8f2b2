package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
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
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/match"
	"github.com/keep-run/keep/connector/internal/ontime"
)

// A lookup is the request that tells whether a mutation happened.
type lookup struct {
	method   string
	path     path
	query    query
	applied  []int
	failed   []int
	match    query      // field of a record, and what it must equal
	contains query      // field of a record, and what its text must contain
	items    match.Path // to the list in the answer; nil: the answer is the list or the record
	complete bool
	absentIf *condition
	emptyIf  *condition // of an answer without items: the list is empty; nil: it shows nothing
	fixed    fixedValue // the body of a POST
	pages    *pager     // of the list; nil: it comes at once
	token    tokenPlace // how the tool writes its token
	started  bool       // the tool has a start, so that {start} is known
}

// asked returns the names in the question.
func (l *lookup) asked() []string {
	return slices.Concat(l.path.names(), l.query.names(), l.fixed.names())
}

// compared returns the names of what fields of a record are compared with.
func (l *lookup) compared() []string { return slices.Concat(l.match.names(), l.contains.names()) }

// names returns every name that the lookup needs, {token} included.
func (l *lookup) names() []string { return slices.Concat(l.asked(), l.compared()) }

// marked reports whether the lookup asks by our token.
func (l *lookup) marked() bool { return slices.Contains(l.names(), tokenParam) }

// comparesCall reports whether match and contains name something of the call.
func (l *lookup) comparesCall() bool { return ofCall(l.compared()) }

// ofCall reports whether one of the names can tell the call from others: a time cannot.
func ofCall(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return !isTime(name) })
}

// showsToken reports whether what the lookup takes for the effect shows our token.
func (l *lookup) showsToken() bool {
	if l.comparesCall() {
		return slices.Contains(l.compared(), tokenParam)
	}
	return l.marked()
}

// request returns the lookup's URL for mut. A param that is missing is an
// error: without it the answer would be about something else.
func (l *lookup) request(s *service, mut question) (string, error) {
	v, err := l.values(mut)
	if err != nil {
		return "", err
	}
	for _, name := range l.names() {
		raw := bytes.TrimSpace(v.get(name))
		if !v.isHost(name) && (len(raw) == 0 || string(raw) == "null") {
			return "", fmt.Errorf("param %q is required", name)
		}
	}
	return s.url(l.path, slices.Concat(l.path.query, l.query), v)
}

// clockSkew is how far a service's clock may be from the database's, in a search by time.
const clockSkew = time.Minute

// A question is about a call.
type question struct {
	keep.Mutation           // CreatedAt is by the clock of this machine
	recorded      time.Time // by that of the records, as the call had it
	now           bool      // no cache may answer it: it is asked to see what the service shows now
}

// questionOf returns the question of a Reconciler.
func questionOf(ctx context.Context, mut keep.Mutation) question {
	return question{Mutation: mut, recorded: connector.Recorded(ctx, mut)}
}

// questionOfNow returns the question what the service shows of a call at this moment.
func questionOfNow(ctx context.Context, mut keep.Mutation) question {
	q := questionOf(ctx, mut)
	q.now = true
	return q
}

// values is what the templates of a lookup are filled with.
func (l *lookup) values(mut question) (values, error) {
	fields, err := jsonval.Fields(mut.Payload)
	sent := mut.CreatedAt.Add(-clockSkew).UTC()
	v := values{fields: fields, host: map[string]string{
		tokenParam:     l.token.write(mut.Token),
		sentParam:      sent.Format(time.RFC3339),
		sentRFC3339:    sent.Format(time.RFC3339),
		sentUnix:       strconv.FormatInt(sent.Unix(), 10),
		createdRFC3339: mut.recorded.UTC().Format(time.RFC3339),
	}}
	if l.started {
		maps.Copy(v.host, claimed(mut.Mutation))
	}
	return v, err
}

// A reconciler is a mutator whose outcome can be asked for.
type reconciler struct{ mutator }

// Reconcile sends the request again if the service de-duplicates it, and
// otherwise looks for the effect.
func (r *reconciler) Reconcile(ctx context.Context, mut keep.Mutation) (connector.Answer, error) {
	switch {
	case r.start != nil:
		return r.lookForStart(ctx, mut)
	case r.spec.Level == keep.LevelKey && r.spec.KeyLives(ctx, mut):
		return r.resend(ctx, mut)
	case r.lookup != nil:
		return r.look(ctx, questionOf(ctx, mut))
	default:
		return connector.Answer{}, r.failf(keep.ClassPrecondition, "key-forgotten",
			"the service keeps keys for %s, so sending again could do it twice; only a person can look", r.spec.KeyLasts)
	}
}

// Control reports whether the lookup finds known, which is known to have happened.
func (r *reconciler) Control(ctx context.Context, known keep.Mutation) (bool, error) {
	if r.lookup == nil {
		return false, nil
	}
	a, err := r.look(ctx, questionOfNow(ctx, known))
	return a.Verdict == connector.Happened, err
}

// resend sends the same request again. The service answers for the first one, or does
// now what it should have done then. A refusal settles this request and not the first
// one, which may have had its effect: a gateway may refuse, and so may a service that
// checks a request before it looks at the key.
func (r *reconciler) resend(ctx context.Context, mut keep.Mutation) (connector.Answer, error) {
	was := mut
	was.CreatedAt = connector.Recorded(ctx, mut) // which may be in it
	req, err := r.request(mut.Payload, &was)
	if err != nil {
		return connector.Answer{}, err
	}
	a, err := r.send(ctx, req)
	if err != nil {
		return connector.Answer{}, err
	}
	seen := fmt.Sprintf("sent again with the same key: %d %s", a.status, http.StatusText(a.status))
	v := r.mutateVerdict(a)
	switch {
	case r.resendSaysHappened(a):
		return connector.Answer{Verdict: connector.Happened, Receipt: r.earlier(ctx, mut), Detail: seen}, nil
	case v.class == "":
		return connector.Answer{Verdict: connector.Happened, Receipt: r.receipt(a), Detail: seen, ByKey: true}, nil
	case r.lookup != nil:
		found, err := r.look(ctx, questionOf(ctx, mut))
		if v.class == keep.ClassUnknown && found.Verdict != connector.Happened {
			found.Verdict = connector.Retry // this request may have its effect yet
		}
		found.Detail = seen + "; " + found.Detail
		return found, err
	case a.ok():
		return retry(seen + " " + v.why), nil
	default:
		return connector.Answer{}, r.refused(a, verdict{class: readClass(a.status)})
	}
}

// resendSaysHappened reports whether the answer to a repeated request means that an
// earlier one had its effect.
func (m *mutator) resendSaysHappened(a answer) bool { return slices.Contains(m.happened, a.status) }

// earlier returns the receipt of a call that the service says it made earlier.
func (m *mutator) earlier(ctx context.Context, mut keep.Mutation) connector.Receipt {
	if m.thenLookup {
		if found, err := m.look(ctx, questionOf(ctx, mut)); err == nil && found.Verdict == connector.Happened {
			return found.Receipt
		}
	}
	return connector.Receipt{Warning: "the service says that an earlier request did it, and not what came of it"}
}

// retry is no answer, and says why.
func retry(detail string) connector.Answer {
	return connector.Answer{Verdict: connector.Retry, Detail: detail}
}

// look asks the service for the effect. A search since the call is by the service's clock: if that is behind, what was made is older
// there than we say, so it is searched once more from when the service had it.
func (m *mutator) look(ctx context.Context, mut question) (connector.Answer, error) {
	found, behind, err := m.lookOnce(ctx, mut)
	if err != nil || found.Verdict == connector.Happened || behind < clockSkew/2 || !m.lookup.sinceCall() {
		return found, err
	}
	mut.CreatedAt = mut.CreatedAt.Add(-behind)
	if found, _, err = m.lookOnce(ctx, mut); err == nil {
		found.Detail += fmt.Sprintf("; the service's clock is %s behind ours, and it was searched from that much earlier", behind.Round(time.Second))
	}
	return found, err
}

// lookOnce asks the service for the effect, and says how far its clock is behind that of this machine, if it tells the time.
func (m *mutator) lookOnce(ctx context.Context, mut question) (connector.Answer, time.Duration, error) {
	target, err := m.lookup.request(m.service, mut)
	if err != nil {
		return connector.Answer{}, 0, m.failf(keep.ClassLogic, "bad-params", "reconcile: %v", err)
	}
	if m.lookup.pages != nil {
		return m.lookThrough(ctx, target, mut)
	}
	a, seen, err := m.lookAt(ctx, target, nil, mut)
	if err != nil {
		return connector.Answer{}, 0, err
	}
	answer := a.fresh(m.lookup.judge(a, mut))
	answer.Detail = seen + answer.Detail
	answer.Result = m.service.hide.JSON(answer.Result)
	return answer, a.behind, nil
}

// sinceCall reports whether the lookup searches by the time of the call.
func (l *lookup) sinceCall() bool {
	return slices.ContainsFunc(l.names(), func(name string) bool { return strings.HasPrefix(name, sentParam) })
}

// lookAt makes one request of the lookup. It returns what was seen, in a few words.
func (m *mutator) lookAt(ctx context.Context, target string, more url.Values, mut question) (answer, string, error) {
	body, err := m.lookup.body(mut, more)
	if err != nil {
		return answer{}, "", m.failf(keep.ClassLogic, "bad-params", "reconcile: %v", err)
	}
	req, err := m.service.request(m.lookup.method, target, body, "application/json")
	if err != nil {
		return answer{}, "", m.failf(keep.ClassLogic, "bad-params", "reconcile: %v", err)
	}
	uncached(req)
	resp, u, err := m.service.exchange(ctx, m.service.reads, req)
	if err != nil {
		return answer{}, "", m.unanswered(ctx, err, "reconcile: ")
	}
	a := read(resp)
	a.used = u
	if at, err := http.ParseTime(a.header.Get("Date")); err == nil {
		a.behind = ontime.Now().Sub(at)
	}
	seen := m.service.hide.Text(fmt.Sprintf("%s answered %d %s", m.lookup, a.status, http.StatusText(a.status)))
	if !m.lookup.answers(a) {
		return a, seen, m.refused(a, verdict{class: readClass(a.status)})
	}
	return a, seen, m.ofNow(a, mut)
}

// body returns the body of a request of the lookup; nil: it has none. More is added to it.
func (l *lookup) body(mut question, more url.Values) ([]byte, error) {
	if l.fixed.members == nil && len(more) == 0 {
		return nil, nil
	}
	v, err := l.values(mut)
	if err != nil {
		return nil, err
	}
	raw, err := l.fixed.fill(v)
	if err != nil || len(more) == 0 {
		return raw, err
	}
	return addMembers(raw, more)
}

// maxLookupItems bounds the list that a lookup reads. A longer one is not complete.
const maxLookupItems = 10_000

// unreadablePages are the codes of pages that leave a lookup without an answer.
var unreadablePages = []string{"odd-page", "page-without-items", "page-without-next"}

// lookThrough looks for the effect in a list that comes in pages. Where an entry that is deleted between two pages shifts those behind
// it, ours may move from a page that was not read yet to one that was: a list of several pages shows no effect if it is read twice, and
// no entry is gone in between.
func (m *mutator) lookThrough(ctx context.Context, target string, mut question) (connector.Answer, time.Duration, error) {
	first, err := m.readThrough(ctx, target, mut)
	if err != nil || !first.isWhole || first.answer.Verdict == connector.Retry || first.pages < 2 {
		return first.answer, first.behind, err
	}
	again, err := m.readThrough(ctx, target, mut)
	if err == nil && again.isWhole && again.lacks(first) {
		again.answer = retry(again.seen + ", but the list changed while it was read")
	}
	return again.answer, max(first.behind, again.behind), err
}

// A reading is what one reading of a list in pages showed.
type reading struct {
	answer  connector.Answer
	seen    string                     // of the last page
	behind  time.Duration              // the clock of the service
	isWhole bool                       // it was read to its end, and shows no effect
	pages   int                        // that have entries
	entries map[[sha256.Size]byte]bool // by a hash of what tells each from others
}

// add notes the entries of a page.
func (r *reading) add(p page) {
	r.isWhole = !p.more
	if len(p.items) > 0 {
		r.pages++
	}
	for _, record := range p.items {
		id := fieldOf(record, "id") // the rest may be another at each reading
		if len(id) == 0 || string(id) == "null" {
			id = record
		}
		r.entries[sha256.Sum256(id)] = true
	}
}

// lacks reports whether an entry that another reading has is not in r.
func (r *reading) lacks(other reading) bool {
	for id := range other.entries {
		if !r.entries[id] {
			return true
		}
	}
	return false
}

// readThrough reads a list in pages. Whatever goes wrong on the way leaves the question open, since the effect may be on a page that
// was not read.
func (m *mutator) readThrough(ctx context.Context, target string, mut question) (reading, error) {
	found, failed, list, r := connector.Answer{}, "", search{}, reading{entries: make(map[[sha256.Size]byte]bool)}
	var a answer
	fetch := func(at string, more url.Values) (_ answer, _ json.RawMessage, f *keep.Failure) {
		var err error
		if a, r.seen, err = m.lookAt(ctx, at, more, mut); err != nil {
			return a, nil, asFailure(err)
		}
		r.behind = max(r.behind, a.behind)
		body, err := a.record()
		if !a.isJSON() || err != nil || !slices.Contains(m.lookup.applied, a.status) {
			return a, nil, keep.Failf(keep.ClassTransient, "odd-page", "%s, but without a page that can be read", r.seen)
		}
		failed = cmp.Or(failed, failure(body), a.cached())
		list.part = cmp.Or(failed, m.lookup.pages.continues(a, body)) // the last page says whether there is more
		return a, body, nil
	}
	f := m.lookup.pages.each(m.service, target, "", fetch, func(_ string, p page) bool {
		for _, record := range p.items {
			if m.lookup.proves(record, true, mut) {
				found = connector.Answer{Verdict: connector.Happened, Receipt: a.found(m.service.hide.JSON(record))}
				return false
			}
			list.add(m.lookup, record, mut)
		}
		r.add(p)
		return list.entries < maxLookupItems
	})
	r.isWhole = r.isWhole && f == nil && found.Verdict != connector.Happened
	switch {
	case found.Verdict == connector.Happened:
	case f != nil && !slices.Contains(unreadablePages, f.Code):
		f.Tool = keep.ToolName(m.service.name + "." + m.spec.Name)
		return reading{}, f
	case f != nil:
		r.answer = retry(f.Message)
		return r, nil
	default:
		found = m.lookup.whole(list, r.isWhole)
	}
	r.answer, r.answer.Detail = found, r.seen+found.Detail
	return r, nil
}

// whole says what a list in pages shows none of whose entries proves the effect. It was read to its end, or not.
func (l *lookup) whole(list search, toItsEnd bool) connector.Answer {
	switch {
	case toItsEnd && l.absentFrom(list):
		return list.absence(fmt.Sprintf(", a complete list of %d without it", list.entries))
	case toItsEnd && list.entries == 0 && list.part == "":
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: ", an empty list"}
	case list.part != "" || list.near:
		return retry(list.why())
	}
	return retry(fmt.Sprintf(", but none of %d entries is what was sent", list.entries))
}

// String names the lookup by its templates: what they are filled with may be secret.
func (l *lookup) String() string {
	s := l.method + " " + l.path.String()
	for i, f := range slices.Concat(l.path.query, l.query) {
		s += string("?&"[min(i, 1)]) + f.key
		if params := f.value.params(); len(params) > 0 {
			s += "={" + strings.Join(params, "},{") + "}"
		}
	}
	return s
}

// answers reports whether a has a status that says something, and is not an error.
func (l *lookup) answers(a answer) bool {
	return a.ok() || slices.Contains(l.failed, a.status) || l.isAbsent(a)
}

// isAbsent reports whether a is the service's own "not found".
func (l *lookup) isAbsent(a answer) bool {
	return l.absentIf != nil && l.absentIf.matches(a, func(status int) bool { return slices.Contains(l.failed, status) })
}

// isEmpty reports whether a is the service's own way to show an empty list.
func (l *lookup) isEmpty(a answer) bool {
	return l.emptyIf != nil && l.emptyIf.matches(a, func(status int) bool { return slices.Contains(l.applied, status) })
}

// judge says what an answer to the lookup shows (law: witnessed). Detail begins with
// what follows the status.
func (l *lookup) judge(a answer, mut question) connector.Answer {
	switch {
	case l.isAbsent(a):
		return connector.Answer{Verdict: connector.Absent, Detail: ", which is the service's own way to say that there is nothing"}
	case slices.Contains(l.failed, a.status) && l.absentIf != nil:
		return retry(", but absent_if does not recognise it")
	case slices.Contains(l.failed, a.status) && (a.isHTML() || a.err != nil):
		return retry(", but as an HTML page or cut off, which a gateway may have sent")
	case slices.Contains(l.failed, a.status):
		return connector.Answer{Verdict: connector.Unwitnessed}
	case !slices.Contains(l.applied, a.status):
		return retry("")
	case !a.isJSON():
		return retry(", but without JSON")
	}
	result, err := a.record()
	if err != nil || result == nil {
		return retry(", but with nothing in it that can be read")
	}
	return l.judgeRecords(a, result, mut)
}

// judgeRecords looks for the effect in an answer whose JSON is result.
func (l *lookup) judgeRecords(a answer, result json.RawMessage, mut question) connector.Answer {
	found := result
	if l.items != nil {
		var ok bool
		if found, ok = l.items.Find(result); !ok && !l.isEmpty(a) {
			return retry(", but it has no " + l.items.String())
		} else if !ok {
			found = json.RawMessage("[]")
		}
	}
	records, listed := match.Elements(found)
	switch {
	case !listed && l.items != nil:
		return retry(", but " + l.items.String() + " is no list")
	case !listed && !l.comparesCall() && l.searches() && hasEmptyList(found):
		return retry(", which looks like an empty search; set items or match")
	case !listed:
		records = []json.RawMessage{found}
	}
	list := search{part: cmp.Or(failure(result), saysMore(a, result))}
	for _, record := range records {
		if l.proves(record, listed, mut) {
			return connector.Answer{Verdict: connector.Happened, Receipt: a.found(record)}
		}
		list.add(l, record, mut)
	}
	switch {
	case listed && l.absentFrom(list):
		return list.absence(", a complete list without it")
	case listed && len(records) == 0 && list.part == "":
		return connector.Answer{Verdict: connector.Unwitnessed, Detail: ", an empty list"}
	case listed:
		return retry(list.why())
	}
	return retry(", but what it holds is not what was sent")
}

// searches reports whether the lookup has a query or a body, so that finding nothing may
// well be a success.
func (l *lookup) searches() bool { return len(l.query)+len(l.path.query)+len(l.fixed.members) > 0 }

// listNames are members in which services have what a search found.
var listNames = []string{"data", "results", "result", "items", "records", "rows", "hits", "entries", "list", "value", "values", "nodes", "edges", "objects"}

// hasEmptyList reports whether a member of the object is an empty array, or a member at any depth that is named as
// a list is empty, or null.
func hasEmptyList(raw json.RawMessage) bool {
	v, err := jsonval.Decode(raw)
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		return false
	}
	for _, value := range object {
		if list, ok := value.([]any); ok && len(list) == 0 {
			return true
		}
	}
	return lacksAList(object)
}

func lacksAList(object map[string]any) bool {
	for name, value := range object {
		switch v := value.(type) {
		case nil:
			if slices.Contains(listNames, strings.ToLower(name)) {
				return true
			}
		case []any:
			if len(v) == 0 && slices.Contains(listNames, strings.ToLower(name)) {
				return true
			}
		case map[string]any:
			if lacksAList(v) {
				return true
			}
		}
	}
	return false
}
