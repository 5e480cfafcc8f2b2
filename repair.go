package keep

import (
	"encoding/json"
	"fmt"
	"time"
)

// A Repair is what was done about one failure of a script, and about all that are alike: what
// was tried, what it used, and what became of it. Package law/repair says what its State means;
// to a store it is one value.
type Repair struct {
	ID        string // of the signature of the failure
	Workflow  WorkflowName
	State     json.RawMessage // an object
	CreatedAt time.Time       // when the first attempt began
	Rev       int             // see Run.Rev
}

// MaxRepair bounds the state of a repair, in bytes (law: bounded).
const MaxRepair = 8 << 20

// Validate reports what is wrong with a repair, except in its state.
func (r Repair) Validate() error {
	switch {
	case r.ID == "" || r.Workflow == "" || r.CreatedAt.IsZero():
		return fmt.Errorf("repair %q: id, workflow and time required", r.ID)
	case len(r.State) > MaxRepair:
		return fmt.Errorf("repair %s: its state has %d bytes, and %d at most are allowed", r.ID, len(r.State), MaxRepair)
	}
	return nil
}
