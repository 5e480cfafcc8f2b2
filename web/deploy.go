package web

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/view"
)

// FromPages says of a deploy, as of a decision, that it was made on the pages.
const FromPages = "web"

// A Deployer checks scripts and makes them current, as the API does.
type Deployer interface {
	api.Deployer

	// Check says of a script what keep check says. It changes nothing, and calls no tool. If w is
	// empty, the script may declare any workflow.
	Check(ctx context.Context, w keep.WorkflowName, s api.Script) (Checked, error)
}

// Checked is what is to be said of a script.
type Checked struct {
	Workflow keep.WorkflowName // that it declares; empty: it cannot be read
	Files    map[string]string // that are part of it; nil: it cannot be read
	Problems []ScriptProblem
	Calls    []ScriptCall
	Table    bool // keep.toml has the grant of the workflow, and no deploy adds to it
}

// OK reports whether it could be deployed.
func (c Checked) OK() bool {
	return c.Files != nil && !slices.ContainsFunc(c.Problems, func(p ScriptProblem) bool { return p.Severity == "error" })
}

// Lacking returns the tools that it calls and that are not granted.
func (c Checked) Lacking() (list []keep.ToolName) {
	for _, call := range c.Calls {
		if !call.Granted {
			list = append(list, call.Tool)
		}
	}
	return list
}

// A ScriptProblem is one thing that is wrong or odd in a script.
type ScriptProblem struct {
	Severity     string // error, warning or note
	File         string // empty: no place is known
	Line, Column int    // from 1; 0: none
	Message, Fix string
}

// A ScriptCall is a tool that a script calls.
type ScriptCall struct {
	Tool    keep.ToolName
	Effect  connector.Effect
	Level   keep.Level // empty: it changes nothing
	Granted bool
}

// deployData is the form for a version, with what was said of it.
type deployData struct {
	New      bool              // the workflow is not there yet
	Workflow keep.WorkflowName // of a new one: that the script declared when it was checked
	Version  keep.Version      // in force, which is replaced; zero of a new one
	Why      string            // why there is no form; empty: there is one
	Program  bool              // since it is written in Go
	scriptForm
	Wrong []string // why nothing was done
	Check *checkData
}

// checkData is what a check says.
type checkData struct {
	Checked
	New     bool           // the workflow is not there yet
	There   *keep.Workflow // that has the name of a new one already; nil: none
	Mark    string         // of what was checked
	Diffs   []versionFile
	Entry   string   // that another file declares the workflow; empty: it is the same
	LeftOut []string // files that are not part of it
	Plan    *planData
}

// deployForm shows the script in force, to be changed.
func (s *site) deployForm(r *http.Request) (page, error) {
	p, d, now, err := s.deployPage(r)
	if err != nil || d.Why != "" {
		return p, err
	}
	if d.scriptForm = formOf(now); d.New {
		d.Files = []formFile{{Name: "workflow.js"}}
	}
	return p, nil
}

// deployPage returns the page without what is in the form, and the version in force.
//
// d.Why says why there is no form. A script with a character that no field keeps has none: what comes back
// from the browser would be another script.
func (s *site) deployPage(r *http.Request) (page, *deployData, keep.Deployment, error) {
	name := keep.WorkflowName(r.PathValue("name"))
	if name == "" {
		d := &deployData{New: true}
		if s.cfg.Deployer == nil {
			d.Why = "This host takes its scripts from files: write one, and run"
		}
		return page{Title: "Deploy a new workflow", Section: "workflows", Data: d}, d, keep.Deployment{}, nil
	}
	w, err := s.cfg.Store.Workflow(r.Context(), name)
	if err != nil {
		return page{}, nil, keep.Deployment{}, err
	}
	d := &deployData{Workflow: w.Name, Version: w.Version}
	p := page{Title: "Deploy a version of " + string(w.Name), Section: "workflows", Data: d}
	now, err := s.cfg.Store.Deployment(r.Context(), w.Name, w.Version)
	switch files := now.Sources(); {
	case err != nil:
	case now.Definition.Go:
		d.Why, d.Program = "Its handlers are Go functions of a program: build and start that program.", true
	case s.cfg.Deployer == nil:
		d.Why = "This host takes its scripts from files: change the file, and run"
	case slices.ContainsFunc(mapValues(files), unshowable):
		d.Why = "Its script has a character that no form keeps: change the file, and run"
	}
	return p, d, now, err
}

// takeScript is deploy as a handler.
func (s *site) takeScript(w http.ResponseWriter, r *http.Request) {
	if err := s.deploy(w, r); err != nil {
		s.fail(w, r, err)
	}
}

// deploy does what a button of the form says. Whatever is wrong, the form comes back with what was
// typed.
func (s *site) deploy(w http.ResponseWriter, r *http.Request) error {
	// A script is larger than the forms that limitBody is for.
	r.Body = http.MaxBytesReader(w, r.Body, access.MaxBody)
	p, d, now, err := s.deployPage(r)
	to := ""
	if err != nil {
		if p, d, err = s.typedAlone(r, err); err != nil {
			return err
		}
	} else if d.Why != "" {
		p.Status = http.StatusNotImplemented
	} else {
		if d.scriptForm, d.Wrong, err = readForm(r, formOf(now)); err != nil {
			return err
		}
		if d.New {
			d.Workflow = d.Declares
		}
		to, err = s.tryScript(r.Context(), d, now)
		switch {
		case err != nil && r.Context().Err() != nil:
			return err // nobody reads the form
		case err != nil:
			p.Status = s.failed(r, d, err)
		case len(d.Wrong) > 0 || d.Check != nil && !d.Check.OK():
			p.Status = http.StatusUnprocessableEntity
		}
	}
	if to != "" {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return nil
	}
	f, err := s.frame(r, p, "")
	if err != nil { // what is around the page needs the store, and the text is worth more
		s.log.ErrorContext(r.Context(), "serve page", "path", r.URL.Path, "err", err)
		f = frame{page: p, Who: f.Who, Version: s.cfg.Version}
	}
	s.write(w, r, "deploy", f)
	return nil
}

// typedAlone returns the page with what was typed, where the version in force could not be read. The error is cause if there is no
// form to show.
func (s *site) typedAlone(r *http.Request, cause error) (page, *deployData, error) {
	if status, _ := statusOf(cause); status != http.StatusInternalServerError || r.Context().Err() != nil {
		return page{}, nil, cause
	}
	f, wrong, err := readForm(r, scriptForm{})
	if err != nil {
		return page{}, nil, cause
	}
	d := &deployData{Workflow: keep.WorkflowName(r.PathValue("name")), Version: f.Over, scriptForm: f, Wrong: wrong}
	return page{Title: "Deploy a version of " + string(d.Workflow), Section: "workflows", Data: d, Status: s.failed(r, d, cause)}, d, nil
}

// failed says on the form what failed, which may be after the version was stored, and returns the status of the answer.
func (s *site) failed(r *http.Request, d *deployData, err error) int {
	status, t := statusOf(err)
	if status == http.StatusInternalServerError {
		s.log.ErrorContext(r.Context(), "serve page", "path", r.URL.Path, "err", err)
	}
	d.Check = nil
	d.Wrong = append(d.Wrong, t.What+": "+t.Why, "Look at the version in force before you press again.")
	return status
}

// tryScript checks the script of a form, and deploys or proposes it if that was asked for and it is
// what was checked. Then it returns where to continue.
func (s *site) tryScript(ctx context.Context, d *deployData, now keep.Deployment) (to string, err error) {
	if len(d.Wrong) > 0 {
		return "", nil
	}
	switch {
	case d.Over.IsZero() && !d.New: // it was typed as a new workflow, whose name is taken
		d.Do = "check"
	case d.Over != now.Version:
		d.Wrong = append(d.Wrong, meanwhile(now.Version))
		d.Do = "check"
	// Nobody deploys by mistake what he has not seen checked: a form that was changed since its check is
	// checked instead.
	case d.Do != "check" && d.Checked != d.mark():
		d.Wrong = append(d.Wrong, "Nothing was changed: the text is not the one that was checked. Look at what is said of it now, then press again.")
		d.Do = "check"
	}
	if d.Do != "check" {
		if to, err = s.deployScript(ctx, d); err != nil || to != "" {
			return to, err
		}
		// It was refused, perhaps since another version came first: the check then compares with that one.
		if now, err = s.current(ctx, d); err != nil {
			return "", err
		}
	}
	d.Over = now.Version
	d.Check, err = s.checkScript(ctx, d, now)
	return "", err
}

// meanwhile says that another version came first.
func meanwhile(v keep.Version) string {
	return fmt.Sprintf("Nothing was changed: version %s became current while you wrote. Below, your text is compared with that one.", v)
}

// current reads the version in force again.
func (s *site) current(ctx context.Context, d *deployData) (keep.Deployment, error) {
	if d.New {
		return keep.Deployment{}, nil
	}
	w, err := s.cfg.Store.Workflow(ctx, d.Workflow)
	if err != nil {
		return keep.Deployment{}, err
	}
	d.Version = w.Version
	return s.cfg.Store.Deployment(ctx, w.Name, w.Version)
}

// deployScript deploys or proposes what a form has, and returns where to continue. What is wrong with
// it is put into d.
func (s *site) deployScript(ctx context.Context, d *deployData) (to string, err error) {
	who, _ := access.From(ctx)
	by := operator.Giver{By: who.Name, From: FromPages}
	var done operator.Deployed
	if d.Do == "propose" {
		done, err = s.cfg.Deployer.Propose(ctx, d.Workflow, api.NewProposal{Script: d.script(), Note: d.Note}, &d.Over, by)
	} else {
		done, err = s.cfg.Deployer.Deploy(ctx, d.Workflow, d.script(), &d.Over, by, false)
	}
	stale, isStale := errors.AsType[*keep.VersionError](err)
	wrong, isWrong := errors.AsType[*api.ScriptError](err)
	crowded, isCrowded := errors.AsType[*operator.CrowdedError](err)
	switch {
	case isCrowded:
		d.Wrong = append(d.Wrong, crowded.Error())
	case isStale && d.New: // the check says which is there
	case isStale:
		d.Wrong = append(d.Wrong, meanwhile(stale.Current))
	case isWrong:
		for _, m := range wrong.Mistakes {
			d.Wrong = append(d.Wrong, fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Message))
		}
	case err != nil:
		return "", err
	case done.Waiting != nil:
		return "/proposals/" + url.PathEscape(fmt.Sprintf("%s@%s", d.Workflow, done.Waiting.Version)) + "?did=waits", nil
	// The version in force has this very script, so the host made no other.
	case done.Version == d.Over:
		return "/workflows/" + url.PathEscape(string(d.Workflow)) + "?did=same-script", nil
	default:
		return "/workflows/" + url.PathEscape(string(d.Workflow)) + "?did=deployed", nil
	}
	return "", nil
}

// checkScript says of the script of a form what is to be said.
func (s *site) checkScript(ctx context.Context, d *deployData, now keep.Deployment) (*checkData, error) {
	name := d.Workflow
	if d.New {
		name = ""
	}
	checked, err := s.cfg.Deployer.Check(ctx, name, d.script())
	if err != nil {
		return nil, err
	}
	c := &checkData{Checked: checked, New: d.New, Mark: d.mark()}
	if d.New {
		if d.Workflow = c.Workflow; c.Workflow != "" {
			if err := s.there(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	files := c.Files
	for _, f := range d.Files {
		if _, part := files[f.Name]; !part && files != nil {
			c.LeftOut = append(c.LeftOut, f.Name)
		}
	}
	if files == nil { // then as it was typed
		files = d.texts()
	}
	if !d.New { // else all of it is in the form
		after := view.Files{Entry: d.Entry, Texts: files}
		c.Diffs, c.Entry = changed(filesBetween(filesOf(now), after)), view.OtherEntry(filesOf(now), after)
	}
	if c.OK() && s.cfg.Planner != nil {
		script := d.script()
		c.Plan, err = s.planOf(ctx, d.Workflow, &script)
	}
	return c, err
}

// changed returns the files that differ.
func changed(list []versionFile) []versionFile {
	return slices.DeleteFunc(list, func(f versionFile) bool { return f.Diff == nil })
}

// there looks whether the workflow of a new script is there already.
func (s *site) there(ctx context.Context, c *checkData) error {
	w, err := s.cfg.Store.Workflow(ctx, c.Workflow)
	switch {
	case errors.Is(err, keep.ErrNotFound):
		return nil
	case err != nil:
		return err
	case !w.Version.IsZero():
		c.There = &w
	}
	return nil
}

// OK reports whether it could be deployed.
func (c *checkData) OK() bool { return c.There == nil && c.Checked.OK() }

// A Planner says what a script would do now. It reads live, and sends nothing.
type Planner interface {
	// Plan plans a script of a workflow; nil: the version in force. Why there is no plan is a
	// *NoPlanError.
	Plan(ctx context.Context, w keep.WorkflowName, s *api.Script) (Plan, error)
}

// A Plan can be shown in a page: so many rows of each list, and so many bytes of each value.
type Plan interface {
	WritePart(w io.Writer, rows, bytes int) error
}

// A NoPlanError says why there is no plan, for people.
type NoPlanError struct{ Why string }

// Error says why.
func (e *NoPlanError) Error() string { return e.Why }

// planData is a plan, or why there is none.
type planData struct {
	Workflow keep.WorkflowName
	Version  keep.Version
	Why      string
	Part     template.HTML
}

// maxPlanned bounds a value in a plan, in bytes.
const maxPlanned = 4 << 10

// planOf plans a script; nil is the version in force.
func (s *site) planOf(ctx context.Context, w keep.WorkflowName, script *api.Script) (*planData, error) {
	made, err := s.cfg.Planner.Plan(ctx, w, script)
	if no, ok := errors.AsType[*NoPlanError](err); ok {
		return &planData{Why: no.Why}, nil
	}
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	err = made.WritePart(&b, maxShown, maxPlanned)
	return &planData{Part: template.HTML(b.String())}, err // package plan escapes it
}

// plan shows what the version in force would do now.
func (s *site) plan(r *http.Request) (page, error) {
	w, err := s.cfg.Store.Workflow(r.Context(), keep.WorkflowName(r.PathValue("name")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Plan of " + string(w.Name), Section: "workflows"}
	if s.cfg.Planner == nil {
		return p, refusef("this host makes no plans: run keep plan where the files are")
	}
	d, err := s.planOf(r.Context(), w.Name, nil)
	if err != nil {
		return p, err
	}
	if d.Workflow, d.Version = w.Name, w.Version; d.Why != "" {
		p.Status = http.StatusUnprocessableEntity
	}
	p.Data = d
	return p, nil
}
