package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/redact"
)

// A process that asks without reading the answers is not read beyond what is answered at once, holds no call beyond its time,
// and its connection ends.
func TestProcessThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, in := io.Pipe()
		p := &process{cfg: ServerConfig{Logger: slog.New(slog.DiscardHandler), hide: new(redact.Hider)}, in: in,
			waiting: make(map[int64]chan Message), over: make(chan struct{}), writing: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking)}
		taken, done, start := 0, make(chan struct{}), time.Now()
		go func() {
			defer close(done)
			for range 10 * maxAsking {
				p.take(Message{ID: json.RawMessage("1"), Method: "ping"})
				taken++
			}
		}()
		synctest.Wait()
		if taken != maxAsking {
			t.Errorf("%d requests were taken", taken)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.call(ctx, request{method: "tools/call"})
		if _, unsent := errors.AsType[*UnsentError](err); !unsent || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call meanwhile: %v", err)
		}
		<-done
		if d := time.Since(start); !p.dead() || d > answerTime {
			t.Errorf("after %s the connection is over: %t; want it over after %s", d, p.dead(), answerTime)
		}
		out.Close()
		p.loops.Wait()
	})
}

// A server that reads nothing keeps neither a read, whose agent waits without end, nor the calls behind it. Law: bounded.
func TestReadOfAProcessThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, in := io.Pipe()
		defer out.Close()
		p := &process{cfg: ServerConfig{Name: "s", Logger: slog.New(slog.DiscardHandler), hide: new(redact.Hider)}, in: in,
			waiting: make(map[int64]chan Message), over: make(chan struct{}), writing: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking)}
		ends := make(chan error, 2)
		for range cap(ends) {
			go func() {
				_, err := p.call(context.Background(), request{method: "tools/call"})
				ends <- err
			}()
		}
		synctest.Wait()
		time.Sleep(2 * writeTime)
		synctest.Wait()
		if len(ends) != cap(ends) || !p.dead() {
			t.Fatalf("%d calls ended, want %d, and the connection with them", len(ends), cap(ends))
		}
		if _, late := errors.AsType[*keep.TimeoutError](<-ends); !late {
			t.Error("the first one does not say that it took too long")
		}
	})
}
