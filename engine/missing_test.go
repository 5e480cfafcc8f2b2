package engine

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// That the tool of a doubt is missing for a while does not hide that its credentials are of another user: who says that the
// call did not happen is told that it may happen twice.
func TestMissingToolOfAnotherUser(t *testing.T) {
	ts := &Tools{}
	ts.now.Store(&toolSet{})
	m := keep.Mutation{Tool: "svc.create", Level: keep.LevelClaim, CanReconcile: true, State: keep.NeedsReconcile,
		Error: keep.Failf(keep.ClassUnknown, keep.CodeAnotherUser, "its account is of another user")}
	_, none := ts.asker(m)
	m.Error = none.Failure
	x := &execution{a: &actor{}, e: &Engine{tools: ts}, mut: m, direct: true}
	if got := x.didNotHappenEffect(t.Context()); !strings.Contains(got, "it happens twice") {
		t.Errorf("the effect of the answer is %q", got)
	}
}

// Reads that are abandoned to the connector of one connection keep none of another from beginning.
func TestAbandonedReadsOfAnother(t *testing.T) {
	e := &Engine{abandoned: map[string]int{"deaf": maxAbandoned}}
	if f := e.mayBegin(&tool{name: "deaf.list"}, ""); f == nil || f.Code != "read-failed" {
		t.Errorf("a read beside %d of its connection: %v", maxAbandoned, f)
	}
	if f := e.mayBegin(&tool{name: "healthy.list"}, ""); f != nil {
		t.Errorf("a read of another connection: %v", f)
	}
}
