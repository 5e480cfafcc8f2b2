package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// maxScript is the longest request with a script that is taken, in bytes.
const maxScript = access.MaxBody

// A Script is the text of a workflow.
type Script struct {
	File    string            `json:"file" minLength:"1" maxLength:"255" doc:"name that errors use; .ts is TypeScript"`
	Source  string            `json:"source" minLength:"1"`
	Imports map[string]string `json:"imports,omitempty" maxProperties:"1000" doc:"text of the files that it imports, by their paths beside it"`
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
	op.Description += " Needs If-Match with the ETag of the version that it replaces, or If-None-Match: * if there is none."
	op.MaxBodyBytes = maxScript
	op.Errors = append(op.Errors, http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusUnprocessableEntity)
	huma.Register(s.api, op, func(ctx context.Context, in *deploy) (*tagged, error) {
		w, err := s.deploy(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return &tagged{ETag: etag(w.Version), Body: w}, nil
	})
}

// deploy compares the version that the author saw before the script is read, and has
// the store compare it once more in the commit that replaces it.
func (s *Server) deploy(ctx context.Context, in *deploy) (Workflow, error) {
	if s.cfg.Deployer == nil {
		return Workflow{}, problemOf(http.StatusNotImplemented, KindUnsupported, "this host takes its scripts from files; see keep deploy")
	}
	w, err := ShowWorkflow(ctx, s.cfg.Store, in.Workflow)
	isNew := errors.Is(err, keep.ErrNotFound)
	switch {
	case err != nil && !isNew:
		return Workflow{}, err
	case in.IfMatch == "" && in.IfNoneMatch == "":
		return Workflow{}, problemOf(http.StatusPreconditionRequired, KindNoVersion,
			"say what is replaced: If-Match with its ETag, or If-None-Match: * for a new workflow")
	case in.IfNoneMatch != "" && in.IfNoneMatch != "*":
		return Workflow{}, problemOf(http.StatusBadRequest, KindBadVersion, "If-None-Match takes only *")
	case in.IfNoneMatch == "*" && !isNew:
		return Workflow{}, problemOf(http.StatusPreconditionFailed, KindStale, "the workflow is there, in version "+w.Version)
	case in.IfMatch != "" && isNew:
		return Workflow{}, problemOf(http.StatusPreconditionFailed, KindStale, "there is no such workflow yet")
	case in.IfMatch != "" && in.IfMatch != "*" && in.IfMatch != etag(w.Version):
		return Workflow{}, problemOf(http.StatusPreconditionFailed, KindStale, "the current version is "+w.Version+", not "+in.IfMatch)
	}
	var over *keep.Version
	if in.IfMatch != "*" {
		over = new(keep.Version)
		if !isNew {
			if *over, err = keep.ParseVersion(w.Version); err != nil {
				return Workflow{}, err
			}
		}
	}
	_, err = s.cfg.Deployer.Deploy(ctx, in.Workflow, in.Body, over)
	if e, ok := errors.AsType[*keep.VersionError](err); ok {
		return Workflow{}, problemOf(http.StatusPreconditionFailed, KindStale, e.Error())
	}
	if err != nil {
		return Workflow{}, err
	}
	return ShowWorkflow(ctx, s.cfg.Store, in.Workflow)
}
