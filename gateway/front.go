package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep/connector/mcp"
)

// A Front is one agent on stdin and stdout, whose gateway may be in another process, and may be another one in the
// next moment. When its gateway ends, whatever the reason, the front begins the agent's session anew at the next one, and
// makes the requests again that have no answer. That is what the protocol has a client do, and the ledger
// decides what a call made again is: one that was sent is asked about, and is not sent a second time.
type Front struct {
	// Connect returns a link to a gateway, and waits until there is one. It is called again when
	// that ended.
	Connect func(context.Context) (Link, error)

	MessageLimit int          // of a frame of the agent; zero: mcp.DefaultMessageLimit
	Logger       *slog.Logger // nil: slog.Default
}

// maxMade is how often a request is made: one whose gateway ends each time may be what ends it (law: bounded).
const maxMade = 5

// maxAhead is how many frames of the agent are read before they can be passed on (law: bounded): where there is no gateway just now, one of
// them may give up what the next one would be asked for.
const maxAhead = 16

// Serve serves the agent until the end of in or of ctx, and returns nil then. An error says that there is no
// gateway any more; requests without an answer were told so.
func (f Front) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	p := &pump{log: cmp.Or(f.Logger, slog.Default()), out: out, writing: make(chan struct{}, 1), frames: make(chan agentFrame, maxAhead), watches: make(map[string]json.RawMessage), gaveUp: make(map[string]int)}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() { // ends with in, or with the process
		p.read(ctx, mcp.NewReader(in, cmp.Or(f.MessageLimit, mcp.DefaultMessageLimit)))
		time.AfterFunc(2*endTime, end) // an agent that is gone waits for no gateway
	}()
	for {
		link, err := f.Connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			p.giveUp(err)
			return err
		}
		over := p.through(ctx, link)
		_ = link.Close()
		if over {
			return nil
		}
		p.log.Info("the gateway of this agent ended; another one takes its place")
	}
}

// A pump moves the frames of an agent.
type pump struct {
	log    *slog.Logger
	out    io.Writer
	frames chan agentFrame // that the agent sent; closed at its end

	writing chan struct{} // holds a token while a frame is written to the agent

	mu      sync.Mutex      // protects the next six
	link    int             // which one it is, from 1
	wrote   int64           // how many frames of the link are with the agent
	pending []*pendingFrame // in their order
	own     string          // the id of a request that is not the agent's; empty: there is none
	greeted chan struct{}   // gets a token when that was answered
	gaveUp  map[string]int  // how many frames that are read, and not passed on yet, cancel a request, by its id

	hello, level json.RawMessage            // params of the agent's handshake, and of logging/setLevel; nil: there were none
	watches      map[string]json.RawMessage // params of resources/subscribe, by URI
}

// An agentFrame is a frame of the agent, with the link at which it came and how many frames of that were
// written before.
type agentFrame struct {
	frame   []byte
	link    int
	read    int64
	cancels []string // ids of requests
}

// A pendingFrame has requests without an answer.
type pendingFrame struct {
	frame   []byte
	ids     []string
	givenUp []string // of these, what the agent cancelled: the next gateway is not asked for it
	made    int
}

// read takes frames of the agent.
func (p *pump) read(ctx context.Context, r *mcp.Reader) {
	defer close(p.frames)
	for {
		frame, err := r.Next()
		if tooLarge, ok := errors.AsType[*mcp.TooLargeError](err); ok && (tooLarge.Asks || tooLarge.ID == nil) {
			p.refuse(tooLarge.ID, invalidRequest, tooLarge.Error())
			continue
		} else if ok { // a server waits for it
			frame, err = mcp.Frame(unreadAnswer(tooLarge))
		}
		if err != nil {
			return
		}
		if !utf8.Valid(frame) {
			if refused, err := refusedFrame(frame, parseError, notUTF8); err == nil {
				p.answer(refused)
			}
			continue
		}
		f := agentFrame{frame: bytes.Clone(frame)}
		f.cancels = p.giveUpOf(f.frame)
		select { // an answer that is being written, the agent may have read
		case p.writing <- struct{}{}:
			p.mu.Lock()
			f.link, f.read = p.link, p.wrote
			p.mu.Unlock()
			<-p.writing
		case <-time.After(patience): // an agent that does not read is no reason not to read what it sends
		}
		select {
		case p.frames <- f:
		case <-ctx.Done():
			return
		}
	}
}

// refuse answers the agent in place of a gateway.
func (p *pump) refuse(id json.RawMessage, code int, why string) {
	if frame, err := mcp.Frame(refusal(id, code, why)); err == nil {
		p.answer(frame)
	}
}

// answer writes a frame that is of no gateway.
func (p *pump) answer(frame []byte) {
	p.writing <- struct{}{}
	_, _ = p.out.Write(append(frame, '\n'))
	<-p.writing
}

// giveUp answers what has no answer.
func (p *pump) giveUp(err error) {
	for _, f := range p.take() {
		p.refuseAll(f, fmt.Sprintf("there is no gateway any more (%v). If the request is a call that was sent, it is on record: make it again later, it is the same call", err))
	}
}

func (p *pump) refuseAll(f *pendingFrame, why string) {
	for _, id := range f.ids {
		p.refuse(json.RawMessage(id), internalError, why)
	}
}

// take returns what has no answer, and forgets it.
func (p *pump) take() []*pendingFrame {
	p.mu.Lock()
	defer p.mu.Unlock()
	pending := p.pending
	p.pending = nil
	return pending
}

// through moves frames over a link until it breaks, or until the agent or ctx ends: then it is over.
func (p *pump) through(ctx context.Context, link Link) (over bool) {
	p.mu.Lock()
	p.link++
	p.wrote, p.own, p.greeted = 0, "", make(chan struct{}, 1)
	p.mu.Unlock()
	broken := make(chan struct{})
	go func() { // ends with the link
		defer close(broken)
		defer link.Close() // and with it whoever writes to it
		p.deliver(link)
	}()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(endTime+time.Second/2, func() { _ = link.Close() }) })
	defer stop()
	if !p.again(ctx, link, broken) {
		return ctx.Err() != nil
	}
	for {
		select {
		case <-broken:
			return false
		case f, more := <-p.frames:
			if more {
				p.forward(link, f)
				continue
			}
		case <-ctx.Done():
		}
		// What was sent is waited for a moment, as on stdin and stdout.
		_ = link.CloseWrite()
		select {
		case <-broken:
		case <-time.After(endTime + time.Second/2):
		}
		return true
	}
}

// forward passes a frame of the agent on, and notes what has to be made again if the gateway ends. What is lost
// with a link that breaks just now is among that, or was for that gateway alone.
func (p *pump) forward(link Link, f agentFrame) {
	if f.link != p.link {
		f.read = 0
	}
	ids := p.note(f.frame)
	if len(ids) > 0 {
		p.await(&pendingFrame{frame: f.frame, ids: ids, made: 1})
	}
	p.mu.Lock()
	for _, id := range f.cancels {
		if p.gaveUp[id]--; p.gaveUp[id] == 0 {
			delete(p.gaveUp, id)
		}
	}
	p.mu.Unlock()
	_, _ = link.Write(lineOf(f.read, f.frame))
}

// await notes that a frame has requests without an answer.
func (p *pump) await(f *pendingFrame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, f)
	p.mark(f)
}

// mark notes which requests of a frame were cancelled by what is read and not passed on yet; mu is held.
func (p *pump) mark(f *pendingFrame) {
	for _, id := range f.ids {
		if p.gaveUp[id] > 0 {
			f.givenUp = append(f.givenUp, id)
		}
	}
}

// giveUpOf notes which requests a frame cancels, and returns their ids. It is called when the frame is read: what it cancels may be made again
// before the frame is passed on.
func (p *pump) giveUpOf(frame []byte) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messagesOf(frame) {
		id := cancelledBy(m)
		if id == "" {
			continue
		}
		ids = append(ids, id)
		p.gaveUp[id]++
		for _, f := range p.pending {
			if slices.Contains(f.ids, id) {
				f.givenUp = append(f.givenUp, id)
			}
		}
	}
	return ids
}

// lineOf is a frame as it goes to a gateway.
func lineOf(read int64, frame []byte) []byte {
	return append(append(fmt.Appendf(nil, "%d ", read), frame...), '\n')
}

// note returns the ids of the requests of a frame, and keeps what belongs to the session of the agent.
func (p *pump) note(frame []byte) (ids []string) {
	for _, m := range requestsOf(frame) {
		ids = append(ids, string(m.ID))
		var of struct {
			URI string `json:"uri"`
		}
		switch m.Method {
		case "initialize":
			p.hello = m.Params
		case "logging/setLevel":
			p.level = m.Params
		case "resources/subscribe", "resources/unsubscribe":
			_ = json.Unmarshal(m.Params, &of)
			if m.Method == "resources/unsubscribe" {
				delete(p.watches, of.URI)
			} else if len(p.watches) < maxWatched {
				p.watches[of.URI] = m.Params
			}
		}
	}
	return ids
}

// deliver writes the frames of a gateway to the agent, each whole or not at all.
func (p *pump) deliver(link Link) {
	lines := bufio.NewReaderSize(link, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var answered []string
		for _, m := range messagesOf(line) {
			if m.Method == "" && m.ID != nil {
				answered = append(answered, string(m.ID))
			}
		}
		if p.isOwn(answered) {
			continue
		}
		p.writing <- struct{}{}
		_, err = p.out.Write(line)
		p.mu.Lock()
		p.forget(answered)
		p.wrote++
		p.mu.Unlock()
		<-p.writing
		if err != nil {
			return // the agent is gone, and its stdin ends, too
		}
	}
}

// isOwn reports whether a frame answers a request that was not the agent's.
func (p *pump) isOwn(answered []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == "" || len(answered) != 1 || answered[0] != p.own {
		return false
	}
	p.own = ""
	p.wrote++
	p.greeted <- struct{}{}
	return true
}

// forget notes that requests were answered; mu is held.
func (p *pump) forget(ids []string) {
	for _, id := range ids {
		for i, f := range slices.Backward(p.pending) {
			at := slices.Index(f.ids, id)
			if at < 0 {
				continue
			}
			if f.ids = slices.Delete(f.ids, at, at+1); len(f.ids) == 0 {
				p.pending = slices.Delete(p.pending, i, i+1)
			}
			break
		}
	}
}

// again begins the session of the agent anew at a gateway, and makes the requests again that have no answer.
func (p *pump) again(ctx context.Context, link Link, broken <-chan struct{}) bool {
	greetings := []mcp.Message{}
	if p.hello != nil && !p.waits("initialize") {
		greetings = append(greetings, mcp.Message{Method: "initialize", Params: p.hello})
	}
	if p.level != nil && !p.waits("logging/setLevel") {
		greetings = append(greetings, mcp.Message{Method: "logging/setLevel", Params: p.level})
	}
	for _, uri := range slices.Sorted(maps.Keys(p.watches)) {
		greetings = append(greetings, mcp.Message{Method: "resources/subscribe", Params: p.watches[uri]})
	}
	for _, m := range greetings {
		m.Version, m.ID = "2.0", json.RawMessage(fmt.Sprintf("%q", "keep-"+rand.Text()))
		if !p.greet(ctx, link, m, broken) {
			return false
		}
		if m.Method == "initialize" {
			_, _ = link.Write(lineOf(0, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)))
		}
	}
	for _, f := range p.take() {
		p.mu.Lock()
		p.mark(f)
		p.mu.Unlock()
		if !p.keeps(f) {
			continue
		}
		if f.made >= maxMade {
			p.refuseAll(f, fmt.Sprintf("the gateway ended %d times while it worked on this. What became of a call is on record: see keep mutations", f.made))
			continue
		}
		f.made++
		p.await(f)
		_, _ = link.Write(lineOf(0, f.frame))
	}
	return true
}

// keeps takes out of a frame what the agent gave up, and answers it: a call that was sent is on record, and one that was not is not to be
// made any more. It reports whether anything is left.
func (p *pump) keeps(f *pendingFrame) bool {
	isGivenUp := func(id string) bool { return slices.Contains(f.givenUp, id) }
	gone := slices.DeleteFunc(slices.Clone(f.ids), func(id string) bool { return !isGivenUp(id) })
	if len(gone) == 0 {
		return true
	}
	p.refuseAll(&pendingFrame{ids: gone}, "cancelled")
	if f.ids = slices.DeleteFunc(f.ids, isGivenUp); len(f.ids) == 0 {
		return false
	}
	var members []json.RawMessage // it was more than one request
	_ = json.Unmarshal(f.frame, &members)
	var left [][]byte
	for _, raw := range members {
		if m, _ := memberOf(raw); m.Method == "" || !isGivenUp(string(m.ID)) {
			left = append(left, raw)
		}
	}
	f.frame = slices.Concat([]byte("["), bytes.Join(left, []byte(",")), []byte("]"))
	return true
}

// waits reports whether a request of a method has no answer.
func (p *pump) waits(method string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.pending, func(f *pendingFrame) bool {
		return slices.ContainsFunc(messagesOf(f.frame), func(m mcp.Message) bool { return m.Method == method })
	})
}

// greet makes a request for the agent, and waits for the answer, which the agent has already.
func (p *pump) greet(ctx context.Context, link Link, m mcp.Message, broken <-chan struct{}) bool {
	frame, err := mcp.Frame(m)
	if err != nil {
		return false
	}
	p.mu.Lock()
	p.own = string(m.ID)
	p.mu.Unlock()
	_, _ = link.Write(lineOf(0, frame))
	select {
	case <-p.greeted:
		return true
	case <-broken:
		return false
	case <-ctx.Done():
		return false
	}
}
