package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keep-run/keep"
)

// Histories of claims, moves and decisions from several hosts at once are checked
// to be linearizable: there is an order of all of them, in which each takes place
// between its call and its return, that a store with one lock could have had.

// An inquiry is one thing that a client inquiry of a workflow.
type inquiry struct {
	what     string // "claim", "release", "move", "decide", "answer" or "read"
	workflow keep.WorkflowName
	host     keep.HostID
	epoch    int64
	rev      int
}

// An outcome is what became of it: "ok", "none", "fenced", "stale" or "decided".
type outcome struct {
	how   string
	epoch int64 // claim
	rev   int   // read
}

// A leasedRun is one workflow as the model has it: its lease, the revision of its
// open run, and whether its question is answered.
type leasedRun struct {
	host    keep.HostID
	epoch   int64
	rev     int
	decided bool
}

// step returns whether the model could give that answer, and what it is then.
func (s leasedRun) step(q inquiry, a outcome) (bool, leasedRun) {
	fenced := s.host == "" || q.epoch != s.epoch
	next := s
	switch q.what {
	case "claim":
		if a.how == "none" {
			return true, s // it may pass over what others are at
		}
		next.host, next.epoch = q.host, s.epoch+1
		return s.host == "" && a.epoch == next.epoch, next
	case "release":
		if s.host == q.host {
			next.host = ""
		}
		return a.how == "ok", next
	case "read":
		return a.rev == s.rev, s
	case "answer":
		next.decided = true
		return (a.how == "ok") == !s.decided, next
	}
	switch a.how { // a move of the run, by its host or by a person
	case "fenced":
		return q.what == "move" && fenced, s
	case "stale":
		return q.rev != s.rev && !(q.what == "move" && fenced), s
	}
	next.rev++
	return q.rev == s.rev && !(q.what == "move" && fenced), next
}

// model is that of a store, one workflow at a time.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := make(map[keep.WorkflowName][]porcupine.Operation)
		for _, op := range history {
			w := op.Input.(inquiry).workflow
			by[w] = append(by[w], op)
		}
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return leasedRun{rev: 1} },
	Step: func(state, input, output any) (bool, any) {
		return state.(leasedRun).step(input.(inquiry), output.(outcome))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// A historian records what clients asked a store, and its answers.
type historian struct {
	*hosts
	at    time.Time
	began time.Time

	mu      sync.Mutex // protects history
	history []porcupine.Operation
}

// These are how many clients ask how often, about how many workflows.
const historyClients, historyLength, historyWorkflows = 5, 60, 3

func linearizable(h *hosts) {
	r := &historian{hosts: h, at: h.now(), began: time.Now()}
	var runs []keep.Run
	for i := range historyWorkflows {
		name := keep.WorkflowName(fmt.Sprint("w", i))
		h.deploy(name, "t")
		run := h.start(name, "")
		h.commit(name, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID("esc_" + name), Kind: keep.AskLogic, Workflow: name, Run: run.ID}})
		runs = append(runs, run)
	}
	var wg sync.WaitGroup
	for n := range historyClients {
		id := keep.HostID(fmt.Sprint("host", n))
		h.heartbeat(id)
		c := &client{historian: r, n: n, id: id, rng: rand.New(rand.NewPCG(uint64(n), 7)), epochs: make(map[keep.WorkflowName][]int64)}
		wg.Go(func() {
			for range historyLength {
				c.ask(runs[c.rng.IntN(len(runs))])
			}
		})
	}
	wg.Wait()
	switch porcupine.CheckOperationsTimeout(model, r.history, time.Minute) {
	case porcupine.Illegal:
		slices.SortFunc(r.history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, op := range r.history {
			h.Logf("client %d, %d to %d: %s", op.ClientId, op.Call, op.Return, model.DescribeOperation(op.Input, op.Output))
		}
		h.Error("no order of these calls explains their answers")
	case porcupine.Unknown:
		h.Log("the history is too long to be checked in a minute")
	}
}

// A client is one host, or a person beside it.
type client struct {
	*historian
	n      int
	id     keep.HostID
	rng    *rand.Rand
	epochs map[keep.WorkflowName][]int64 // that it was given, the newest last
}

// ask does one thing at random.
func (c *client) ask(run keep.Run) {
	q := inquiry{workflow: run.Workflow, host: c.id}
	if mine := c.epochs[run.Workflow]; len(mine) > 0 {
		q.epoch = mine[max(0, len(mine)-1-c.rng.IntN(2))] // sometimes one that has ended
	}
	switch p := c.rng.IntN(100); {
	case p < 30:
		q.what = "claim"
	case p < 40 && q.epoch != 0:
		q.what = "release"
	case p < 75 && q.epoch != 0:
		q.what, q.rev = "move", c.read(run)
	case p < 90:
		q.what, q.rev = "decide", c.read(run)
	case p < 93:
		q.what = "answer"
	default:
		c.read(run)
		return
	}
	c.tell(q, func() outcome { return c.do(q, run) })
}

// tell writes down what do gets.
func (c *client) tell(q inquiry, do func() outcome) outcome {
	call := time.Since(c.began).Nanoseconds()
	a := do()
	op := porcupine.Operation{ClientId: c.n, Input: q, Call: call, Output: a, Return: time.Since(c.began).Nanoseconds()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, op)
	return a
}

// read returns the revision of the run.
func (c *client) read(run keep.Run) int {
	q := inquiry{what: "read", workflow: run.Workflow, host: c.id}
	return c.tell(q, func() outcome {
		r, err := c.Run(c.ctx, run.ID)
		if err != nil {
			c.Errorf("Run: %v", err)
		}
		return outcome{how: "ok", rev: r.Rev}
	}).rev
}

func (c *client) do(q inquiry, run keep.Run) outcome {
	switch q.what {
	case "claim":
		got, err := c.leased.Claim(c.ctx, c.id, 1, []keep.WorkflowName{q.workflow})
		if err != nil {
			c.Errorf("Claim: %v", err)
		}
		if len(got) == 0 {
			return outcome{how: "none"}
		}
		c.epochs[q.workflow] = append(c.epochs[q.workflow], got[0].Epoch)
		return outcome{how: "ok", epoch: got[0].Epoch}
	case "release":
		if err := c.leased.Release(c.ctx, c.id, []keep.WorkflowName{q.workflow}); err != nil {
			c.Errorf("Release: %v", err)
		}
		return outcome{how: "ok"}
	}
	k := keep.Commit{Workflow: q.workflow, At: c.at}
	if q.what == "answer" {
		k.Changes = []keep.Change{keep.CloseEscalation{ID: keep.EscalationID("esc_" + q.workflow), Decision: &keep.Decision{Action: keep.Retry}}}
	} else {
		run.Rev = q.rev
		k.Changes = []keep.Change{keep.PutRun{Run: run}}
	}
	if q.what == "move" {
		k.Epoch = q.epoch
	}
	err := c.Commit(c.ctx, k)
	for how, known := range map[string]error{"ok": nil, "fenced": keep.ErrFenced, "stale": keep.ErrStale, "decided": keep.ErrDecided} {
		if errors.Is(err, known) {
			return outcome{how: how}
		}
	}
	c.Errorf("%s: %v", q.what, err)
	return outcome{how: "failed"}
}
