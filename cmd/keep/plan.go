package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/given"
	"github.com/keep-run/keep/rehearsal/plan"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// planCmd reads live and changes nothing. It goes around a daemon: the scripts are those of the
// disk and not those that are deployed, and the database is only read.
func (a *app) planCmd() *cobra.Command {
	p := planner{app: a}
	cmd := &cobra.Command{
		Use:   "plan [PATH]",
		Short: "Show every change that scripts would make outside; make none",
		Long: `Plan executes scripts with live reads on a copy of what the database knows, and
prints every change that they would make outside: tool, target, payload, level,
approval and what it takes of budgets, with what would be published and done next, to the
end of the chain. Nothing is sent, and nothing is written to the database.

It is a plan of a start now: of pending events, and of the producers and jobs that are
due. Of the others it says when they are; with --due they are planned, too.

Workflows whose handlers are Go functions are not planned: the command says so, and which
program has them.

What a service would answer is not known: the next step gets an example or null,
and what is built on that is marked with a question mark.

Exit codes: 0 planned, 1 a handler failed in the plan, 2 a script is refused.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.path = "."; len(args) > 0 {
				p.path = args[0]
			}
			return p.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.topic, "topic", "", "with --event: the `TOPIC` that it is published to")
	f.StringVar(&p.event, "event", "", "plan what this event would cause: `JSON` with messageId and its fields or payload")
	f.StringVar(&p.input, "input", "", "plan what the pending events of this `INPUT` would cause, and nothing else that is due")
	f.StringVar(&p.at, "at", "", "plan with the event and the reads of this `RUN` in place of live ones")
	f.BoolVar(&p.due, "due", false, "plan as if all producers and jobs were due now")
	f.StringVar(&p.html, "html", "", "also write the plan as a page to this `FILE`")
	return cmd
}

// A planner plans the scripts of a path. At most one of event, input and at says what is planned;
// without them it is what a host would do if it started now.
type planner struct {
	*app
	path, topic, event, input, at, html string
	due                                 bool
}

// run plans and prints. A path that is no script may be the name of a workflow that is written in Go;
// then the error says that.
func (p *planner) run(ctx context.Context) (err error) {
	if p.due && (p.event != "" || p.topic != "" || p.input != "" || p.at != "") {
		return exit.Misusef("--due is of all producers and jobs, and --event, --input and --at name what is planned: leave one of them out")
	}
	if p.html != "" {
		if err := mayReplace(p.html, beginsPage); err != nil {
			return err
		}
	}
	cfg := plan.Config{Due: p.due}
	if cfg.Event, err = p.given(); err != nil {
		return err
	}
	of, err := p.OpenProject(p.path)
	if err != nil {
		return p.orGo(ctx, project.WithConnectionErrors(of, err))
	}
	if cfg.Connections, err = of.Cfg.Connect(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, project.CloseConnections(cfg.Connections)) }()
	if cfg.Runtime, err = project.OpenSandbox(ctx, of.Cfg, p.log); err != nil {
		return err
	}
	defer cfg.Runtime.Close()
	scripts, found, err := project.LoadToRun(ctx, cfg.Runtime, of)
	if err != nil {
		return err
	}
	if p.PrintProblems(found); terminal.HasErrors(found) {
		return exit.With(exit.Misused)
	}
	for _, s := range scripts {
		cfg.Scripts = append(cfg.Scripts, s.Workflow)
	}
	cfg.Policy = &of.Cfg.Policy
	p.tellOfGo(ctx, of.Cfg)
	made, err := p.make(ctx, of.Cfg, cfg)
	if err != nil {
		return err
	}
	return p.print(made)
}

// arg returns the path as it is said in a command.
func (p *planner) arg() string {
	if p.path == "." {
		return ""
	}
	return " " + terminal.Clean(shell.Word(p.path))
}

// given returns the event of --topic and --event; nil if there is none. Its JSON has the form in
// which scripts publish and tests name events: a messageId, and beside it a payload or the
// fields of one. An inputId is left out, since the input need not be there.
func (p *planner) given() (*keep.Event, error) {
	if p.event == "" && p.topic == "" {
		return nil, nil
	}
	if p.event == "" || p.topic == "" {
		return nil, exit.Misusef("--event and --topic go together: an object of JSON with a messageId, and the topic that it is published to")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(p.event), &fields); err != nil {
		return nil, exit.Misusef("--event is no object of JSON (%v); write one as --event '{\"messageId\":\"a\"}'", err)
	}
	id, err := given.ID(fields["messageId"])
	e := &keep.Event{Topic: keep.TopicName(p.topic), MessageID: keep.MessageID(id)}
	if err := cmp.Or(err, e.MessageID.Validate()); err != nil {
		return nil, exit.Misusef("--event: messageId: %v", err)
	}
	delete(fields, "messageId")
	delete(fields, "inputId")
	if payload, ok := fields["payload"]; ok {
		e.Payload = payload
		return e, nil
	}
	e.Payload, err = json.Marshal(fields)
	return e, err
}

// make plans over the database of the project. One that isn't there yet is empty: the first plan is
// made before the first deploy. A run or an input cannot be in it, so those are not found.
func (p *planner) make(ctx context.Context, project *config.Config, cfg plan.Config) (_ *plan.Plan, err error) {
	// A plan for a topic that nobody has would be empty, and look as if the event did nothing.
	if cfg.Event != nil && !slices.ContainsFunc(cfg.Scripts, func(w *host.Workflow) bool { return w.HasTopic(w.TopicOf(cfg.Event.Topic)) }) {
		return nil, exit.Misusef("no script declares the topic %q; declared are: %s", cfg.Event.Topic, topicsOf(cfg.Scripts))
	}
	db, err := database.Open(ctx, project, database.ToRead)
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, db.Close()) }()
		cfg.Base = db
	case !errors.Is(err, keep.ErrNoDatabase):
		return nil, err
	// No database: what is named cannot be in it.
	case p.at != "":
		return nil, &keep.NotFoundError{What: "run", ID: p.at}
	case p.input != "":
		return nil, &keep.NotFoundError{What: "input", ID: p.input}
	}
	if p.input != "" && cfg.Event != nil {
		return nil, exit.Misusef("--event and --input: a plan is of one of them")
	}
	if p.input != "" {
		if p.input, err = view.FullID(ctx, db, keep.NounInput, p.input); err != nil {
			return nil, err
		}
		if err := p.causedBy(ctx, db, &cfg); err != nil {
			return nil, err
		}
	}
	if p.at != "" {
		if err := p.asSeen(ctx, db, &cfg); err != nil {
			return nil, err
		}
	}
	if db != nil {
		for i, w := range cfg.Scripts {
			if cfg.Scripts[i], err = host.Continued(ctx, db, w); err != nil {
				return nil, err
			}
		}
	}
	if cfg.Granted, err = daemon.PlanGrants(ctx, project, db, cfg.Scripts); err != nil {
		return nil, err
	}
	if cfg.Budgets, err = daemon.PlanBudgets(ctx, project, db, p.Now()); err != nil {
		return nil, err
	}
	return plan.Make(ctx, cfg)
}

// topicsOf names the topics of scripts, each once, for who misspelled one.
func topicsOf(scripts []*host.Workflow) string {
	var names []string
	for _, w := range scripts {
		for _, t := range w.Topics {
			names = append(names, string(w.CalledIn(t)))
		}
	}
	slices.Sort(names)
	return terminal.Clean(strings.Join(slices.Compact(names), ", "))
}

// asSeen makes the plan one of a run: its event, its time and its reads. Without the recorded reads
// it would be a plan of today, and look like one of then; so it is refused. The run of a
// producer or job has no event.
func (p *planner) asSeen(ctx context.Context, db database.DB, cfg *plan.Config) error {
	if p.event != "" || p.input != "" {
		return exit.Misusef("--at has the event of its run: leave --event and --input out")
	}
	id, err := view.FullID(ctx, db, keep.NounRun, p.at)
	if err != nil {
		return err
	}
	run, err := db.Run(ctx, keep.RunID(id))
	if err != nil {
		return err
	}
	if err := p.only(cfg, run.Workflow, "run "+string(run.ID)); err != nil {
		return err
	}
	seen, some, err := view.Trace(ctx, db, run.ID)
	if err == nil && !some {
		err = exit.Failedf("what run %s saw was not recorded, or is not kept any more: see [trace] in keep.toml", run.ID)
	}
	if err != nil {
		return err
	}
	// Scripts see the time of then: a plan by the clock of now would differ where they use it.
	cfg.At, cfg.Now = plan.NewAt(run, seen), run.CreatedAt
	if run.Kind != keep.Consumer || run.Trigger.IsZero() {
		return nil
	}
	e, err := db.Event(ctx, run.Workflow, run.Trigger.Topic, run.Trigger.MessageID)
	for _, w := range cfg.Scripts { // which is that of the run
		e.Topic = w.CalledIn(e.Topic)
	}
	cfg.Event = &e
	return err
}

// causedBy makes the plan one of the pending events of an input. A plan is asked of each
// event whether it takes it, so their numbers are read before.
func (p *planner) causedBy(ctx context.Context, db database.DB, cfg *plan.Config) error {
	in, err := db.Input(ctx, keep.InputID(p.input))
	if err != nil {
		return err
	}
	if err := p.only(cfg, in.Workflow, "input "+p.input); err != nil {
		return err
	}
	of := make(map[int64]bool)
	for e, err := range store.All(ctx, db.Events, keep.EventFilter{Workflow: in.Workflow, Input: in.ID}, keep.Page{Limit: keep.MaxPage, Bare: true}) { // without payloads
		if err != nil {
			return err
		}
		// By number and not by message id: topics may have the same one.
		of[e.Seq] = true
	}
	cfg.Take = func(e keep.Event) bool { return e.Workflow == in.Workflow && of[e.Seq] }
	return nil
}

// only leaves the script of one workflow in the plan, to which what was named belongs: the others
// have no part in it.
func (p *planner) only(cfg *plan.Config, w keep.WorkflowName, what string) error {
	i := slices.IndexFunc(cfg.Scripts, func(s *host.Workflow) bool { return s.Name == w })
	if i < 0 {
		return exit.Misusef("%s is one of %s, and no script of %s declares that", what, w, p.path)
	}
	cfg.Scripts = cfg.Scripts[i : i+1]
	return nil
}

// print prints the plan and returns the error that ends the command. The page is written first: it is
// wanted most where a handler failed, and the status is 1.
func (p *planner) print(made *plan.Plan) error {
	if p.html != "" {
		if err := writePlan(p.html, made); err != nil {
			return err
		}
	}
	if p.JSON {
		if err := p.PrintJSON(made); err != nil {
			return err
		}
	} else {
		p.text(p.Out, made)
	}
	if len(made.Errors) > 0 {
		return exit.With(exit.Failed)
	}
	return nil
}

// writePlan writes the plan as a page, over one of before.
func writePlan(name string, made *plan.Plan) error {
	f, err := openReport(name, beginsPage, 0o666)
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	if err := errors.Join(made.WriteHTML(f), f.Close()); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// text prints the plan for a person: first what would be made outside, in its order, since that is
// what cannot be taken back; then the rest, and last the sum.
func (p *planner) text(w io.Writer, made *plan.Plan) {
	for i, m := range made.Mutations {
		// What depends on an answer that nobody has is marked: the call may be another one, or none.
		mark := ""
		if m.DependsOnUnknown {
			mark = p.OutInk.Yellow(" ?")
		}
		fmt.Fprintf(w, "%3d. %s %s%s\n", i+1, p.OutInk.Bold(string(m.Tool)), terminal.Clean(m.Target), mark)
		fmt.Fprintf(w, "     %s\n", terminal.Clean(string(m.Payload)))
		from := fmt.Sprintf("%s of %s", m.Handler, m.Workflow)
		if m.Topic != nil {
			from += fmt.Sprintf(", for %s in %s", *m.MessageID, *m.Topic)
		}
		if m.Item != nil {
			from += ", item " + *m.Item
		}
		fmt.Fprintf(w, "     %s; level %s", terminal.Clean(from), m.Level)
		if m.Approval.Needed {
			fmt.Fprintf(w, "; a person is asked first")
		}
		if !m.Grant.Allowed {
			fmt.Fprintf(w, "; %s: %s", p.OutInk.Red("not granted"), terminal.Clean(*m.Grant.Reason))
		}
		fmt.Fprintln(w)
		for _, b := range m.Budgets {
			line := terminal.Clean(b.String())
			if b.Over || b.Error != nil {
				line = p.OutInk.Red(line)
			}
			fmt.Fprintf(w, "     %s\n", line)
		}
	}
	for _, e := range made.Publishes {
		fmt.Fprintf(w, "%s publishes %s to %s\n", terminal.Clean(string(e.Handler)), terminal.Clean(string(e.MessageID)), terminal.Clean(string(e.Topic)))
	}
	for _, u := range made.Unknown {
		fmt.Fprintf(w, "%s %s\n", p.OutInk.Yellow("unknown:"), terminal.Clean(u))
	}
	for _, e := range made.Errors {
		fmt.Fprintf(w, "%s %s: %s\n", p.OutInk.Red("failed:"), terminal.Clean(string(e.Handler)), terminal.Clean(e.Message))
	}
	later := false
	for _, n := range made.NotDue {
		fmt.Fprintln(w, terminal.Clean(n.Text(p.When)))
		later = later || !n.Planned
	}
	// Said once, behind the list, and only if --due would change something.
	if later {
		fmt.Fprintf(w, "To plan what is due later, too: keep plan%s --due\n", p.arg())
	}
	fmt.Fprintf(w, "%s would be made outside, %s published, after %s. Nothing was sent.\n",
		terminal.Plural(len(made.Mutations), "change"), terminal.Plural(len(made.Publishes), "event"), terminal.Plural(len(made.Reads), "read"))
	if made.Cut {
		fmt.Fprintln(w, "The plan was cut: there would be more.")
	}
}
