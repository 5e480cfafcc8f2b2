package keep

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A ToolName is a connection and a tool, such as "crm.create".
type ToolName string

// Connection returns the name of the connection; empty if there is none.
func (t ToolName) Connection() string {
	connection, _, _ := strings.Cut(string(t), ".")
	return connection
}

// A MutationState is how much the host knows about one effect outside. Values
// are stored; do not rename them. The moves are in package ledger.
type MutationState string

const (
	// InFlight means that the request may have been sent. It is on disk before
	// the call, so a crash can only leave a record that is too cautious.
	InFlight MutationState = "in_flight"

	// NeedsReconcile means that the outcome is unknown and will be asked for.
	NeedsReconcile MutationState = "needs_reconcile"

	// Applied means that the effect is known to have happened.
	Applied MutationState = "applied"

	// Failed means that the effect is known not to have happened.
	Failed MutationState = "failed"

	// Indeterminate means that nobody can tell. Only a person can move it.
	Indeterminate MutationState = "indeterminate"

	// Skipped means that a person decided to continue without knowing.
	Skipped MutationState = "skipped"
)

// MutationStates returns every state, in the order a mutation can meet them.
func MutationStates() []MutationState {
	return []MutationState{InFlight, NeedsReconcile, Indeterminate, Failed, Applied, Skipped}
}

// Rivals reports whether a record in state s keeps an equal call from being made that is
// to be made once: it may have had its effect, and nobody decided to continue without it.
func (s MutationState) Rivals() bool { return s != Failed && s != Skipped }

// Happened reports whether a record in state s is of an effect that is known to be there.
func (s MutationState) Happened() bool { return s == Applied }

// A Level says how the host can know whether a mutation happened, strongest
// first.
type Level string

const (
	LevelKey     Level = "A" // the service de-duplicates by a key that we chose
	LevelClaim   Level = "B" // the service gives a one-time token first
	LevelWitness Level = "C" // the service can be searched for our mark
	LevelNone    Level = "D" // nothing; the first doubt goes to a person
)

// Levels returns every level, strongest first.
func Levels() []Level { return []Level{LevelKey, LevelClaim, LevelWitness, LevelNone} }

// A Mutation is one record of the ledger: one side-effecting call on one service.
type Mutation struct {
	Key      MutationKey
	Workflow WorkflowName
	Run      RunID  // run that made or now owns the call
	Item     string // item id; empty outside items
	Attempt  int    // attempt of the item; 0 outside items

	Tool        ToolName        // connection and tool
	Connector   string          // kind of service, such as "http"
	Level       Level           // how its outcome can be known
	Target      string          // what is changed, for people
	Identity    json.RawMessage // canonical identity params
	Subkey      string          // separates equal identities in one item
	Payload     json.RawMessage // all params as sent
	PayloadHash string          // hex SHA-256 of the canonical payload
	Token       string          // idempotency key sent to the service

	// Pin is where and how the call was sent, and how it can be asked about, as its
	// connector and the host say (law: bound-to-its-world); PinHash is its hex
	// SHA-256. Empty: it is not known.
	Pin     json.RawMessage
	PinHash string

	// Doubted: the outcome of some call under this key was unknown at some time. The
	// key is then never given up for another one.
	Doubted bool

	Title string // the script's claim

	// Spent is what the call counts in budgets, and SpentAt since when: it was recorded
	// then, or was about to be sent again to learn what became of it. Zero: in none.
	Spent   []Spent
	SpentAt time.Time

	State    MutationState
	Result   json.RawMessage // set only when Applied; may be nil then
	Warning  string          // result cut, or not of the declared shape
	Error    *Failure        // last thing that went wrong
	Attempts int             // calls made, this one included

	ReconcileAttempts int       // lookups that count towards the limit
	NextReconcileAt   time.Time // when to ask next; zero: not planned
	CallDeadline      time.Time // the call is cancelled then at the latest

	// SettleAfter is how long after CallDeadline an effect may still appear.
	// Before that a lookup that finds nothing proves nothing.
	SettleAfter time.Duration

	CanReconcile bool   // the tool could be asked when the call was made
	ResolvedBy   string // who ended the doubt: "call", "reconcile" or a person

	// Rev counts the stored changes of this row; see Run.Rev.
	Rev int

	CreatedAt time.Time
	UpdatedAt time.Time
}

// SentAs is what Mutation.Pin says.
type SentAs struct {
	Connector string          `json:"connector"`
	Level     Level           `json:"level"`
	Identity  []string        `json:"identity,omitempty"`
	How       json.RawMessage `json:"how,omitempty"` // in the words of the connector

	// Pack is the file that the tool is from. It is not part of Mutation.PinHash: an
	// edition that sends and asks in the same way is the same.
	Pack *Pack `json:"pack,omitempty"`

	// Claim is the id of what the service gave for this one call, such as a draft, and
	// uses up by it (level B). It is not part of Mutation.PinHash.
	Claim string `json:"claim,omitempty"`

	// Agent is who made the call, if no script did. It is not part of Mutation.PinHash.
	Agent string `json:"agent,omitempty"`

	// Verify is where a person finds out what became of the call, as its tool said when it was made;
	// empty: it did not say. It is not part of Mutation.PinHash.
	Verify string `json:"verify,omitempty"`

	// As is whose credentials the call was sent with, by what the configuration calls them, such as
	// "account shop" or "secret bank": which connecting of an account, or a fingerprint of a secret
	// that this database alone can make. What the service shows to another user says nothing about
	// an absence. It is not part of Mutation.PinHash, since looking with new credentials is allowed.
	// Nil: there were none, or the record is of a version that did not say; it is then believed as before.
	As map[string]string `json:"as,omitempty"`

	// Was are the names that the tool had before, as the configuration said when the call was made;
	// nil: the record does not say. It is not part of Mutation.PinHash.
	Was []ToolName `json:"was,omitzero"`
}

// A Pack names an edition of the file that made a tool.
type Pack struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Hash    string `json:"hash"` // "sha256:…" of the file
}

// SentAs returns how m was sent; the zero SentAs if that is not known.
func (m Mutation) SentAs() SentAs {
	var s SentAs
	if json.Unmarshal(m.Pin, &s) != nil {
		return SentAs{}
	}
	return s
}

// A StoredResult is what is needed of an applied mutation to answer its call
// again. Since Applied is final, it never changes.
type StoredResult struct {
	Key         MutationKey
	PayloadHash string
	Result      json.RawMessage // may be nil
}

// SettlesAt returns the time from which an absence can be believed.
func (m Mutation) SettlesAt() time.Time { return m.CallDeadline.Add(m.SettleAfter) }

// SentAgainUntil returns until when the call, which is in doubt, may be sent again at this moment; zero: it is not. Such a record
// is in doubt, and its next lookup is planned for its deadline.
func (m Mutation) SentAgainUntil() time.Time {
	if m.State != NeedsReconcile || !m.NextReconcileAt.Equal(m.CallDeadline) {
		return time.Time{}
	}
	return m.CallDeadline
}

// Validate reports the first thing wrong with m.
func (m Mutation) Validate() error {
	switch {
	case m.Key == "":
		return errors.New("mutation: key required")
	case m.Workflow == "" || m.Run == "":
		return fmt.Errorf("mutation %s: workflow and run required", m.Key)
	case m.Tool == "":
		return fmt.Errorf("mutation %s: tool required", m.Key)
	case m.Token == "":
		return fmt.Errorf("mutation %s: token required", m.Key)
	case m.Attempts < 1:
		return fmt.Errorf("mutation %s: attempts must be positive: %d", m.Key, m.Attempts)
	case m.CallDeadline.IsZero():
		return fmt.Errorf("mutation %s: call deadline required", m.Key)
	case m.Result != nil && m.State != Applied:
		return fmt.Errorf("mutation %s: result not allowed in state %q", m.Key, m.State)
	case m.State == Applied && m.ResolvedBy == "":
		return fmt.Errorf("mutation %s: applied by nobody", m.Key)
	}
	return nil
}

// A Move is one line of a mutation's history. History is only appended.
type Move struct {
	At       time.Time
	By       string        // "call", "reconcile", "recovery" or a person
	From     MutationState // empty: the record was made
	To       MutationState
	Evidence string // what was learned, as ledger names it
	Detail   string // for people; no secrets
}
