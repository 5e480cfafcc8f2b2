package transfer

import (
	"reflect"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// A Record is one noun as it is moved, of a type in Kinds. Stores read it with the
// statements of their lists, and write it with those of their commits, so what a store
// keeps of a noun is moved.
//
// Numbers of events are those of one database and are not moved: Seen names the event
// that a number stands for.
type Record any

// The records that are more, or less, than a noun.
type (
	// A Value is one value of a checkpoint.
	Value struct {
		Workflow keep.WorkflowName
		keep.SetKV
	}

	// An Input knows how many of its events are unfinished. A skipped one is counted on.
	Input struct {
		keep.Input
		Unfinished int
	}

	// A Handler names the newest event of the workflow that was there when its last
	// prepare returned nothing; zero: none.
	Handler struct {
		keep.HandlerState
		Seen keep.EventRef
	}

	// A Run names the newest event of the workflow that was there when it began; zero: none.
	Run struct {
		keep.Run
		Seen keep.EventRef
	}

	// A Tried links an event with a chain of runs that gave it back.
	Tried struct {
		Workflow keep.WorkflowName
		Event    keep.EventRef
		Chain    keep.RunID
	}

	// A Move is one line of the history of a mutation.
	Move struct {
		Mutation keep.MutationKey
		keep.Move
	}
)

// A Kind is a type of records.
type Kind struct {
	Name string // of its table
	typ  reflect.Type

	// named records have no order but that of their names, which each database sorts in
	// its own way.
	named bool
}

// Kinds are all that is moved, in the order in which it is. A record comes after those
// that it refers to, but for runs and what they do, which refer to each other.
var Kinds = []Kind{
	kind[keep.Workflow]("workflow", true),
	kind[keep.Deployment]("deployment", false),
	kind[keep.Grant]("granted", true),
	kind[keep.Proposal]("proposal", false),
	kind[keep.TopicCount]("topic", true),
	kind[Value]("kv", true),
	kind[Input]("input", false),
	kind[keep.Event]("event", false),
	kind[Tried]("event_tried", true),
	kind[Handler]("handler", true),
	kind[Run]("run", false),
	kind[keep.LogLine]("run_log", false),     // run by run
	kind[keep.TracePart]("run_trace", false), // run by run
	kind[keep.Item]("item", false),
	kind[keep.Mutation]("mutation", false),
	kind[Move]("mutation_history", false), // mutation by mutation
	kind[keep.Escalation]("escalation", false),
	kind[keep.Notice]("notice", true),
	kind[keep.Decided]("decision", false),
	kind[key.Record]("idempotency_key", false),
	kind[keep.Credential]("credential", false),
	kind[keep.HookCount]("hook", true),
	kind[keep.Account]("account", true),
	kind[keep.Gate]("gate", true),
	kind[keep.Repair]("repair", true),
	kind[keep.Counter]("counter", true),
}

func kind[T any](name string, named bool) Kind { return Kind{name, reflect.TypeFor[T](), named} }

// KindOf returns the place of a record's kind in Kinds.
func KindOf(r Record) int {
	for i, k := range Kinds {
		if k.typ == reflect.TypeOf(r) {
			return i
		}
	}
	panic("no kind of " + reflect.TypeOf(r).String()) // a store that reads records otherwise is broken
}
