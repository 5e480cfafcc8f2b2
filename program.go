package keep

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// A Program is the Go program that has the handlers of a version, if its Definition.Go is set.
// It is stored in the place of a script.
type Program struct {
	Path        string          `json:"program,omitempty"` // of its main package, as the go command names it
	Build       string          `json:"build"`             // host.Config.Build, or the hash of the executable
	Declaration json.RawMessage `json:"declaration"`       // as a script's would be
}

// Program returns the program that has the handlers of d, which is written in Go and was read with
// its code.
func (d Deployment) Program() (p Program, err error) {
	if err = json.Unmarshal(d.Code, &p); err != nil {
		err = fmt.Errorf("version %s of workflow %s: %w", d.Version, d.Workflow, err)
	}
	return p, err
}

// String names the program for people.
func (p Program) String() string {
	const shown = 12 // as of a hash
	return fmt.Sprintf("%s (build %.*s)", cmp.Or(p.Path, "the program that deployed it"), shown, p.Build)
}
