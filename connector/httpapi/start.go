package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/match"
)

// A start is the request that makes what a call uses up, such as a draft (level B).
type start struct {
	tool    *tool // the request
	id      match.Path
	keep    map[string]match.Path
	gone    path
	absent  []int
	isGone  *condition // nil: the status is enough
	applied bool       // gone means applied
}

// startConfig reads what comes before the call.
func (b *builder) startConfig(t *tool) {
	cfg := b.cfg.Start
	if cfg == nil {
		return
	}
	inner := builder{Checker: b.Checker, at: b.at + ".start", service: b.service, cfg: Tool{
		Effect: connector.Mutate, Method: cfg.Method, Path: cfg.Path, Body: cfg.Body, Fixed: cfg.Fixed, Rename: cfg.Rename, Params: b.cfg.Params,
	}}
	s := &start{tool: &tool{service: b.service, spec: t.spec, method: inner.method()}, absent: cfg.absent(), applied: cfg.GoneMeans == "applied"}
	t.start = s
	var err error
	if s.tool.path, err = parsePath(cfg.Path); err != nil {
		inner.addf("path", "%v", err)
	}
	inner.bodyConfig(s.tool)
	inner.mailConfig(s.tool, "mail", cfg.Mail)
	s.tool.token.format, s.tool.statuses = t.token.format, t.statuses
	t.token.fixed, t.token.mail = t.token.fixed || s.tool.token.fixed, s.tool.token.mail
	if s.id, err = match.ParsePath(cfg.ID); err != nil {
		inner.addf("id", "%v", err)
	}
	s.keep = map[string]match.Path{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Keep)) {
		if s.keep[name], err = match.ParsePath(cfg.Keep[name]); err != nil || !paramName().MatchString(name) {
			inner.addf("keep."+name, "want a name and a path such as \"$.message.id\"")
		}
	}
	if cfg.GoneMeans != "" && !s.applied {
		inner.addf("gone_means", "is %q, want \"applied\" or nothing", cfg.GoneMeans)
	}
	if b.cfg.Reconcile == nil && !s.applied {
		inner.addf("gone_means", "says nothing, and there is no reconcile: nothing could tell what became of the call")
	}
	b.goneConfig(&inner, s, cfg)
}

// goneConfig reads how to find out whether what was made first was used up.
func (b *builder) goneConfig(inner *builder, s *start, cfg *Start) {
	if cfg.Gone == nil {
		inner.addf("gone", "is missing: the request that tells whether what was made first is still there")
		return
	}
	var err error
	if s.gone, err = parsePath(cfg.Gone.Path); err != nil {
		inner.addf("gone.path", "%v", err)
	} else if !slices.Contains(s.gone.params(), startParam) {
		inner.addf("gone.path", "must hold {start}")
	}
	inner.statuses("gone.absent", cfg.Gone.Absent, 400, 499)
	if cfg.Gone.AbsentIf != nil {
		if cfg.Gone.AbsentIf.Path == "" && cfg.Gone.AbsentIf.Header == "" {
			inner.addf("gone.absent_if", "needs path or header: a gateway has statuses too")
		}
		c := inner.condition("gone.absent_if", *cfg.Gone.AbsentIf)
		s.isGone = &c
	} else if s.applied {
		inner.addf("gone.absent_if", "is required with gone_means = \"applied\": a gateway has statuses too")
	}
}

// absent returns the statuses that mean that it is gone.
func (s *Start) absent() []int {
	if s.Gone == nil || s.Gone.Absent == nil {
		return []int{http.StatusNotFound}
	}
	return s.Gone.Absent
}

// claimed are the host's values of what was made before the call.
func claimed(mut keep.Mutation) map[string]string {
	claim := mut.SentAs().Claim
	if claim == "" {
		return nil
	}
	var several map[string]string
	if claim[0] != '{' || json.Unmarshal([]byte(claim), &several) != nil {
		return map[string]string{startParam: claim}
	}
	out := make(map[string]string, len(several))
	for name, value := range several {
		if name != "" {
			name = "." + name
		}
		out[startParam+name] = value
	}
	return out
}

// A claimer is a reconciler with a start.
type claimer struct{ reconciler }

// Claim makes what the call uses up.
func (r *claimer) Claim(ctx context.Context, mut keep.Mutation) (string, error) {
	s := r.start.tool
	req, err := s.request(mut.Payload, &mut)
	if err != nil {
		return "", err
	}
	a, err := r.send(ctx, req)
	if err != nil {
		return "", err
	}
	if v, decided := s.saysNo(a); decided || !a.ok() {
		if !decided {
			v.class = readClass(a.status)
		}
		return "", r.refused(a, v)
	}
	body, err := a.record()
	if err != nil || !a.isJSON() {
		return "", r.failf(keep.ClassTransient, "not-started", "what comes before the call was answered without JSON; it may work later")
	}
	values := map[string]string{}
	for name, path := range r.start.paths() {
		raw, _ := path.Find(body)
		if values[name], err = scalar(name, raw); err != nil || values[name] == "" {
			return "", r.failf(keep.ClassTransient, "not-started", "what comes before the call was answered without %s; it may work later", path)
		}
	}
	if len(values) == 1 {
		return values[""], nil
	}
	claim, err := jsonval.Encode(values)
	return string(claim), err
}

// paths are where the values of the start are; that of {start} has no name.
func (s *start) paths() map[string]match.Path {
	paths := maps.Clone(s.keep)
	paths[""] = s.id
	return paths
}

// lookForStart asks whether what was made first is still there: then the call has not used
// it up. If it is gone, the lookup tells what became of it.
func (r *reconciler) lookForStart(ctx context.Context, mut keep.Mutation) (connector.Answer, error) {
	host := claimed(mut)
	target, err := r.service.url(r.start.gone, r.start.gone.query, values{fields: map[string]json.RawMessage{}, host: host})
	if err != nil {
		return connector.Answer{}, r.failf(keep.ClassLogic, "bad-params", "start.gone: %v", err)
	}
	req, err := r.service.request(http.MethodGet, target, nil, "")
	if err != nil {
		return connector.Answer{}, r.failf(keep.ClassLogic, "bad-params", "start.gone: %v", err)
	}
	uncached(req)
	resp, u, err := r.service.exchange(ctx, r.service.reads, req)
	if err != nil {
		return connector.Answer{}, r.unanswered(ctx, err, "start.gone: ")
	}
	a := read(resp)
	a.used = u
	seen := fmt.Sprintf("GET %s answered %d %s", r.start.gone, a.status, http.StatusText(a.status))
	switch {
	case a.cached() != "":
		return retry(seen + ", but " + a.cached()), nil
	case a.ok() && a.isJSON() && holds(bytes.TrimSpace(a.body), host[startParam], false):
		return connector.Answer{Verdict: connector.Absent, Detail: seen + ": what was made for the call is still there, unused"}, nil
	case !a.ok() && !slices.Contains(r.start.absent, a.status):
		return connector.Answer{}, r.refused(a, verdict{class: readClass(a.status)})
	case !r.start.isAbsent(a):
		return retry(seen), nil
	case r.lookup == nil:
		return connector.Answer{Verdict: connector.Happened, ByKey: true, Detail: seen + ": what was made for the call is used up",
			Receipt: connector.Receipt{Warning: "the service says that the call was made, and not what came of it"}}, nil
	}
	found, err := r.look(ctx, questionOf(ctx, mut))
	found.ByKey = true // it is used up, by this call
	if found.Detail = seen + "; " + found.Detail; found.Verdict != connector.Happened {
		found.Verdict = connector.Retry // it is used up, so something happened
	}
	return found, err
}

// isAbsent reports whether the service says that what was made first is gone.
func (s *start) isAbsent(a answer) bool {
	if s.isGone == nil {
		return slices.Contains(s.absent, a.status) && !a.isHTML() && a.err == nil
	}
	return s.isGone.matches(a, func(status int) bool { return slices.Contains(s.absent, status) })
}
