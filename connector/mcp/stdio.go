package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/ontime"
	"github.com/keep-run/keep/internal/childenv"
)

// A process is a server that is a child of this one. It ends with its stdin, which the kernel
// closes however this process ends.
type process struct {
	cfg ServerConfig
	cmd *exec.Cmd
	in  io.WriteCloser

	loops   sync.WaitGroup // end with the process
	writing chan struct{}  // holds a token while a frame is written
	asking  chan struct{}  // a token for each request of the server that is answered

	mu      sync.Mutex // protects all below
	n       int64
	waiting map[int64]chan Message
	ended   error // why nothing is read any more; nil: it is
	over    chan struct{}
	gone    chan struct{} // closed when the process ended
}

// startProcess starts a server.
func startProcess(cfg ServerConfig) (*process, error) {
	cmd := exec.Command(cfg.Command, cfg.Args...)
	cmd.Dir = cfg.Dir
	cmd.Env = childenv.Of(cfg.Env)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cfg: cfg, cmd: cmd, in: in, waiting: make(map[int64]chan Message), over: make(chan struct{}), gone: make(chan struct{}),
		writing: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking)}
	logged := make(chan struct{})
	p.loops.Go(func() {
		defer close(logged)
		p.log(said)
	})
	p.loops.Go(func() {
		p.end(p.read(out))
		<-logged
		_ = cmd.Wait()
		close(p.gone)
	})
	return p, nil
}

// log passes on what the server says on stderr, in lines that are cut.
func (p *process) log(r io.Reader) {
	lines := bufio.NewReaderSize(r, 4<<10)
	for {
		line, more, err := lines.ReadLine()
		if err != nil {
			return
		}
		p.cfg.Logger.Debug("an MCP server says", "server", p.cfg.Name, "text", p.cfg.hide.Text(string(line)), "cut", more)
		for more && err == nil {
			_, more, err = lines.ReadLine()
		}
	}
}

// read takes frames until the server ends.
func (p *process) read(out io.Reader) error {
	frames := NewReader(out, p.cfg.MessageLimit)
	for {
		line, err := frames.Next()
		if tooLarge, ok := errors.AsType[*TooLargeError](err); ok {
			p.take(p.cfg.standIn(tooLarge))
			continue
		}
		if err != nil {
			return fmt.Errorf("the MCP server %s ended", p.cfg.Name)
		}
		m, err := p.cfg.message(line)
		if err != nil {
			p.cfg.Logger.Warn("an MCP server wrote what is no message", "server", p.cfg.Name, "bytes", len(line))
			continue
		}
		p.take(m)
	}
}

// beside calls f, which answers a request of the server, with a context that ends with the process. It must not keep answers from being read,
// unless the server asks more than it takes answers to: those that people give do not fill the places, of which a client has half.
func (p *process) beside(f func(context.Context)) {
	select {
	case p.asking <- struct{}{}:
	case <-p.over:
		return
	}
	p.loops.Go(func() {
		defer func() { <-p.asking }()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stop := make(chan struct{})
		defer close(stop)
		p.loops.Go(func() {
			select {
			case <-p.over:
				cancel()
			case <-stop:
			}
		})
		f(ctx)
	})
}

// take handles a message of the server.
func (p *process) take(m Message) {
	switch {
	case m.Method != "" && m.ID != nil:
		p.beside(func(ctx context.Context) { p.send(ctx, answerTo(ctx, m, p.cfg.Asked)) })
	case m.Method != "":
		if p.cfg.Notified != nil {
			p.cfg.Notified(m)
		}
	default:
		p.deliver(m)
	}
}

// send writes the answer to a request of the server.
func (p *process) send(ctx context.Context, ans Message) {
	ctx, late := context.WithTimeout(ctx, answerTime)
	defer late()
	_, _ = p.write(ctx, ans)
}

// answerTo answers a request of a server: by ask, if there is one.
func answerTo(ctx context.Context, m Message, ask func(context.Context, Message) Message) Message {
	ans := Message{Result: json.RawMessage(`{}`)}
	switch {
	case m.Error != nil: // it was not read
		ans = Message{Error: m.Error}
	case m.Method == "ping":
	case ask != nil:
		ans = ask(ctx, m)
	default:
		ans = Refused(m)
	}
	ans.Version, ans.ID = "2.0", m.ID
	return ans
}

// Refused is the answer to a request of a method that nobody here has.
func Refused(m Message) Message {
	return Message{Version: "2.0", ID: m.ID, Error: &RPCError{Code: -32601, Message: "method not found"}}
}

// deliver gives an answer to whoever waits for it. An id that nobody has is dropped.
func (p *process) deliver(m Message) {
	var n int64
	if json.Unmarshal(m.ID, &n) != nil {
		return
	}
	p.mu.Lock()
	ch := p.waiting[n]
	delete(p.waiting, n)
	p.mu.Unlock()
	if ch != nil {
		ch <- m
	}
}

// end notes that nothing is read any more.
func (p *process) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = err
		close(p.over)
	}
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended != nil
}

func (p *process) call(ctx context.Context, r request) (Message, error) {
	p.mu.Lock()
	if p.ended != nil {
		p.mu.Unlock()
		return Message{}, &UnsentError{p.ended}
	}
	p.n++
	n, ch := p.n, make(chan Message, 1)
	p.waiting[n] = ch
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waiting, n)
		p.mu.Unlock()
	}()
	if left, err := p.write(ctx, Message{Version: "2.0", ID: json.RawMessage(itoa(int(n))), Method: r.method, Params: r.params}); err != nil {
		if !left {
			err = &UnsentError{err}
		}
		return Message{}, err
	}
	select {
	case m := <-ch:
		return m.read()
	case <-ctx.Done():
		if clientOf(ctx).Cancels {
			p.cancel(n)
		}
		return Message{}, context.Cause(ctx)
	case <-p.over:
		select {
		case m := <-ch:
			return m.read()
		default:
			return Message{}, p.ended
		}
	}
}

func (p *process) notify(ctx context.Context, r request) error {
	_, err := p.write(ctx, Message{Version: "2.0", Method: r.method, Params: r.params})
	return err
}

// cancel tells the server that nobody waits for a request any more.
func (p *process) cancel(n int64) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	_ = p.notify(ctx, cancelled(itoa(int(n))))
}

// cancelled is the notification that a request of that id is cancelled.
func cancelled(id string) request {
	return request{method: "notifications/cancelled", params: json.RawMessage(`{"requestId":` + id + `}`)}
}

// writeTime is how long a server may take to read a frame: others wait to be sent meanwhile, and a read may have no end of its own.
const writeTime = time.Minute

// write sends one frame and reports whether any of it may have left. A server that reads
// nothing ends it with ctx or writeTime, and with it the connection: half a frame is in the pipe.
func (p *process) write(ctx context.Context, m Message) (left bool, err error) {
	frame, err := Frame(m)
	if err != nil {
		return false, err
	}
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	if ontime.Over(ctx) { // a process that was stopped notices the end of ctx a moment after it resumes
		return false, ontime.ErrLate
	}
	ctx, cancel := context.WithTimeoutCause(ctx, writeTime, &keep.TimeoutError{Op: "writing to the MCP server " + p.cfg.Name, After: writeTime})
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.in.Close() })
	n, err := p.in.Write(append(frame, '\n'))
	if !stop() {
		return true, context.Cause(ctx)
	}
	if err != nil {
		p.end(fmt.Errorf("write to the MCP server %s: %w", p.cfg.Name, err))
	}
	return n > 0, err // also of a pipe that was closed while it was written: n is what is in it
}

// stopTime is how long a server has to end after its stdin.
const stopTime = time.Second

var errKilled = errors.New("the MCP server did not end with its stdin, and was killed")

// close ends the server. What it started in turn may still have its streams, and is not waited for.
func (p *process) close() {
	_ = p.in.Close()
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-p.gone:
	case <-timer.C: // it may have its stdin closed since it does not read it
		_ = p.cmd.Process.Kill()
		p.end(errKilled)
	}
}
