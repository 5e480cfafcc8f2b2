package gateway

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// slowTime is how long a client that has maxQueued messages to read may take for half of them (law: bounded). What a server tells it
// waits meanwhile, and whatever else the server says, to other agents too.
const slowTime = 5 * time.Second

// An outbox writes frames to a link, in the order in which they come.
type outbox struct {
	link  io.WriteCloser
	queue chan outFrame
	over  chan struct{} // closed when nothing is written any more
	taken atomic.Int64  // frames, from the queue

	mu    sync.Mutex // protects all below
	full  time.Time  // when the queue was full, before the client read half of it; zero: it never was
	until int64      // how many frames are taken when the client has read that half
}

// An outFrame is a frame, and where it goes how many were written with it, if somebody waits for that.
type outFrame struct {
	frame []byte
	wrote chan<- wrote
}

// wrote is how many frames were written so far, or why the last one was not.
type wrote struct {
	frames int64
	err    error
}

func newOutbox(link io.WriteCloser) *outbox {
	return &outbox{link: link, queue: make(chan outFrame, maxQueued), over: make(chan struct{})}
}

// run writes frames until the outbox is over.
func (b *outbox) run() {
	for sent := int64(0); ; {
		select {
		case f := <-b.queue:
			b.taken.Add(1)
			_, err := b.link.Write(append(f.frame, '\n'))
			if err == nil {
				sent++
			}
			if f.wrote != nil {
				f.wrote <- wrote{sent, err}
			}
		case <-b.over:
			return
		}
	}
}

// send writes a frame, and returns how many were written with it.
func (b *outbox) send(frame []byte) (int64, error) {
	done := make(chan wrote, 1)
	select {
	case b.queue <- outFrame{frame, done}:
	case <-b.over:
		return 0, io.ErrClosedPipe
	}
	select {
	case w := <-done:
		return w.frames, w.err
	case <-b.over:
		return 0, io.ErrClosedPipe
	}
}

// push has a frame written, and does not wait for that. The link of a client that does not read is cut.
func (b *outbox) push(frame []byte) error {
	f := outFrame{frame: frame}
	select {
	case b.queue <- f:
		return nil
	default:
	}
	for left := b.left(); left > 0; left = b.left() {
		select {
		case b.queue <- f:
			return nil
		case <-time.After(left):
		case <-b.over:
			return errSlow
		}
	}
	_ = b.link.Close()
	return errSlow
}

// left returns how long a client whose queue is full may take until it has read half of it.
func (b *outbox) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if taken := b.taken.Load(); b.full.IsZero() || taken >= b.until {
		b.full, b.until = time.Now(), taken+maxQueued/2
	}
	return slowTime - time.Since(b.full)
}
