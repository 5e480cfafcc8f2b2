package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
)

// Version 2025-03-26 of the protocol, and no other, has batches: messages that are sent as one, whose answers
// come as one.

// batching is the version that has batches.
const batching = "2025-03-26"

// maxBatch is how many messages a batch has at most (law: bounded).
const maxBatch = maxInFlight

// isBatch reports whether a frame is no single message.
func isBatch(frame []byte) bool {
	frame = bytes.TrimSpace(frame)
	return len(frame) > 0 && frame[0] == '['
}

// messagesOf returns the messages of a frame, which may be a batch.
func messagesOf(frame []byte) []mcp.Message {
	var all []mcp.Message
	if isBatch(frame) {
		_ = json.Unmarshal(frame, &all)
		return all
	}
	var m mcp.Message
	if json.Unmarshal(frame, &m) != nil {
		return nil
	}
	return []mcp.Message{m}
}

// requestsOf returns the requests of a frame, each of which is answered. A batch of more than maxBatch messages is answered
// as a whole.
func requestsOf(frame []byte) []mcp.Message {
	all := messagesOf(frame)
	if len(all) > maxBatch {
		return nil
	}
	return slices.DeleteFunc(all, func(m mcp.Message) bool { return m.Method == "" || !mcp.ValidID(m.ID) || !utf8.Valid(m.ID) })
}

// refusedFrame returns the answer to a frame of which nothing is worked on: to each request in it, or to nobody knows what.
func refusedFrame(frame []byte, code int, why string) ([]byte, error) {
	b := new(batch)
	for _, m := range requestsOf(frame) {
		b.replies = append(b.replies, &batchReply{message: refusal(m.ID, code, why)})
	}
	switch {
	case len(b.replies) == 0:
		return mcp.Frame(refusal(nil, code, why))
	case !isBatch(frame):
		return mcp.Frame(b.replies[0].message)
	}
	answer, _, err := b.wait()
	return answer, err
}

// A batch is messages that came as one, while they are worked on.
type batch struct {
	replies []*batchReply // in the order of the requests, with what is wrong with messages that are none
	working sync.WaitGroup
}

// A batchReply is what a batch answers to one request.
type batchReply struct {
	message mcp.Message
	answer  answer
}

// membersOf returns the messages of a batch in a version; an empty one is none that a client can mean.
func membersOf(frame []byte, version string) ([]json.RawMessage, *mcp.RPCError) {
	var members []json.RawMessage
	switch err := json.Unmarshal(frame, &members); {
	case version != batching:
		return nil, &mcp.RPCError{Code: invalidRequest, Message: "only version " + batching + " of the protocol has batches: send one message after another"}
	case err != nil:
		return nil, &mcp.RPCError{Code: parseError, Message: "the message is not JSON"}
	case len(members) == 0 || len(members) > maxBatch:
		return nil, &mcp.RPCError{Code: invalidRequest, Message: fmt.Sprintf("a batch has 1 to %d messages", maxBatch)}
	}
	return members, nil
}

// takeBatch begins to work on the messages of a batch, each as if it had come alone. What belongs to a
// request and comes before its answer goes by send; again says that an id may be in use.
func (s *session) takeBatch(ctx context.Context, members []json.RawMessage, before map[string]keep.RunID, send func(mcp.Message) error, again bool) *batch {
	b := new(batch)
	messages := make([]mcp.Message, len(members))
	wrong := make([]string, len(members))
	for i, raw := range members {
		messages[i], wrong[i] = memberOf(raw)
	}
	if slices.Contains(wrong, "") {
		s.heard(before, messages...) // a call beside others may be one whose answer was lost with theirs
	}
	for i, m := range messages {
		if wrong[i] == "" && (m.ID == nil || m.Method == "") {
			s.unanswered(m)
			continue
		}
		r := new(batchReply)
		b.replies = append(b.replies, r)
		var leave func()
		on := ctx
		if wrong[i] == "" {
			on, leave, wrong[i] = s.enter(ctx, m.ID, again)
		}
		if wrong[i] != "" {
			r.message = refusal(m.ID, invalidRequest, wrong[i])
			continue
		}
		b.working.Add(1)
		s.work(func() {
			defer b.working.Done()
			defer leave()
			r.answer = s.answer(on, s.exchangeOf(m.Params, false, send), m)
			r.message = r.answer.reply(m.ID)
		})
	}
	return b
}

// memberOf returns a message of a batch, and what is wrong with it; empty: nothing.
func memberOf(raw json.RawMessage) (m mcp.Message, wrong string) {
	switch err := json.Unmarshal(raw, &m); {
	case err != nil:
		return mcp.Message{ID: m.ID}, "a message of a batch is an object"
	case wrongWith(m) != "":
		return m, wrongWith(m)
	case m.Method == "initialize" || isModern(m.Params):
		return m, "it may not be part of a batch"
	}
	return m, ""
}

// wait returns the answers, and the frame that has them; nil: there is none to give. An error says that one of them is in it as
// an error, since it cannot be written: then none of them counts as delivered.
func (b *batch) wait() (frame []byte, answers []answer, err error) {
	b.working.Wait()
	var frames [][]byte
	for _, r := range b.replies {
		f, wrong := frameOf(r.message)
		frames, answers, err = append(frames, f), append(answers, r.answer), errors.Join(err, wrong)
	}
	if len(frames) == 0 {
		return nil, answers, nil
	}
	return append(append([]byte("["), bytes.Join(frames, []byte(","))...), ']'), answers, err
}

// namesOf returns the names of the call that a message makes of a tool that changes something; none: it makes none.
func (s *session) namesOf(m mcp.Message) []string {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	}
	if m.Method != "tools/call" || json.Unmarshal(m.Params, &p) != nil {
		return nil
	}
	tool, ok := toolOf(p.Name)
	if !ok {
		return nil
	}
	intent, _ := passed(p.Meta, "")
	r, err := s.g.newRequest(s.agent, tool, p.Arguments, intent)
	if err != nil {
		return nil
	}
	return r.ids
}

// postBatch takes a batch by HTTP.
func (h *HTTPHandler) postBatch(w http.ResponseWriter, r *http.Request, agent string, body []byte) {
	version := r.Header.Get(headerVersion)
	s, _ := h.session(agent, r.Header.Get(headerSession), false)
	if s == nil {
		h.refuse(w, r, http.StatusNotFound, "there is no such session: begin a new one")
		return
	}
	s.mu.Lock()
	if s.version != "" && (version == "" || version == batching) {
		version = s.version
	}
	s.mu.Unlock()
	members, wrong := membersOf(body, version)
	if wrong != nil {
		h.refuse(w, r, http.StatusBadRequest, wrong.Message)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	st, k := newStream(), &sink{w: w, control: http.NewResponseController(w)}
	conn := connOf(r)
	b := s.takeBatch(ctx, members, s.written(conn, everything), st.sender(r), true)
	var frame []byte
	var answers []answer
	done := make(chan error, 1)
	s.work(func() {
		var err error
		frame, answers, err = b.wait()
		done <- err
	})
	err := until(k, st, done, cancel)
	s.tell(func() (int64, error) {
		if frame == nil {
			w.WriteHeader(http.StatusAccepted)
			return 0, nil
		}
		return 0, errors.Join(err, k.answer(frame, http.StatusOK))
	}, conn, answers...)
}
