package draft

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/mcp"
	"github.com/keep-run/keep/internal/framed"
	"github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/llm"
	"github.com/keep-run/keep/rehearsal/plan"
)

// MaxText bounds a script and its tests, in bytes each (law: bounded).
const MaxText = 256 << 10

// maxQuestion bounds a question to the person.
const maxQuestion = 1000

// A Model answers; *llm.Client is one.
type Model interface {
	Ask(ctx context.Context, q llm.Request) (llm.Answer, llm.Usage, error)
}

// A Writer has a model write.
type Writer struct {
	Model     Model
	Name      string // of the model
	Limits    repair.Limits
	Questions int           // that the person is asked, at most
	Time      time.Duration // without the time that the person thinks

	// Tools are what the model may call besides ask and propose.
	Tools *mcp.Toolbox

	// Open opens what scripts are tried with, as mcp.Config.Open does.
	Open func(ctx context.Context, live bool) (mcp.Bench, error)

	// Ask asks the person. ErrUnanswered: nobody is there.
	Ask func(ctx context.Context, q string) (string, error)

	// Refuse says why a workflow cannot be stored under its name, a sentence; empty: it can.
	Refuse func(ctx context.Context, w keep.WorkflowName) (string, error)

	// Say gets each step, in words. It must not block.
	Say func(Progress)
}

// Progress is how far a writer came.
type Progress struct {
	Attempt int
	Used    llm.Usage
	Doing   string // a few words
}

// A Task is what is to be written.
type Task struct {
	Intent string // of a new workflow, or of the change
	File   string // name that errors use
	Base   *Base  // what is changed; nil: the workflow is new
}

// A Base is a version that is to be changed.
type Base struct {
	Workflow keep.WorkflowName
	Version  string
	Intent   string // what it is for
	Source   string
	Files    map[string]string // the local files that it imports, by their names; Task.File is relative to the same directory
	Tests    string            // the text of its NAME.test.toml; empty: there is none
}

// A Question is one that the person was asked.
type Question struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// A Draft is what was written. Nothing of it is stored.
type Draft struct {
	Source  string
	Files   map[string]string // the local files that it imports, all of them
	Tests   string
	Note    string // of the model: its claim
	Checked mcp.Checked
	Plan    *plan.Plan    // nil: none could be made
	NoPlan  string        // why there is no plan
	Broken  []mcp.Verdict // tests of the version before that this one does not pass
}

// An Outcome is what came of a task.
type Outcome struct {
	Draft     *Draft // nil: there is none
	Why       string // why there is none, a sentence without its end
	Last      Draft  // the last texts that the model tried, if there is none
	Questions []Question
	Open      []string // questions that nobody answered; then there is no draft
	Attempts  int
	Used      llm.Usage
}

// ErrUnanswered says that a question has no answer since nobody is there.
var ErrUnanswered = errors.New("nobody answers")

// A work is one task under way.
type work struct {
	*Writer
	Task
	out    Outcome
	failed bool          // a plan failed, and the model was told
	tried  []string      // why what was proposed is not taken
	last   []llm.Call    // of the newest answer
	begun  time.Time     // of the time that counts
	asking time.Duration // of it, that the person thought
}

// Write has a task done. What goes wrong with the model is in the outcome; an error means that
// the sandbox, the database or the terminal failed, or that ctx ended.
func (w *Writer) Write(ctx context.Context, t Task) (Outcome, error) {
	d := &work{Writer: w, Task: t, begun: time.Now()}
	if d.out.Why = t.tooLarge(); d.out.Why != "" {
		return d.out, nil
	}
	for d.out.Draft == nil && len(d.out.Open) == 0 {
		if d.out.Why = d.stop(d.out.Attempts, d.out.Used); d.out.Why != "" {
			if len(d.tried) > 0 {
				d.out.Why += "; the last one ended: " + strings.TrimSuffix(d.tried[len(d.tried)-1], ".")
			}
			break
		}
		d.out.Attempts++
		final, err := d.attempt(ctx)
		if err != nil {
			return d.out, err
		}
		if final {
			d.out.Why = d.tried[len(d.tried)-1]
			break
		}
	}
	return d.out, nil
}

// tooLarge says which file is longer than what a model is shown of one: it hands over whole texts, and would leave the rest out.
func (t Task) tooLarge() string {
	if t.Base == nil {
		return ""
	}
	texts := map[string]string{"the script": t.Base.Source, "the text of its tests": t.Base.Tests}
	maps.Copy(texts, t.Base.Files)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if n := len(texts[name]); n+len(name) >= framed.MaxData { // its name may stand before it
			return fmt.Sprintf("%s has %d bytes, and a model is shown at most %d of a file", framed.Visible(name), n, framed.MaxData)
		}
	}
	return ""
}

// stop says why the model is not asked any more, with so many attempts behind it.
func (d *work) stop(attempts int, used llm.Usage) string {
	if d.left() <= 0 {
		return fmt.Sprintf("the %s that it may take are over", d.Time)
	}
	return d.Limits.Stop(repair.Spent{Attempts: attempts, Tokens: used.Tokens(), Cost: used.Cost})
}

// left returns how much of the time is left.
func (d *work) left() time.Duration { return d.Time - (time.Since(d.begun) - d.asking) }

// attempt has one conversation. Final says that another one would end as it did.
func (d *work) attempt(ctx context.Context) (final bool, err error) {
	text, err := d.prompt()
	if err != nil {
		return false, err
	}
	proposed, before := len(d.tried), d.out.Used
	d.say("asks the model")
	talk := llm.Conversation{Model: listener{d}, Turns: repair.Turns, Call: d.call,
		Stop: func(used llm.Usage) string { return d.stop(d.out.Attempts-1, before.Plus(used)) }}
	end, err := talk.Run(ctx, llm.Request{Model: d.Name, System: d.instructions(), Tools: d.tools(), Messages: []llm.Message{{Text: text}}})
	if err == nil && end.Why != "" && len(d.tried) == proposed {
		d.tried = append(d.tried, end.Why)
		final = end.Final
	}
	return final, err
}

// A listener asks the model within the time that is left, and keeps what it calls and uses.
type listener struct{ *work }

// Ask implements Model.
func (l listener) Ask(ctx context.Context, q llm.Request) (llm.Answer, llm.Usage, error) {
	within, cancel := context.WithTimeout(ctx, max(l.left(), time.Millisecond))
	defer cancel()
	a, used, err := l.Model.Ask(within, q)
	if within.Err() != nil && ctx.Err() == nil {
		over := fmt.Sprintf("the %s that it may take are over", l.Time)
		if last, ok := errors.AsType[*llm.Error](err); ok {
			over += ", and the last try failed: " + last.Why
		}
		err = &llm.Error{Why: over}
	}
	l.last, l.out.Used = a.Calls, l.out.Used.Plus(used)
	return a, used, err
}

// say reports a step, if somebody listens.
func (d *work) say(doing string) {
	if d.Say != nil {
		d.Say(Progress{Attempt: d.out.Attempts, Used: d.out.Used, Doing: doing})
	}
}

// wrong returns a result that says what is wrong: a sentence of the host, and what came from
// outside or may have.
func wrong(said string, data any) (llm.Result, bool, error) {
	if data == nil {
		return llm.Result{Text: said, Wrong: true}, false, nil
	}
	text, _, err := framed.Encode(data)
	return llm.Result{Text: framed.Frame(said, text), Wrong: true}, false, err
}

// call does what the model asks for.
func (d *work) call(ctx context.Context, c llm.Call) (llm.Result, bool, error) {
	var in struct {
		Source, Tests, Note, Question string
		Files                         map[string]string
	}
	_ = json.Unmarshal(c.Arguments, &in) // what does not fit is refused below, or by the tool
	// Kept also if nothing comes of it: Last is what the person gets when there is no draft.
	if in.Source != "" && len(in.Source) <= MaxText {
		d.out.Last.Source = in.Source
	}
	if in.Tests != "" && len(in.Tests) <= MaxText {
		d.out.Last.Tests = in.Tests
	}
	if d.isLarge() && len(in.Files) > 0 && sizeOf(in.Files) <= MaxText && d.odd(in.Files) == "" {
		d.out.Last.Files = in.Files
	}
	switch c.Name {
	case "ask":
		return d.ask(ctx, in.Question)
	case "propose":
		d.say("tries what the model proposes")
		return d.propose(ctx, Draft{Source: in.Source, Files: in.Files, Tests: in.Tests, Note: in.Note})
	}
	d.say("calls " + framed.Visible(c.Name[:min(len(c.Name), 20)]))
	if len(in.Source)+sizeOf(in.Files) > MaxText || len(in.Tests) > MaxText {
		return wrong(fmt.Sprintf("A script and its tests have at most %d bytes.", MaxText), nil)
	}
	var err error
	if in.Source != "" && d.isLarge() {
		if c.Arguments, err = beside(c.Arguments, d.File, d.all(in.Files)); err != nil {
			return llm.Result{}, false, err
		}
	}
	r, err := d.Tools.Call(ctx, c)
	if c.Name == "types" { // descriptions of tools are of whoever wrote their pack
		r.Text = framed.Frame("It is what scripts may call.", r.Text)
	}
	return r, false, err
}

// ask asks the person, if that may be. If nobody is there, the conversation is over.
func (d *work) ask(ctx context.Context, question string) (llm.Result, bool, error) {
	question = strings.TrimSpace(question)
	switch {
	case question == "":
		return wrong("The call needs question, a text.", nil)
	case len(question) > maxQuestion:
		return wrong(fmt.Sprintf("A question has at most %d bytes.", maxQuestion), nil)
	case len(d.out.Questions) >= d.Questions:
		return wrong(fmt.Sprintf("The person was asked %d questions, and is not asked more. Write what can be written with what you know.", len(d.out.Questions)), nil)
	}
	d.say("asks you")
	began := time.Now()
	answer, err := d.Ask(ctx, question)
	// A person may think for as long as he likes: only the model's time counts.
	d.asking += time.Since(began)
	if errors.Is(err, ErrUnanswered) {
		d.unanswered(question)
		return llm.Result{}, true, nil
	}
	if err != nil {
		return llm.Result{}, true, err
	}
	d.out.Questions = append(d.out.Questions, Question{question, answer})
	return llm.Result{Text: "The person answers: " + answer}, false, nil
}

// unanswered keeps a question and those that the model asked beside it.
func (d *work) unanswered(first string) {
	d.out.Open = []string{first}
	after := false
	for _, c := range d.last {
		var in struct{ Question string }
		if c.Name != "ask" || json.Unmarshal(c.Arguments, &in) != nil {
			continue
		}
		q := strings.TrimSpace(in.Question)
		if after && q != "" && len(q) <= maxQuestion && len(d.out.Questions)+len(d.out.Open) < d.Questions {
			d.out.Open = append(d.out.Open, q)
		}
		after = after || q == first
	}
}

// isLarge reports whether a script of several files is changed.
func (d *work) isLarge() bool { return d.Base != nil && len(d.Base.Files) > 0 }

// all returns the files that a script may import: those of before, and what the model has of them.
func (d *work) all(changed map[string]string) map[string]string {
	if !d.isLarge() {
		return nil
	}
	out := maps.Clone(d.Base.Files)
	maps.Copy(out, changed)
	return out
}

func sizeOf(files map[string]string) (n int) {
	for name, text := range files {
		n += len(name) + len(text)
	}
	return n
}

// beside returns the arguments of a tool with the files of the script.
func beside(arguments json.RawMessage, file string, files map[string]string) (json.RawMessage, error) {
	var args map[string]any
	if json.Unmarshal(arguments, &args) != nil {
		return arguments, nil // the tool refuses it
	}
	args["file"], args["files"] = file, files
	return json.Marshal(args)
}
