package keep

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Class says what kind of failure stopped a run, and so what the host does
// about it. Tools and the host set it; it is never guessed from message text.
type Class string

const (
	// ClassTransient may go away by itself: refused connections, 429, DNS.
	ClassTransient Class = "transient"

	// ClassLogic means that the script or its data is wrong.
	ClassLogic Class = "logic"

	// ClassPermission means that the service or a grant said no.
	ClassPermission Class = "permission"

	// ClassPrecondition means that something it needs is gone.
	ClassPrecondition Class = "precondition"

	// ClassUnknown means that the call may have had its effect.
	ClassUnknown Class = "unknown"

	// ClassInternal means that Keep is wrong.
	ClassInternal Class = "internal"
)

// Classes returns every class.
func Classes() []Class {
	return []Class{ClassTransient, ClassLogic, ClassPermission, ClassPrecondition, ClassUnknown, ClassInternal}
}

// A Failure is why a call or a run stopped. It is an error, it is stored with
// the run, and it holds no secrets.
//
// For a mutate call every class but ClassUnknown claims that the effect did not
// happen: the service said no, or the request provably never left.
type Failure struct {
	Class   Class    `json:"class"`
	Code    string   `json:"code"`    // stable word for machines, such as "http-503"
	Message string   `json:"message"` // what happened, and what to do next
	Tool    ToolName `json:"tool"`    // empty: no tool was involved
	At      string   `json:"at"`      // file:line:column in the script; empty: unknown

	// Account is the account of a service that had no credential for the call, or one that
	// was refused, and Generation what it then was; 0: there was no such account. Empty: the
	// failure has nothing to do with an account. Another generation ends the wait of a run.
	Account    string `json:"account,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Outage means that calls of the connection fail in a row: it is tried again, and not
	// only what failed.
	Outage bool `json:"outage,omitempty"`

	// Secrets marks the secrets of the configuration with which a connection was refused;
	// empty: there are none. Another mark ends the wait of a run. It is not made of them.
	Secrets string `json:"secrets,omitempty"`

	// Budget is the budget that has no room for the call, and BudgetRule the mark of its rule then: another mark ends
	// the wait of a run. Empty: it is another failure.
	Budget     string `json:"budget,omitempty"`
	BudgetRule string `json:"budget_rule,omitempty"`
	// BudgetAmount is what the call would count in it; zero: an older version of Keep did not say.
	BudgetAmount Amount `json:"budget_amount,omitempty"`

	// Item is the item in whose handler a script failed that may be repaired; empty: none.
	Item string `json:"item,omitempty"`

	// RetryAfter is the least wait that the service asked for; zero: none.
	RetryAfter time.Duration `json:"-"`
}

// CodeLimit means that no call was made, or that one waits: the limits of its connection
// do not allow it now.
const CodeLimit = "limit"

// Codes of failures of class permission.
const (
	// CodeUnauthenticated means that the service does not accept the credential.
	CodeUnauthenticated = "unauthenticated"

	// CodeForbidden means that the service knows the credential, and does not allow
	// this call with it.
	CodeForbidden = "forbidden"

	// CodeNotGranted means that the grant of the workflow does not allow the call.
	CodeNotGranted = "not-granted"

	// CodeBudget means that a budget has no room for the call.
	CodeBudget = "budget"

	// CodeAlreadyDone means that an equal call happened, or may have, whose identity is applied once.
	CodeAlreadyDone = "already-done"

	// CodeBudgetAmount means that it is not known what the call counts in a budget.
	CodeBudgetAmount = "budget-amount"

	// CodeReconnect means that a person must connect the account of the connection again,
	// and is asked to, once for all runs that wait for it.
	CodeReconnect = "reconnect"

	// CodeSameUser means that an account or a secret is another one than the call in doubt was
	// sent with, and a person is asked whether it is of the same user, once for all such calls.
	CodeSameUser = "same-user"

	// CodeToolChanged means that the server of the gateway changed the tool by which the call would be made again or looked for, and a person
	// is asked about that tool, once for all such calls.
	CodeToolChanged = "tool-changed"

	// CodeToolStopped means that it did, and that nobody is asked about the tool any more: a person rejected it, or the server lists too many.
	CodeToolStopped = "tool-stopped"

	// CodeAnotherUser means that it is of another user, so nobody can find out what became of the call in doubt.
	CodeAnotherUser = "another-user"

	// CodeAccount means that the account of the connection cannot be used, and that
	// connecting it again is not what is asked for: there is none, it was revoked, or its
	// key is missing.
	CodeAccount = "account"
)

// CodeToolMissing means, of a call in doubt, that nobody can be asked about it now: the program or keep.toml of its host
// has no such tool. It may be back.
const CodeToolMissing = "tool-missing"

// CodeSetSince is the code of a doubt about a call that says what is to be: another one said something else since, which
// sending the call again would undo.
const CodeSetSince = "set-since"

// CodeSentAgain is the code of a call that was not sent, since another one that it would come into is being sent again.
const CodeSentAgain = "sent-again"

// Named reports whether a word is that of f: its class, or its code.
func (f *Failure) Named(word string) bool {
	return f != nil && (string(f.Class) == word || f.Code == word)
}

// Failf returns a failure with a formatted message.
func Failf(class Class, code, format string, args ...any) *Failure {
	return &Failure{Class: class, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error names the tool, what happened and where.
func (f *Failure) Error() string {
	var b strings.Builder
	if f.At != "" {
		b.WriteString(f.At + ": ")
	}
	if f.Tool != "" {
		b.WriteString(string(f.Tool) + ": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// Errors returned when a durable change is refused. None of them leaves a part
// of its commit behind.
var (
	// ErrStale is returned when a row moved since it was read.
	ErrStale = errors.New("the record changed since it was read")

	// ErrRunOpen is returned when a workflow would get a second run that is
	// not closed (law: one-at-a-time).
	ErrRunOpen = errors.New("the workflow has an unfinished run")

	// ErrMutationExists is returned when a ledger key would be used twice. It
	// is a backstop: the ledger decides before.
	ErrMutationExists = errors.New("the ledger has a mutation of that key")

	// ErrNotFound is returned when the named thing does not exist.
	ErrNotFound = errors.New("not found")

	// ErrDecided is returned when a question was already answered.
	ErrDecided = errors.New("already decided")

	// ErrFenced is returned when a host acts under a lease that is not its own
	// any more: another host has the workflow, or nobody.
	ErrFenced = errors.New("the host's lease has ended")

	// ErrRefused is every error by which a store that works refuses a commit, those above and
	// those without a name: for what is in it, or what is stored. No other error of a commit is.
	ErrRefused = errors.New("the commit was refused")
)

// Refused returns an error that says what err says, and is ErrRefused; nil if err is.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (r refusal) Is(target error) bool { return target == ErrRefused }

// ErrDiskFull is returned when there is no space for a durable change. The change
// is not made, and everything that was recorded before stays.
var ErrDiskFull = errors.New("the disk is full")

// Errors returned when a database is opened, or found to be another one.
var (
	// ErrForeignDatabase is returned when the file belongs to another program.
	ErrForeignDatabase = errors.New("not a Keep database")

	// ErrNoDatabase is returned when there is nothing to read: no host was started
	// on it yet.
	ErrNoDatabase = errors.New("there is nothing of Keep in it yet: start a host once")

	// ErrNewerDatabase is returned when a newer Keep wrote the database, and this
	// one cannot work on it; and when that happens while a host is at work.
	ErrNewerDatabase = errors.New("the database was made by a newer version of Keep")

	// ErrOlderDatabase is returned when the schema is that of an older Keep, and who opens the database does not bring
	// it up to date.
	ErrOlderDatabase = errors.New("the database was made by an older version of Keep")

	// ErrOlderHosts is returned when hosts of an older version work on the database,
	// and could not after the migration that this version wants to make.
	ErrOlderHosts = errors.New("hosts of an older version are at work")

	// ErrClosed is returned when the database is not open, or not any more. A host on it ends.
	ErrClosed = errors.New("the database is closed")

	// ErrLocked is returned when another host works on the database.
	ErrLocked = errors.New("another Keep host has the database open")

	// ErrGone is returned when there was a database that is missing or empty now.
	ErrGone = errors.New("the database is gone")

	// ErrOlderCopy is returned when a file is a copy of the database that was there, from
	// before hosts worked on that: it does not know what they did.
	ErrOlderCopy = errors.New("the database is an older copy")

	// ErrReplaced is returned when the file of a database was removed or replaced while
	// this process worked on it, or its server by one that lacks what was committed. What was
	// recorded then will not be found.
	ErrReplaced = errors.New("the database was removed or replaced under this process")

	// ErrSealed is returned when the database was moved to another one, or is being
	// moved to: whoever worked on it would do again what is done elsewhere.
	ErrSealed = errors.New("nobody may work on this database")
)

// ErrBadCursor is returned when a list is asked to continue after a cursor that it
// did not make.
var ErrBadCursor = errors.New("not a cursor of this list")

// A RivalError is returned when a commit has an Unlike or a Setting, and another record of the same
// identity is in its way. It is ErrStale: who reads again finds that record.
type RivalError struct {
	Key   MutationKey // of the call that was refused
	Rival MutationKey // of the other record
}

// Error names both records.
func (e *RivalError) Error() string {
	return fmt.Sprintf("mutation %s: %s has the same tool and identity: %v", e.Key, e.Rival, ErrStale)
}

// Is makes it an ErrStale.
func (e *RivalError) Is(target error) bool { return target == ErrStale }

// A ReservationError is returned when an event cannot be reserved.
type ReservationError struct {
	Topic TopicName
	ID    MessageID
	Why   string // "unknown", "consumed", "skipped" or "reserved"
}

// Error names the event, its topic and why it cannot be reserved.
func (e *ReservationError) Error() string {
	return fmt.Sprintf("event %q in topic %q cannot be reserved: it is %s", e.ID, e.Topic, e.Why)
}

// A NotFoundError says which thing does not exist. It is ErrNotFound.
type NotFoundError struct {
	What string // such as "run"
	ID   string
}

// Error names the thing.
func (e *NotFoundError) Error() string { return fmt.Sprintf("no %s %q", e.What, e.ID) }

// Is makes errors.Is(err, ErrNotFound) true.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// A TimeoutError is the cause of a context that ended because one named
// operation took too long.
type TimeoutError struct {
	Op    string
	After time.Duration
}

// Error names the operation and its limit.
func (e *TimeoutError) Error() string { return fmt.Sprintf("%s took longer than %s", e.Op, e.After) }

// Timeout reports true, as net.Error asks.
func (e *TimeoutError) Timeout() bool { return true }

// A VersionError is returned by a deploy that was to replace one version, and found
// another.
type VersionError struct {
	Workflow WorkflowName
	Want     Version // that was to be replaced; zero: the workflow was to be new
	Current  Version // zero: there is no such workflow
}

// Error names both versions.
func (e *VersionError) Error() string {
	switch {
	case e.Current == Version{}:
		return fmt.Sprintf("there is no workflow %q yet, and so no version %s of it to replace", e.Workflow, e.Want)
	case e.Want == Version{}:
		return fmt.Sprintf("the workflow %q is there already, in version %s", e.Workflow, e.Current)
	}
	return fmt.Sprintf("the current version of %q is %s, not %s", e.Workflow, e.Current, e.Want)
}
