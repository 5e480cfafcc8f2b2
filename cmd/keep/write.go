package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/draft"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/mcp"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/llm"
)

// writeCmd has a model write a workflow. The model has the tools of keep mcp that change nothing; what
// it writes is a proposal, and only a person makes it run.
func (a *app) writeCmd() *cobra.Command {
	w := author{app: a}
	cmd := &cobra.Command{
		Use:   "write INTENT",
		Short: "Have a model write a workflow for what you say",
		Long: `Write has the language model of [write] in keep.toml write a workflow, with its tests, for
what you say. The model can read the guide and the types, check, test and plan; it asks you at
most three questions; it changes nothing. You see the script, what it may call and what it would
do. It waits for you: nothing of it runs before you agree, here or with keep inbox.

Files are never overwritten without --force. If nothing comes of it, nothing is written to the
project, and what was drafted is kept in a temporary directory.

Exit codes: 0 you agreed and it is deployed, 1 nothing came of it, 2 a mistake in the command, a
file or keep.toml, 4 it waits for you, or a question has no answer.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return w.write(cmd.Context(), cmd.InOrStdin(), args[0]) },
	}
	w.flags(cmd)
	return cmd
}

// editCmd has a model change a workflow; see author.edit.
func (a *app) editCmd() *cobra.Command {
	w := author{app: a}
	cmd := &cobra.Command{
		Use:   "edit WORKFLOW CHANGE",
		Short: "Have a model change a workflow as you say",
		Long: `Edit is keep write for a change of the current version of a workflow. It shows what changes
line by line, which of the tests of before would not pass any more, and what the recorded runs
would have done otherwise. The file of the workflow is replaced if you agree here, or with
--force; it must be as the version has it. If it is saved, or another version is deployed,
before you have agreed, nothing is replaced.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.edit(cmd.Context(), cmd.InOrStdin(), keep.WorkflowName(args[0]), args[1])
		},
	}
	cmd.ValidArgsFunction = a.byPosition(workflowNames)
	w.flags(cmd)
	return cmd
}

// An author has a workflow written and asks the person about it. It works for keep write and keep
// edit, which differ in what they begin with and in what they show.
type author struct {
	*app
	out, html, model string
	answers          []string
	force            bool

	cfg   *config.Config
	in    *bufio.Reader     // of the person; nil: nobody is there
	agent *agentServer      // what the model may do
	was   map[string]string // hashes of the files that may be written, before the work on them began; see where
}

// flags adds what keep write and keep edit both take.
func (w *author) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.out, "out", "", "the `FILE` of the script; its tests and grants come beside it (default NAME.js)")
	f.StringArrayVar(&w.answers, "answer", nil, "`TEXT` of an answer, for each question in turn, where nobody can be asked")
	f.BoolVar(&w.force, "force", false, "overwrite files")
	f.StringVar(&w.html, "html", "", "also write the plan as a page to this `FILE`")
	f.StringVar(&w.model, "model", "", "`NAME` of the model, in the place of model of [write]")
}

// An authored is what keep write --json prints, however it ends: what a model used was paid for.
type authored struct {
	Workflow  *keep.WorkflowName `json:"workflow"` // null: nothing came of it
	Intent    string             `json:"intent"`
	Version   *string            `json:"version"`  // that waits, or is current now
	Proposal  *string            `json:"proposal"` // WORKFLOW@VERSION
	Question  *keep.EscalationID `json:"question"` // that a person answers
	State     string             `json:"state"`    // waiting, current, unanswered or failed
	File      *string            `json:"file"`
	Tests     *string            `json:"tests"`
	GrantFile *string            `json:"grant_file"`
	Grants    []string           `json:"grants"` // what it calls
	Note      string             `json:"note"`   // of the model: its claim
	Plan      any                `json:"plan"`   // null: none could be made
	NoPlan    *string            `json:"no_plan"`
	Questions []draft.Question   `json:"questions"`
	Draft     *string            `json:"draft"` // directory that the texts are kept in; null: they are in the files
	Why       *string            `json:"why"`   // nothing came of it, or what failed after the model was done
	Tokens    int64              `json:"tokens"`
	Cost      float64            `json:"cost"`
	Attempts  int                `json:"attempts"`

	*edited
}

// begin reads what is configured, and refuses what cannot be done before a model is asked.
func (w *author) begin(in io.Reader, intent string) (err error) {
	if intent = strings.TrimSpace(intent); intent == "" || len(intent) > keep.MaxIntent || !utf8.ValidString(intent) {
		return exit.Misusef("say in a sentence what is wanted, in at most %d bytes", keep.MaxIntent)
	}
	if w.cfg, err = w.LoadConfig("."); err != nil {
		return err
	}
	if w.cfg.Write.Model = cmp.Or(w.model, w.cfg.Write.Model); w.cfg.Write.Provider == "" || w.cfg.Write.Model == "" {
		return exit.Misusef("who writes is not said: keep.toml needs a table [llm.NAME] (api, key) and a table [write] with provider = \"NAME\" and model")
	}
	// Only of the service that writes: what connections lack is said where something is read.
	for _, m := range w.cfg.Missing {
		if strings.HasPrefix(m.Path, "llm."+w.cfg.Write.Provider+".") {
			return exit.Misusef("%s", m)
		}
	}
	// With --json the output is for a program, which cannot answer in sentences.
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) && w.TTY && !w.JSON {
		w.in = bufio.NewReader(in)
	}
	w.agent = &agentServer{app: w.app, by: "by keep write"}
	return project.FinishWrites(w.cfg.Dir) // of an edit that was killed
}

// write writes a new workflow. A file that is in the way is refused before the model is paid; the
// name is known only afterwards, and refuse has the model choose another one.
func (w *author) write(ctx context.Context, in io.Reader, intent string) (err error) {
	if err := w.begin(in, intent); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.agent.close()) }()
	if w.out != "" {
		if err := w.free(w.out); err != nil {
			return err
		}
	}
	task := draft.Task{Intent: strings.TrimSpace(intent), File: filepath.Base(cmp.Or(w.out, "workflow.js"))}
	return w.author(ctx, task, func(name keep.WorkflowName) string { return cmp.Or(w.out, string(name)+".js") }, nil)
}

// author has a task done, and shows and stores what came of it. The texts are on disk from the moment
// that the model is done: what follows may fail, and they cost money. They go when the files of
// the project are written.
func (w *author) author(ctx context.Context, task draft.Task, file func(keep.WorkflowName) string, change *editing) (err error) {
	out, err := w.draft(ctx, task)
	if errors.Is(err, context.Canceled) {
		return &unwrittenError{err}
	}
	if err != nil {
		return err
	}
	r := authored{Intent: task.Intent, State: "failed", Grants: []string{}, Questions: append([]draft.Question{}, out.Questions...),
		Tokens: out.Used.Tokens(), Cost: out.Used.Cost, Attempts: out.Attempts}
	// Then the model stopped in the middle, and there is no text to keep.
	if len(out.Open) > 0 {
		return w.unanswered(out, r)
	}
	kept, err := w.keepDraft(out)
	if err != nil {
		return err
	}
	r.Draft = kept
	if out.Draft == nil {
		return w.failed(out, r)
	}
	done := &authoredDraft{author: w, Draft: *out.Draft, report: &r, intent: task.Intent, change: change}
	done.file = file(out.Draft.Checked.Workflow.Name)
	// Whatever went wrong from here on, the texts are there, and the error says where.
	if err := done.finish(ctx); err != nil {
		return w.unfinished(err, r)
	}
	return nil
}

// unfinished ends the command since something failed after the model was done, unless err only says how it ended.
func (w *author) unfinished(err error, r authored) error {
	if e, ok := errors.AsType[*exit.Error](err); ok && e.Reported() {
		return err
	}
	why := err.Error()
	if r.Why = &why; r.Version == nil {
		r.State = "failed"
	}
	if w.JSON {
		err = errors.Join(err, w.PrintJSON(r))
	}
	return w.withDraft(err, r.Draft)
}

// An unwrittenError is that of a person who interrupted the model.
type unwrittenError struct{ error }

// Unwrap returns that it was interrupted.
func (e *unwrittenError) Unwrap() error { return e.error }

// draft has the model write. It asks the person in between, and takes the line of progress away
// meanwhile: both write to the same terminal.
func (w *author) draft(ctx context.Context, task draft.Task) (out draft.Outcome, err error) {
	service := w.cfg.Write.LLM
	// A model that is busy is asked again by the rules for every service.
	service.Retry = w.cfg.Policy.Retry
	says, stop := &doing{}, func() {}
	service.Waits = func(e *llm.Error, wait time.Duration) {
		stop()
		defer func() { stop = w.Animate(says.line) }()
		fmt.Fprintf(w.Err, "%s; it is asked again in %s.\n", terminal.Clean(e.Why), max(wait.Round(time.Second), time.Second))
	}
	asked, err := llm.New(service)
	if err != nil {
		return out, exit.Misusef("llm.%s.%w", w.cfg.Write.Provider, err)
	}
	tools, err := mcp.OpenToolbox(ctx, mcp.Config{Role: access.Author, Call: w.agent.call, Deploy: w.agent.deploying, Open: w.agent.open,
		Version: buildinfo.Read().Version, Logger: w.log}, draft.Offered()...)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	stop = w.Animate(says.line)
	// Not defer stop(): each question ends one animation and begins another.
	defer func() { stop() }()
	writer := draft.Writer{
		Model: asked, Name: w.cfg.Write.Model, Limits: w.cfg.Write.Limits, Questions: w.cfg.Write.Questions, Time: w.cfg.Write.Time,
		Tools: tools, Open: w.agent.open, Refuse: w.refuse, Say: says.set,
		Ask: func(ctx context.Context, q string) (string, error) {
			stop()
			defer func() { stop = w.Animate(says.line) }()
			return w.ask(ctx, q)
		},
	}
	return writer.Write(ctx, task)
}

// A doing is what the line of progress shows. The writer sets it and the animation reads it, each in
// its goroutine.
type doing struct {
	mu  sync.Mutex
	now draft.Progress
}

// set is called by the writer at each step.
func (d *doing) set(p draft.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = p
}

// line is what the model does now, and how many tokens that took so far.
func (d *doing) line() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return terminal.Clean(fmt.Sprintf("conversation %d, %d tokens: %s", d.now.Attempt, d.now.Used.Tokens(), d.now.Doing))
}

// ask asks the person a question of the model, or takes the next answer of the command.
func (w *author) ask(ctx context.Context, question string) (string, error) {
	// Also on a terminal: who gave answers in advance wants them used.
	if len(w.answers) > 0 {
		answer := w.answers[0]
		w.answers = w.answers[1:]
		return answer, nil
	}
	if w.in == nil {
		return "", draft.ErrUnanswered
	}
	fmt.Fprintf(w.Err, "\nThe model asks (it gets your answer: write no passwords or keys):\n  %s\n> ", w.Ink.Bold(terminal.Clean(question)))
	return w.line(ctx)
}

// line reads what the person writes. A line that never comes is abandoned with the process.
func (w *author) line(ctx context.Context) (string, error) {
	type read struct {
		text string
		err  error
	}
	got := make(chan read, 1)
	go func() {
		text, err := w.in.ReadString('\n')
		got <- read{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-got:
		if r.err != nil {
			return "", draft.ErrUnanswered
		}
		return strings.TrimSpace(r.text), nil
	}
}

// refuse says why a new workflow cannot have a name, in a sentence for the model; empty: it can.
func (w *author) refuse(ctx context.Context, name keep.WorkflowName) (string, error) {
	if w.out == "" && w.free(string(name)+".js") != nil {
		return fmt.Sprintf("there is a file of the name %s.js already: choose another name.", name), nil
	}
	err := w.agent.call(ctx, func(c *api.Client) error {
		_, err := c.Workflow(ctx, name)
		return err
	})
	switch {
	// The first workflow of a project may be written before anything was deployed.
	case errors.Is(err, keep.ErrNotFound), errors.Is(err, keep.ErrNoDatabase):
		return "", nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("there is a workflow %s already: choose another name.", name), nil
}

// unanswered ends the command since a question has no answer. It prints what was asked, so that the
// same command can be given again with answers.
func (w *author) unanswered(out draft.Outcome, r authored) error {
	r.State = "unanswered"
	for _, q := range out.Open {
		r.Questions = append(r.Questions, draft.Question{Question: q})
	}
	if w.JSON {
		if err := w.PrintJSON(r); err != nil {
			return err
		}
		return exit.With(exit.NeedsPerson)
	}
	for _, q := range out.Open {
		fmt.Fprintf(w.Out, "%s %s\n", w.OutInk.Bold("question:"), terminal.Clean(q))
	}
	fmt.Fprintln(w.Err, "Nothing was written. Answer with --answer, once for each question in turn, or on a terminal.")
	return exit.With(exit.NeedsPerson)
}

// failed ends the command since the model wrote nothing that can be used.
func (w *author) failed(out draft.Outcome, r authored) error {
	r.Why = &out.Why
	if w.JSON {
		if err := w.PrintJSON(r); err != nil {
			return err
		}
	}
	return w.withDraft(exit.Failedf("nothing came of it after %s (%d tokens): %s. Nothing was written to the project.",
		terminal.Plural(r.Attempts, "conversation"), r.Tokens, terminal.Clean(out.Why)), r.Draft)
}

// withDraft adds to an error where the texts are.
func (w *author) withDraft(err error, dir *string) error {
	if e, ok := errors.AsType[*exit.Error](err); dir == nil || ok && e.Reported() {
		return err
	}
	return fmt.Errorf("%w\nWhat was drafted is kept in %s", err, *dir)
}

// keepDraft writes the texts to a directory of their own, which only the user reads; nil: there
// are none.
func (w *author) keepDraft(out draft.Outcome) (*string, error) {
	// The last try may be nearly right, and a person can repair what a model could not.
	d := out.Last
	if out.Draft != nil {
		d = *out.Draft
	}
	if d.Source == "" {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "keep-write-")
	if err != nil {
		return nil, fmt.Errorf("keep the draft: %w", err)
	}
	texts := map[string]string{"workflow.js": d.Source, "workflow.test.toml": d.Tests}
	for name, text := range d.Files {
		if name = filepath.FromSlash(name); filepath.IsLocal(name) {
			texts[filepath.Join("files", name)] = text
		}
	}
	for name, text := range texts {
		if text == "" {
			continue
		}
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return nil, fmt.Errorf("keep the draft: %w", err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("keep the draft: %w", err)
		}
	}
	return &dir, nil
}
