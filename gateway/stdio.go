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
	s := g.newSession(agent, func(frame []byte) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := out.Write(append(frame, '\n'))
		return err
	})
	defer s.end()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	read := make(chan error, 1)
	go func() { read <- s.readAll(work, mcp.NewReader(in, g.cfg.MessageLimit)) }() // ends with in, or with the process
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
	}
	s.stopListening()
	s.drain()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// readAll takes frames until the stream ends.
func (s *session) readAll(ctx context.Context, frames *mcp.Reader) error {
	for {
		frame, err := frames.Next()
		if tooLarge, ok := errors.AsType[*mcp.TooLargeError](err); ok {
			s.refuse(tooLarge.ID, invalidRequest, tooLarge.Error())
			continue
		}
		if err != nil {
			return err
		}
		s.take(ctx, frame)
	}
}

// stopListening ends the requests that wait for what servers tell.
func (s *session) stopListening() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listens {
		if cancel := s.cancel[string(l.id)]; cancel != nil {
			cancel()
		}
	}
}

// drain waits for the requests under way, for a moment.
func (s *session) drain() {
	done := make(chan struct{})
	go func() { s.requests.Wait(); close(done) }() // ends with the requests
	timer := time.NewTimer(endTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
