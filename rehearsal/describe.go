package rehearsal

import (
	"context"
	"encoding/json"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Describe returns connections whose tools have the descriptions of those of conns, and no
// way to what is behind them: whoever calls one gets an error.
func Describe(conns []connector.Connection) []connector.Connection {
	return play(Config{Connections: conns, Services: nobody{}}, newClock(time.Time{}))
}

// nobody plays no service.
type nobody struct{}

var errNobody = keep.Failf(keep.ClassInternal, "nothing-is-called", "nothing is called here: what a script gets is recorded")

// Read implements Services.
func (nobody) Read(context.Context, keep.ToolName, json.RawMessage) (json.RawMessage, error) {
	return nil, errNobody
}

// Call implements Services.
func (nobody) Call(context.Context, keep.Mutation) (connector.Receipt, error) {
	return connector.Receipt{}, errNobody
}

// Lookup implements Services.
func (nobody) Lookup(context.Context, keep.Mutation) (connector.Answer, error) {
	return connector.Answer{}, errNobody
}
