// Package repair is the law of repairs: which failures may be repaired, within which budget,
// what may be proposed, and what a proposal is after it was tried in shadow.
//
// It does not know who proposes. A proposal may be wrong in any way, on purpose too: somebody
// who writes a mail may have talked to the model that reads it. So nothing that a proposal says
// of itself counts, and what is not proved to be safe waits for a person.
//
// # Safe
//
// A proposal is safe if what it declares and may call is as before, its functions of order keys
// are the same, every run whose work is done would have done the same, the run that failed comes
// through with its recorded reads, and what it would do is like what its neighbours did: the runs
// of the same handler that are done.
// Like means: the same tools and parameters, the same values where all neighbours have the same,
// and values from where the neighbours' values came from.
package repair

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/keep-run/keep"
)

// A Signature tells failures apart: those with the same one are repaired once, within one
// budget, and asked about once.
type Signature struct {
	Workflow keep.WorkflowName
	Version  keep.Version
	Handler  keep.HandlerName
	Code     string // of the failure
	At       string // place in the script; empty: unknown
}

// SignatureOf returns the signature of a run's failure; false if it is none that is repaired.
func SignatureOf(r keep.Run) (Signature, bool) {
	if r.Status != keep.StatusLogic || r.Error == nil || r.Closed {
		return Signature{}, false
	}
	return Signature{r.Workflow, r.Version, r.Handler, r.Error.Code, r.Error.At}, true
}

// ID returns a short text that is the same for the same signature.
func (s Signature) ID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %q %q %q", s.Workflow, s.Version, s.Handler, s.Code, s.At))
	return hex.EncodeToString(sum[:10])
}

// Limits bound what repairs may use (law: bounded).
type Limits struct {
	Attempts int     // of one signature
	Tokens   int64   // of one signature
	Cost     float64 // of one signature; 0: no limit
	PerDay   int     // repairs of one workflow that begin within 24 hours
}

// Turns is how many answers of a model one attempt has at most.
const Turns = 20

// Spent is what a repair has used.
type Spent struct {
	Attempts int
	Tokens   int64
	Cost     float64
}

// Stop returns why a repair may not try again; empty: it may.
func (l Limits) Stop(s Spent) string {
	switch {
	case s.Attempts >= l.Attempts:
		return fmt.Sprintf("all %d attempts are used up", l.Attempts)
	case s.Tokens >= l.Tokens:
		return fmt.Sprintf("%d of %d tokens are used up", s.Tokens, l.Tokens)
	case l.Cost > 0 && s.Cost >= l.Cost:
		return fmt.Sprintf("its cost is %.4g of %.4g", s.Cost, l.Cost)
	}
	return ""
}

// Begin returns why a repair of a workflow may not begin after so many in the last 24 hours;
// empty: it may.
func (l Limits) Begin(today int) string {
	if today >= l.PerDay {
		return fmt.Sprintf("%d repairs of the workflow began within 24 hours, and that is all that it may have", today)
	}
	return ""
}

// Activate says which proposals become current by themselves.
type Activate string

// The ways.
const (
	Ask      Activate = "ask"  // none: a person agrees to each
	WhenSafe Activate = "safe" // those whose verdict is Safe
)

// Activates reports whether a proposal with this verdict becomes current by itself.
func (a Activate) Activates(v Verdict) bool { return a == WhenSafe && v == Safe }
