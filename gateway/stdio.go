package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/keep-run/keep/connector/mcp"
)

// endTime is how long calls that are out are waited for after the client's end.
const endTime = 1500 * time.Millisecond

// ServeStdio serves one agent on a pair of streams, and returns nil after the end of in or of
// ctx. What was sent by then is waited for a moment, so that its outcome is recorded.
func (g *Gateway) ServeStdio(ctx context.Context, agent string, in io.Reader, out io.Writer) error {
	var mu sync.Mutex // one frame at a time
	s := g.newSession(agent, func(frame []byte) (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		_, err := out.Write(append(frame, '\n'))
		return 0, err
	}, nil)
	s.alone = true
	frames := mcp.NewReader(in, g.cfg.MessageLimit)
	return s.serve(ctx, func() ([]byte, int64, error) {
		frame, err := frames.Next()
		return frame, everything, err
	})
}

// serve takes frames until there are no more, or until ctx ends. Each comes with how many frames of the session
// its sender had read.
func (s *session) serve(ctx context.Context, next func() (frame []byte, read int64, err error)) error {
	defer s.end()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	read := make(chan error, 1)
	go func() { read <- s.readAll(work, next) }() // ends with the frames, or with the process
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
	}
	s.stopListening()
	s.drain()
	if s.hangUp != nil {
		s.hangUp()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// readAll takes frames until there are no more.
func (s *session) readAll(ctx context.Context, next func() ([]byte, int64, error)) error {
	for {
		frame, read, err := next()
		if tooLarge, ok := errors.AsType[*mcp.TooLargeError](err); ok {
			s.unread(tooLarge)
			continue
		}
		if err != nil {
			return err
		}
		s.take(ctx, frame, s.written(0, read))
	}
}

// stopListening ends the requests that wait for what servers tell.
func (s *session) stopListening() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listens {
		if u := s.underWay[string(l.id)]; u != nil {
			u.cancel()
		}
	}
}

// work calls f beside the caller; drain waits for it. It is no WaitGroup: a frame may come in while the
// session drains.
func (s *session) work(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working++
	go func() { // ends with f
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.working--; s.working == 0 && s.idle != nil {
				close(s.idle)
				s.idle = nil
			}
		}()
		f()
	}()
}

// drain waits for the requests under way, for a moment.
func (s *session) drain() {
	done := make(chan struct{})
	s.mu.Lock()
	if s.working == 0 {
		close(done)
	} else {
		s.idle = done
	}
	s.mu.Unlock()
	timer := time.NewTimer(endTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
