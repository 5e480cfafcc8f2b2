// Package connector is the contract between Keep and one kind of outside
// service. A connector is code for a kind of service; a connection is a
// configured account; a tool is one callable operation.
//
// # What a tool promises
//
//   - A list or get tool changes nothing outside.
//   - A mutate tool makes the change at most once for each call of Mutate. It
//     never retries, follows no redirects, and stops at the end of ctx.
//   - Mutate returns an error with a class other than keep.ClassUnknown only if
//     the service said no or the request provably never left. An error without
//     a class, or of none of keep.Classes, counts as unknown: the host then asks, or stops.
//   - Reconcile never makes a change that the lost call would not have made.
//
// The host records each mutation before Mutate is called, validates params
// against the schema, derives identity and hashes, and decides what an outcome
// means; a connector only reports what it saw. Package testkit/connectortest checks it.
package connector

import (
	"context"
	"encoding/json"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/limit"
)

// An Effect says what a tool may do to the service.
type Effect string

const (
	List   Effect = "list"   // searches; changes nothing
	Get    Effect = "get"    // reads one thing by id or unique key; changes nothing
	Mutate Effect = "mutate" // changes something
)

// DefaultTimeout ends the call of a tool that names no timeout.
const DefaultTimeout = 30 * time.Second

// A Spec describes a tool. Specs are plain values and never change.
type Spec struct {
	Name        string // within its connection, such as "create"
	Was         Names  // all names that it had before
	New         bool   // it had no others
	Effect      Effect
	Description string // one sentence for people and LLMs

	// Params and Result are JSON Schemas (2020-12) of the one object that a
	// script passes, and of what it gets. Nil allows anything. Params that do
	// not fit are a logic failure before anything is sent. Params never
	// mention subkey: the host takes it out before it looks at the schema.
	Params json.RawMessage
	Result json.RawMessage

	// Pages says of a list tool that its result is an array that knows how far it got:
	// JSON has {"$list": […], "truncated": …, "next": …} for it.
	Pages bool

	// Cost says of a get tool that each call has a price: its answer is recorded with the
	// run before the script sees it, and the same call is not made twice in a chain of runs.
	Cost bool

	// Timeout ends a call. Zero: DefaultTimeout.
	Timeout time.Duration

	// Example is params that fit, for guides and for keep prove. Nil: there is none.
	Example json.RawMessage

	// The rest is for mutate tools.

	Level       keep.Level    // how the outcome can be known
	Identity    []string      // params that say what is changed; the rest is payload
	SettleAfter time.Duration // how long an effect may lag behind the deadline of its call
	Approve     string        // when a person must agree before a call; see Connection.Approve
	Unique      bool          // a person is asked before an identity is applied a second time
	ByTarget    bool          // reconcile finds the target, perhaps another mutation's effect
	ComparesAge bool          // reconcile compares how long ago the call was: m.CreatedAt is then by the clock of this machine, as of the greatest age that clocks tell

	// Marked says that an effect which Reconcile finds shows Mutation.Token, so that it is
	// never that of another call. Without it, what is found in an attempt after the first
	// may be the effect of the attempt before, and a person is asked; see Answer.ByKey.
	Marked bool

	// NeedsControl says that Reconcile answers Unwitnessed where a lookup finds nothing:
	// that is believed only if it finds another effect at the same moment. Without it,
	// Reconcile may still do so for a call or an answer that shows nothing.
	NeedsControl bool

	// KeyLasts is how long a level A service remembers a key. A call sent
	// again after that is a new one, so Reconcile refuses to; see KeyLives. Zero: without end.
	KeyLasts time.Duration

	// Sets says that the call names what is to be, so that the same one again changes
	// nothing more, whatever its key (level A). Reconcile may send it again. The host does not call
	// it once a later call of the tool with an equal identity may have set something else.
	Sets bool

	// CarriesToken says that the call has the host's key in it as the record has it:
	// a person can then look for it in the service.
	CarriesToken bool

	// ResultFrom names a get tool of the same connection that reads, called with the
	// identity params, what a call brought that a person says happened. Empty: there is
	// none.
	ResultFrom string

	// View says how a person reads a call that is to be approved. Zero: its params, one
	// after the other.
	View keep.View

	// Now names a get tool of the same connection that reads, called with the identity
	// params, what the call would change. Empty: there is none.
	Now string

	// VerifyByHand tells a person where to look when nobody can know.
	VerifyByHand string
}

// KeyLives reports whether a service still knows the key of m for as long as a question that
// ends with ctx may take. Connectors do not read the time: m.CreatedAt, as Reconcile gets it,
// and the deadline of ctx are by the same clock. A question without a deadline is not Keep's.
func (s Spec) KeyLives(ctx context.Context, m keep.Mutation) bool {
	until, ok := ctx.Deadline()
	return !ok || s.KeyLasts == 0 || m.CreatedAt.IsZero() || until.Before(m.CreatedAt.Add(s.KeyLasts))
}

// A Tool is a Reader or a Mutator.
type Tool interface {
	Spec() Spec
}

// A Reader is a tool with effect list or get.
type Reader interface {
	Tool

	// Read performs the call. A *keep.Failure in the error chain says the
	// class; an error without one is transient.
	Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error)
}

// A Mutator is a tool with effect mutate.
type Mutator interface {
	Tool

	// Target names what m changes, in a few words for a person, such as
	// "invoices/17". It makes no call.
	Target(params json.RawMessage) string

	// Mutate makes the change that m.Payload describes, once. m.Token is the
	// host's key for it: the same for every attempt at the same mutation.
	//
	// A nil error means that the service confirmed the change. Otherwise the
	// change may have happened unless the chain has a *keep.Failure of another
	// class than keep.ClassUnknown.
	Mutate(ctx context.Context, m keep.Mutation) (Receipt, error)
}

// A Starter is a Mutator that needs something of its own in the service before
// its first call, such as the table that will witness it. The host calls Start
// before it records each call, so that a record in flight implies that Start
// succeeded: what Start makes was there, and if it is missing later, somebody
// removed it.
type Starter interface {
	// Start makes what is missing and changes nothing else. It is called often
	// and remembers that it succeeded. An error claims that no call was made;
	// one without a *keep.Failure is transient.
	Start(ctx context.Context) error
}

// A Claimer is a Mutator of level B: the service gives something for each call first, such
// as a draft, and the call uses it up. The host asks for it before it records the call and
// records its id with the call, so that a record in flight has one. A new attempt at the
// same call uses the same one.
type Claimer interface {
	// Claim makes what the call m will use up, and returns its id, which Mutate and
	// Reconcile find in m.SentAs. Empty: the tool needs none. What it made for a call
	// that is not made stays unused and does no harm. An error claims that no call was
	// made; one without a *keep.Failure, or of class unknown, is transient.
	Claim(ctx context.Context, m keep.Mutation) (string, error)
}

// A Receipt is what a confirmed change brought.
type Receipt struct {
	Result  json.RawMessage // for the script; nil is null
	Warning string          // result cut or odd; empty: none
}

// A Pinner is a Mutator that says where and how it sends, and how it can be asked. The host
// keeps this with each call: asking about the call, and sending it again, follow what it
// was made under.
type Pinner interface {
	// Pin returns an object without secrets, but with their names. It is the same for as
	// long as a call would reach the same place in the same way.
	Pin() json.RawMessage
}

// A Reconciler is a Mutator that can be asked afterwards. A Mutator that is not
// one goes straight to indeterminate when its outcome is unknown.
type Reconciler interface {
	// Reconcile finds out whether m happened. An error means that the question
	// was not answered, and that it may be asked again.
	Reconcile(ctx context.Context, m keep.Mutation) (Answer, error)
}

// A Controller is a Reconciler whose lookup may find nothing because it finds nothing at
// all: an index is empty, or a gateway answers for a service that is being replaced.
type Controller interface {
	// Control reports whether the same lookup finds known, a mutation of the tool
	// that is known to have happened.
	Control(ctx context.Context, known keep.Mutation) (bool, error)
}

// A Counter is a Reconciler whose lookup shows more than whether a call happened: how often.
// keep prove counts by it whether a service honours keys.
type Counter interface {
	// Count looks as Reconcile does, sends nothing again, and returns how many effects of m
	// the service shows. It is errors.ErrUnsupported if the tool has no lookup.
	Count(ctx context.Context, m keep.Mutation) (int, error)
}

// A Verdict is the answer of a service that was asked.
type Verdict string

const (
	Happened    Verdict = "happened"    // the effect is there
	Absent      Verdict = "absent"      // no trace of it; ledger decides whether that counts
	Unwitnessed Verdict = "unwitnessed" // no trace, but nothing shows that the lookup finds anything
	Retry       Verdict = "retry"       // no answer; ask again
)

// An Answer is what Reconcile learned. The zero Answer is invalid.
type Answer struct {
	Verdict Verdict
	Receipt        // if Happened: as Mutate would have returned it, as far as the service allows
	Detail  string // for people: what was seen where

	// ByKey says that this effect is that of this call alone, although the tool is not
	// Marked: the service answered for its key, or what was made for the call is used up.
	ByKey bool

	// Refused is why the service did not even look, with Retry: the credential. A person
	// is asked for it at once. Nil: it is not known that a person could help.
	Refused *keep.Failure
}

// A Difference says how much two payloads of one identity differ.
type Difference string

const (
	Equivalent  Difference = "equivalent"  // the same in other words
	Minor       Difference = "minor"       // different but acceptable
	Significant Difference = "significant" // a person must look
)

// A Comparer is a Mutator that can tell how much two payloads differ. Without
// one every difference is significant.
type Comparer interface {
	ComparePayload(old, new json.RawMessage) Difference
}

// A Connection is a configured account: a named set of tools as a plain value.
//
// A constructor of connections makes no call: a service that is down at start
// is a transient failure of the first call, not a reason not to start.
type Connection struct {
	Name      string // as scripts say it: ctx.<name>
	Connector string // kind of service, such as "http"
	Was       Names  // all names that it had before
	New       bool   // it had no others

	// ToolWas and ToolNew say of tools by their names what their own Was and New do not.
	ToolWas map[string]Names
	ToolNew map[string]bool

	Tools []Tool // names are unique

	// Secrets marks the secrets of the configuration that the connection uses: it is another
	// text when one of them was replaced. It is not made of them. Empty: there are none.
	Secrets string

	// Sender says whose credentials its tools send with. Nil: nobody's, or it is not known.
	Sender Sender

	// Limits say how often and how many at once its tools may be called, by all of its
	// users together.
	Limits limit.Rule

	// Approve says by the name of a tool when a person must agree before a call of it, beside what
	// the tool says: "always", or an expression (CEL) over params that is true then.
	Approve map[string]string

	// Pack is the file that the tools are from; nil: there is none.
	Pack *keep.Pack

	// Watch waits until a list tool may find something new, calls changed each time, and
	// returns when ctx ends. It may return earlier with an error, and is called again some
	// time later, unless that is errors.ErrUnsupported: the service tells nothing by itself.
	// The host calls it for producers that read the connection at an interval: they are run
	// at once, and at their interval as well, so nothing depends on it. Nil: there is none.
	Watch func(ctx context.Context, changed func()) error

	// Close releases what the connection holds. Nil: nothing to release. A Read that ignored the end of its context may not
	// have returned yet.
	Close func() error
}

// Approvals returns all that says when a person must agree before a call of a tool of c.
func Approvals(c Connection, s Spec) (list []string) {
	for _, text := range []string{s.Approve, c.Approve[s.Name]} {
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}
