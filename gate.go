package keep

import "encoding/json"

// A Gate is what the users of a connection share about its limits: when its next request
// may begin, and whether the service answers. Package law/limit says what its State means;
// to a store it is one value. A connection that was never limited has none.
//
// A budget has one, too, with what a person decided about it: law/budget says what that means.
type Gate struct {
	Connection string
	State      json.RawMessage // an object
	Rev        int             // see Run.Rev
}

// budgetGate begins the names of gates of budgets. No connection has such a name.
const budgetGate = "budget:"

// BudgetGate returns the name of the gate of a budget.
func BudgetGate(name string) string { return budgetGate + name }
