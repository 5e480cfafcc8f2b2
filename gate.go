package keep

import "encoding/json"

// A Gate is what the users of a connection share about its limits: when its next request
// may begin, and whether the service answers. Package law/limit says what its State means;
// to a store it is one value. A connection that was never limited has none.
type Gate struct {
	Connection string
	State      json.RawMessage // an object
	Rev        int             // see Run.Rev
}
