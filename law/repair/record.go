package repair

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// A Record is what is durable of a repair: the State of a keep.Repair.
type Record struct {
	Signature Signature  `json:"signature"`
	Run       keep.RunID `json:"run"` // that failed last
	Stage     Stage      `json:"stage"`
	Attempts  []Attempt  `json:"attempts"` // that began, the last one may be under way
	Limit     int        `json:"limit"`    // how many attempts there may be
	Why       string     `json:"why"`      // of Used and Replaced, a sentence without its end
}

// A Stage says how far a repair came. Values are stored; do not rename them.
type Stage string

// The stages.
const (
	Trying   Stage = "trying"   // attempts are made, or will be
	Proposed Stage = "proposed" // the last attempt has a proposal that waits for a person, or is to be activated
	Used     Stage = "spent"    // nothing is tried any more: a person is asked
	Replaced Stage = "replaced" // nothing is tried any more: a person deployed another version
)

// An Attempt is one, as it is kept.
type Attempt struct {
	BeganAt time.Time `json:"began_at"`
	EndedAt time.Time `json:"ended_at,omitzero"` // zero: it is under way, or its host died
	Source  string    `json:"source,omitempty"`  // that was proposed
	Note    string    `json:"note,omitempty"`    // of the model: its claim
	Verdict Verdict   `json:"verdict,omitempty"`
	Reasons []string  `json:"reasons,omitempty"`
	Why     string    `json:"why,omitempty"`   // why it is not taken
	Broke   bool      `json:"broke,omitempty"` // it ended with its host or by an error, which says nothing about a script

	// Replay counts recorded runs by what would have become of them. Nil: nobody went through them.
	Replay map[string]int `json:"replay,omitempty"`

	Tokens int64   `json:"tokens"`
	Cost   float64 `json:"cost"`
}

// Begun returns a new record.
func Begun(s Signature) Record { return Record{Signature: s, Stage: Trying} }

// ReadRecord reads the state of a repair.
func ReadRecord(r keep.Repair) (Record, error) {
	var out Record
	if err := json.Unmarshal(r.State, &out); err != nil {
		return out, fmt.Errorf("repair %s: %w", r.ID, err)
	}
	if out.Signature.ID() != r.ID {
		return out, fmt.Errorf("repair %s: it is of another failure", r.ID)
	}
	return out, nil
}

// Encode returns the record as the State of a keep.Repair.
func (r Record) Encode() (json.RawMessage, error) { return json.Marshal(r) }

// Spent returns what was used, also by an attempt whose end nobody knows: it is used up.
func (r Record) Spent() Spent {
	s := Spent{Attempts: len(r.Attempts)}
	for _, a := range r.Attempts {
		s.Tokens, s.Cost = s.Tokens+a.Tokens, s.Cost+a.Cost
	}
	return s
}

// Proposal returns the proposal that waits, or is to be activated; nil: there is none.
func (r Record) Proposal() *Attempt {
	if r.Stage != Proposed {
		return nil
	}
	return &r.Attempts[len(r.Attempts)-1]
}

// HostEnded says why an attempt ended whose host did.
const HostEnded = "the host ended while it was under way"

// errStage is returned for a move that a record in its stage cannot make.
var errStage = errors.New("the repair is over")

// Begin returns the record with one more attempt for a run, or with its end if the limits are
// reached. An attempt before that has no end is used up: its host died.
func (r Record) Begin(l Limits, run keep.RunID, now time.Time) (Record, error) {
	if r.Stage != Trying {
		return r, errStage
	}
	r.Run, r.Limit, r.Attempts = run, l.Attempts, append([]Attempt(nil), r.Attempts...)
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].EndedAt.IsZero() {
		r.Attempts[n-1].EndedAt, r.Attempts[n-1].Why, r.Attempts[n-1].Broke = now, HostEnded, true
	}
	if r.Why = l.Stop(r.Spent()); r.Why != "" {
		r.Stage = Used
		return r, nil
	}
	r.Attempts = append(r.Attempts, Attempt{BeganAt: now})
	return r, nil
}

// End returns the record with what came of the attempt that is under way.
func (r Record) End(a Attempt, now time.Time) (Record, error) {
	n := len(r.Attempts)
	if r.Stage != Trying || n == 0 || !r.Attempts[n-1].EndedAt.IsZero() {
		return r, errStage
	}
	a.BeganAt, a.EndedAt = r.Attempts[n-1].BeganAt, now
	r.Attempts = append(append([]Attempt(nil), r.Attempts[:n-1]...), a)
	if a.Source != "" && a.Verdict != Refused {
		r.Stage = Proposed
	}
	return r, nil
}

// IsUnderWay reports whether the attempt that began at a time has no end.
func (r Record) IsUnderWay(began time.Time) bool {
	n := len(r.Attempts)
	return n > 0 && r.Attempts[n-1].EndedAt.IsZero() && r.Attempts[n-1].BeganAt.Equal(began)
}

// Costs returns the record with what the attempt under way cost, if there is one.
func (r Record) Costs(a Attempt) Record {
	r.Attempts = append([]Attempt(nil), r.Attempts...)
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].EndedAt.IsZero() {
		r.Attempts[n-1].Tokens, r.Attempts[n-1].Cost = a.Tokens, a.Cost
	}
	return r
}

// Waits says what runs with the failure wait for, while a repair is under way: "repair, attempt 2
// of 3". Empty: it is over, or has a proposal.
func (r Record) Waits() string {
	if r.Stage != Trying {
		return ""
	}
	n := len(r.Attempts)
	if n == 0 || !r.Attempts[n-1].EndedAt.IsZero() {
		n++
	}
	return fmt.Sprintf("repair, attempt %d of %d", min(n, max(r.Limit, 1)), max(r.Limit, 1))
}

// Refuse returns the record of a repair that is not begun, or whose proposal is not taken: nothing
// is tried any more.
func (r Record) Refuse(why string) Record {
	r.Stage, r.Why = Used, why
	return r
}

// Under returns the record as it is when a version is current: a repair of an earlier one that did
// not come to its end is replaced, and so is the attempt that is under way.
func (r Record) Under(current keep.Version, now time.Time) Record {
	if r.Stage != Trying && r.Stage != Proposed || !current.After(r.Signature.Version) {
		return r
	}
	r.Stage, r.Why, r.Attempts = Replaced, fmt.Sprintf("version %s was deployed meanwhile", current), append([]Attempt(nil), r.Attempts...)
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].EndedAt.IsZero() {
		r.Attempts[n-1].EndedAt, r.Attempts[n-1].Why = now, r.Why
	}
	return r
}

// Tried returns a line for each attempt: what a person is told.
func (r Record) Tried() []string { return r.lines(func(Attempt) bool { return true }) }

// Learned returns the lines of attempts that say something about a script: what a model is told.
func (r Record) Learned() []string {
	return r.lines(func(a Attempt) bool { return !a.Broke && !a.EndedAt.IsZero() })
}

// lines returns a line for each of some attempts.
func (r Record) lines(some func(Attempt) bool) []string {
	var out []string
	for i, a := range r.Attempts {
		why := a.Why
		switch {
		case !some(a):
			continue
		case a.EndedAt.IsZero():
			why = "is under way"
		case why == "":
			why = string(a.Verdict)
		}
		out = append(out, fmt.Sprintf("attempt %d: %s (%d tokens)", i+1, why, a.Tokens))
	}
	return out
}
