package stored

import (
	"fmt"

	"github.com/keep-run/keep"
)

// CheckAct returns what is wrong with a decision that is recorded with a change which is no commit.
func CheckAct(d keep.Decided) error {
	err := d.Validate()
	if err == nil && d.About.Workflow != "" {
		err = fmt.Errorf("decision about %s %q: one of workflow %s belongs into its commit", d.About.Kind, d.About.ID, d.About.Workflow)
	}
	return err
}
