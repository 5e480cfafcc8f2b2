package keep

import "time"

// MaxPage is the most that one page of a list holds (law: bounded).
const MaxPage = 10_000

// A Page says which part of a list is wanted. Lists are newest first.
//
// A page with fewer rows than its limit is the last one, and comes without a cursor.
// Of a filter with a Text it may come with one: then the search went so far, for what
// one page may cost, and continues from there.
type Page struct {
	Limit int    // at most this many, and never over MaxPage; zero: 100
	After string // the cursor that came with the previous page; empty: from the start

	// Bare leaves out what may be large and is not read then: the payload of an
	// event; the identity, payload and result of a mutation; what the prepare of
	// a run returned.
	Bare bool
}

// Size returns the limit of p: 100 if it has none, and MaxPage at most.
func (p Page) Size() int {
	if p.Limit <= 0 {
		return 100
	}
	return min(p.Limit, MaxPage)
}

// A Period selects what was made in it. Times are compared to the millisecond, as stores keep
// them. A record that a clock made more than [MaxDisorder] away from its neighbours may not be
// found by it.
type Period struct {
	Since time.Time // made then or later; zero: at any time
	Until time.Time // made before; zero: at any time
}

// MaxDisorder is how much later than what was recorded after it a record may have been made:
// by the clock of a host that was ahead, or since its phase took long.
const MaxDisorder = time.Hour

// IsZero reports whether p selects everything.
func (p Period) IsZero() bool { return p.Since.IsZero() && p.Until.IsZero() }

// Has reports whether what was made then is in p.
func (p Period) Has(made time.Time) bool {
	ms := made.UnixMilli()
	return (p.Since.IsZero() || ms >= p.Since.UnixMilli()) && (p.Until.IsZero() || ms < p.Until.UnixMilli())
}

// A RunFilter selects runs. Zero fields select everything.
type RunFilter struct {
	Workflow WorkflowName
	Handler  HandlerName
	Status   RunStatus
	Chain    RunID
	Open     bool   // only those that are not closed
	Made     Period // by when they began
	Error    string // class or code of what stopped them, of those that are neither active nor committed
	Text     string // words that all begin a word of the record; see package law/search
}

// A MutationFilter selects ledger records. Zero fields select everything.
type MutationFilter struct {
	Workflow WorkflowName
	State    MutationState
	Tool     ToolName
	Run      RunID
	Item     string // needs Workflow
	Input    InputID
	Made     Period // by when they were recorded first
	Error    string // class or code of the last thing that went wrong, of those that are not applied
	Text     string // as in RunFilter
}

// An EventFilter selects events. Zero fields select everything.
type EventFilter struct {
	Workflow WorkflowName
	Topic    TopicName
	Status   EventStatus // that Listed returns
	Input    InputID
	Made     Period // by when they were published
	Text     string // as in RunFilter
}

// An InputFilter selects inputs. Zero fields select everything.
type InputFilter struct {
	Workflow WorkflowName
	Status   InputStatus
	Made     Period // by when they came
	Text     string // as in RunFilter
}

// An EscalationFilter selects escalations. Zero fields select everything.
type EscalationFilter struct {
	Workflow WorkflowName
	Run      RunID
	Kind     EscalationKind
	Item     string // needs Workflow
	Open     bool   // only those that nobody has answered
	Closed   bool   // only those that were answered, or no longer applied
	Made     Period // by when they were asked
}

// A DecisionFilter selects decisions that answer no question. Zero fields select everything.
type DecisionFilter struct {
	Workflow WorkflowName
	Global   bool // only those about what is of no workflow
}

// An ItemFilter selects items. Zero fields select everything.
type ItemFilter struct {
	Workflow WorkflowName
	Status   ItemStatus
	Made     Period // by when they were met first
	Text     string // as in RunFilter
}

// Bounded reports whether what the filter selects is counted up to search.MaxCount only.
func (f RunFilter) Bounded() bool { return f.Text != "" || f.Error != "" || !f.Made.IsZero() }

// Bounded is as of a RunFilter.
func (f MutationFilter) Bounded() bool { return f.Text != "" || f.Error != "" || !f.Made.IsZero() }

// Bounded is as of a RunFilter.
func (f InputFilter) Bounded() bool { return f.Text != "" || !f.Made.IsZero() }

// Bounded is as of a RunFilter.
func (f ItemFilter) Bounded() bool { return f.Text != "" || !f.Made.IsZero() }

// Bounded is as of a RunFilter.
func (f EscalationFilter) Bounded() bool { return !f.Made.IsZero() }

// A TopicCount says how many events of a topic are in which state.
type TopicCount struct {
	Workflow WorkflowName
	Topic    TopicName
	Pending  int // free ones
	Reserved int // pending, and pinned by a run
	Consumed int
	Skipped  int
}

// A Backlog says what waits in a set of topics.
type Backlog struct {
	Oldest Event // the oldest free event; its Seq is 0 if there is none
	Newest int64 // Seq of the newest free event; 0 if there is none
}

// A Progress is how far an input came.
type Progress struct {
	Events  []Event    // the newest that it caused, newest first, without payloads
	Outputs []Mutation // the newest of its outputs, newest first, as a bare page has them
	Total   int        // how many outputs there are
}

// An ItemRef names an item.
type ItemRef struct {
	Workflow WorkflowName
	ID       string
}
