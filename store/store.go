package store

import (
	"context"
	"iter"
	"time"

	"github.com/keep-run/keep"
)

// A Store is everything that each store must do. It is wide because a store keeps every noun;
// nobody who uses one should ask for it whole.
type Store interface {
	Committer
	Reader
	Checkpoints
	Sweeper
	Access
	Hooks
	Accounts
	Gates
	Repairs
	Counting
	Identity
	Links
	Hosting
	Checker
}

// A Committer makes changes durable.
type Committer interface {
	// Commit makes all changes of c durable, or none. When it returns nil they
	// survive a crash of the process and of the machine. It may group commits
	// of several workflows into one write to disk.
	//
	// An error that is keep.ErrRefused (ErrStale, ErrRunOpen, ErrMutationExists,
	// ErrDecided, *ReservationError, *NotFoundError, or without a name) means that
	// nothing was written. After any other error, and after the end of ctx, the
	// commit may or may not be durable: read before you act.
	Commit(ctx context.Context, c keep.Commit) error
}

// Workflows reads workflows, their versions and their handlers.
type Workflows interface {
	// Workflows returns every workflow, sorted by name.
	Workflows(ctx context.Context) ([]keep.Workflow, error)

	// Workflow returns a workflow. It costs the same however many there are.
	Workflow(ctx context.Context, w keep.WorkflowName) (keep.Workflow, error)

	// Deployment returns one version of a workflow.
	Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error)

	// Deployments returns the versions of a workflow, or of all if w is empty,
	// newest first, without their code.
	Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error)

	// Handlers returns the handler states of a workflow, or of all if w is empty,
	// sorted by workflow and name. A handler that was never written has none.
	Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error)
}

// Checkpoints reads the checkpoints of producers.
type Checkpoints interface {
	// KV returns one value of a producer's checkpoint; nil if it is not set.
	KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) ([]byte, error)

	// KVs returns a whole checkpoint, sorted by key. It has at most policy.Limits.KVTotal bytes.
	KVs(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) ([]keep.SetKV, error)

	// KVSize returns the bytes of all keys and values of a checkpoint.
	KVSize(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) (int, error)
}

// Runs reads runs.
type Runs interface {
	// Run returns a run.
	Run(ctx context.Context, id keep.RunID) (keep.Run, error)

	// OpenRuns returns the runs of w that are not closed, sorted by id: oldest first.
	// Without lanes there is one at most.
	OpenRuns(ctx context.Context, w keep.WorkflowName) ([]keep.Run, error)

	// Runs lists runs.
	Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error)

	// CountRuns counts runs.
	CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error)

	// Logs returns every line that a run wrote, oldest first.
	Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error)
}

// Decisions reads what persons decided beside questions.
type Decisions interface {
	// Decided returns what was decided about something, oldest first: of more than keep.MaxDecided the newest.
	Decided(ctx context.Context, about keep.Subject) ([]keep.Decided, error)

	// Decisions lists decisions, newest first: within a workflow, or beside all, in the order in which they were recorded.
	Decisions(ctx context.Context, f keep.DecisionFilter, p keep.Page) ([]keep.Decided, string, error)
}

// Traces reads what is kept of what runs saw.
type Traces interface {
	// Trace returns the parts of what is kept of a run's reads, oldest first; none if
	// nothing was recorded, or no longer is kept.
	Trace(ctx context.Context, run keep.RunID) ([]keep.TracePart, error)
}

// Events reads events.
type Events interface {
	// Event returns an event.
	Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (keep.Event, error)

	// EventsByID returns those of the named events that exist, in the order of
	// ids, whatever their status.
	EventsByID(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) ([]keep.Event, error)

	// Events lists events.
	Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error)
}

// Topics reads what waits in topics.
type Topics interface {
	// Backlog describes the free events in the given topics.
	Backlog(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName) (keep.Backlog, error)

	// Peek returns up to limit free events of a topic, oldest first.
	Peek(ctx context.Context, w keep.WorkflowName, t keep.TopicName, limit int) ([]keep.Event, error)

	// FreeAfter returns up to limit free events of the topics whose Seq is higher
	// than after, oldest first. Those before it cost nothing.
	FreeAfter(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName, after int64, limit int) ([]keep.Event, error)

	// TopicCounts counts the events of every topic that a version declared or
	// that has events, of one workflow or of all if w is empty, sorted by name.
	TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error)
}

// Grants reads what workflows may do.
type Grants interface {
	// Grant returns the grant of a workflow that holds, or *keep.NotFoundError if it was
	// never given one.
	Grant(ctx context.Context, w keep.WorkflowName) (keep.Grant, error)

	// Grants returns the grant of each workflow that holds, sorted by workflow.
	Grants(ctx context.Context) ([]keep.Grant, error)

	// GrantsBefore returns every grant that a workflow ever had, newest first, with the one
	// that holds.
	GrantsBefore(ctx context.Context, w keep.WorkflowName) ([]keep.Grant, error)
}

// Proposals reads versions that wait, or waited, for a person.
type Proposals interface {
	// Proposal returns one, or *keep.NotFoundError.
	Proposal(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Proposal, error)

	// Proposals returns those of a workflow, or of all if w is empty, the last name and the
	// latest version first, without their code.
	Proposals(ctx context.Context, w keep.WorkflowName) ([]keep.Proposal, error)
}

// Inputs reads inputs.
type Inputs interface {
	// Input returns an input.
	Input(ctx context.Context, id keep.InputID) (keep.Input, error)

	// InputByKey returns the input with that source, type and external id.
	InputByKey(ctx context.Context, w keep.WorkflowName, source, typ, externalID string) (keep.Input, error)

	// InputsByID returns those of the inputs that exist, in no order.
	InputsByID(ctx context.Context, ids []keep.InputID) ([]keep.Input, error)

	// Inputs lists inputs.
	Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error)

	// CountInputs counts inputs.
	CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error)
}

// Lineage connects inputs with what was done about them.
type Lineage interface {
	// Causes returns the inputs of all events that the chain reserved or tried, sorted.
	Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error)

	// Outputs returns the mutations of the runs that reserved or tried events caused
	// by an input, oldest first: those of runs that failed, too.
	Outputs(ctx context.Context, id keep.InputID) ([]keep.MutationKey, error)

	// RunsOf returns up to limit of the runs that tried events caused by an input,
	// newest first, as a bare page has them.
	RunsOf(ctx context.Context, id keep.InputID, limit int) ([]keep.Run, error)

	// RunsOfEvent returns up to limit of the runs that have, finished or tried an event,
	// newest first, as a bare page has them.
	RunsOfEvent(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID, limit int) ([]keep.Run, error)

	// Progress returns how far each input came that exists: up to so many of its
	// events and outputs.
	Progress(ctx context.Context, ids []keep.InputID, events, outputs int) (map[keep.InputID]keep.Progress, error)
}

// Mutations reads the ledger.
type Mutations interface {
	// Mutation returns the record of that key.
	Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error)

	// History returns every move of a mutation, oldest first.
	History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error)

	// Mutations lists records.
	Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error)

	// CountMutations counts records.
	CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error)

	// ResultsAfter returns results of applied mutations of w that were made after
	// that of key, oldest first. It reads no more than limit records, and leaves
	// out results of more than size bytes. It may leave out others too, and does
	// if there is no such key.
	ResultsAfter(ctx context.Context, w keep.WorkflowName, key keep.MutationKey, limit, size int) ([]keep.StoredResult, error)
}

// Doubts finds calls that hold up an item, whatever became of their runs.
type Doubts interface {
	// ItemDoubts returns the records of calls in items of w of which a service or a person must say what
	// became: first those in needs_reconcile, then those in indeterminate, the newest of each first. What it
	// costs does not grow with the records of others.
	ItemDoubts(ctx context.Context, w keep.WorkflowName) ([]keep.Mutation, error)
}

// Rivals finds records of one identity.
type Rivals interface {
	// Rival returns the oldest record that keeps a commit with u from being made, and
	// whether there is one.
	Rival(ctx context.Context, u keep.Unlike) (keep.Mutation, bool, error)

	// Barring returns a record that keeps a commit with s at a time from being made, and whether
	// there is one: of those that would be undone the last one, and of the others any.
	Barring(ctx context.Context, s keep.Setting, at time.Time) (keep.Mutation, bool, error)
}

// Spending finds what counts in budgets.
type Spending interface {
	// Spending returns the records of all workflows that began to count in a budget after
	// since, also those that were given back, and every one in doubt that counts in one;
	// sorted by when they began, as a bare page has them.
	Spending(ctx context.Context, since time.Time) ([]keep.Mutation, error)

	// Spent returns what the records of all workflows but that of except count in a budget, by all
	// its names, after since. What it costs does not grow with the number of records that are settled.
	Spent(ctx context.Context, names []string, since time.Time, except keep.MutationKey) (keep.SpentSum, error)
}

// ShortIDs finds records by a part of their id.
type ShortIDs interface {
	// IDsWith returns up to limit ids of a noun that begin or end with part after their
	// prefix, the newest first. Unlike other reads it looks at every id of the noun.
	IDsWith(ctx context.Context, n keep.Noun, part string, limit int) ([]string, error)

	// EventsWith returns where up to limit events are whose message ids begin or end with part, of a
	// workflow and topic, or of all where one is empty, sorted by place. It looks at every id, too.
	EventsWith(ctx context.Context, w keep.WorkflowName, t keep.TopicName, part string, limit int) ([]keep.Place, error)

	// ItemsWith is EventsWith for items, of a workflow, or of all if w is empty.
	ItemsWith(ctx context.Context, w keep.WorkflowName, part string, limit int) ([]keep.Place, error)
}

// Items reads items of jobs.
type Items interface {
	// Item returns an item.
	Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error)

	// ItemsAfter returns up to limit of the items of w that were made after the
	// item id, oldest first. It may leave out any of them, and does if there is
	// no such item.
	ItemsAfter(ctx context.Context, w keep.WorkflowName, id string, limit int) ([]keep.Item, error)

	// Items lists items.
	Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error)

	// CountItems counts items.
	CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error)
}

// Escalations reads questions.
type Escalations interface {
	// Escalation returns a question.
	Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error)

	// SaidDone returns what persons said of calls of an item that were done already, newest first: the
	// approvals and questions about an equal call (keep.AskAlreadyDone) that they answered with keep.TreatAsDone or
	// keep.DoAgain.
	SaidDone(ctx context.Context, w keep.WorkflowName, item string) ([]keep.Escalation, error)

	// Escalations lists questions.
	Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error)

	// CountEscalations counts questions.
	CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error)
}

// Waiting reads what waits for people, however much it is: the open questions by what they are about, and the open runs by whether
// one is about them. It has six methods because a page of what waits is made of all of them.
type Waiting interface {
	// QuestionGroups returns the open questions by their workflow and cause, that with the newest question
	// first: up to limit groups.
	QuestionGroups(ctx context.Context, limit int) ([]keep.QuestionGroup, error)

	// QuestionsLike returns the open questions with a cause, of a workflow or of all if w is empty, newest first:
	// up to limit, after the first that are passed over.
	QuestionsLike(ctx context.Context, w keep.WorkflowName, c keep.QuestionCause, pass, limit int) ([]keep.Escalation, error)

	// QuestionsByID returns questions, newest first.
	QuestionsByID(ctx context.Context, ids []keep.EscalationID) ([]keep.Escalation, error)

	// QuestionsAbout returns the open questions about runs, newest first.
	QuestionsAbout(ctx context.Context, runs []keep.RunID) ([]keep.Escalation, error)

	// Unasked returns up to limit of the open runs, newest first, as a bare page has them: all but those of consumers
	// that hold up an order key, or nobody, and about which a question is open, of which there may be many.
	Unasked(ctx context.Context, limit int) ([]keep.Run, error)

	// OpenOf returns the open run of each chain, newest first, as a bare page has them.
	OpenOf(ctx context.Context, chains []keep.RunID) ([]keep.Run, error)
}

// Notices reads who was notified of which question.
type Notices interface {
	// Owed returns up to limit of the open questions that a sink has not taken:
	// those that it was never tried with, oldest first, then those that are
	// pending, by the time of their next attempt.
	Owed(ctx context.Context, sink keep.Sink, limit int) ([]keep.Owed, error)

	// Notices returns the notices of a question, sorted by sink.
	Notices(ctx context.Context, id keep.EscalationID) ([]keep.Notice, error)

	// GivenUp returns up to limit of the notices of open questions that are not
	// tried again, those of the newest question first, then by sink.
	GivenUp(ctx context.Context, limit int) ([]keep.Notice, error)
}

// Usage says what the records of a database name.
type Usage interface {
	// UsedTools returns the tools of which each workflow has records, sorted. A workflow
	// without records is left out.
	UsedTools(ctx context.Context) (map[keep.WorkflowName][]keep.ToolName, error)
}

// Batches reads what belongs to several things at once, so that a list costs as many
// reads as one of its rows. What does not exist is left out.
type Batches interface {
	// Current returns the version of each workflow that is in force, sorted by
	// workflow, without its code.
	Current(ctx context.Context) ([]keep.Deployment, error)

	// MutationsByKey returns records as a bare page has them, in no order.
	MutationsByKey(ctx context.Context, keys []keep.MutationKey) ([]keep.Mutation, error)

	// Histories returns every move of each mutation, oldest first.
	Histories(ctx context.Context, keys []keep.MutationKey) (map[keep.MutationKey][]keep.Move, error)

	// LastApplied returns the newest applied record of each tool, without what may
	// be large. A tool that has none is left out.
	LastApplied(ctx context.Context, tools []keep.ToolName) (map[keep.ToolName]keep.Mutation, error)

	// ItemCalls returns the keys of up to limit of the records of each item, of all
	// its attempts, newest first.
	ItemCalls(ctx context.Context, items []keep.ItemRef, limit int) (map[keep.ItemRef][]keep.MutationKey, error)
}

// Chains reads runs, and what belongs to the runs of a chain.
type Chains interface {
	// RunsByID returns runs as a bare page has them, in no order.
	RunsByID(ctx context.Context, ids []keep.RunID) ([]keep.Run, error)

	// Attempts returns how many runs each chain has.
	Attempts(ctx context.Context, chains []keep.RunID) (map[keep.RunID]int, error)

	// CausesOf returns what Causes does, for each chain.
	CausesOf(ctx context.Context, chains []keep.RunID) (map[keep.RunID][]keep.InputID, error)

	// Calls returns up to limit of the mutations of the runs of a chain, newest
	// first, as a bare page has them.
	Calls(ctx context.Context, chain keep.RunID, limit int) ([]keep.Mutation, error)

	// EscalationsOf returns up to limit of the questions about the runs of a chain,
	// newest first.
	EscalationsOf(ctx context.Context, chain keep.RunID, limit int) ([]keep.Escalation, error)
}

// A Reader reads every noun that people see. It composes the interfaces above, one for each
// noun, and is wide because the pages show them all.
type Reader interface {
	Workflows
	Checkpoints
	Grants
	Proposals
	Runs
	Traces
	Chains
	Events
	Topics
	Inputs
	Lineage
	Mutations
	Doubts
	Rivals
	Spending
	Items
	ShortIDs
	Escalations
	Decisions
	Waiting
	Notices
	Batches
	Usage
	Limits
	RepairRecords
	Counters
}

// A Sweeper finds what is over and old, for keep.Sweep, and forgets what runs saw.
type Sweeper interface {
	// Over reads up to limit of the old runs, oldest first, from a place on: that of the
	// first call is empty. It returns the chains that begin there and that keep.Sweep
	// would take, and the place to continue from; it is empty at the end. Runs that were
	// made later cost nothing, and neither do others if only empty ones are asked for.
	Over(ctx context.Context, r keep.OldRuns, after string, limit int) (old []keep.OldChain, next string, err error)

	// ForgetTraces deletes up to limit parts of traces that were written before a time, of
	// all workflows, and returns how many; which of them is not said. Those that were not
	// written in the order of time may be left for later. No law speaks of them: it is no commit.
	ForgetTraces(ctx context.Context, before time.Time, limit int) (int, error)

	// OldTraces counts the parts that were written before a time.
	OldTraces(ctx context.Context, before time.Time) (int, error)
}

// Access keeps the credentials with which people and programs sign in. It writes
// beside commits: no law connects a credential with other records. It has more than
// five methods because who signs people in needs all of them. What a person did by a change is
// recorded with it: acts are there if, and only if, the change is. They are of no workflow.
type Access interface {
	// AddCredential stores a new credential; keep.ErrStale if its id is taken, a
	// *keep.NotFoundError if the one that it came from is gone, or ends at this moment.
	AddCredential(ctx context.Context, c keep.Credential, acts ...keep.Decided) error

	// Credential returns the credential of an id.
	Credential(ctx context.Context, id string) (keep.Credential, error)

	// Credentials returns all of a kind, newest first, also those that have
	// expired and were not swept yet.
	Credentials(ctx context.Context, kind keep.CredentialKind) ([]keep.Credential, error)

	// UseCredential sets when it was used last. One that is gone is no error.
	UseCredential(ctx context.Context, id string, at time.Time) error

	// DropCredential ends a credential and those that came from it. One that is
	// gone is a *keep.NotFoundError, so of two calls one succeeds.
	DropCredential(ctx context.Context, id string, acts ...keep.Decided) error

	// SweepCredentials deletes what expired before now, and returns how many.
	SweepCredentials(ctx context.Context, now time.Time) (int, error)
}

// Hooks keeps what came to hooks. It counts beside commits: an event says by itself that
// it came.
type Hooks interface {
	// CountHook adds to the count of a hook.
	CountHook(ctx context.Context, c keep.HookCount) error

	// HookCounts returns the counts of all hooks that ever counted, sorted by name.
	HookCounts(ctx context.Context) ([]keep.HookCount, error)
}

// Accounts keeps credentials of services and secrets, sealed. It writes beside commits: no
// law connects an account with other records. What may change is decided by law/account. As of
// Access, acts are recorded with a change.
type Accounts interface {
	// Accounts returns all of a kind, or those of the names that exist, sorted by name.
	Accounts(ctx context.Context, kind keep.AccountKind, names ...string) ([]keep.Account, error)

	// PutAccounts writes all of the accounts, or none. Each must have the revision that is
	// stored, 0 for one that is not, or the error is keep.ErrStale; the stored revision is
	// then one higher. LastUsedAt is written for a new one only.
	PutAccounts(ctx context.Context, as []keep.Account, acts ...keep.Decided) error

	// LeaseAccount gives a host the right to refresh an account for ttl, and returns it as
	// it is then. It reports false, and changes nothing, while another host has that
	// right. Now is the time of the host; a store with a clock of its own uses that.
	LeaseAccount(ctx context.Context, kind keep.AccountKind, name, host string, now time.Time, ttl time.Duration) (keep.Account, bool, error)

	// UseAccount sets when an account was used last, and leaves its revision. One that is
	// gone is no error.
	UseAccount(ctx context.Context, kind keep.AccountKind, name string, at time.Time) error

	// DropAccount deletes an account that has a revision; zero: any. One that is gone is a *keep.NotFoundError, and one
	// of another revision keep.ErrStale.
	DropAccount(ctx context.Context, kind keep.AccountKind, name string, rev int64, acts ...keep.Decided) error
}

// Counters reads what workflows did over time.
type Counters interface {
	// Counters returns the counters of a step that begin in [from, to), of a workflow or of
	// all if w is empty, sorted by time and workflow.
	Counters(ctx context.Context, step keep.Step, w keep.WorkflowName, from, to time.Time) ([]keep.Counter, error)
}

// Counting makes counters of the records. They are derived: whoever counts a time again
// writes the same, and no law speaks of them.
type Counting interface {
	Counters

	// Ended counts the runs that committed or failed in [from, to), by minute and workflow. One failed
	// when a person was asked about that first, or else when it changed last. It reads only those that
	// are open or were closed since from.
	Ended(ctx context.Context, from, to time.Time) ([]keep.Counter, error)

	// Standing counts, by workflow, the unfinished runs that wait and the questions that are
	// open. The counters have no step and no time.
	Standing(ctx context.Context) ([]keep.Counter, error)

	// PutCounters writes counters in the place of those of the same step, time and workflow,
	// and deletes those of each step in before that begin earlier than it says: all or nothing.
	PutCounters(ctx context.Context, list []keep.Counter, before map[keep.Step]time.Time) error
}

// RepairRecords has what was done about failures of scripts.
type RepairRecords interface {
	// Repair returns a repair, or *keep.NotFoundError.
	Repair(ctx context.Context, id string) (keep.Repair, error)

	// Repairs returns those of a workflow, or of all if w is empty, that began since a time,
	// newest first.
	Repairs(ctx context.Context, w keep.WorkflowName, since time.Time) ([]keep.Repair, error)
}

// Repairs keeps what was done about failures of scripts. It is written beside commits: what became
// of a proposal is in keep.Proposal.
type Repairs interface {
	RepairRecords

	// PutRepair writes a repair if its stored Rev is still that of r, 0 if there is none, else
	// it is keep.ErrStale. The stored Rev is then r.Rev + 1. The workflow and the time of one
	// that is there stay as they are.
	PutRepair(ctx context.Context, r keep.Repair) error
}

// Gates keeps what the users of connections share about limits. It is written beside
// commits: a call that was let in and is never recorded was let in all the same.
type Gates interface {
	Limits

	// PutGate writes a gate if its stored Rev is still that of g, else it is
	// keep.ErrStale. The stored Rev is then g.Rev + 1.
	PutGate(ctx context.Context, g keep.Gate) error
}

// Limits reads what the users of connections share about limits.
type Limits interface {
	// Gate returns the gate of a connection; its Rev is 0 if there is none.
	Gate(ctx context.Context, connection string) (keep.Gate, error)

	// Gates returns all gates, sorted by connection.
	Gates(ctx context.Context) ([]keep.Gate, error)
}

// An Identity names a database.
type Identity interface {
	// StoreID returns the random id that the database got when it was made.
	// Idempotency tokens depend on it.
	StoreID(ctx context.Context) (string, error)
}

// Hosting says whether a host may run workflows on a store. Whoever has it open otherwise reads, and commits what a person
// decides, beside the host.
type Hosting interface {
	// MayHost returns nil where no two hosts run a workflow at once: the store is a Leaser, or this process is the one
	// that has it. Otherwise its error says how to open it.
	MayHost() error
}

// Links has what links to questions are signed with.
type Links interface {
	// LinkKey returns 32 random bytes, which are made when they are asked for first and are
	// the same for every host. A database that was copied or restored makes others: what it
	// asks may have been answered since, so links of before decide nothing.
	LinkKey(ctx context.Context) ([]byte, error)
}

// A Checker looks for damage.
type Checker interface {
	// Check yields every record that breaks a law.
	Check(ctx context.Context) iter.Seq[error]
}

// A Watcher is a store that other processes may change.
type Watcher interface {
	// ForeignChanges returns a number that is another one whenever another
	// process has committed. It is cheap.
	ForeignChanges(ctx context.Context) (uint64, error)
}
