package repair

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// A Verdict says what a proposal is. Values are stored; do not rename them.
type Verdict string

// The verdicts.
const (
	Safe         Verdict = "safe"         // it changes nothing that was done, and mends the run
	Impactful    Verdict = "impactful"    // it does something otherwise: a person decides
	Inconclusive Verdict = "inconclusive" // nobody knows: a person decides
	Refused      Verdict = "refused"      // it may not be, or mends nothing
)

// An Ending says how the run that failed ended in shadow.
type Ending string

// The endings.
const (
	Through Ending = "through" // it came to its end, or to its call
	Fails   Ending = "fails"   // it fails again
	Skips   Ending = "skips"   // it leaves its event alone
	Unknown Ending = "unknown" // something was asked for that is not recorded
)

// A Shadow is what the run that failed would do with the proposal.
type Shadow struct {
	Ending Ending
	Why    string // of Fails and Unknown, a sentence without its end

	Effects  []Effect // that it would have
	Sources  Sources  // what it had to make them of
	Whole    bool     // it came to its end, and not only to a call
	Reserved int      // events
	Denied   []string // why the grant does not allow a call; a sentence each
	Repeated []string // effects that the ledger says were applied already, by name
	Varies   bool     // two tries differ
}

// A Comparison is what the recorded runs of the version say.
type Comparison struct {
	Done    int      // runs whose work is done that were gone through
	Differ  []string // what would have been otherwise in them, a sentence each
	Unknown []string // what nobody knows of them, a sentence each

	Counts   map[string]int            // all runs that were gone through, by what would have become of them
	Handlers map[keep.HandlerName]bool // of runs whose work is done
}

// Evidence is all that a verdict is made of.
type Evidence struct {
	Refused    []string // by check and Admit; if there are any, the rest is not looked at
	Shadow     Shadow
	Compared   Comparison
	Neighbours []Neighbour                 // runs of the same handler that are done
	Was, Is    string                      // the texts of the two scripts
	Rekeyed    []string                    // by the function of that name
	Reworked   map[keep.HandlerName]string // handlers that are changed, a sentence without its end each
	Names      []string                    // that stand in either script for ctx, or for what it has
	Timed      bool                        // the top level of the script asks for the time or for chance
}

// maxReasons bounds the reasons of a verdict.
const maxReasons = 20

// Judge returns the verdict of a proposal, and why it is not safe: a sentence each.
func Judge(e Evidence) (Verdict, []string) {
	v, why := judge(e)
	if more := len(why) - maxReasons; more > 0 {
		why = append(why[:maxReasons:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return v, why
}

func judge(e Evidence) (Verdict, []string) {
	s := e.Shadow
	refused := append([]string(nil), e.Refused...)
	if len(refused) == 0 {
		refused = append(refused, s.Denied...)
		if s.Ending == Fails {
			refused = append(refused, "the run that failed still fails: "+s.Why)
		}
	}
	if len(refused) > 0 {
		return Refused, refused
	}
	impact := append(append([]string(nil), e.Compared.Differ...), e.Rekeyed...)
	for _, word := range Brings(e.Was, e.Is) {
		impact = append(impact, fmt.Sprintf("it brings %q, which no script had and no recorded run shows the use of", word))
	}
	for _, condition := range Ungoverned(e.Was, e.Is, e.Names...) {
		impact = append(impact, fmt.Sprintf("it takes out, changes or moves %q, and what that is for may show only with another event", condition))
	}
	switch s.Ending {
	case Skips:
		impact = append(impact, "the event that failed is skipped")
	case Through:
		impact = append(impact, Unlike(s, e.Neighbours, e.Was, e.Is)...)
	}
	for _, name := range s.Repeated {
		impact = append(impact, fmt.Sprintf("%s was applied already for what it names", name))
	}
	if len(impact) > 0 {
		return Impactful, impact
	}
	if unknown := doubts(e); len(unknown) > 0 {
		return Inconclusive, unknown
	}
	return Safe, nil
}

// doubts returns what nobody knows of a proposal, a sentence each.
func doubts(e Evidence) []string {
	s := e.Shadow
	unknown := append([]string(nil), e.Compared.Unknown...)
	if s.Ending == Unknown {
		unknown = append(unknown, "how the run that failed would end is not known: "+s.Why)
	}
	if was, is := Reaches(e.Was, e.Names...), Reaches(e.Is, e.Names...); is > was {
		unknown = append(unknown, fmt.Sprintf("it names ctx, or what it has, %d times, and the script does %d times: what it does there may show only with another event", is, was))
	} else if uses := Newly(e.Was, e.Is, e.Names...); len(uses) > 0 {
		unknown = append(unknown, fmt.Sprintf("it has %q with ctx, or what that has, which the script has not, or not so often, or not within so many loops and functions: what it does there may show only with another event", uses[0]))
	} else if uses := Lost(e.Was, e.Is, e.Names...); len(uses) > 0 {
		unknown = append(unknown, fmt.Sprintf("it has %q less often than the script: what is done no more may show only with another event", uses[0]))
	}
	for _, h := range slices.Sorted(maps.Keys(e.Reworked)) {
		if !e.Compared.Handlers[h] {
			unknown = append(unknown, e.Reworked[h]+", and no run of it is recorded whose work is done")
		}
	}
	if Unclear(e.Was) || Unclear(e.Is) {
		unknown = append(unknown, "which parts of its text are remarks is not certain, so a call or a condition may be hidden there")
	}
	if e.Timed {
		unknown = append(unknown, "its top level asks for the time or for chance, which are others when the version becomes current")
	}
	if s.Varies {
		unknown = append(unknown, "the run that failed does not do the same twice")
	}
	if e.Compared.Done == 0 {
		unknown = append(unknown, "no run of the version is recorded whose work is done")
	} else if len(e.Neighbours) == 0 {
		unknown = append(unknown, "no run of the handler is recorded whose work is done")
	}
	return unknown
}
