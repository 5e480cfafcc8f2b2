package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
)

// A Link is between a Front and a gateway, of this process or of another one.
//
// It may be closed twice, and at once. Each line of the front is a frame of its agent after a number and a space: how many frames of the gateway
// were written to the agent before that came. So an answer counts as delivered for the same reason as on stdin and
// stdout, however long it is on its way. Each line of the gateway is a frame for the agent.
type Link interface {
	io.ReadWriteCloser
	CloseWrite() error // the other side reads to the end, and may still write
}

// ServeLink serves the agent of a front until the front or ctx ends. Alone says that the front is of this
// process: then it is as on stdin and stdout.
func (g *Gateway) ServeLink(ctx context.Context, agent string, alone bool, link Link) error {
	b := newOutbox(link)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer link.Close()
	defer close(b.over)
	writing.Go(b.run)
	s := g.newSession(agent, b.send, b.push)
	s.alone = alone
	// What comes in from now on is not told that it was cancelled: its front asks the next gateway.
	s.hangUp = func() { _ = link.Close() }
	lines := bufio.NewReaderSize(link, 64<<10)
	return s.serve(ctx, func() ([]byte, int64, error) {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, 0, io.EOF // of the front, or of its process
		}
		number, frame, _ := bytes.Cut(line, []byte(" "))
		read, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("a front sent what is no frame: %.40q", line)
		}
		return frame, read, nil
	})
}

// A pipe is one side of a link within a process.
type pipe struct {
	*io.PipeReader
	*io.PipeWriter
}

// CloseWrite ends what the other side reads.
func (p pipe) CloseWrite() error { return p.PipeWriter.Close() }

// Close ends both directions.
func (p pipe) Close() error {
	_ = p.PipeReader.Close()
	return p.PipeWriter.Close()
}

// NewLink returns the two sides of a link within a process.
func NewLink() (front, back Link) {
	fr, bw := io.Pipe()
	br, fw := io.Pipe()
	return pipe{fr, fw}, pipe{br, bw}
}
