package daemon

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/script/sandbox"
)

// A history is a database that has the versions of one workflow.
type history struct {
	database.DB
	versions []keep.Deployment
}

func (h history) Workflow(context.Context, keep.WorkflowName) (keep.Workflow, error) {
	return keep.Workflow{Name: "w", Version: h.versions[len(h.versions)-1].Version}, nil
}

func (h history) Deployments(context.Context, keep.WorkflowName) ([]keep.Deployment, error) {
	return h.versions, nil
}

func (h history) Proposals(context.Context, keep.WorkflowName) ([]keep.Proposal, error) {
	return nil, nil
}

// A file is taken back by no start if a later version, which is from no file, replaced its text; and it is not warned of
// if it has the text of the current one, whatever was current before.
func TestIsNewer(t *testing.T) {
	file := &sandbox.Bundle{Entry: "w.js", Code: []byte("b")}
	other := &sandbox.Bundle{Entry: "w.js", Code: []byte("a")}
	for _, tt := range []struct {
		name     string
		versions []*sandbox.Bundle
		want     bool
	}{
		{"replaced", []*sandbox.Bundle{file, other}, true},
		{"current", []*sandbox.Bundle{other, file}, false},
		{"current again", []*sandbox.Bundle{file, other, file}, false},
		{"never", []*sandbox.Bundle{other}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h history
			for i, b := range tt.versions {
				d := keep.Deployment{Workflow: "w", Version: keep.Version{Major: i + 1}, Hash: b.Hash(), Entry: b.Entry}
				d.Definition.Writing.Pages = true
				h.versions = append(h.versions, d)
			}
			var log strings.Builder
			s := &Session{DB: h}
			sc := project.Script{File: "w.js", Workflow: &host.Workflow{Definition: keep.Definition{Name: "w"}, Bundle: file}}
			got, err := s.isNewer(t.Context(), Env{Log: slog.New(slog.NewTextHandler(&log, nil))}, sc)
			if err != nil || got != tt.want || strings.Contains(log.String(), "replaced") != tt.want {
				t.Errorf("isNewer = %t, %v, log %q; want %t", got, err, log.String(), tt.want)
			}
		})
	}
}
