package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A lookup is the request that tells whether a mutation happened.
type lookup struct {
	method  string
	path    path
	query   query
	applied []int
	failed  []int
	match   query  // response field, and what it must equal
	items   string // JSON pointer to the list in the answer
}

// params returns every name that the lookup needs, {token} included.
func (l *lookup) params() []string {
	return slices.Concat(l.path.params(), l.query.params(), l.match.params())
}

// request returns the lookup's URL for mut. A param that is missing is an
// error: without it the answer would be about something else.
func (l *lookup) request(s *service, mut keep.Mutation) (string, error) {
	v, err := mutationValues(mut)
	if err != nil {
		return "", err
	}
	for _, p := range l.params() {
		raw := bytes.TrimSpace(v.fields[p])
		if !v.isToken(p) && (len(raw) == 0 || string(raw) == "null") {
			return "", fmt.Errorf("param %q is required", p)
		}
	}
	return s.url(l.path, slices.Concat(l.path.query, l.query), v)
}

// mutationValues is what the templates of a lookup are filled with.
func mutationValues(mut keep.Mutation) (values, error) {
	fields, err := jsonval.Fields(mut.Payload)
	return values{fields: fields, token: mut.Token}, err
}

// A reconciler is a mutator whose outcome can be asked for.
type reconciler struct{ mutator }

// Reconcile sends the request again if the service de-duplicates it, and
// otherwise looks for the effect.
func (r *reconciler) Reconcile(ctx context.Context, mut keep.Mutation) (connector.Answer, error) {
	switch {
	case r.spec.Level == keep.LevelKey && r.keyLives(ctx, mut):
		return r.resend(ctx, mut)
	case r.lookup != nil:
		return r.look(ctx, mut)
	default:
		return connector.Answer{}, r.failf(keep.ClassPrecondition, "key-forgotten",
			"the service keeps keys for %s, so sending again could do it twice; only a person can look", r.spec.KeyLasts)
	}
}

// keyLives reports whether the service still knows the token for as long as
// this question may take. The end of ctx stands in for the time, which
// connectors don't read.
func (r *reconciler) keyLives(ctx context.Context, mut keep.Mutation) bool {
	until, ok := ctx.Deadline()
	return !ok || r.spec.KeyLasts == 0 || mut.CreatedAt.IsZero() || until.Before(mut.CreatedAt.Add(r.spec.KeyLasts))
}

// Statuses of a resend that mean the service never did what the key stands
// for. 400 and 422 are not among them: they may mean that the key came with
// another request, whose effect is there.
var absentOnResend = []int{404, 405, 410, 413, 415, 501}

// replayed is how services mark an answer that they stored for a key.
const replayed = "Idempotent-Replayed"

// resend sends the same request again. The service answers for the first one,
// or does now what it should have done then.
func (r *reconciler) resend(ctx context.Context, mut keep.Mutation) (connector.Answer, error) {
	req, err := r.request(mut.Payload, mut.Token)
	if err != nil {
		return connector.Answer{}, err
	}
	a, err := r.send(ctx, req)
	if err != nil {
		return connector.Answer{}, err
	}
	seen := fmt.Sprintf("sent again with the same key: %d %s", a.status, http.StatusText(a.status))
	switch {
	case a.ok() && a.err != nil && !a.cut:
		return again(seen + ", but the answer broke off"), nil
	case a.ok():
		return connector.Answer{Verdict: connector.Happened, Receipt: a.receipt(), Detail: seen}, nil
	case slices.Contains(absentOnResend, a.status),
		slices.Contains(refusals, a.status) && a.status != 409 && strings.EqualFold(a.header.Get(replayed), "true"):
		return connector.Answer{Verdict: connector.Absent, Detail: seen}, nil
	default:
		return connector.Answer{}, r.refused(a, readClass(a.status))
	}
}

// again is no answer, and says why.
func again(detail string) connector.Answer {
	return connector.Answer{Verdict: connector.Again, Detail: detail}
}

// look asks the service for the effect.
func (r *reconciler) look(ctx context.Context, mut keep.Mutation) (connector.Answer, error) {
	target, err := r.lookup.request(r.service, mut)
	if err != nil {
		return connector.Answer{}, r.failf(keep.ClassLogic, "bad-params", "reconcile: %v", err)
	}
	req, err := r.service.request(r.lookup.method, target, nil)
	if err != nil {
		return connector.Answer{}, r.failf(keep.ClassLogic, "bad-params", "reconcile: %v", err)
	}
	resp, err := roundTrip(ctx, r.service.reads, req)
	if err != nil {
		return connector.Answer{}, r.failf(keep.ClassTransient, "no-answer", "reconcile: no answer: %s", r.service.hide.text(why(ctx, err)))
	}
	a := read(resp)
	seen := fmt.Sprintf("%s %s answered %d %s", r.lookup.method, r.lookup.where(mut), a.status, http.StatusText(a.status))
	seen = r.service.hide.text(seen)
	switch {
	case slices.Contains(r.lookup.failed, a.status):
		return connector.Answer{Verdict: connector.Absent, Detail: seen}, nil
	case !slices.Contains(r.lookup.applied, a.status):
		class := readClass(a.status)
		if a.ok() {
			return again(seen), nil
		}
		return connector.Answer{}, r.refused(a, class)
	case a.err != nil:
		return again(seen + ", but the answer broke off"), nil
	}
	answer := r.lookup.judge(a, mut)
	answer.Detail = seen + answer.Detail
	return answer, nil
}

// where names the lookup without the host, for a person.
func (l *lookup) where(mut keep.Mutation) string {
	v, _ := mutationValues(mut)
	p, _ := l.path.fill(v)
	q, _ := slices.Concat(l.path.query, l.query).fill(v)
	if q != "" {
		p += "?" + q
	}
	return p
}

// judge decides about an answer with a status of applied.
func (l *lookup) judge(a answer, mut keep.Mutation) connector.Answer {
	if len(l.match) == 0 && l.items == "" && (a.cut || l.method == "HEAD") {
		return connector.Answer{Verdict: connector.Happened, Receipt: a.receipt()}
	}
	result, err := a.value()
	if err != nil || a.cut {
		return again(", but the answer cannot be read")
	}
	found, listed := result, false
	if l.items != "" {
		var ok bool
		if found, ok = pointer(result, l.items); !ok {
			return again(", but it has no " + l.items)
		}
	}
	entries := []json.RawMessage{found}
	if len(found) > 0 && found[0] == '[' {
		listed = true
		if json.Unmarshal(found, &entries) != nil {
			return again(", but the answer cannot be read")
		}
	}
	switch {
	case listed && len(entries) == 0:
		return connector.Answer{Verdict: connector.Absent, Detail: ", an empty list"}
	case !listed && l.items != "":
		return again(", but " + l.items + " is no list")
	case !listed && len(l.match) == 0 && l.searches() && hasEmptyList(found):
		// {"data": [], "total": 0} says 200 and found nothing.
		return again(", which looks like an empty search; set items or match")
	}
	for _, entry := range entries {
		if l.matches(entry, mut) {
			return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: entry}}
		}
	}
	return again(", but what it holds is not what was sent")
}

// searches reports whether the lookup has a query, so that finding nothing may
// well be a success.
func (l *lookup) searches() bool { return len(l.query)+len(l.path.query) > 0 }

// hasEmptyList reports whether a member of the object is an empty array.
func hasEmptyList(raw json.RawMessage) bool {
	fields, err := jsonval.Fields(raw)
	if err != nil {
		return false
	}
	for _, v := range fields {
		if v = bytes.TrimSpace(v); len(v) > 1 && v[0] == '[' && len(bytes.TrimSpace(v[1:len(v)-1])) == 0 {
			return true
		}
	}
	return false
}

// matches reports whether entry has what was sent.
func (l *lookup) matches(entry json.RawMessage, mut keep.Mutation) bool {
	if len(l.match) == 0 {
		return true
	}
	got, err := jsonval.Fields(entry)
	if err != nil {
		return false
	}
	v, err := mutationValues(mut)
	if err != nil {
		return false
	}
	for _, f := range l.match {
		want, err := f.value.json(v)
		if err != nil || !jsonval.Equal(got[f.key], want) {
			return false
		}
	}
	return true
}

// json returns the param itself if t is one param, and else the filled text.
func (t text) json(v values) (json.RawMessage, error) {
	if len(t) == 1 && t[0].param != "" && !v.isToken(t[0].param) {
		return v.fields[t[0].param], nil
	}
	s, err := t.fill(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// pointer follows an RFC 6901 pointer through objects and arrays.
func pointer(raw json.RawMessage, p string) (json.RawMessage, bool) {
	for _, part := range strings.Split(p, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(list) {
				return nil, false
			}
			raw = list[i]
			continue
		}
		fields, err := jsonval.Fields(raw)
		if err != nil {
			return nil, false
		}
		var ok bool
		if raw, ok = fields[part]; !ok {
			return nil, false
		}
	}
	return bytes.TrimSpace(raw), true
}
