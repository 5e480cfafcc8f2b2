package web_test

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// A countReads counts the reads that pages make.
type countReads struct {
	store.Reader
	reads  atomic.Int64
	doubts atomic.Int64 // of those, lists of calls
}

func (c *countReads) Workflows(ctx context.Context) ([]keep.Workflow, error) {
	c.reads.Add(1)
	return c.Reader.Workflows(ctx)
}

func (c *countReads) Workflow(ctx context.Context, w keep.WorkflowName) (keep.Workflow, error) {
	c.reads.Add(1)
	return c.Reader.Workflow(ctx, w)
}

func (c *countReads) Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error) {
	c.reads.Add(1)
	return c.Reader.Deployment(ctx, w, v)
}

func (c *countReads) Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error) {
	c.reads.Add(1)
	return c.Reader.Deployments(ctx, w)
}

func (c *countReads) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
	c.reads.Add(1)
	return c.Reader.Handlers(ctx, w)
}

func (c *countReads) Run(ctx context.Context, id keep.RunID) (keep.Run, error) {
	c.reads.Add(1)
	return c.Reader.Run(ctx, id)
}

func (c *countReads) OpenRuns(ctx context.Context, w keep.WorkflowName) ([]keep.Run, error) {
	c.reads.Add(1)
	return c.Reader.OpenRuns(ctx, w)
}

func (c *countReads) Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	c.reads.Add(1)
	return c.Reader.Runs(ctx, f, p)
}

func (c *countReads) CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error) {
	c.reads.Add(1)
	return c.Reader.CountRuns(ctx, f)
}

func (c *countReads) Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error) {
	c.reads.Add(1)
	return c.Reader.Logs(ctx, run)
}

func (c *countReads) RunsByID(ctx context.Context, ids []keep.RunID) ([]keep.Run, error) {
	c.reads.Add(1)
	return c.Reader.RunsByID(ctx, ids)
}

func (c *countReads) Attempts(ctx context.Context, chains []keep.RunID) (map[keep.RunID]int, error) {
	c.reads.Add(1)
	return c.Reader.Attempts(ctx, chains)
}

func (c *countReads) CausesOf(ctx context.Context, chains []keep.RunID) (map[keep.RunID][]keep.InputID, error) {
	c.reads.Add(1)
	return c.Reader.CausesOf(ctx, chains)
}

func (c *countReads) Calls(ctx context.Context, chain keep.RunID, limit int) ([]keep.Mutation, error) {
	c.reads.Add(1)
	return c.Reader.Calls(ctx, chain, limit)
}

func (c *countReads) EscalationsOf(ctx context.Context, chain keep.RunID, limit int) ([]keep.Escalation, error) {
	c.reads.Add(1)
	return c.Reader.EscalationsOf(ctx, chain, limit)
}

func (c *countReads) Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (keep.Event, error) {
	c.reads.Add(1)
	return c.Reader.Event(ctx, w, t, id)
}

func (c *countReads) EventsByID(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) ([]keep.Event, error) {
	c.reads.Add(1)
	return c.Reader.EventsByID(ctx, w, t, ids)
}

func (c *countReads) Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error) {
	c.reads.Add(1)
	return c.Reader.Events(ctx, f, p)
}

func (c *countReads) Backlog(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName) (keep.Backlog, error) {
	c.reads.Add(1)
	return c.Reader.Backlog(ctx, w, topics)
}

func (c *countReads) Peek(ctx context.Context, w keep.WorkflowName, t keep.TopicName, limit int) ([]keep.Event, error) {
	c.reads.Add(1)
	return c.Reader.Peek(ctx, w, t, limit)
}

func (c *countReads) TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error) {
	c.reads.Add(1)
	return c.Reader.TopicCounts(ctx, w)
}

func (c *countReads) Input(ctx context.Context, id keep.InputID) (keep.Input, error) {
	c.reads.Add(1)
	return c.Reader.Input(ctx, id)
}

func (c *countReads) InputByKey(ctx context.Context, w keep.WorkflowName, source, typ, externalID string) (keep.Input, error) {
	c.reads.Add(1)
	return c.Reader.InputByKey(ctx, w, source, typ, externalID)
}

func (c *countReads) Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error) {
	c.reads.Add(1)
	return c.Reader.Inputs(ctx, f, p)
}

func (c *countReads) CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error) {
	c.reads.Add(1)
	return c.Reader.CountInputs(ctx, f)
}

func (c *countReads) Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error) {
	c.reads.Add(1)
	return c.Reader.Causes(ctx, chain)
}

func (c *countReads) Outputs(ctx context.Context, id keep.InputID) ([]keep.MutationKey, error) {
	c.reads.Add(1)
	return c.Reader.Outputs(ctx, id)
}

func (c *countReads) InputsByID(ctx context.Context, ids []keep.InputID) ([]keep.Input, error) {
	c.reads.Add(1)
	return c.Reader.InputsByID(ctx, ids)
}

func (c *countReads) Progress(ctx context.Context, ids []keep.InputID, events, outputs int) (map[keep.InputID]keep.Progress, error) {
	c.reads.Add(1)
	return c.Reader.Progress(ctx, ids, events, outputs)
}

func (c *countReads) Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error) {
	c.reads.Add(1)
	return c.Reader.Mutation(ctx, key)
}

func (c *countReads) History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error) {
	c.reads.Add(1)
	return c.Reader.History(ctx, key)
}

func (c *countReads) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	c.reads.Add(1)
	c.doubts.Add(1)
	return c.Reader.Mutations(ctx, f, p)
}

func (c *countReads) CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error) {
	c.reads.Add(1)
	return c.Reader.CountMutations(ctx, f)
}

func (c *countReads) ResultsAfter(ctx context.Context, w keep.WorkflowName, key keep.MutationKey, limit, size int) ([]keep.StoredResult, error) {
	c.reads.Add(1)
	return c.Reader.ResultsAfter(ctx, w, key, limit, size)
}

func (c *countReads) Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error) {
	c.reads.Add(1)
	return c.Reader.Item(ctx, w, id)
}

func (c *countReads) ItemsAfter(ctx context.Context, w keep.WorkflowName, id string, limit int) ([]keep.Item, error) {
	c.reads.Add(1)
	return c.Reader.ItemsAfter(ctx, w, id, limit)
}

func (c *countReads) Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error) {
	c.reads.Add(1)
	return c.Reader.Items(ctx, f, p)
}

func (c *countReads) CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error) {
	c.reads.Add(1)
	return c.Reader.CountItems(ctx, f)
}

func (c *countReads) Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error) {
	c.reads.Add(1)
	return c.Reader.Escalation(ctx, id)
}

func (c *countReads) Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	c.reads.Add(1)
	return c.Reader.Escalations(ctx, f, p)
}

func (c *countReads) CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error) {
	c.reads.Add(1)
	return c.Reader.CountEscalations(ctx, f)
}

func (c *countReads) Owed(ctx context.Context, sink keep.Sink, limit int) ([]keep.Owed, error) {
	c.reads.Add(1)
	return c.Reader.Owed(ctx, sink, limit)
}

func (c *countReads) Notices(ctx context.Context, id keep.EscalationID) ([]keep.Notice, error) {
	c.reads.Add(1)
	return c.Reader.Notices(ctx, id)
}

func (c *countReads) GivenUp(ctx context.Context, limit int) ([]keep.Notice, error) {
	c.reads.Add(1)
	return c.Reader.GivenUp(ctx, limit)
}

func (c *countReads) Current(ctx context.Context) ([]keep.Deployment, error) {
	c.reads.Add(1)
	return c.Reader.Current(ctx)
}

func (c *countReads) MutationsByKey(ctx context.Context, keys []keep.MutationKey) ([]keep.Mutation, error) {
	c.reads.Add(1)
	return c.Reader.MutationsByKey(ctx, keys)
}

func (c *countReads) Histories(ctx context.Context, keys []keep.MutationKey) (map[keep.MutationKey][]keep.Move, error) {
	c.reads.Add(1)
	return c.Reader.Histories(ctx, keys)
}

func (c *countReads) LastApplied(ctx context.Context, tools []keep.ToolName) (map[keep.ToolName]keep.Mutation, error) {
	c.reads.Add(1)
	return c.Reader.LastApplied(ctx, tools)
}

func (c *countReads) ItemCalls(ctx context.Context, items []keep.ItemRef, limit int) (map[keep.ItemRef][]keep.MutationKey, error) {
	c.reads.Add(1)
	return c.Reader.ItemCalls(ctx, items, limit)
}

func (c *countReads) RunsOf(ctx context.Context, id keep.InputID, limit int) ([]keep.Run, error) {
	c.reads.Add(1)
	return c.Reader.RunsOf(ctx, id, limit)
}

func (c *countReads) Counters(ctx context.Context, step keep.Step, w keep.WorkflowName, from, to time.Time) ([]keep.Counter, error) {
	c.reads.Add(1)
	return c.Reader.Counters(ctx, step, w, from, to)
}

func (c *countReads) QuestionGroups(ctx context.Context, limit int) ([]keep.QuestionGroup, error) {
	c.reads.Add(1)
	return c.Reader.QuestionGroups(ctx, limit)
}

func (c *countReads) QuestionsLike(ctx context.Context, w keep.WorkflowName, q keep.QuestionCause, pass, limit int) ([]keep.Escalation, error) {
	c.reads.Add(1)
	return c.Reader.QuestionsLike(ctx, w, q, pass, limit)
}

func (c *countReads) QuestionsByID(ctx context.Context, ids []keep.EscalationID) ([]keep.Escalation, error) {
	c.reads.Add(1)
	return c.Reader.QuestionsByID(ctx, ids)
}

func (c *countReads) QuestionsAbout(ctx context.Context, runs []keep.RunID) ([]keep.Escalation, error) {
	c.reads.Add(1)
	return c.Reader.QuestionsAbout(ctx, runs)
}

func (c *countReads) Unasked(ctx context.Context, limit int) ([]keep.Run, error) {
	c.reads.Add(1)
	return c.Reader.Unasked(ctx, limit)
}

func (c *countReads) OpenOf(ctx context.Context, chains []keep.RunID) ([]keep.Run, error) {
	c.reads.Add(1)
	return c.Reader.OpenOf(ctx, chains)
}
