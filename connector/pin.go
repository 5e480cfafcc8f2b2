package connector

import "encoding/json"

// A Rebinder is a Pinner that can still ask about calls that were sent in another way.
type Rebinder interface {
	// Rebind returns the tool as it was when it had that pin, with the credentials of
	// today, for lookups only: its level is never LevelKey, so that Reconcile does not
	// send. The error says why there is none.
	Rebind(pin json.RawMessage) (Tool, error)
}
