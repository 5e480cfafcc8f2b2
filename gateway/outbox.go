package gateway

import (
	"io"
	"time"
)

// slowTime is how long what a server tells waits for a client that has maxQueued messages to read (law: bounded). Whatever else
// the server says waits meanwhile, to other agents too.
const slowTime = 5 * time.Second

// An outbox writes frames to a link, in the order in which they come.
type outbox struct {
	link  io.WriteCloser
	queue chan outFrame
	over  chan struct{} // closed when nothing is written any more
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
	timer := time.NewTimer(slowTime)
	defer timer.Stop()
	select {
	case b.queue <- f:
		return nil
	case <-timer.C:
		_ = b.link.Close()
	case <-b.over:
	}
	return errSlow
}
