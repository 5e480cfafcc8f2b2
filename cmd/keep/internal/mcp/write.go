package mcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/internal/framed"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/rehearsal/plan"
	"github.com/keep-run/keep/rehearsal/scripttest"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
)

// A Bench is what scripts are tried with.
type Bench struct {
	Connections []connector.Connection
	Runtime     *sandbox.Runtime
	Policy      *policy.Policy
	Base        rehearsal.Base // what the database knows; nil: there is none yet

	// Make plans a script, which may be the one in force. If nil, it is planned here, with every read.
	Make func(ctx context.Context, w *host.Workflow, inForce bool) (*plan.Plan, error)

	// Granted returns what workflows may call. If nil, everything.
	Granted func(context.Context, []*host.Workflow) (map[keep.WorkflowName]plan.Granted, error)

	// Budgets returns the budgets, and how they stand. If nil, there are none.
	Budgets func(context.Context) ([]plan.Standing, error)

	// Close releases it. If nil, nothing is to be released.
	Close func() error
}

// writing adds the tools of authors.
func (s *server) writing(to *sdk.Server) {
	add(s, to, "plan", "Run a script with live reads and send nothing: list the changes that it would make outside if all its producers and jobs were due now.", s.plan)
	add(s, to, "test", "Run tests (the text of a NAME.test.toml) of a script. Services are played by the tests; nothing is sent or read.", s.test)
	add(s, to, "propose", "Store a script as a new version of its workflow. It never runs by itself: a person is asked, and decides.", s.propose)
}

// A scriptParams is a script.
type scriptParams struct {
	Source string `json:"source" jsonschema:"the whole script"`
	File   string `json:"file,omitempty" jsonschema:"name that errors use; .ts is TypeScript; left out: workflow.js"`

	Files map[string]string `json:"files,omitempty" jsonschema:"texts of the local files that it imports, by their names in the project; imports are relative to file"`
}

// file returns the name of the script. It is no path of the machine: beside other files it says
// where the script is among them.
func (p scriptParams) file() string {
	name := strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(p.File, `\`, "/")), "/")
	if len(p.Files) == 0 {
		name = path.Base(name)
	}
	if ext := path.Ext(name); ext != ".js" && ext != ".ts" {
		return "workflow.js"
	}
	return name
}

// A Checked script is one with what is to be said of it.
type Checked struct {
	Workflow *host.Workflow // nil: it cannot be read
	Effects  workflow.Report
	Problems []terminal.Problem
	InForce  bool // it is the current version of its workflow
}

// OK reports whether it could be deployed.
func (c Checked) OK() bool { return c.Workflow != nil && !terminal.HasErrors(c.Problems) }

// Check reads a script from memory and checks it as keep check does. The file is a name that
// errors use, and files are what it may import, by their names.
func (b Bench) Check(ctx context.Context, file, source string, files map[string]string) (Checked, error) {
	c := Checked{Problems: []terminal.Problem{}}
	all := make(map[string][]byte, len(files)+1)
	for name, text := range files {
		if !fs.ValidPath(name) {
			return c, fmt.Errorf("files: %q is no name of a file in the project", name)
		}
		all[name] = []byte(text)
	}
	all[file] = []byte(source)
	bundle, err := sandbox.BuildFiles(file, all)
	if err == nil {
		c.Workflow, err = host.LoadBundle(ctx, b.Runtime, bundle)
	}
	if err != nil {
		found := project.Problems("", err)
		if len(found) == 0 {
			return c, err
		}
		c.Workflow, c.Problems = nil, found
		return c, nil
	}
	err = b.examine(&c)
	return c, err
}

// examine adds what a script that was read would do, and what is wrong with it.
func (b Bench) examine(c *Checked) (err error) {
	if c.Effects, err = workflow.Effects(c.Workflow.Declaration, c.Workflow.Sources, b.Connections); err != nil {
		return err
	}
	c.Problems = append(c.Problems, project.Findings("", c.Effects)...)
	c.Effects.Findings = []workflow.Finding{}
	return nil
}

// Continue gives a script the name by which the database continues it, as when it is deployed: it may say which workflow it was.
// Doubt says that it is not certain which one; empty: it is.
func (b Bench) Continue(ctx context.Context, c Checked) (doubt string, err error) {
	if b.Base == nil {
		return "", nil
	}
	w, err := host.Continued(ctx, b.Base, c.Workflow)
	if d, ok := errors.AsType[interface {
		error
		Fix() string
	}](err); ok {
		return d.Error() + "; " + d.Fix(), nil
	}
	if err != nil {
		return "", err
	}
	c.Workflow.Name = w.Name
	return "", nil
}

// Plan returns what a script that is OK would do, with live reads. The bench must be live.
func (b Bench) Plan(ctx context.Context, c Checked) (_ *plan.Plan, err error) {
	if b.Make != nil {
		return b.Make(ctx, c.Workflow, c.InForce)
	}
	w := c.Workflow
	if b.Base != nil {
		if w, err = host.Continued(ctx, b.Base, w); err != nil {
			return nil, err
		}
	}
	cfg := plan.Config{Scripts: []*host.Workflow{w}, Base: b.Base, Due: true, Connections: b.Connections, Policy: b.Policy, Runtime: b.Runtime}
	if b.Granted != nil {
		if cfg.Granted, err = b.Granted(ctx, cfg.Scripts); err != nil {
			return nil, err
		}
	}
	if b.Budgets != nil {
		if cfg.Budgets, err = b.Budgets(ctx); err != nil {
			return nil, err
		}
	}
	return plan.Make(ctx, cfg)
}

// with opens a bench for f.
func (s *server) with(ctx context.Context, live bool, f func(Bench) error) (err error) {
	b, err := s.Open(ctx, live)
	if err != nil {
		return err
	}
	if b.Close != nil {
		defer func() { err = errors.Join(err, b.Close()) }()
	}
	return f(b)
}

// place takes a place for a script that is executed, and returns a context that ends with the time which that may take.
func (s *server) place(ctx context.Context) (_ context.Context, leave func(), err error) {
	cancel := func() {}
	if s.Time > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, s.Time, &keep.TimeoutError{Op: "trying the script", After: s.Time})
	}
	if s.Places == nil {
		return ctx, cancel, nil
	}
	select {
	case s.Places <- struct{}{}:
		return ctx, func() { <-s.Places; cancel() }, nil
	case <-ctx.Done():
		cancel()
		return ctx, nil, errors.New("other scripts are being tried: try again")
	}
}

// try calls f with a bench and a place.
func (s *server) try(ctx context.Context, live bool, f func(context.Context, Bench) error) error {
	return s.with(ctx, live, func(b Bench) error {
		ctx, leave, err := s.place(ctx)
		if err != nil {
			return err
		}
		defer leave()
		err = f(ctx, b)
		if late, ok := errors.AsType[*keep.TimeoutError](context.Cause(ctx)); ok && err != nil {
			return late
		}
		return err
	})
}

// A typesParams narrows the types.
type typesParams struct {
	Connection string `json:"connection,omitempty" jsonschema:"only this one"`
}

// types answers with what the connections declare. Cut off, declarations would be wrong rather than
// short, so that too many become a list of the connections to ask for.
func (s *server) types(ctx context.Context, in typesParams) (out answer, err error) {
	err = s.with(ctx, false, func(b Bench) error {
		var conns []connector.Connection
		for _, c := range b.Connections {
			if in.Connection == "" || c.Name == in.Connection {
				conns = append(conns, c)
			}
		}
		if len(conns) == 0 && in.Connection != "" {
			return fmt.Errorf("there is no connection %q", in.Connection)
		}
		text := workflow.Types(conns)
		if in.Connection == "" && len(text) > framed.MaxAnswer {
			text = "The types are too long for one answer: ask for a connection. There are:\n"
			for _, c := range b.Connections {
				text += "- " + c.Name + " (" + c.Connector + ")\n"
			}
		}
		out = answer{plain: text}
		return nil
	})
	return out, err
}

// A report says what is wrong with a script.
type report struct {
	OK       bool               `json:"ok"`
	Problems []terminal.Problem `json:"problems"`
}

// A checkReport is a report with what the script would do.
type checkReport struct {
	report
	Workflow *workflow.Report `json:"workflow"` // null: it cannot be read
}

func (s *server) check(ctx context.Context, in scriptParams) (out answer, err error) {
	err = s.try(ctx, false, func(ctx context.Context, b Bench) error {
		c, err := b.Check(ctx, in.file(), in.Source, in.Files)
		if err != nil {
			return err
		}
		r := checkReport{report: report{c.OK(), c.Problems}}
		if c.Workflow != nil {
			r.Workflow = &c.Effects
		}
		out = answer{data: r}
		return nil
	})
	return out, err
}

// A planParams is a script, or the name of a workflow whose current version is planned.
type planParams struct {
	Source   string `json:"source,omitempty" jsonschema:"the whole script; left out: workflow names one"`
	Workflow string `json:"workflow,omitempty" jsonschema:"in the place of source: a workflow, whose current version is planned"`
	File     string `json:"file,omitempty" jsonschema:"name that errors use; .ts is TypeScript; left out: workflow.js"`

	Files map[string]string `json:"files,omitempty" jsonschema:"texts of the local files that the source imports, by their names in the project; imports are relative to file"`
}

// checked returns the script that is to be planned.
func (p planParams) checked(ctx context.Context, b Bench) (Checked, error) {
	switch {
	case (p.Source == "") == (p.Workflow == ""):
		return Checked{}, errors.New("source or workflow: name one of them")
	case p.Workflow != "":
		return b.deployed(ctx, keep.WorkflowName(p.Workflow))
	}
	return b.Check(ctx, scriptParams{p.Source, p.File, p.Files}.file(), p.Source, p.Files)
}

// deployed checks the current version of a workflow, as Check does.
func (b Bench) deployed(ctx context.Context, name keep.WorkflowName) (c Checked, err error) {
	if b.Base == nil {
		return c, &keep.NotFoundError{What: "workflow", ID: string(name)}
	}
	w, err := b.Base.Workflow(ctx, name)
	if err != nil {
		return c, err
	}
	d, err := b.Base.Deployment(ctx, name, w.Version)
	if err != nil {
		return c, err
	}
	if c.Workflow, err = host.LoadBundle(ctx, b.Runtime, &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map}); err != nil {
		return c, err
	}
	c.InForce, c.Workflow.Name = true, name // it may have been renamed since
	err = b.examine(&c)
	return c, err
}

// checked returns what is to be planned. A plan has a place of its own.
func (s *server) checked(ctx context.Context, b Bench, in planParams) (Checked, error) {
	ctx, leave, err := s.place(ctx)
	if err != nil {
		return Checked{}, err
	}
	defer leave()
	return in.checked(ctx, b)
}

// plan plans only what could be deployed. It reads live, and sends nothing.
func (s *server) plan(ctx context.Context, in planParams) (out answer, err error) {
	err = s.with(ctx, true, func(b Bench) error {
		c, err := s.checked(ctx, b, in)
		if err != nil {
			return err
		}
		if !c.OK() {
			out = answer{said: "It is not planned: it has problems.", data: report{false, c.Problems}}
			return nil
		}
		made, err := b.Plan(ctx, c)
		out = answer{said: "Nothing was sent.", data: made}
		return err
	})
	return out, err
}

// A testParams is a script with its tests.
type testParams struct {
	Source string `json:"source" jsonschema:"the whole script"`
	Tests  string `json:"tests" jsonschema:"the text of a NAME.test.toml; see the section tests of guide"`
	File   string `json:"file,omitempty" jsonschema:"name that errors use"`

	Files map[string]string `json:"files,omitempty" jsonschema:"texts of the local files that it imports, by their names in the project"`
}

// A Verdict is what keep test --json says of a test.
type Verdict struct {
	Name     string   `json:"name"`
	Passed   bool     `json:"passed"`
	Problems []string `json:"problems"`
}

// A testReport says which tests passed.
type testReport struct {
	report
	Passed int       `json:"passed"`
	Failed int       `json:"failed"`
	Tests  []Verdict `json:"tests"`
}

// maxTests bounds what one call runs (law: bounded).
const maxTests = 100

// test runs the tests of a script that can be read, also if check finds problems in it. OK needs both.
func (s *server) test(ctx context.Context, in testParams) (out answer, err error) {
	tests, err := parseTests(in.Tests)
	if err != nil {
		return answer{}, err
	}
	err = s.try(ctx, false, func(ctx context.Context, b Bench) error {
		c, err := b.Check(ctx, scriptParams{in.Source, in.File, in.Files}.file(), in.Source, in.Files)
		if err != nil {
			return err
		}
		r := testReport{report: report{c.OK(), c.Problems}, Tests: []Verdict{}}
		if c.Workflow == nil {
			out = answer{said: "It is not tested: it cannot be read.", data: r}
			return nil
		}
		if r.Tests, err = b.run(ctx, c, tests); err != nil {
			return err
		}
		for _, v := range r.Tests {
			if v.Passed {
				r.Passed++
			} else {
				r.Failed++
			}
		}
		r.OK = r.OK && r.Failed == 0
		out = answer{data: r}
		return nil
	})
	return out, err
}

// parseTests reads the text of tests.
func parseTests(text string) (*scripttest.File, error) {
	tests, err := scripttest.Parse([]byte(text))
	if err == nil && (len(tests.Tests) == 0 || len(tests.Tests) > maxTests) {
		err = fmt.Errorf("%d tests: want 1 to %d", len(tests.Tests), maxTests)
	}
	if err != nil {
		return tests, fmt.Errorf("tests: %w", err)
	}
	return tests, nil
}

// Test runs tests, the text of a NAME.test.toml, of a script that can be read.
func (b Bench) Test(ctx context.Context, c Checked, text string) ([]Verdict, error) {
	tests, err := parseTests(text)
	if err != nil {
		return nil, err
	}
	return b.run(ctx, c, tests)
}

// run runs tests one after the other; they share what is the same for all of one script.
func (b Bench) run(ctx context.Context, c Checked, tests *scripttest.File) ([]Verdict, error) {
	cfg := scripttest.Config{
		Script: c.Workflow, Connections: b.Connections, Policy: b.Policy, Runtime: b.Runtime, Shared: rehearsal.NewShared(b.Runtime),
	}
	out := []Verdict{}
	for _, t := range tests.Tests {
		v, err := scripttest.Run(ctx, cfg, t)
		if err != nil {
			return nil, err
		}
		out = append(out, Verdict{v.Name, len(v.Problems) == 0, append([]string{}, v.Problems...)})
	}
	return out, nil
}

// A proposed is what became of a proposal.
type proposed struct {
	report
	Workflow keep.WorkflowName `json:"workflow"`
	State    string            `json:"state"`    // waiting, or current: nothing would change
	Proposal *string           `json:"proposal"` // its id; null: nothing would change
	Version  *string           `json:"version"`  // that waits, or is current
	Current  *string           `json:"current"`  // version that is current; null: the workflow is new
	Question *string           `json:"question"` // that a person answers
	Needs    []string          `json:"needs"`    // tools that it calls and that were not granted
	Impact   *string           `json:"impact"`   // of the version on recorded runs; null: nothing to compare
}

// A proposeParams is a script with what its author says of it.
type proposeParams struct {
	Source string `json:"source" jsonschema:"the whole script"`
	Note   string `json:"note,omitempty" jsonschema:"what it does or changes, in a sentence for the person who decides"`
	File   string `json:"file,omitempty" jsonschema:"name that errors use; .ts is TypeScript; left out: workflow.js"`

	Files map[string]string `json:"files,omitempty" jsonschema:"texts of the local files that it imports, by their names in the project"`
}

// propose checks the script as deploying does before it is sent, and sends it by the API, which checks it
// again.
func (s *server) propose(ctx context.Context, in proposeParams) (out answer, err error) {
	file := scriptParams{in.Source, in.File, in.Files}.file()
	var c Checked
	err = s.try(ctx, false, func(ctx context.Context, b Bench) error {
		if c, err = b.Check(ctx, file, in.Source, in.Files); err != nil || !c.OK() {
			return err
		}
		// One that says what it was is a version of that one.
		doubt, err := b.Continue(ctx, c)
		if err == nil && doubt != "" {
			err = errors.New(doubt)
		}
		return err
	})
	if err != nil || !c.OK() {
		return answer{said: "It is not proposed: it has problems.", data: report{false, c.Problems}}, err
	}
	err = s.Deploy(ctx, gated(func(client *api.Client) error {
		r := proposed{report: report{true, c.Problems}, Workflow: c.Workflow.Name, State: "current", Needs: []string{}}
		p, err := client.Propose(ctx, r.Workflow, api.NewProposal{Script: api.Script{File: file, Source: in.Source, Imports: in.Files}, Note: noted(in.Note)})
		if err != nil {
			return err
		}
		said := "This script is current already."
		if r.Version, r.Current = p.Version, p.Version; p.Waiting != nil {
			said = "It waits for a person, and does not run before: tell yours to look at keep proposals."
			err = r.waits(ctx, client, *p.Waiting)
		}
		out = answer{said: said, data: r}
		return err
	}))
	return out, err
}

// noted returns a note of an agent, cut to what is kept.
func noted(note string) string {
	return strings.ToValidUTF8(note[:min(len(note), keep.MaxNote)], "")
}

// waits adds what is known of the version that waits.
func (r *proposed) waits(ctx context.Context, client *api.Client, w api.Proposed) error {
	question := string(w.Question)
	r.State, r.Proposal, r.Version, r.Question = "waiting", &w.Proposal, &w.Version, &question
	p, err := client.Judged(ctx, w.Proposal)
	if err == nil {
		r.Needs, r.Impact = p.Grants, p.Verdict
	}
	return err
}
