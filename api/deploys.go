package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/operator"
)

// maxScript is the longest request with a script that is taken, in bytes.
const maxScript = access.MaxBody

// A Script is the text of a workflow.
type Script struct {
	File    string            `json:"file" minLength:"1" maxLength:"255" doc:"name that errors use; .ts is TypeScript"`
	Source  string            `json:"source" minLength:"1"`
	Imports map[string]string `json:"imports,omitempty" maxProperties:"1000" doc:"text of the files that it imports, by their paths beside it"`
	Intent  string            `json:"intent,omitempty" maxLength:"8192" doc:"what the workflow is for, in the words of who asked for it; left out: as the version before has it"`
	Give    bool              `json:"give,omitempty" doc:"give the workflow what the script calls and its grant lacks; for the role admin"`
}

// A NewProposal is the text of a workflow that waits for a person, and how it was written.
type NewProposal struct {
	Script
	Origin   keep.Origin `json:"origin,omitempty" enum:"write,edit,agent" doc:"who wrote it; left out: an agent"`
	Over     *string     `json:"over,omitempty" doc:"version that it was made from; empty: the workflow is new. If another one is current by now, nothing changes; left out: any"`
	Note     string      `json:"note,omitempty" maxLength:"2048" doc:"what its author says of it; nobody checks it"`
	Attempts int         `json:"attempts,omitempty" minimum:"0" doc:"conversations with a model that it took"`
	Tokens   int64       `json:"tokens,omitempty" minimum:"0"`
	Cost     float64     `json:"cost,omitempty" minimum:"0"`
}

// Writing returns what is kept of how it was written.
func (p NewProposal) Writing() keep.Writing {
	return keep.Writing{Note: p.Note, Attempts: p.Attempts, Tokens: p.Tokens, Cost: p.Cost}
}

// over returns the version that must be current (zero: the workflow is new); nil: any.
func (p NewProposal) over() (*keep.Version, error) {
	if p.Over == nil {
		return nil, nil
	}
	var v keep.Version
	if *p.Over == "" {
		return &v, nil
	}
	v, err := keep.ParseVersion(*p.Over)
	if err != nil {
		return nil, problemOf(http.StatusBadRequest, KindBadVersion, "over: "+err.Error())
	}
	return &v, nil
}

// A deploy is a new script for a workflow.
type deploy struct {
	WorkflowPath
	IfMatch     string `header:"If-Match" doc:"the version that is replaced, as its ETag"`
	IfNoneMatch string `header:"If-None-Match" doc:"* for a workflow that is new"`
	Body        Script
}

// deploys registers what takes new versions.
func (s *Server) deploys() {
	op := s.operation(http.MethodPut, "/workflows/{workflow}", "deploy", "Make a script the current version", access.Author)
	op.Description += " Needs If-Match with the ETag of the version that it replaces, or If-None-Match: * if there is none. A script that is current already is answered 200, whichever version it was to replace."
	op.Description += " A script that calls more than its workflow was granted is stored and does not run: 202, and the question of kind grant that a person answers."
	op.MaxBodyBytes = maxScript
	op.Errors = append(op.Errors, http.StatusPreconditionFailed, http.StatusPreconditionRequired)
	register(s, op, func(ctx context.Context, in *deploy) (*deployAnswer, error) {
		w, waits, err := s.deploy(ctx, in)
		switch {
		case err != nil:
			return nil, s.problem(ctx, err)
		case waits != nil && waits.Version == nil:
			return &deployAnswer{Status: http.StatusAccepted, Body: *waits}, nil
		case waits != nil:
			return &deployAnswer{Status: http.StatusAccepted, ETag: etag(*waits.Version), Body: *waits}, nil
		}
		return &deployAnswer{Status: http.StatusOK, ETag: etag(w.Version), Body: w}, nil
	}, answers(map[int]any{http.StatusOK: Workflow{}, http.StatusAccepted: Waiting{}}))
}

// proposals registers what takes versions that wait for a person.
func (s *Server) proposals() {
	op := s.operation(http.MethodPut, "/workflows/{workflow}/proposal", "propose", "Store a script as a version that waits for a person", access.Author)
	op.Description += " It never runs by itself: 202, and the question of kind proposal that a person answers, whatever the workflow was granted. A script that is current already is answered 200."
	op.MaxBodyBytes = maxScript
	register(s, op, func(ctx context.Context, in *struct {
		WorkflowPath
		Body NewProposal
	}) (*deployAnswer, error) {
		if s.cfg.Deployer == nil {
			return nil, problemOf(http.StatusNotImplemented, KindUnsupported, "this host takes its scripts from files; see keep deploy")
		}
		over, err := in.Body.over()
		if err != nil {
			return nil, err
		}
		by := giver(ctx)
		by.From = string(cmp.Or(in.Body.Origin, keep.OriginAgent))
		done, err := s.cfg.Deployer.Propose(ctx, in.Workflow, in.Body, over, by)
		if e, ok := errors.AsType[*keep.VersionError](err); ok {
			return nil, problemOf(http.StatusConflict, KindStale, e.Error())
		}
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		if done.Waiting != nil {
			return &deployAnswer{Status: http.StatusAccepted, Body: *waitingOf(in.Workflow, done)}, nil
		}
		w, err := showVersion(ctx, s.cfg.Store, in.Workflow, done.Version)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return &deployAnswer{Status: http.StatusOK, ETag: etag(w.Version), Body: w}, nil
	}, answers(map[int]any{http.StatusOK: Workflow{}, http.StatusAccepted: Waiting{}}))
}

// A deployAnswer is the workflow, or what waits for a person.
type deployAnswer struct {
	Status int
	ETag   string `header:"ETag"`
	Body   any
}

// Waiting is the answer to a deploy that a person must agree to.
type Waiting struct {
	Name    keep.WorkflowName `json:"name"`
	Version *string           `json:"version" doc:"that is current; null: the workflow is new"`
	Waiting Proposed          `json:"waiting"`
}

// Proposed is a version that waits for a person.
type Proposed struct {
	Version  string            `json:"version"`
	Proposal string            `json:"proposal" doc:"its id: WORKFLOW@VERSION"`
	Question keep.EscalationID `json:"question" doc:"of kind grant or proposal; to answer it needs the role admin"`
}

// waitingOf returns the answer to a deploy whose version waits.
func waitingOf(w keep.WorkflowName, d operator.Deployed) *Waiting {
	out := &Waiting{Name: w, Waiting: Proposed{Version: d.Waiting.Version.String(), Proposal: proposalID(*d.Waiting), Question: d.Waiting.Question}}
	if !d.Version.IsZero() {
		out.Version = orNull(d.Version.String())
	}
	return out
}

// answers describes what an operation answers with, by status.
func answers(bodies map[int]any) describe {
	return func(schemas huma.Registry) map[string]*huma.Response {
		out := make(map[string]*huma.Response)
		for status, body := range bodies {
			schema := schemas.Schema(reflect.TypeOf(body), true, "")
			out[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
		}
		return out
	}
}

// deploy has the store compare the version that the author saw, in the commit that replaces it.
func (s *Server) deploy(ctx context.Context, in *deploy) (Workflow, *Waiting, error) {
	if s.cfg.Deployer == nil {
		return Workflow{}, nil, problemOf(http.StatusNotImplemented, KindUnsupported, "this host takes its scripts from files; see keep deploy")
	}
	over, err := s.replaced(ctx, in)
	if err != nil {
		return Workflow{}, nil, err
	}
	who, _ := access.From(ctx)
	done, err := s.cfg.Deployer.Deploy(ctx, in.Workflow, in.Body, over, giver(ctx), in.Body.Give && who.Role == access.Admin)
	if e, ok := errors.AsType[*keep.VersionError](err); ok {
		return Workflow{}, nil, problemOf(http.StatusPreconditionFailed, KindStale, e.Error())
	}
	if err != nil {
		return Workflow{}, nil, err
	}
	if done.Waiting != nil {
		return Workflow{}, waitingOf(in.Workflow, done), nil
	}
	// Who follows at once has another version by then: an ETag of that would let its author's be replaced unseen.
	w, err := showVersion(ctx, s.cfg.Store, in.Workflow, done.Version)
	return w, nil, err
}

// replaced returns the version that a deploy says it replaces: zero if it is to be the first, nil if any may be current.
func (s *Server) replaced(ctx context.Context, in *deploy) (*keep.Version, error) {
	switch {
	case in.IfMatch == "" && in.IfNoneMatch == "":
		return nil, problemOf(http.StatusPreconditionRequired, KindNoVersion,
			"say what is replaced: If-Match with its ETag, or If-None-Match: * for a new workflow")
	case in.IfNoneMatch != "" && (in.IfNoneMatch != "*" || in.IfMatch != ""):
		return nil, problemOf(http.StatusBadRequest, KindBadVersion, "If-None-Match takes only *, without If-Match")
	case in.IfNoneMatch != "":
		return new(keep.Version), nil
	case in.IfMatch == "*":
		_, err := ShowWorkflow(ctx, s.cfg.Store, in.Workflow)
		if errors.Is(err, keep.ErrNotFound) {
			err = problemOf(http.StatusPreconditionFailed, KindStale, "there is no such workflow yet")
		}
		return nil, err
	}
	return s.named(ctx, in.Workflow, in.IfMatch)
}

// named returns the version of those in an If-Match that is to be current until the deploy: the one that is, if it is named.
// A weak tag names no version, since If-Match compares strongly (RFC 9110, 13.1.1).
func (s *Server) named(ctx context.Context, w keep.WorkflowName, header string) (*keep.Version, error) {
	tags, ok := entityTags(header)
	if !ok {
		return nil, problemOf(http.StatusBadRequest, KindBadVersion, "If-Match: "+header+" is no list of ETags; a version is written in quotation marks, as in If-Match: "+etag("1.0"))
	}
	var versions []keep.Version
	for _, tag := range tags {
		if v, err := keep.ParseVersion(strings.Trim(tag, `"`)); err == nil && tag == etag(v.String()) {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		return nil, problemOf(http.StatusPreconditionFailed, KindStale, "no version matches If-Match: "+header+"; a version is written as "+etag("1.0")+", and a weak ETag (W/) matches none")
	}
	now, err := s.cfg.Store.Workflow(ctx, w)
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		return nil, err
	}
	return &versions[max(0, slices.Index(versions, now.Version))], nil // of others, the deploy says that they are not current
}

// entityTags returns the tags of a list of RFC 9110 (8.8.3), each with its quotation marks and its W/.
func entityTags(header string) (tags []string, ok bool) {
	for rest := strings.Trim(header, " \t,"); rest != ""; rest = strings.TrimLeft(rest, " \t,") {
		opaque := strings.TrimPrefix(rest, "W/")
		if !strings.HasPrefix(opaque, `"`) {
			return nil, false
		}
		end := strings.IndexByte(opaque[1:], '"')
		if end < 0 {
			return nil, false
		}
		n := len(rest) - len(opaque) + end + 2
		if tags, rest = append(tags, rest[:n]), strings.TrimLeft(rest[n:], " \t"); rest != "" && rest[0] != ',' {
			return nil, false
		}
	}
	return tags, len(tags) > 0
}
