package policy

import (
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// A Place is where in a script a call is made.
type Place string

const (
	InProducer Place = "producer"             // anywhere in it
	InPrepare  Place = "prepare"              // of a consumer
	InMutate   Place = "mutate"               // of a consumer
	InNext     Place = "next"                 // of a consumer
	InJob      Place = "job, outside an item" // before, between and after items
	InItem     Place = "job, in an item"      // in the function that withItem calls
)

// Places returns every place.
func Places() []Place {
	return []Place{InProducer, InPrepare, InMutate, InNext, InJob, InItem}
}

// A Call is a kind of host call.
type Call string

const (
	CallList     Call = "list tool"         // a tool that reads many things
	CallGet      Call = "get tool"          // a tool that reads one thing
	CallMutate   Call = "mutate tool"       // a tool that changes something
	CallTopics   Call = "peek, getByIds"    // looks at events
	CallPublish  Call = "publish"           // makes an event
	CallIngress  Call = "registerInput, kv" // makes an input, or keeps a checkpoint
	CallWithItem Call = "withItem"          // begins an item
)

// Calls returns every kind of call, in the order of the table.
func Calls() []Call {
	return []Call{CallList, CallGet, CallMutate, CallTopics, CallPublish, CallIngress, CallWithItem}
}

// allowed is the law of calls: what is absent is forbidden.
var allowed = map[Place][]Call{
	InProducer: {CallList, CallGet, CallPublish, CallIngress},
	InPrepare:  {CallList, CallGet, CallTopics},
	InMutate:   {CallGet, CallMutate},
	InNext:     {CallPublish},
	InJob:      {CallList, CallGet, CallWithItem},
	InItem:     {CallList, CallGet, CallMutate},
}

// Allowed reports whether a call of that kind may be made in that place.
func Allowed(p Place, c Call) bool { return slices.Contains(allowed[p], c) }

// Check returns nil if the call named name may be made in p, and otherwise the
// logic failure that ends the phase. It names the call, the place and what is
// allowed there.
func Check(p Place, c Call, name string) *keep.Failure {
	if Allowed(p, c) {
		return nil
	}
	words := make([]string, 0, len(allowed[p]))
	for _, ok := range allowed[p] {
		words = append(words, strings.Replace(string(ok), " tool", " tools", 1))
	}
	var hint string
	if p == InJob && Allowed(InItem, c) {
		hint = "; in an item, call it on the ctx that the handler of withItem gets"
	}
	return keep.Failf(keep.ClassLogic, "forbidden-call",
		"ctx.%s (%s) is not allowed in %s; allowed there: %s%s", name, c, p, strings.Join(words, ", "), hint)
}
