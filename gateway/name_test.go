package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/script/workflow"
)

// A script has not the name of the workflow to which the calls of agents belong, and does not continue that: it would never run, and
// what it was granted would hold of the agents. Laws: nothing-lost, permitted.
func TestNameOfTheCallsOfAgents(t *testing.T) {
	t.Parallel()
	for _, names := range []string{`"name": %q`, `"name": "x", "was": %q`} {
		decl := `{"$keep": "workflow", "jobs": {"j": {"$function": {"params": 1, "source": ""}}}, ` + names + `}`
		if _, err := workflow.Parse(fmt.Appendf(nil, decl, "other"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := workflow.Parse(fmt.Appendf(nil, decl, keep.DirectWorkflow), nil); err == nil || !strings.Contains(err.Error(), "calls of agents") {
			t.Errorf("%s: %v", names, err)
		}
	}
}
