package daemon

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/web"
)

// A ScriptDeployer takes scripts that come over HTTP, with the checks of keep
// deploy against the connections that it has.
type ScriptDeployer struct {
	Host *host.Host
	DB   interface {
		store.Reader
		project.Accounts
	}
	Runtime *sandbox.Runtime
	Conns   []connector.Connection

	// Config has the grants of keep.toml. If nil, there are none.
	Config func() *config.Config

	// Refused says why keep.toml as it is now is not what Conns and Config are of; empty: it is. If nil, it is.
	Refused func() string
}

// Deploy checks the script and makes it current, or has it wait for a person.
func (d *ScriptDeployer) Deploy(ctx context.Context, name keep.WorkflowName, s api.Script, over *keep.Version, by operator.Giver, give bool) (operator.Deployed, error) {
	return d.deploy(ctx, name, api.NewProposal{Script: s}, over, operator.Consent{Giver: by, Give: give})
}

// Propose checks the script and has it wait for a person.
func (d *ScriptDeployer) Propose(ctx context.Context, name keep.WorkflowName, p api.NewProposal, over *keep.Version, by operator.Giver) (operator.Deployed, error) {
	return d.deploy(ctx, name, p, over, operator.Consent{Giver: by, Ask: true})
}

// deploy is Deploy and Propose, which differ in the consent that comes with the script. What keep check
// calls an error is refused, and so is what may be another thing by a new name; a grant is decided by the
// host when it commits, not here.
func (d *ScriptDeployer) deploy(ctx context.Context, name keep.WorkflowName, s api.NewProposal, over *keep.Version, c operator.Consent) (operator.Deployed, error) {
	if name == "" {
		return operator.Deployed{}, fmt.Errorf("deploy: %w: the name of the workflow", keep.ErrNotFound)
	}
	files, effects, err := d.read(ctx, name, s.Script)
	if err != nil {
		return operator.Deployed{}, asScriptError(err)
	}
	w := files[0].Workflow
	w.Intent, w.Writing = s.Intent, s.Writing()
	w.Writing.Pages = c.From == web.FromPages
	var mistakes []api.Mistake
	for _, f := range effects.Findings {
		if f.Severity == workflow.Error {
			mistakes = append(mistakes, api.Mistake{File: f.Position.File, Line: f.Position.Line, Column: f.Position.Column,
				Message: terminal.WithFix(f.Text(), f.Fix)})
		}
	}
	if len(mistakes) > 0 {
		return operator.Deployed{}, &api.ScriptError{Mistakes: mistakes}
	}
	if err := project.Renamed(ctx, d.DB, "", files, d.Conns); err != nil {
		return operator.Deployed{}, asScriptError(err)
	}
	c.Calls = calledTools(effects)
	if d.Config != nil {
		withTable(&c, d.Config(), w.Name)
	}
	return d.Host.DeployGranted(ctx, w, over, c)
}

// read reads a script, which must declare the workflow if there is a name, and says what it may do.
func (d *ScriptDeployer) read(ctx context.Context, name keep.WorkflowName, s api.Script) ([]project.Script, workflow.Report, error) {
	w, err := loadScript(ctx, d.Runtime, s)
	if err != nil {
		return nil, workflow.Report{}, err
	}
	files := []project.Script{{File: s.File, Workflow: w}}
	// It may say that it was another workflow: then it is checked under the name that the database has.
	if err := project.Continue(ctx, d.DB, d.config(), files); err != nil {
		return nil, workflow.Report{}, err
	}
	if w = files[0].Workflow; name != "" && w.Name != name {
		return nil, workflow.Report{}, &api.ScriptError{Mistakes: []api.Mistake{{File: s.File, Line: 1, Column: 1,
			Message: fmt.Sprintf("it declares the workflow %q, not %q", w.Name, name)}}}
	}
	effects, err := workflow.Effects(w.Declaration, w.Sources, d.Conns)
	d.explain(effects.Findings)
	return files, effects, err
}

// explain adds to what is unknown that keep.toml as it is now, which may have it, is not in force.
func (d *ScriptDeployer) explain(found []workflow.Finding) {
	if d.Refused == nil {
		return
	}
	why := d.Refused()
	for i, f := range found {
		if why != "" && (f.Code == workflow.UnknownConnection || f.Code == workflow.UnknownTool) {
			found[i].Fix = strings.TrimPrefix(f.Fix+"; ", "; ") + "keep.toml as it is now is refused: " + why
		}
	}
}

// Check implements web.Deployer.
//
// What is wrong with the script is in out and no error, so that the page shows it beside the text.
func (d *ScriptDeployer) Check(ctx context.Context, name keep.WorkflowName, s api.Script) (out web.Checked, err error) {
	files, effects, err := d.read(ctx, name, s)
	found := project.Problems("", err)
	if err != nil {
		if out.Problems = problemsOf(found); len(found) > 0 {
			err = nil
		}
		return out, err
	}
	w := files[0].Workflow
	out.Workflow, out.Files = w.Name, w.Sources
	found = project.Findings("", effects)
	if err := project.Renamed(ctx, d.DB, "", files, d.Conns); err != nil {
		doubts := project.Problems("", err)
		if len(doubts) == 0 {
			return out, err
		}
		found = append(found, doubts...)
	}
	around := project.Around{Cfg: d.config(), Scripts: files}
	for _, t := range effects.Tools {
		around.Tools = append(around.Tools, t.Tool)
	}
	of := append(project.OfSettings(around.Cfg), around.Problems(ctx, d.DB)...)
	for i := range of {
		of[i].File = filepath.Base(of[i].File) // where it is on this machine is not for everybody
	}
	out.Problems = problemsOf(append(found, of...))
	given, err := PlanGrants(ctx, d.config(), d.DB, []*host.Workflow{w})
	g := given[w.Name]
	out.Table = g.Whole
	for _, t := range effects.Tools {
		call := web.ScriptCall{Tool: t.Tool, Effect: t.Effect}
		if t.Level != nil {
			call.Level = *t.Level
		}
		call.Granted = slices.ContainsFunc(g.Tools, func(g keep.GrantedTool) bool { return g.Matches(t.Tool) })
		out.Calls = append(out.Calls, call)
	}
	return out, err
}

// Ungrantable returns why a tool cannot be granted so; empty: it can.
func (d *ScriptDeployer) Ungrantable(t keep.GrantedTool) string {
	return d.config().Ungrantable(t, d.Conns)
}

// config returns the configuration; an empty one if there is none.
func (d *ScriptDeployer) config() *config.Config {
	if d.Config == nil {
		return &config.Config{}
	}
	return d.Config()
}

// problemsOf returns complaints as the pages have them, in the order of the text.
func problemsOf(found []terminal.Problem) (out []web.ScriptProblem) {
	terminal.SortProblems(found)
	for _, p := range found {
		out = append(out, web.ScriptProblem{Severity: p.Severity, File: p.File, Line: p.Line, Column: p.Column, Message: p.Message, Fix: p.Fix})
	}
	return out
}

// loadScript bundles and reads a script that came over HTTP.
//
// Its imports are among the files of the request, and nowhere else: what comes over HTTP reads no file
// of the host.
func loadScript(ctx context.Context, rt *sandbox.Runtime, s api.Script) (*host.Workflow, error) {
	files := map[string][]byte{}
	for name, text := range s.Imports {
		files[name] = []byte(text)
	}
	files[path.Clean(s.File)] = []byte(s.Source)
	b, err := sandbox.BuildFiles(s.File, files)
	if err != nil {
		return nil, err
	}
	return host.LoadBundle(ctx, rt, b)
}

// asScriptError returns what is wrong with a script as the API says it.
func asScriptError(err error) error {
	found := project.Problems("", err)
	if len(found) == 0 {
		return err
	}
	e := &api.ScriptError{}
	for _, c := range found {
		e.Mistakes = append(e.Mistakes, api.Mistake{File: c.File, Line: c.Line, Column: c.Column, Message: terminal.WithFix(c.Message, c.Fix)})
	}
	return e
}
