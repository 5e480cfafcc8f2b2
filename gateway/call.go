package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/repeat"
)

// An answer is what an agent gets.
type answer struct {
	result json.RawMessage
	err    *mcp.RPCError

	// of names the call whose last answer this is, and run its run; empty: the answer is not
	// the last one, or of no call.
	of  string
	run keep.RunID

	unsent bool  // its request ended before the call was sent, which is no answer to another request
	number int64 // of the last answers of its session; zero: it is none, or its request was cancelled
}

// reply returns the message that answers a request.
func (a answer) reply(id json.RawMessage) mcp.Message {
	m := mcp.Message{Version: "2.0", ID: id, Result: a.result, Error: a.err}
	if a.err == nil && a.result == nil {
		m.Result = json.RawMessage(`{}`)
	}
	return m
}

// frameOf returns the frame of an answer. An error comes with the frame of another answer to the same request, which says
// that there is none: who asked must not wait forever.
func frameOf(m mcp.Message) ([]byte, error) {
	frame, err := mcp.Frame(m)
	if err != nil {
		refused := &mcp.RPCError{Code: internalError, Message: fmt.Sprintf("the answer cannot be written: %v. What became of a call is on record: make it again, or ask keep_outcome.", err)}
		frame, _ = mcp.Frame(mcp.Message{Version: "2.0", ID: m.ID, Error: refused})
	}
	return frame, err
}

// A request is a call of a tool that changes something, as an agent made it.
type request struct {
	agent    string
	tool     keep.ToolName
	params   json.RawMessage // canonical
	identity json.RawMessage // canonical
	meta     json.RawMessage // as the agent gave it; nil: none
	intent   string
	ids      []string        // the names that the call may have, today's first
	id       string          // the one by which it is known, which decide sets
	tools    []keep.ToolName // of which they are made
	rule     Rule

	ctx context.Context // of the request: what comes before the call is sent ends with it
}

// newRequest returns the request for a call, or why it cannot be made.
func (g *Gateway) newRequest(agent string, tool keep.ToolName, args json.RawMessage, intent string) (request, *mcp.RPCError) {
	r := request{agent: agent, tool: tool, rule: g.rule(tool), intent: intent}
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(args, &all); err != nil {
		return r, &mcp.RPCError{Code: invalidParams, Message: "arguments must be an object"}
	}
	var err error
	if r.params, err = canonical.Held(args); err != nil {
		return r, &mcp.RPCError{Code: invalidParams, Message: fmt.Sprintf("the arguments of %s cannot be recorded exactly, so nothing was sent: %v", tool, err)}
	}
	r.identity = r.params
	if names := r.rule.Identity; len(names) > 0 {
		some := make(map[string]json.RawMessage)
		for _, n := range names {
			if v, ok := all[n]; ok {
				some[n] = v
			}
		}
		if r.identity, err = canonical.Object(some); err != nil {
			return r, &mcp.RPCError{Code: invalidParams, Message: err.Error()}
		}
	}
	for _, server := range append([]string{tool.Connection()}, g.cfg.Was[tool.Connection()]...) {
		name := keep.ToolName(server + "." + ownName(tool))
		r.tools = append(r.tools, name)
		r.ids = append(r.ids, repeat.Identity{Agent: agent, Tool: name, Identity: r.identity, Intent: intent}.Hash())
	}
	return r, nil
}

// make makes a call, or answers from the ledger. Nobody else in this process is at the same one.
func (g *Gateway) make(ctx context.Context, r request) answer {
	waits := time.Now().Add(g.timeout(r) + joinMore)
	for first := true; ; first = false {
		a, again, err := g.try(ctx, r)
		switch {
		case g.ctx.Err() != nil && (err != nil || again):
			return answer{err: &mcp.RPCError{Code: internalError, Message: errEnded.Error()}}
		case err != nil && !errors.Is(err, keep.ErrStale) && !errors.Is(err, keep.ErrRunOpen):
			g.log.Error("a call could not be recorded", "tool", r.tool, "err", err)
			return failed(fmt.Sprintf("%s: the ledger could not be written or read. If the call was sent, it is on record; ask again with the same arguments.", r.tool), nil)
		case err == nil && !again:
			return a
		case time.Now().After(waits) && a.result != nil:
			return a
		case time.Now().After(waits):
			return failed(fmt.Sprintf("%s: the same call is still being made by another process. Make it again later: it is the same call, and is not sent twice.", r.tool), nil)
		}
		if !first {
			select {
			case <-time.After(pollEvery):
			case <-g.ctx.Done():
			}
		}
	}
}

const (
	joinMore  = 10 * time.Second // beyond its timeout, a call of another process is waited for
	pollEvery = 50 * time.Millisecond
)

// timeout is how long the call may be out.
func (g *Gateway) timeout(r request) time.Duration {
	if r.rule.Timeout > 0 {
		return r.rule.Timeout
	}
	return mcp.DefaultTimeout
}

// try decides what the call is, and does it. Again says that another process has it, or, with an answer, that another call that it
// would come into is being sent again.
func (g *Gateway) try(ctx context.Context, r request) (a answer, again bool, err error) {
	last, unchanged, verdict, err := g.decide(ctx, &r)
	switch {
	case err != nil:
		return a, false, err
	case verdict == repeat.Join: // nobody here makes it: its process died, or is another one
		return a, true, g.caller.RecoverRun(ctx, last.Run, g.cfg.Alone)
	case verdict == repeat.Answer:
		return g.answered(ctx, r, last)
	}
	if a, again, err := g.begins(ctx, r, last, unchanged); err != nil || again || a.result != nil {
		return a, again, err
	}
	if a, refused := g.refused(r.ctx, r.agent, r.tool, r.params); refused {
		a.unsent = r.ctx.Err() != nil
		return a, false, nil
	}
	d := engine.DirectCall{Lane: laneOf(r.id), Agent: r.agent, Tool: r.tool, Params: r.params, Identity: r.identity}
	d.Known = r.tools[slices.Index(r.ids, r.id)]
	switch verdict {
	case repeat.Again:
		was := pinnedOf(last.Run)
		d.Prev, d.As, d.Ask = last.Run, was.Tool, was.Ask // its record keeps the name of its tool
	case repeat.Confirm:
		d.Ask = fmt.Sprintf("the agent %s made the same call before, and got its answer; repeat = \"ask\" wants a person's word before it is made once more", r.agent)
	}
	stored := func() {}
	d.With = func(run keep.Run) (changes []keep.Change) {
		changes, stored = g.deliveries()
		// Another process may have made the call since, from its beginning to its end.
		return append(append(changes, unchanged...), delivery{Run: run.ID}.put(r.id, lastKey))
	}
	var said mcp.Answer
	out, err := g.caller.Call(mcp.WithMeta(mcp.WithAnswer(ctx, &said), r.meta), d)
	if err != nil {
		return a, false, err
	}
	if out.Run.Rev > 0 {
		stored()
	}
	if out.Run.Rev == 0 && out.Mutation.Key == "" {
		why := strings.TrimSuffix(strings.TrimRight(out.Failure.Message, "."), "; nothing was sent")
		return notCalled(r.tool, why), out.Failure.Code == keep.CodeSentAgain, nil
	}
	if out.Mutation.Key != "" && out.Mutation.State.Happened() && out.Mutation.PayloadHash != ledger.Hash(r.params) { // the service shows the one before
		return otherContent(r.tool, string(out.Mutation.Key)), false, nil
	}
	return g.known(r, out.Run, out.Mutation, &said, false), false, nil
}

// decide returns the last call that is the same as a request, nil if there is none, and what the request is after it, which holds for a commit
// only with the conditions unchanged. It sets the name by which the request is known: that of this call, or else today's.
//
// Under each name of the request the last call is another one if a gateway made it that does not know all of the names. The newest counts,
// unless it is known not to have happened: then an older one may have, whose answer was never delivered.
func (g *Gateway) decide(ctx context.Context, r *request) (last *repeat.Last, unchanged []keep.Change, v repeat.Verdict, err error) {
	rules := g.cfg.Repeat
	if r.rule.Repeat != "" {
		rules.Repeat = r.rule.Repeat
	}
	type known struct {
		id   string
		last delivery
	}
	var names []known
	for _, id := range r.ids {
		d, seen, err := g.lastRun(ctx, id)
		if err != nil {
			return nil, nil, "", err
		}
		names = append(names, known{id, d})
		unchanged = append(unchanged, keep.IfKV{Producer: checkpoint(id), Key: lastKey, Value: seen})
	}
	slices.SortStableFunc(names, func(a, b known) int { return cmp.Compare(b.last.Run, a.last.Run) }) // ids of runs are in the order of time
	for i, name := range names {
		one, err := g.last(ctx, name.last)
		if err != nil {
			return nil, nil, "", err
		}
		verdict := repeat.Decide(one, rules, g.engine.Now())
		if i == 0 || !verdict.Makes() {
			r.id, last, v = name.id, one, verdict
		}
		if one != nil && verdict != repeat.Again {
			break
		}
	}
	return last, unchanged, v, nil
}

// answered answers a call from what the ledger has of the last one. Again says that this changes just now.
func (g *Gateway) answered(ctx context.Context, r request, last *repeat.Last) (a answer, again bool, err error) {
	if is := contentOf(last); is != "" && is != ledger.Hash(r.params) {
		return otherContent(r.tool, repeat.Ref(last.Run)), false, nil
	}
	if !last.Run.Closed { // a person may have decided, or a lookup be due
		if err := g.caller.AskAbout(g.ctx, last.Run); err != nil {
			return a, false, err
		}
		verdict := repeat.Answer
		if last, _, verdict, err = g.decide(ctx, &r); err != nil || verdict != repeat.Answer {
			return a, err == nil, err
		}
	}
	a = g.known(r, last.Run, last.Mutation, nil, true)
	if last.Mutation.State.Happened() {
		a.result = withText(a.result, madeBefore(last))
	}
	return a, false, nil
}

// madeBefore says of an answer that it is given again, to a model that sees no _meta.
func madeBefore(last *repeat.Last) string {
	done := "a person said that this call is done; it was not made"
	if m := last.Mutation; m.Key != "" {
		done = fmt.Sprintf("this call was made before, at %s; it was not made again", m.CreatedAt.UTC().Format("2006-01-02 15:04:05Z"))
	}
	more := ""
	if last.Delivered.IsZero() {
		more = ", or call something else first"
	}
	return fmt.Sprintf("Keep: %s. To make it once more, give it a text of its own as _meta[%q]%s.", done, metaIntent, more)
}

// contentOf returns the hash of what a call said: what was sent, or else what its last attempt would send. Empty: a version kept the call
// that did not say so.
func contentOf(last *repeat.Last) string {
	if m := last.Mutation; m.Key != "" && !lifecycle.Resends(m) {
		return m.PayloadHash
	}
	return cmp.Or(pinnedOf(last.Run).Content, last.Mutation.PayloadHash)
}

// otherContent answers a call that another one stands for.
func otherContent(tool keep.ToolName, ref string) answer {
	return failed(fmt.Sprintf("An equal call of %s with other content was made before, and its outcome is not with you yet: make that one again, or ask keep_outcome with %s. Nothing was sent. "+
		"If both are meant, give each a text of its own as _meta[\"keep/intent\"].", tool, ref), nil)
}

// notCalled answers a call of which nothing was sent.
func notCalled(tool keep.ToolName, why string) answer {
	return failed(fmt.Sprintf("%s was not called: %s. Nothing was sent.", tool, why), map[string]any{metaState: "failed"})
}

// Members of _meta on answers.
const (
	metaRef      = "keep/ref"
	metaState    = "keep/state"
	metaReplayed = "keep/replayed"
	metaIntent   = "keep/intent"
)

// known returns the answer from what is known of a call. said is what the server has just said;
// nil: nothing.
func (g *Gateway) known(r request, run keep.Run, m keep.Mutation, said *mcp.Answer, replayed bool) answer {
	ref := repeat.Ref(run)
	meta := map[string]any{metaRef: ref, metaState: repeat.State(run, m)}
	if replayed && m.State.Happened() {
		meta[metaReplayed] = true
	}
	var a answer
	switch {
	case m.State.Happened() && m.Result == nil:
		a = answer{result: withMeta(textResult(fmt.Sprintf("%s happened. Its result is not known.", r.tool)), meta)}
	case m.State.Happened() || m.Key == "" && run.Status == keep.StatusCommitted:
		a = answer{result: withMeta(mcp.Unwrap(m.Result), meta)}
	case lifecycle.Resends(m) && said != nil && said.Error != nil:
		return answer{err: said.Error}
	case lifecycle.Resends(m) && said != nil && said.Result != nil:
		return answer{result: withMeta(said.Result, meta)}
	case lifecycle.Unknown(m.State) && said != nil && said.Error != nil && said.Error.Code == missingCapability:
		err := *said.Error
		err.Message += ". " + repeat.Sentence(r.tool, run, m)
		return answer{err: &err}
	case lifecycle.Unknown(m.State) && m.Error != nil && m.Error.Code == mcp.CodeToolError:
		return failed(m.Error.Message+"\n\n"+repeat.Sentence(r.tool, run, m), meta)
	default:
		a = failed(repeat.Sentence(r.tool, run, m), meta)
	}
	if repeat.Final(run, m) {
		a.of, a.run = r.id, run.ID
	}
	return a
}

// textResult returns a result that is one text.
func textResult(text string) json.RawMessage {
	result, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}})
	return result
}

// failed returns a result with isError.
func failed(text string, meta map[string]any) answer {
	r := map[string]any{"content": []any{map[string]string{"type": "text", "text": text}}, "isError": true}
	if meta != nil {
		r["_meta"] = meta
	}
	result, _ := json.Marshal(r)
	return answer{result: result}
}

// withMeta returns the result of a server with more in its _meta. Everything else stays, in its order.
func withMeta(result json.RawMessage, meta map[string]any) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(result, &all) != nil || all == nil {
		return result
	}
	merged := make(map[string]any)
	if all["_meta"] != nil {
		var was map[string]json.RawMessage
		_ = json.Unmarshal(all["_meta"], &was)
		for k, v := range was {
			merged[k] = v
		}
	}
	for k, v := range meta {
		merged[k] = v
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return result
	}
	if all["_meta"] != nil {
		all["_meta"] = text
		out, _ := json.Marshal(all)
		return out
	}
	return insert(result, `"_meta":`+string(text), len(all) == 0)
}

// withText returns the result of a server with one more text in its content. Everything else stays.
func withText(result json.RawMessage, text string) json.RawMessage {
	var all map[string]json.RawMessage
	var content []json.RawMessage
	if json.Unmarshal(result, &all) != nil || all == nil || all["content"] != nil && json.Unmarshal(all["content"], &content) != nil {
		return result
	}
	one, _ := json.Marshal(map[string]string{"type": "text", "text": text})
	all["content"], _ = json.Marshal(append(content, one))
	out, err := json.Marshal(all)
	if err != nil {
		return result
	}
	return out
}

// insert returns an object with more members before the others, which stay as they are.
func insert(object json.RawMessage, members string, empty bool) json.RawMessage {
	members = strings.Trim(members, ",")
	if members == "" {
		return object
	}
	i := strings.IndexByte(string(object), '{') + 1
	if !empty {
		members += ","
	}
	return json.RawMessage(string(object[:i]) + members + string(object[i:]))
}

// outcome answers keep_outcome.
func (g *Gateway) outcome(ctx context.Context, agent string, args json.RawMessage) answer {
	var in struct {
		Ref string `json:"ref"`
	}
	if err := json.Unmarshal(args, &in); err != nil || in.Ref == "" {
		return failed("keep_outcome takes {\"ref\": \"mut_…\"}", nil)
	}
	unknown := failed(fmt.Sprintf("There is no call %.60s of yours. The reference of a call is in the sentence that you got for it, and in _meta[%q].", in.Ref, metaRef), nil)
	rest, ok := strings.CutPrefix(in.Ref, "mut_")
	if !ok {
		return unknown
	}
	run, m, err := g.lastAttempt(ctx, keep.RunID("run_"+rest))
	if err == nil && (run.ID == "" || pinnedOf(run).Agent != agent) {
		return unknown
	}
	if err != nil {
		_ = g.inLedger(err)
		return failed("The ledger could not be read. Ask again later.", nil)
	}
	if err := g.caller.AskAbout(g.ctx, run); err != nil {
		g.log.Warn("ask what became of a call", "ref", in.Ref, "err", err)
	}
	if again, now, err := g.lastAttempt(ctx, run.Chain); err == nil && again.ID != "" {
		run, m = again, now
	}
	tool := pinnedOf(run).Tool
	out := map[string]any{"ref": in.Ref, "tool": tool, "state": repeat.State(run, m), "sentence": repeat.Sentence(tool, run, m), "result": nil}
	if m.State.Happened() && m.Result != nil {
		out["result"] = mcp.Unwrap(m.Result)
	}
	text, err := json.Marshal(out)
	if err != nil { // what is on record is damaged
		return failed(fmt.Sprintf("%s Its result cannot be written: %v", repeat.Sentence(tool, run, m), err), nil)
	}
	return answer{result: textResult(string(text))}
}

// lastAttempt returns the last run of a call, and what is known of it. Without a run: there is no such call. It is the last one whatever
// the clock was: stores list runs in the order in which they were recorded.
func (g *Gateway) lastAttempt(ctx context.Context, chain keep.RunID) (run keep.Run, m keep.Mutation, err error) {
	runs, _, err := g.store.Runs(ctx, keep.RunFilter{Workflow: keep.DirectWorkflow, Chain: chain}, keep.Page{Limit: 1})
	if err != nil || len(runs) == 0 {
		return run, m, err
	}
	m, err = g.caller.Known(ctx, runs[0])
	return runs[0], m, err
}

// A pinnedCall is what a run keeps of who makes which call.
type pinnedCall struct {
	Agent string        `json:"agent"`
	Tool  keep.ToolName `json:"tool"`
	Known keep.ToolName `json:"known"` // of which its lane is made; empty: a version made it that did not keep that, mostly of Tool
	Ask   string        `json:"ask"`   // why a person had to agree, beside what the tool says

	Content string `json:"content"` // the hash of what it says; empty: a version made it that did not keep that
}

func pinnedOf(run keep.Run) pinnedCall {
	var p struct {
		Data pinnedCall `json:"data"`
	}
	_ = json.Unmarshal(run.Prepared, &p)
	return p.Data
}

func isMissing(err error) bool {
	_, missing := errors.AsType[*keep.NotFoundError](err)
	return missing
}
