package keep

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// An Order says which events wait while a run of a consumer is unfinished.
type Order string

const (
	// OrderAll is the default: the whole workflow waits.
	OrderAll Order = ""

	// OrderKey makes events of the same key wait, as the consumer's key function
	// gives it. There is one unfinished run for each key at most.
	OrderKey Order = "key"

	// OrderNone makes no event wait but those of the run itself.
	OrderNone Order = "none"
)

// String returns the order as scripts write it.
func (o Order) String() string {
	if o == OrderAll {
		return "all"
	}
	return string(o)
}

// An OnBlocked says what a workflow does while one of its runs waits.
type OnBlocked string

const (
	// BlockedStop is the default: nothing else begins.
	BlockedStop OnBlocked = ""

	// BlockedPoll lets producers continue. Consumers and jobs wait.
	BlockedPoll OnBlocked = "poll"
)

// String returns the choice as scripts write it.
func (b OnBlocked) String() string {
	if b == BlockedStop {
		return "stop"
	}
	return string(b)
}

// MaxOrderKey is the longest order key, in bytes.
const MaxOrderKey = 512

// ValidateOrderKey reports what is wrong with the order key of an event.
func ValidateOrderKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("it is empty")
	case len(key) > MaxOrderKey:
		return fmt.Errorf("it has %d bytes: at most %d", len(key), MaxOrderKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("it is not valid UTF-8")
	}
	return nil
}

// A Lane is what one unfinished run of a workflow has to itself (law:
// one-at-a-time). A run keeps the lane in which its chain began, also when a later
// version declares another order. Values are stored; do not rename them.
type Lane string

// WorkflowLane is the lane of runs that hold up their whole workflow.
const WorkflowLane Lane = ""

// KeyLane returns the lane of the events of a consumer that have one order key.
func KeyLane(h HandlerName, key string) Lane { return Lane("key/" + string(h) + "/" + key) }

// HandlerLane returns the lane of a producer that continues while other runs wait, and
// of the runs of an ordered consumer that have no event.
func HandlerLane(h HandlerName) Lane { return Lane("handler/" + string(h)) }

// ChainLane returns a lane that no other chain has.
func ChainLane(chain RunID) Lane { return Lane("chain/" + string(chain)) }

// Key returns the order key of a KeyLane, and whether it is one.
func (l Lane) Key() (key string, ok bool) {
	rest, ok := strings.CutPrefix(string(l), "key/")
	if !ok {
		return "", false
	}
	_, key, ok = strings.Cut(rest, "/")
	return key, ok
}

// IsKey reports whether l is a KeyLane.
func (l Lane) IsKey() bool { return strings.HasPrefix(string(l), "key/") }

// IsHandler reports whether l is a HandlerLane.
func (l Lane) IsHandler() bool { return strings.HasPrefix(string(l), "handler/") }
