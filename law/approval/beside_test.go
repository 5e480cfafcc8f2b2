package approval_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/approval"
)

// What stands beside another part on its line pushes nothing out of sight, either: a line that is long by it is read last.
func TestLongPartsBesideOthers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x\n", 100)
	pay, err := json.Marshal(map[string]any{"amount": 5, "currency": "EUR\n" + long, "to": "mallory"})
	if err != nil {
		t.Fatal(err)
	}
	now, err := json.Marshal(map[string]any{"a": long})
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]keep.Approval{
		"currency": {Payload: pay, View: keep.View{Kind: keep.ViewPayment, Parts: []keep.ViewPart{{Role: "amount", Param: "amount"}, {Role: "currency", Param: "currency"}, {Role: "to", Param: "to"}}}},
		"now":      {Payload: json.RawMessage(`{"set": {"a": 1, "b": 2}}`), Now: now, View: keep.View{Kind: keep.ViewRow, Parts: []keep.ViewPart{{Role: "values", Param: "set"}}}},
	} {
		lines := approval.Read(a)
		if last := lines[len(lines)-1]; len(lines) != 2 || lines[0].Long || !last.Long {
			t.Errorf("%s: the lines are %.300v", name, lines)
		}
	}
}
