package postgres

import (
	"context"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// A known is what a group of commits must know before it can be decided. It is
// read in one round trip, after the rows of lease are locked: from then on nobody
// else changes what belongs to these workflows. What commits decide is written
// into it, so that a later change of the same commit sees it.
type known struct {
	leases      map[keep.WorkflowName]*leaseFact
	runs        map[keep.RunID]*runFact
	open        map[keep.WorkflowName]keep.RunID
	mutations   map[keep.MutationKey]*mutationFact
	events      map[eventKey]*eventFact
	held        map[chainKey][]*eventFact // pending events of a chain
	topics      map[topicKey]bool
	inputs      map[keep.InputID]*inputFact
	inputKeys   map[inputKey]keep.InputID
	items       map[itemKey]*itemFact
	escalations map[keep.EscalationID]*escalationFact
	notices     map[keep.EscalationID]map[keep.Sink]*noticeFact
	workflows   map[keep.WorkflowName]*keep.Workflow
	handlers    map[handlerKey]*keep.HandlerState
	old         map[keep.RunID]sweepFact
}

type (
	chainKey struct {
		workflow keep.WorkflowName
		chain    keep.RunID
	}
	topicKey struct {
		workflow keep.WorkflowName
		topic    keep.TopicName
	}
	eventKey struct {
		topicKey
		id keep.MessageID
	}
	inputKey struct {
		workflow                keep.WorkflowName
		source, typ, externalID string
	}
	itemKey struct {
		workflow keep.WorkflowName
		id       string
	}
	handlerKey struct {
		workflow keep.WorkflowName
		handler  keep.HandlerName
	}
)

func newKnown() *known {
	return &known{
		leases: make(map[keep.WorkflowName]*leaseFact), runs: make(map[keep.RunID]*runFact),
		open: make(map[keep.WorkflowName]keep.RunID), mutations: make(map[keep.MutationKey]*mutationFact),
		events: make(map[eventKey]*eventFact), held: make(map[chainKey][]*eventFact), topics: make(map[topicKey]bool),
		inputs: make(map[keep.InputID]*inputFact), inputKeys: make(map[inputKey]keep.InputID),
		items: make(map[itemKey]*itemFact), escalations: make(map[keep.EscalationID]*escalationFact),
		notices:   make(map[keep.EscalationID]map[keep.Sink]*noticeFact),
		workflows: make(map[keep.WorkflowName]*keep.Workflow), handlers: make(map[handlerKey]*keep.HandlerState),
		old: make(map[keep.RunID]sweepFact),
	}
}

// A wish names what to read: arrays of equal length for each query.
type wish struct {
	workflows                                  []string // of all commits, sorted
	runs                                       []string
	open                                       []string // workflows
	mutations                                  []string
	eventWorkflows, eventTopics, eventIDs      []string
	chainWorkflows, chains                     []string
	topicWorkflows, topics                     []string
	inputs                                     []string
	keyWorkflows, keySources, keyTypes, keyIDs []string
	itemWorkflows, items                       []string
	escalations                                []string
	told                                       []string // escalations
	states                                     []string // workflows
	handlerWorkflows, handlers                 []string
	swept, sweptBefore                         []string // chains, and times in milliseconds
}

// want adds what a commit must know.
func (w *wish) want(c keep.Commit) {
	name := text(string(c.Workflow))
	w.workflows = append(w.workflows, name)
	for _, change := range c.Changes {
		switch c := change.(type) {
		case keep.PutRun:
			w.runs = append(w.runs, text(string(c.Run.ID)))
			w.open = append(w.open, name)
		case keep.PutMutation:
			w.mutations = append(w.mutations, text(string(c.Mutation.Key)))
		case keep.Reserve:
			w.events(name, c.Topic, c.IDs...)
		case keep.SkipEvents:
			w.events(name, c.Topic, c.IDs...)
		case keep.Publish:
			w.events(name, c.Event.Topic, c.Event.MessageID)
			w.inputs = append(w.inputs, texts(c.Event.CausedBy)...)
			w.topicWorkflows, w.topics = append(w.topicWorkflows, name), append(w.topics, text(string(c.Event.Topic)))
		case keep.Release:
			w.chainWorkflows, w.chains = append(w.chainWorkflows, name), append(w.chains, text(string(c.Chain)))
		case keep.Finish:
			w.chainWorkflows, w.chains = append(w.chainWorkflows, name), append(w.chains, text(string(c.Chain)))
		case keep.PutInput:
			w.inputs = append(w.inputs, text(string(c.Input.ID)))
			w.keyWorkflows, w.keySources = append(w.keyWorkflows, name), append(w.keySources, text(c.Input.Source))
			w.keyTypes, w.keyIDs = append(w.keyTypes, text(c.Input.Type)), append(w.keyIDs, text(c.Input.ExternalID))
		case keep.SkipInput:
			w.inputs = append(w.inputs, text(string(c.Input)))
		case keep.PutHandler:
			w.handlerWorkflows, w.handlers = append(w.handlerWorkflows, name), append(w.handlers, text(string(c.State.Handler)))
		case keep.RequestRun:
			w.open = append(w.open, name)
			w.handlerWorkflows, w.handlers = append(w.handlerWorkflows, name), append(w.handlers, text(string(c.Handler)))
		case keep.Deploy, keep.SetPaused:
			w.states = append(w.states, name)
		case keep.AppendLogs:
			for _, l := range c.Lines {
				w.runs = append(w.runs, text(string(l.Run)))
			}
		case keep.OpenEscalation:
			w.escalations = append(w.escalations, text(string(c.Escalation.ID)))
		case keep.CloseEscalation:
			w.escalations = append(w.escalations, text(string(c.ID)))
			w.told = append(w.told, text(string(c.ID)))
		case keep.PutNotice:
			w.escalations = append(w.escalations, text(string(c.Notice.Escalation)))
			w.told = append(w.told, text(string(c.Notice.Escalation)))
		case keep.PutItem:
			w.itemWorkflows, w.items = append(w.itemWorkflows, name), append(w.items, text(c.Item.ID))
		case keep.Sweep:
			w.swept, w.sweptBefore = append(w.swept, text(string(c.Chain))), append(w.sweptBefore, strconv.FormatInt(millis(c.Before), 10))
		}
	}
}

func (w *wish) events(workflow string, topic keep.TopicName, ids ...keep.MessageID) {
	for _, id := range ids {
		w.eventWorkflows, w.eventTopics = append(w.eventWorkflows, workflow), append(w.eventTopics, text(string(topic)))
		w.eventIDs = append(w.eventIDs, text(string(id)))
	}
}

// queue asks for all that is wished for. Events come before those that a chain
// holds, which then are the same facts.
func (w *wish) queue(b *pgx.Batch, k *known) {
	slices.Sort(w.workflows)
	ask(b, leaseFacts, k.scanLease, w.workflows)
	if len(w.runs) > 0 {
		ask(b, runFacts, k.scanRun, w.runs)
	}
	if len(w.open) > 0 {
		ask(b, openFacts, k.scanOpen, w.open)
	}
	if len(w.mutations) > 0 {
		ask(b, mutationFacts, k.scanMutation, w.mutations)
	}
	if len(w.eventIDs) > 0 {
		ask(b, eventFacts, k.scanEvent, w.eventWorkflows, w.eventTopics, w.eventIDs)
	}
	if len(w.chains) > 0 {
		ask(b, heldFacts, k.scanHeld, w.chainWorkflows, w.chains)
	}
	if len(w.topics) > 0 {
		ask(b, topicFacts, k.scanTopic, w.topicWorkflows, w.topics)
	}
	if len(w.inputs) > 0 {
		ask(b, inputFacts, k.scanInput, w.inputs)
	}
	if len(w.keyIDs) > 0 {
		ask(b, inputKeyFacts, k.scanInput, w.keyWorkflows, w.keySources, w.keyTypes, w.keyIDs)
	}
	if len(w.items) > 0 {
		ask(b, itemFacts, k.scanItem, w.itemWorkflows, w.items)
	}
	if len(w.escalations) > 0 {
		ask(b, escalationFacts, k.scanEscalation, w.escalations)
	}
	if len(w.told) > 0 {
		ask(b, noticeFacts, k.scanNotice, w.told)
	}
	if len(w.states) > 0 {
		ask(b, workflowFacts, k.scanWorkflow, w.states)
	}
	if len(w.handlers) > 0 {
		ask(b, handlerFacts, k.scanHandler, w.handlerWorkflows, w.handlers)
	}
	if len(w.swept) > 0 {
		ask(b, sweepFacts, k.scanSweep, w.swept, w.sweptBefore)
	}
}

// ask queues a query whose rows go to scan, for atOnce elements of the arrays at a
// time.
func ask(b *pgx.Batch, sql string, scan func(pgx.CollectableRow) error, arrays ...[]string) {
	n := min(atOnce, len(arrays[0]))
	args, rest := make([]any, len(arrays)), make([][]string, len(arrays))
	for i, a := range arrays {
		args[i], rest[i] = a[:n], a[n:]
	}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if len(rest[0]) > 0 {
		ask(b, sql, scan, rest...)
	}
}

// send runs a batch to its end.
func send(ctx context.Context, conn interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}, b *pgx.Batch) error {
	return conn.SendBatch(ctx, b).Close()
}
