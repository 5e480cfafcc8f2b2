package policy

import (
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// A Place is where in a script a call is made.
type Place string

const (
	InProducer Place = "producer"
	InPrepare  Place = "prepare"
	InMutate   Place = "mutate"
	InNext     Place = "next"
	InJob      Place = "job, outside an item"
	InItem     Place = "job, in an item"
)

// Places returns every place, in the order of the table of DESIGN section 4.
func Places() []Place {
	return []Place{InProducer, InPrepare, InMutate, InNext, InJob, InItem}
}

// A Call is a kind of host call.
type Call string

const (
	CallList     Call = "list tool"
	CallGet      Call = "get tool"
	CallMutate   Call = "mutate tool"
	CallTopics   Call = "peek, getByIds"
	CallPublish  Call = "publish"
	CallIngress  Call = "registerInput, kv"
	CallWithItem Call = "withItem"
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
	return keep.Failf(keep.ClassLogic, "forbidden-call",
		"ctx.%s (%s) is not allowed in %s; allowed there: %s", name, c, p, strings.Join(words, ", "))
}
