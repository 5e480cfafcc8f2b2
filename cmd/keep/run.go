package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// runCmd is for cron, CI and tests: it ends, and its status says how it went.
func (a *app) runCmd() *cobra.Command {
	var timeout time.Duration
	var stopOnEOF bool
	cmd := &cobra.Command{
		Use:   "run PATH",
		Short: "Run until idle, then exit (cron, CI, tests)",
		Long: `Run deploys the workflows of a file or a directory and runs them until nothing
is active, nothing is due and nothing waits to be tried again. Other workflows
in the database stay at rest. A workflow that another host has is waited for; who
has it is said after a second. When it is idle it deletes what [retention] says.

The table counts a run and its retries as one, by what became of the last.

It ends with 0 when all is done but what a paused workflow has, which it says, with 4 when a person must decide something (see
keep inbox), and with 1 when --timeout comes first. Calls that are out then are
waited for, up to policy.shutdown.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return exit.Misusef("--timeout must not be negative")
			}
			ctx := cmd.Context()
			if stopOnEOF {
				ctx = untilEOF(ctx, cmd.InOrStdin())
			}
			return a.runUntilIdle(ctx, args[0], timeout)
		},
	}
	cmd.Flags().BoolVar(&stopOnEOF, "stop-on-eof", false, "stop when standard input ends: when the process that holds it is gone")
	// For programs that start this one and must not leave it behind, as keep demo.
	_ = cmd.Flags().MarkHidden("stop-on-eof") // the flag is there
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this `duration`; 0: wait as long as it takes")
	return a.anewFlag(cmd)
}

// errTimeout is the cause of a context that --timeout ended.
var errTimeout = errors.New("--timeout came first")

// runUntilIdle opens the project, runs it until it is idle or the time is over,
// and says what was done either way. keep.toml and the scripts are those of its start; only
// secrets are followed, since a token may be renewed while it runs for hours.
func (a *app) runUntilIdle(ctx context.Context, path string, timeout time.Duration) (err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	p, err := a.OpenProject(path)
	if err != nil {
		return project.WithConnectionErrors(p, err)
	}
	watch := newProgress(a.Terminal)
	s, err := a.openSession(ctx, p, watch.commit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	stopTelling := a.reportRemote(ctx, s)
	follower := &daemon.Follower{Env: a.env(), Session: s, SecretsOnly: true, Load: func() (*config.Config, error) {
		again, err := a.OpenProject(path)
		if err != nil {
			return nil, err
		}
		return again.Cfg, nil
	}}
	idle, err := untilIdle(ctx, s, watch, follower)
	stopTelling()
	if err != nil {
		return err
	}
	// The caller's context may be over; what is left is only to read.
	return a.summarize(context.WithoutCancel(ctx), s, watch, idle, interrupted(ctx, timeout))
}

// A runSummary is what keep run --json prints. It has the open questions whole: who reads the mail
// of cron has to know what to decide.
type runSummary struct {
	Idle        bool                    `json:"idle"`
	Workflows   []runCount              `json:"workflows"`
	Escalations []api.Escalation        `json:"escalations"`
	Elsewhere   []daemon.RemoteWorkflow `json:"elsewhere,omitempty"` // what other hosts have, if it is not idle
}

// A runCount says what one workflow did. A run and its retries count as one, by what became
// of the last.
type runCount struct {
	Name      keep.WorkflowName `json:"name"`
	Version   string            `json:"version"`
	Runs      int               `json:"runs"`      // that this command began or took up
	Committed int               `json:"committed"` // of them
	Waiting   int               `json:"waiting"`   // of them, for a time, a service or a person
	Failed    int               `json:"failed"`    // of them, and not tried again by themselves
	Retries   int               `json:"retries"`   // further attempts that they took
	Paused    bool              `json:"paused"`    // it begins no run before keep resume
	PauseNote *string           `json:"pause_note"`
	Pending   int               `json:"pending"` // events that wait, and those in work
}

// summarize prints what was done and returns the error that ends the command. The counts are those
// of this command; questions and open runs are those of its workflows, and those that their runs wait for with others, also from before it:
// a status of 0 says that nothing is left to decide.
func (a *app) summarize(ctx context.Context, s *daemon.Session, watch *progress, idle bool, why string) error {
	sum := runSummary{Idle: idle, Workflows: []runCount{}, Escalations: []api.Escalation{}}
	var open []api.Run
	versions, err := s.Versions(ctx)
	if err != nil {
		return err
	}
	// By the names of the scripts: one that did nothing is in the table, too.
	for _, name := range s.Names() {
		c := watch.count(name)
		c.Version = versions[name]
		if err := c.look(ctx, s.DB); err != nil {
			return err
		}
		sum.Workflows = append(sum.Workflows, c)
		qs, err := api.OpenQuestions(ctx, s.DB, name)
		if err != nil {
			return err
		}
		sum.Escalations = append(sum.Escalations, qs...)
		shared, err := sharedQuestions(ctx, s.DB, name)
		if err != nil {
			return err
		}
		sum.Escalations = append(sum.Escalations, shared...)
		runs, err := openRuns(ctx, s.DB, name)
		if err != nil {
			return err
		}
		open = append(open, runs...)
	}
	sum.Escalations = eachOnce(sum.Escalations)
	// Who has a workflow explains why this command did not come to an end.
	if !idle {
		if sum.Elsewhere, err = s.Remote(ctx); err != nil {
			return err
		}
	}
	if a.JSON {
		err = a.PrintJSON(sum)
	} else {
		err = a.printSummary(sum)
	}
	if err != nil {
		return err
	}
	return a.verdict(s, sum, open, why)
}

// openRuns returns the open runs of a workflow, as many as a page has.
func openRuns(ctx context.Context, db store.Reader, name keep.WorkflowName) ([]api.Run, error) {
	runs, _, err := api.ListRuns(ctx, db, keep.RunFilter{Workflow: name, Open: true}, keep.Page{Limit: keep.MaxPage})
	return runs, err
}

// sharedQuestions returns the open questions that runs of a workflow wait for together with others: about an account, a budget, a
// tool whose calls are stopped or a connection. They are of no workflow, or of the one that came to them first.
func sharedQuestions(ctx context.Context, db database.DB, name keep.WorkflowName) (out []api.Escalation, err error) {
	st, err := view.ReadSituation(ctx, db, name, keep.MaxPage)
	if err != nil {
		return nil, err
	}
	for _, r := range st.Runs[name] {
		if q := r.Question; q != nil && q.Workflow != name {
			out = append(out, api.EscalationOf(*q))
		}
	}
	return out, nil
}

// eachOnce returns questions without those that came before.
func eachOnce(all []api.Escalation) []api.Escalation {
	seen := make(map[keep.EscalationID]bool, len(all))
	return slices.DeleteFunc(all, func(q api.Escalation) bool {
		before := seen[q.ID]
		seen[q.ID] = true
		return before
	})
}

// look reads whether the workflow is at work at all, and what waits in it.
func (c *runCount) look(ctx context.Context, db database.DB) error {
	w, err := db.Workflow(ctx, c.Name)
	if err != nil {
		return err
	}
	topics, err := db.TopicCounts(ctx, c.Name)
	for _, t := range topics {
		c.Pending += t.Pending + t.Reserved
	}
	if c.Paused = w.Paused; w.PauseNote != "" {
		c.PauseNote = &w.PauseNote
	}
	return err
}

// interrupted says why a command ended before it was idle.
func interrupted(ctx context.Context, timeout time.Duration) string {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Sprintf("--timeout %s ended before everything was done.", timeout)
	}
	return "It was interrupted before everything was done."
}

// verdict says on stderr what is not done, unless the JSON of the summary says the same, and returns
// the status. Not to be idle (1) comes before questions (4): they may not be all yet. An internal failure is 1 although it has a question:
// it is a fault, and no decision that the workflow was made to ask for.
func (a *app) verdict(s *daemon.Session, sum runSummary, open []api.Run, why string) error {
	var say io.Writer = a.Err
	if a.JSON {
		say = io.Discard
	}
	for _, w := range sum.Workflows {
		if w.Paused {
			fmt.Fprintf(say, "%s %s is paused%s, %s: keep resume %s\n", a.Ink.Yellow("keep:"), w.Name, pausedFor(w.PauseNote), waiting(w.Pending), w.Name)
		}
	}
	internal := slices.ContainsFunc(open, func(r api.Run) bool { return r.Status == keep.StatusInternal })
	switch {
	case !sum.Idle:
		fmt.Fprintln(a.Err, a.Ink.Red("keep: ")+why+" What ran is recorded, and continues at the next start.")
		for _, r := range open {
			fmt.Fprintf(a.Err, "%s: run %s of %s: %s\n", r.Workflow, r.ID, r.Handler, terminal.Clean(a.stoppedAt(s, r, why)))
		}
		for _, e := range sum.Elsewhere {
			fmt.Fprintf(a.Err, "%s: host %s has it since %s\n", e.Workflow, terminal.Clean(e.Name), a.When(time.Time(e.Since)))
		}
		return exit.With(exit.Failed)
	case internal:
		fmt.Fprintln(a.Err, a.Ink.Red("keep: ")+"a run stopped by an internal failure; see keep inbox")
		return exit.With(exit.Failed)
	case len(sum.Escalations) > 0:
		fmt.Fprintf(say, "%s %s for you. Decide with: keep inbox do ID ACTION\n", a.Ink.Yellow("keep:"), terminal.Plural(len(sum.Escalations), "question"))
		return exit.With(exit.NeedsPerson)
	}
	return nil
}

// pausedFor says why a workflow is paused, if somebody said so.
func pausedFor(note *string) string {
	if note == nil {
		return ""
	}
	return " (" + terminal.Clean(*note) + ")"
}

// waiting says how many events wait for a workflow.
func waiting(events int) string {
	if events == 1 {
		return "1 event waits"
	}
	return fmt.Sprintf("%d events wait", events)
}

// stoppedAt says where a run is that is not done: in its script, if this command ended
// while that executed, or what it waits for.
func (a *app) stoppedAt(s *daemon.Session, r api.Run, why string) string {
	left := r.Error != nil && r.Error.Code == "interrupted" // in an orderly way
	if !left && r.Status != keep.StatusActive && r.Status != keep.StatusCrashed {
		return *r.WaitsFor
	}
	file := string(r.Workflow)
	for _, sc := range s.Scripts {
		if sc.Name == r.Workflow {
			file = terminal.Short(filepath.Join(s.Project.Root, filepath.FromSlash(sc.File)))
		}
	}
	return fmt.Sprintf("its script %s was still executing phase %s. %s", file, r.Phase, why)
}

// printSummary prints the counts, and every question in full: who reads the
// output of cron has no other view.
func (a *app) printSummary(sum runSummary) error {
	t := terminal.Table{Header: []string{"WORKFLOW", "VERSION", "RUNS", "COMMITTED", "WAITING", "FAILED", "RETRIES"}}
	for _, w := range sum.Workflows {
		t.Add(string(w.Name), w.Version, fmt.Sprint(w.Runs), fmt.Sprint(w.Committed), fmt.Sprint(w.Waiting), fmt.Sprint(w.Failed), fmt.Sprint(w.Retries))
	}
	if err := t.Print(a.Out, a.OutInk); err != nil {
		return err
	}
	for _, q := range sum.Escalations {
		fmt.Fprintf(a.Out, "\n%s\n", a.OutInk.QuestionText(q))
	}
	return nil
}

// openSession loads the scripts of p, opens the database as its host and deploys
// them. committed is called after each commit. The scripts are loaded first, so that a broken
// one leaves the database as it was. A person at the terminal is asked about what may have
// been renamed; elsewhere such a doubt is an error.
func (a *app) openSession(ctx context.Context, p *project.Project, committed func(keep.Commit)) (_ *daemon.Session, err error) {
	env := a.env()
	if term.IsTerminal(int(os.Stdin.Fd())) && a.TTY {
		env.AskRenames = func(e *project.RenameError, scripts []project.Script, conns []connector.Connection) bool {
			return e.AskRenames(untilDone{ctx, os.Stdin}, a.Err, scripts, conns)
		}
	}
	s, found, err := env.Prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if a.PrintProblems(found); terminal.HasErrors(found) {
		return nil, exit.With(exit.Misused)
	}
	return s, s.Open(ctx, env, daemon.Watch{Committed: committed})
}

// sweepAtMost is how long keep run deletes what is over and old when it is idle. The next
// one continues.
const sweepAtMost = 10 * time.Second

// untilIdle runs the host until it is idle, sweeps, and stops it. What people were not
// told by then is tried once more; the rest is told after the next start. It
// reports whether it came to be idle before ctx ended.
func untilIdle(ctx context.Context, s *daemon.Session, watch *progress, f *daemon.Follower) (bool, error) {
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	idleCtx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		runErr = daemon.RunBoth(runCtx, s.Host, nil, f)
		giveUp(errHostEnded)
	})
	stopWatch := watch.start()
	idleErr := s.Host.WaitIdle(idleCtx)
	stopWatch()
	if idleErr == nil { // a command that cron starts ends before the hourly sweep would begin
		sweepCtx, enough := context.WithTimeout(idleCtx, sweepAtMost)
		s.Host.Sweep(sweepCtx)
		enough()
	}
	stop()
	wg.Wait()
	if runErr != nil {
		return false, runErr
	}
	// Also after an interruption: a person is notified of a question although the process ends.
	flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notify.DefaultTimeout)
	defer cancel()
	s.Host.FlushNotices(flushCtx)
	return idleErr == nil, nil
}

// errHostEnded is the cause of a wait that ended since nothing runs any more.
var errHostEnded = errors.New("the host ended")
