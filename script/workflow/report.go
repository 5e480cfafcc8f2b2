package workflow

import (
	"encoding/json"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/policy"
)

// A Report says what a script seems to do to the services, for a person who
// checks it before it runs. Everything in it is sorted or in the script's order.
type Report struct {
	Workflow  keep.WorkflowName `json:"workflow"`
	OnBlocked string            `json:"on_blocked"` // stop or poll
	Handlers  []HandlerReport   `json:"handlers"`
	Tools     []ToolReport      `json:"tools"`    // those that are mentioned, by name
	Findings  []Finding         `json:"findings"` // by place

	Former  []keep.ToolName `json:"-"` // names that tools had before, by which it calls them
	Missing []keep.ToolName `json:"-"` // tools that it calls and no connection has
	Names   []string        `json:"-"` // that stand for ctx, for what it has, or for a function that uses it; sorted
}

// Failed reports whether a finding is an error.
func (r Report) Failed() bool {
	for _, f := range r.Findings {
		if f.Severity == Error {
			return true
		}
	}
	return false
}

// A HandlerReport is one handler with the tools that it mentions.
type HandlerReport struct {
	Handler   keep.HandlerName `json:"handler"`
	Kind      keep.Kind        `json:"kind"`
	Subscribe []keep.TopicName `json:"subscribe"`
	Publishes []keep.TopicName `json:"publishes"` // to which it may
	Declared  bool             `json:"-"`         // the script says to which; else it may to all
	Schedule  *ScheduleReport  `json:"schedule"`  // null: none
	Order     *string          `json:"order"`     // consumers: all, key or none
	Key       string           `json:"-"`         // text of the function that gives order keys; empty: there is none
	Code      string           `json:"-"`         // texts of its other functions, one after the other; those of long ones are cut
	Uses      []Use            `json:"uses"`
}

// A ScheduleReport is a schedule that JSON says in words, with null for what is
// absent, as the API does.
type ScheduleReport keep.Schedule

// MarshalJSON writes the interval as text, such as "5m0s".
func (s ScheduleReport) MarshalJSON() ([]byte, error) {
	orNull := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	out := struct {
		Interval *string `json:"interval"`
		Cron     *string `json:"cron"`
		Timezone *string `json:"timezone"`
	}{Cron: orNull(s.Cron), Timezone: orNull(s.Timezone)}
	if s.Interval > 0 {
		out.Interval = orNull(s.Interval.String())
	}
	return json.Marshal(out)
}

// A Use is a tool that a handler mentions in one phase.
type Use struct {
	Place  policy.Place     `json:"place"`
	Tool   keep.ToolName    `json:"tool"`
	Effect connector.Effect `json:"effect"`
	Level  *keep.Level      `json:"level"` // null: reads have none
	At     Position         `json:"at"`    // the first mention
}

// A ToolReport describes a tool for a person who decides whether to let a script
// use it.
type ToolReport struct {
	Tool         keep.ToolName    `json:"tool"`
	Connector    string           `json:"connector"`
	Effect       connector.Effect `json:"effect"`
	Level        *keep.Level      `json:"level"`         // null: reads have none
	CanReconcile bool             `json:"can_reconcile"` // the service can be asked what happened
	Identity     []string         `json:"identity"`      // params that say what is changed
	ByTarget     bool             `json:"by_target"`
	Approve      bool             `json:"approve"`    // a person agrees to each call
	ApproveIf    []string         `json:"approve_if"` // and else to those of which one of these is true
	Unique       bool             `json:"unique"`     // a person is asked before an identity is sent a second time
	Notes        []string         `json:"notes"`
}

// A Severity says how much a finding matters.
type Severity string

const (
	Error   Severity = "error"   // it cannot work
	Warning Severity = "warning" // it does not do what it looks like
	Note    Severity = "note"    // worth knowing
)

// A Code names a kind of finding. Codes are stable: programs may look for them.
type Code string

const (
	ForbiddenCall     Code = "forbidden-call"     // the phase does not allow it
	MissingParam      Code = "missing-param"      // the tool requires it
	NoMessageID       Code = "no-message-id"      // a producer publishes without one
	NobodyReads       Code = "nobody-reads"       // no consumer subscribes to the topic
	UnguardedMutation Code = "unguarded-mutation" // a call in an item that does not look at isDone
	UnknownGlobal     Code = "unknown-global"     // the sandbox has no such thing
	UnstableID        Code = "unstable-id"        // an id made of time or chance

	FormerName        Code = "former-name"        // the tool has another name today
	DeadCode          Code = "dead-code"          // a mutate call ends the phase before it
	NotRead           Code = "not-read"           // there is more to read than is read of a script
	NoMutation        Code = "no-mutation"        // mutate seems to change nothing
	UncatchableError  Code = "uncatchable-error"  // a catch around a tool's call
	UnknownCall       Code = "unknown-call"       // ctx has no such member
	UnknownConnection Code = "unknown-connection" // keep.toml has none of that name
	UnknownTool       Code = "unknown-tool"       // the connection has none of that name
	UnknownTopic      Code = "unknown-topic"      // it is not declared, or not allowed here
)

// A Finding is something that a reader of the script should know.
type Finding struct {
	Severity Severity         `json:"severity"`
	Code     Code             `json:"code"`
	Handler  keep.HandlerName `json:"handler"`
	Place    policy.Place     `json:"place"`
	Position
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// String is the finding on one line, place first.
func (f Finding) String() string {
	p := Problem{Position: f.Position, Message: f.Text(), Fix: f.Fix}
	return string(f.Severity) + ": " + p.String()
}

// Text is the message with the handler and the phase that it is about, if it is about
// one.
func (f Finding) Text() string {
	if f.Handler == "" {
		return f.Message
	}
	return fmt.Sprintf("%s, %s: %s", f.Handler, f.Place, f.Message)
}

// describe returns the report of a tool of a connection.
func describe(conn connector.Connection, t connector.Tool) ToolReport {
	spec := t.Spec()
	_, canAsk := t.(connector.Reconciler)
	r := ToolReport{
		Tool: keep.ToolName(conn.Name + "." + spec.Name), Connector: conn.Connector, Effect: spec.Effect,
		CanReconcile: canAsk, Identity: append([]string{}, spec.Identity...),
		ByTarget: spec.ByTarget, ApproveIf: []string{}, Unique: spec.Unique, Notes: []string{},
	}
	if spec.Effect == connector.Mutate {
		level := spec.Level
		r.Level = &level
		r.Notes = mutateNotes(conn, spec)
		for _, text := range connector.Approvals(conn, spec) {
			if text == always {
				r.Approve = true
			} else {
				r.ApproveIf = append(r.ApproveIf, text)
			}
		}
	}
	return r
}

// always is what a tool says that asks a person before each call.
const always = "always"

// approvalNotes says when a person must agree.
func approvalNotes(texts []string) (notes []string) {
	for _, text := range texts {
		if text == always {
			return []string{"a person must agree to each call"}
		}
		notes = append(notes, "a person must agree to a call if "+text)
	}
	return notes
}

// levelMeaning says what happens after a doubt.
var levelMeaning = map[keep.Level]string{
	keep.LevelKey:     "level A: the service honours a key; after a doubt the call is sent again with the same key",
	keep.LevelClaim:   "level B: the service gives a one-time token; after a doubt the token tells whether it was used",
	keep.LevelWitness: "level C: after a doubt the service is searched for the effect",
	keep.LevelNone:    "level D: nobody can tell after a doubt; the run stops at the first one and asks a person",
}

// controlled reports whether the lookup of a tool can show that it finds what is there.
func controlled(conn connector.Connection, spec connector.Spec) bool {
	for _, t := range conn.Tools {
		if t.Spec().Name == spec.Name {
			_, ok := t.(connector.Controller)
			return ok
		}
	}
	return false
}

// mutateNotes says what a person should know before a script may use a mutate
// tool: what happens after a doubt, and what makes two calls the same.
func mutateNotes(conn connector.Connection, spec connector.Spec) []string {
	notes := []string{}
	if meaning := levelMeaning[spec.Level]; meaning != "" {
		notes = append(notes, meaning)
	}
	if spec.ByTarget {
		notes = append(notes, "the lookup finds the target, perhaps changed by somebody else: use it only where each target is created once")
	}
	switch {
	case !spec.NeedsControl:
	case !controlled(conn, spec):
		notes = append(notes, "absence isn't witnessed: not found proves nothing, since what was there may have been taken away; the first doubt that finds nothing asks you (complete would do)")
	default:
		notes = append(notes, "absence isn't witnessed: not found is believed only beside a known effect that the same lookup finds; the first doubt of this tool asks you (absent_if or complete in reconcile would do)")
	}
	if len(spec.Identity) == 0 {
		notes = append(notes, "no params say what is changed: in an item, only a subkey separates two calls")
	} else {
		notes = append(notes, "these params say what is changed: "+join(spec.Identity))
		if spec.Unique {
			notes = append(notes, "a person is asked before they are sent a second time, by whatever run (unique)")
		} else {
			notes = append(notes, "they protect one item, or one run with its retries; another event, item or run with the same ones sends again")
		}
	}
	notes = append(notes, approvalNotes(connector.Approvals(conn, spec))...)
	if spec.VerifyByHand != "" {
		notes = append(notes, "to verify by hand: "+spec.VerifyByHand)
	}
	return notes
}
