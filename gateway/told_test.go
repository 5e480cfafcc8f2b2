package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
)

// What a session remembers of answers is bounded, however many connections its client opens.
func TestToldIsBounded(t *testing.T) {
	g := &Gateway{sessions: make(map[*session]struct{})}
	s := g.newSession("a", nil, nil)
	tell := func(conn int64, call string, err error) {
		a := answer{of: call, run: keep.RunID("run_" + call)}
		s.note(t.Context(), json.RawMessage("7"), &a)
		s.tell(func() (int64, error) { return 0, err }, conn, a)
	}
	const conns = 3 * maxTold
	for i := range conns {
		tell(int64(i+1), fmt.Sprint(i), nil)
		tell(int64(i+1), fmt.Sprint("e", i), io.ErrClosedPipe)
		tell(noConn, fmt.Sprint("p", i), nil)
	}
	if n := len(s.told); n > maxTold || len(s.unwritten) > 0 {
		t.Errorf("%d answers are remembered, want at most %d; %d are not written", n, maxTold, len(s.unwritten))
	}
	if got := s.written(conns, everything); len(got) != 1 {
		t.Errorf("of the newest connection %d answers are remembered, want 1", len(got))
	}
	if got := s.written(noConn, everything); len(got) != 0 {
		t.Errorf("%d answers are remembered of what shows nothing", len(got))
	}
}

// An answer whose request is cancelled before it is written, or while it is, shows nothing by what the client sends next. That of
// another request, to the same call, does. Law: once.
func TestCancelledWhileItIsWritten(t *testing.T) {
	g, err := New(t.Context(), memory.New(), Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	const before, after, writing = "before it is made", "after it is made", "while it is written"
	for _, c := range []struct {
		when      string
		cancelled []string
		told      bool
	}{
		{before, []string{"7"}, true}, {before, []string{"7", "8"}, false}, {after, []string{"7"}, true}, {after, []string{"8"}, true}, {after, []string{"7", "8"}, false},
		{writing, []string{"7"}, true}, {writing, []string{"8"}, true}, {writing, []string{"7", "8"}, false}, {writing, []string{"9"}, true},
	} {
		s := g.newSession("a", nil, nil)
		cancels := func(when string) {
			for _, id := range c.cancelled {
				if when == c.when {
					s.take(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id), nil)
				}
			}
		}
		answers, contexts := make([]answer, 2), make([]context.Context, 2)
		for i := range answers {
			contexts[i], _, _ = s.enter(t.Context(), fmt.Append(nil, 7+i), false)
		}
		cancels(before)
		for i := range answers {
			answers[i] = answer{of: "x", run: "run_x"}
			s.note(contexts[i], fmt.Append(nil, 7+i), &answers[i])
		}
		cancels(after)
		s.tell(func() (int64, error) { cancels(writing); return 0, nil }, 0, answers...)
		if got := len(s.written(0, everything)) > 0; got != c.told || len(s.unwritten) > 0 {
			t.Errorf("%v cancelled %s: an answer is kept as written: %t, want %t; %d as not written", c.cancelled, c.when, got, c.told, len(s.unwritten))
		}
		s.end()
	}
}
