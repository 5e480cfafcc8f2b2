package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// A snapshot is what a group of commits must know. It is read in one round trip, after
// the rows of lease are locked: from then on no other commit changes what belongs to
// these workflows.
type snapshot struct {
	commit.Snapshot
	schema int // the last migration that this program has
	leases map[keep.WorkflowName]*leaseFact
	topics map[topicKey]bool // that have a row
}

type topicKey struct {
	workflow keep.WorkflowName
	topic    keep.TopicName
}

// A readSet names what to read: arrays of equal length for each query. One query reads
// the records of a kind for all commits of a group, so the number of round trips, and of
// statements that the server executes, does not depend on the size of the group.
type readSet struct {
	workflows                                  []string // of all commits, sorted
	open                                       []string // workflows
	rows, proposed                             []string // workflows
	runs, mutations                            []string
	eventWorkflows, eventTopics, eventIDs      []string
	chainWorkflows, chains                     []string
	topicWorkflows, topics                     []string
	allTopics                                  []string // workflows
	inputs                                     []string
	keyWorkflows, keySources, keyTypes, keyIDs []string
	itemWorkflows, items                       []string
	escalations, noticed                       []string
	handlerWorkflows, handlers                 []string
	kvWorkflows, kvProducers, kvKeys           []string
	swept, sweptBefore                         []string // chains, and times in milliseconds
	identityLocks                              []int64
	identityTools                              []string
	identityHashes, identitySubkeys            []string
	setTools, setHashes, setAt                 []string
	againTools, againHashes, againSince        []string
	within                                     sumSet
}

// add adds what a commit must know, and the topics that it may have to declare.
func (r *readSet) add(c keep.Commit) {
	w, reads := text(string(c.Workflow)), commit.Reads(c)
	r.workflows = append(r.workflows, w)
	if reads.Open {
		r.open = append(r.open, w)
	}
	if reads.Workflow {
		r.rows = append(r.rows, w)
	}
	if reads.Proposal {
		r.proposed = append(r.proposed, w)
	}
	r.runs = append(r.runs, texts(reads.Runs)...)
	r.mutations = append(r.mutations, texts(reads.Mutations)...)
	for _, e := range reads.Events {
		r.eventWorkflows, r.eventTopics, r.eventIDs = append(r.eventWorkflows, w), append(r.eventTopics, text(string(e.Topic))), append(r.eventIDs, text(string(e.MessageID)))
	}
	if reads.AllTopics {
		r.allTopics = append(r.allTopics, w)
	}
	for _, topic := range reads.Topics {
		r.topicWorkflows, r.topics = append(r.topicWorkflows, w), append(r.topics, text(string(topic)))
	}
	for _, chain := range reads.Held {
		r.chainWorkflows, r.chains = append(r.chainWorkflows, w), append(r.chains, text(string(chain)))
	}
	r.inputs = append(r.inputs, texts(reads.Inputs)...)
	for _, in := range reads.NewInputs {
		r.inputs = append(r.inputs, text(string(in.ID)))
		r.keyWorkflows, r.keySources = append(r.keyWorkflows, w), append(r.keySources, text(in.Source))
		r.keyTypes, r.keyIDs = append(r.keyTypes, text(in.Type)), append(r.keyIDs, text(in.ExternalID))
	}
	for _, id := range reads.Items {
		r.itemWorkflows, r.items = append(r.itemWorkflows, w), append(r.items, text(id))
	}
	r.escalations = append(r.escalations, texts(reads.Escalations)...)
	r.noticed = append(r.noticed, texts(reads.Notices)...)
	for _, h := range reads.Handlers {
		r.handlerWorkflows, r.handlers = append(r.handlerWorkflows, w), append(r.handlers, text(string(h)))
	}
	for _, c := range reads.KVs {
		r.kvWorkflows, r.kvProducers, r.kvKeys = append(r.kvWorkflows, w), append(r.kvProducers, text(string(c.Producer))), append(r.kvKeys, text(c.Key))
	}
	for _, u := range reads.Unlike {
		r.addUnlike(u)
	}
	for _, s := range reads.Setting {
		r.addSetting(s, c.At)
	}
	r.addWithin(reads, c.At)
	for _, s := range reads.Sweeps {
		r.swept, r.sweptBefore = append(r.swept, text(string(s.Chain))), append(r.sweptBefore, strconv.FormatInt(millis(s.Before), 10))
	}
}

// queue asks for all that the set names.
func (r *readSet) queue(b *pgx.Batch, s *snapshot) {
	slices.Sort(r.workflows)
	ask(b, leaseFacts, s.scanLease, r.workflows)
	r.queueLocks(b)
	ask(b, rivalFacts, s.scanRival, r.identityTools, r.identityHashes, r.identitySubkeys)
	ask(b, openSettings, s.scanSetting, r.setTools, r.setHashes)
	ask(b, failedSettings, s.scanSetting, r.setTools, r.setHashes, r.setAt)
	ask(b, laterSettings, s.scanSetting, r.againTools, r.againHashes, r.againSince)
	ask(b, spendingFacts, s.scanSpending, r.within.arrays()...)
	ask(b, openFacts, s.scanOpen, r.open)
	ask(b, workflowFacts, s.scanWorkflow, r.rows)
	ask(b, proposalFacts, s.scanProposal, r.proposed)
	ask(b, runFacts, s.scanRun, r.runs)
	ask(b, mutationFacts, s.scanMutation, r.mutations)
	ask(b, eventFacts, s.scanEvent, r.eventWorkflows, r.eventTopics, r.eventIDs)
	ask(b, heldFacts, s.scanEvent, r.chainWorkflows, r.chains)
	ask(b, topicFacts, s.scanTopic, r.topicWorkflows, r.topics)
	ask(b, allTopicFacts, s.scanTopic, r.allTopics)
	ask(b, inputFacts, s.scanInput, r.inputs)
	ask(b, inputKeyFacts, s.scanInput, r.keyWorkflows, r.keySources, r.keyTypes, r.keyIDs)
	ask(b, itemFacts, s.scanItem, r.itemWorkflows, r.items)
	ask(b, escalationFacts, s.scanEscalation, r.escalations)
	ask(b, noticeFacts, s.scanNotice, r.noticed)
	ask(b, handlerFacts, s.scanHandler, r.handlerWorkflows, r.handlers)
	ask(b, kvFacts, s.scanKV, r.kvWorkflows, r.kvProducers, r.kvKeys)
	ask(b, sweepFacts, s.scanChain, r.swept, r.sweptBefore)
}

// ask queues a query whose rows go to scan, for atOnce elements of the arrays at a
// time, and none for no elements.
func ask(b *pgx.Batch, sql string, scan func(pgx.CollectableRow) error, arrays ...[]string) {
	for len(arrays[0]) > 0 {
		n := min(atOnce, len(arrays[0]))
		args := make([]any, len(arrays))
		for i, a := range arrays {
			args[i], arrays[i] = a[:n], a[n:]
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
	}
}

// send runs a batch to its end.
func send(ctx context.Context, conn interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}, b *pgx.Batch) error {
	return conn.SendBatch(ctx, b).Close()
}

// The queries below select what the law looks at, and n, by which rows are written: the
// statements that write would otherwise look each record up a second time by its id.

const openFacts = `SELECT workflow, lane, id FROM run WHERE NOT closed AND workflow = ANY($1)`

func (s *snapshot) scanOpen(row pgx.CollectableRow) error {
	var lane commit.LaneKey
	var id keep.RunID
	err := row.Scan(into(&lane.Workflow), into(&lane.Lane), into(&id))
	s.Open.Put(lane, id)
	return err
}

var workflowFacts = `SELECT ` + workflowColumns + ` FROM workflow WHERE name = ANY($1)`

func (s *snapshot) scanWorkflow(row pgx.CollectableRow) error {
	w, err := scanWorkflow(row)
	s.Workflows.Put(w.Name, &commit.Workflow{Workflow: w})
	return err
}

const runFacts = `SELECT id, workflow, chain, handler, kind, rev, n FROM run WHERE id = ANY($1)`

func (s *snapshot) scanRun(row pgx.CollectableRow) error {
	var id keep.RunID
	r := new(commit.Run)
	err := row.Scan(into(&id), into(&r.Workflow), into(&r.Chain), into(&r.Handler), into(&r.Kind), &r.Rev, &r.N)
	s.Runs.Put(id, r)
	return err
}

const mutationFacts = `SELECT key, workflow, tool, item, attempt, rev, n, summed_at <> 0 OR spent_at <> 0 AND state IN ('applied', 'skipped') FROM mutation WHERE key = ANY($1)`

func (s *snapshot) scanMutation(row pgx.CollectableRow) error {
	var key keep.MutationKey
	m := new(commit.Mutation)
	err := row.Scan(into(&key), into(&m.Workflow), into(&m.Tool), into(&m.Item), &m.Attempt, &m.Rev, &m.N, &m.Summed)
	s.Mutations.Put(key, m)
	return err
}

var eventFacts = `SELECT e.workflow, e.topic, e.message_id, e.n, e.status, e.reserved_by, e.caused_by, e.redone, ` + isUnread + `
	  FROM ` + elements(`workflow text, topic text, message_id text`) + `
	  JOIN event e ON e.workflow = v.workflow AND e.topic = v.topic AND e.message_id = v.message_id`

// heldFacts looks in the index of chains, and then at the rest: OFFSET keeps the
// planner from looking among all that is pending.
var heldFacts = `SELECT e.workflow, e.topic, e.message_id, e.n, e.status, e.reserved_by, e.caused_by, e.redone, ` + isUnread + `
	  FROM ` + elements(`workflow text, chain text`) + `,
	       LATERAL (SELECT * FROM event WHERE reserved_by = v.chain AND reserved_by <> '' OFFSET 0) e
	 WHERE e.workflow = v.workflow AND e.status = 'pending'`

// isUnread is whether nobody reads the topic of an event e.
const isUnread = `(SELECT unread FROM topic t WHERE t.workflow = e.workflow AND t.name = e.topic)`

// scanEvent reads an event that a commit names, or that a chain has reserved. One that
// is both comes twice and is added once, so that both are the same record.
func (s *snapshot) scanEvent(row pgx.CollectableRow) error {
	e := new(commit.Event)
	var causes string
	var unread bool
	err := row.Scan(into(&e.Workflow), into(&e.Topic), into(&e.ID), &e.N, into(&e.Status), into(&e.ReservedBy), &causes, (*redoneTo)(&e.Redone), &unread)
	if err != nil {
		return err
	}
	s.Unread.Put(commit.TopicKey{Workflow: e.Workflow, Topic: e.Topic}, unread)
	s.AddEvent(e)
	if e.Causes, err = decodeCauses(causes); err != nil {
		return fmt.Errorf("event %d: read causes: %w", e.N, err)
	}
	return nil
}

// topicFacts also say which topics have a row, since an insert that finds one would cost a
// dead row for each commit. Of a workflow that was deployed, a topic without a row was
// declared by no version.
var topicFacts = `SELECT v.workflow, v.name, t.name IS NOT NULL, coalesce(t.unread, EXISTS (SELECT 1 FROM workflow w WHERE w.name = v.workflow))
	  FROM ` + elements(`workflow text, name text`) + ` LEFT JOIN topic t ON t.workflow = v.workflow AND t.name = v.name`

const allTopicFacts = `SELECT workflow, name, true, unread FROM topic WHERE workflow = ANY($1)`

func (s *snapshot) scanTopic(row pgx.CollectableRow) error {
	var key topicKey
	var there, unread bool
	err := row.Scan(into(&key.workflow), into(&key.topic), &there, &unread)
	if there {
		s.topics[key] = true
	}
	s.Unread.Put(commit.TopicKey{Workflow: key.workflow, Topic: key.topic}, unread)
	return err
}

const inputFacts = `SELECT workflow, source, type, external_id, id, unfinished FROM input WHERE id = ANY($1)`

var inputKeyFacts = `SELECT i.workflow, i.source, i.type, i.external_id, i.id, i.unfinished
	  FROM ` + elements(`workflow text, source text, type text, external_id text`) + `
	  JOIN input i ON i.workflow = v.workflow AND i.source = v.source AND i.type = v.type AND i.external_id = v.external_id`

func (s *snapshot) scanInput(row pgx.CollectableRow) error {
	var key commit.InputKey
	in := new(commit.Input)
	err := row.Scan(into(&key.Workflow), into(&key.Source), into(&key.Type), into(&key.ExternalID), into(&in.ID), &in.Unfinished)
	in.Workflow = key.Workflow
	s.AddInput(in, key)
	return err
}

var itemFacts = `SELECT i.workflow, i.id, i.rev, i.n, i.status, i.attempt, i.swept FROM ` + elements(`workflow text, id text`) + `
	  JOIN item i ON i.workflow = v.workflow AND i.id = v.id`

func (s *snapshot) scanItem(row pgx.CollectableRow) error {
	var key commit.ItemKey
	it := new(commit.Item)
	err := row.Scan(into(&key.Workflow), into(&key.ID), &it.Rev, &it.N, into(&it.Status), &it.Attempt, &it.Swept)
	s.Items.Put(key, it)
	return err
}

const escalationFacts = `SELECT id, workflow, n, closed_at = 0 FROM escalation WHERE id = ANY($1)`

func (s *snapshot) scanEscalation(row pgx.CollectableRow) error {
	var id keep.EscalationID
	e := new(commit.Escalation)
	err := row.Scan(into(&id), into(&e.Workflow), &e.N, &e.Open)
	s.Escalations.Put(id, e)
	return err
}

// noticeFacts reads all notices of a question: who closes it cancels those that are
// pending, whatever their sinks.
var noticeFacts = `SELECT ` + noticeColumns + ` FROM escalation e
	  JOIN notice ON notice.workflow = e.workflow AND notice.escalation = e.n WHERE e.id = ANY($1)`

func (s *snapshot) scanNotice(row pgx.CollectableRow) error {
	n, err := scanNotice(row)
	s.Notices.Put(commit.NoticeKey{Escalation: n.Escalation, Sink: n.Sink}, &commit.Notice{Notice: n})
	return err
}

var handlerFacts = `SELECT ` + handlerColumns + ` FROM ` + elements(`workflow text, name text`) + `
	  JOIN handler ON handler.workflow = v.workflow AND handler.name = v.name`

func (s *snapshot) scanHandler(row pgx.CollectableRow) error {
	h, err := scanHandler(row)
	s.Handlers.Put(commit.HandlerKey{Workflow: h.Workflow, Handler: h.Handler}, &commit.Handler{HandlerState: h, Was: h.RequestedAt})
	return err
}

var kvFacts = `SELECT kv.workflow, kv.producer, kv.key, kv.value FROM ` + elements(`workflow text, producer text, key text`) + `
	  JOIN kv ON kv.workflow = v.workflow AND kv.producer = v.producer AND kv.key = v.key`

func (s *snapshot) scanKV(row pgx.CollectableRow) error {
	var key commit.KVKey
	var value []byte
	err := row.Scan(into(&key.Workflow), into(&key.Producer), into(&key.Key), &value)
	s.KVs.Put(key, value)
	return err
}

// sweepFacts reads whether chains are over, each at its time. By r.chain = r.id the planner would guess that few runs are the first of
// their chains, and might go through all of them rather than look for each; an empty text is appended so that it knows nothing of that.
var sweepFacts = `SELECT r.id, r.workflow, ` + isOver("v.before::bigint") + `
	  FROM unnest($1::text[], $2::text[]) AS v (chain, before) JOIN run r ON r.id = v.chain AND r.chain = v.chain || ''`

func (s *snapshot) scanChain(row pgx.CollectableRow) error {
	var id keep.RunID
	c := new(commit.Chain)
	err := row.Scan(into(&id), into(&c.Workflow), &c.Over)
	s.Chains.Put(id, c)
	return err
}
