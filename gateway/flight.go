package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/keep-run/keep/connector/mcp"
)

// A flight is a call under way. Who makes the same call waits for its answer. If its server needs
// more before it can complete, the call stays under way until a request brings that.
type flight struct {
	server  string
	payload string
	done    chan struct{}
	answer  answer

	// The gateway's mutex protects all below.
	x     *exchange     // of who made the call last: progress and questions go there
	round *round        // what the server needs; nil: nothing now
	turn  chan struct{} // closed when that changes
	taken mcp.Inputs    // that were taken up last: a request with them is one that was issued again
	past  []string      // states of earlier rounds
}

// A round is what a server needs before it completes a call.
type round struct {
	result json.RawMessage
	state  json.RawMessage
	inputs chan mcp.Inputs
}

// call makes a call, joins the same one that is under way, or answers from the ledger. The call is
// not cut short by ctx: only the wait for it is.
func (g *Gateway) call(ctx context.Context, x *exchange, r request) answer {
	for {
		g.mu.Lock()
		f := g.flights[r.ids[0]]
		switch {
		case f == nil && g.closed:
			g.mu.Unlock()
			return answer{err: &mcp.RPCError{Code: internalError, Message: errEnded.Error()}}
		case f == nil && ctx.Err() != nil: // it comes late: whoever gave it up may have made the call again meanwhile
			g.mu.Unlock()
			return answer{err: &mcp.RPCError{Code: internalError, Message: "cancelled"}}
		case f == nil:
			f = &flight{server: r.tool.Connection(), payload: string(r.params), done: make(chan struct{}), x: x, turn: make(chan struct{})}
			g.flights[r.ids[0]] = f
			g.loops.Go(func() { g.fly(f, x, r) })
		case f.payload == string(r.params):
			f.x = x
		}
		g.mu.Unlock()
		same := f.payload == string(r.params)
		a, cancelled := g.wait(ctx, f, x, same)
		// What a request was told that was cancelled before its call was sent is no answer to another one.
		another := a.unsent && ctx.Err() == nil
		if cancelled || same && !another {
			return a
		}
	}
}

// fly makes the call of a flight.
func (g *Gateway) fly(f *flight, x *exchange, r request) {
	c := x.client()
	c.Tool, c.Inputs = ownName(r.tool), x.inputs
	c.Tell = func(m mcp.Message) { g.waiting(f).tell(m) }
	if c.Ask != nil {
		c.Ask = func(ctx context.Context, m mcp.Message) mcp.Message { return g.waiting(f).ask(ctx, m) }
	}
	c.Input = func(ctx context.Context, result json.RawMessage) (mcp.Inputs, error) {
		if x := g.waiting(f); !x.modern {
			return x.input(ctx, result)
		}
		return g.need(ctx, f, result)
	}
	token := ""
	if x.token != nil {
		var done func()
		token, done = g.progressing(r.tool.Connection(), func() *exchange { return g.waiting(f) })
		defer done()
	}
	_, r.meta = passed(r.meta, token)
	f.answer = g.make(mcp.WithClient(context.WithoutCancel(g.ctx), c), r)
	g.mu.Lock()
	delete(g.flights, r.ids[0])
	g.mu.Unlock()
	close(f.done)
}

// waiting returns who made the call of a flight last.
func (g *Gateway) waiting(f *flight) *exchange {
	g.mu.Lock()
	defer g.mu.Unlock()
	return f.x
}

// wait returns the answer to a request that made the call of a flight: the last one, or what its
// server needs.
func (g *Gateway) wait(ctx context.Context, f *flight, x *exchange, same bool) (a answer, cancelled bool) {
	inputs := x.inputs
	for {
		g.mu.Lock()
		turn, rd := f.turn, f.round
		switch {
		case rd == nil || !same:
		case inputs.IsZero() || f.taken.Equal(inputs) || !bytes.Equal(rd.state, inputs.State) && slices.Contains(f.past, string(inputs.State)):
			g.mu.Unlock()
			return answer{result: rd.result}, false
		case !bytes.Equal(rd.state, inputs.State):
			g.mu.Unlock()
			return answer{err: &mcp.RPCError{Code: invalidParams, Message: "requestState is none that was given for this call"}}, false
		default:
			f.round, f.taken, f.past = nil, inputs, append(f.past, string(rd.state))
			rd.inputs <- inputs
			inputs = mcp.Inputs{}
		}
		g.mu.Unlock()
		select {
		case <-f.done:
			return f.answer, false
		case <-turn:
		case <-ctx.Done():
			return answer{err: &mcp.RPCError{Code: internalError, Message: "cancelled"}}, true
		}
	}
}

// need has the agent asked for what a server needs, by the answer to whoever waits, and returns it.
func (g *Gateway) need(ctx context.Context, f *flight, result json.RawMessage) (mcp.Inputs, error) {
	var p struct {
		State json.RawMessage `json:"requestState"`
	}
	_ = json.Unmarshal(result, &p)
	rd := &round{result: slices.Clone(result), state: p.State, inputs: make(chan mcp.Inputs, 1)}
	g.mu.Lock()
	f.round = rd
	close(f.turn)
	f.turn = make(chan struct{})
	g.mu.Unlock()
	select {
	case inputs := <-rd.inputs:
		return inputs, nil
	case <-ctx.Done():
		g.mu.Lock()
		if f.round == rd {
			f.round = nil
		}
		g.mu.Unlock()
		return mcp.Inputs{}, context.Cause(ctx)
	}
}
