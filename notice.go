package keep

import "time"

// A Sink names a way in which people are told of questions.
type Sink string

// A NoticeStatus says what became of telling one sink of one question. Values
// are stored; do not rename them.
type NoticeStatus string

const (
	// NoticePending means that the sink is tried again at NextAt. It may have
	// been told already: what it answered is recorded after it answers.
	NoticePending NoticeStatus = "pending"

	// NoticeDelivered means that the sink took it.
	NoticeDelivered NoticeStatus = "delivered"

	// NoticeGivenUp means that the sink was tried as often as is allowed.
	NoticeGivenUp NoticeStatus = "given_up"

	// NoticeMoot means that the question was closed first.
	NoticeMoot NoticeStatus = "moot"
)

// NoticeStatuses returns every status.
func NoticeStatuses() []NoticeStatus {
	return []NoticeStatus{NoticePending, NoticeDelivered, NoticeGivenUp, NoticeMoot}
}

// A Notice is the record of telling one sink of one question. There is none
// before the first attempt: that an open question has none is what is owed.
type Notice struct {
	Escalation EscalationID
	Sink       Sink
	Status     NoticeStatus
	Attempts   int       // begun so far
	NextAt     time.Time // when it is tried again; zero: never
	Error      string    // of the last attempt; empty: none, or not known yet
	UpdatedAt  time.Time
	Rev        int // stored revision; 0: not stored yet
}

// An Owed is an open question that a sink has not taken yet.
type Owed struct {
	Escalation Escalation
	Notice     Notice // its Rev is 0 if the sink was never tried
}
