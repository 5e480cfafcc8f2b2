package host_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/store/memory"
)

// A read that ignores the end of its context, and never returns, is abandoned: its run stops with a named error, and
// RunUntilIdle ends without it. Law: bounded.
func TestRunEndsWithoutADeafRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		books := connector.Connection{Name: "books", Tools: []connector.Tool{connector.NewReader(connector.Spec{Name: "all", Effect: connector.List, Timeout: time.Second},
			func(context.Context, struct{}) ([]string, error) { <-release; return nil, nil })}}
		db := memory.New()
		h, err := host.Open(t.Context(), db, host.Config{Connections: []connector.Connection{books}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		w, err := h.LoadGo(&handler.Workflow{Name: "w", Handlers: []handler.Handler{handler.Job{Name: "j", Schedule: keep.Schedule{Interval: 1000 * time.Hour},
			Run: func(ctx context.Context, w *handler.Worker) error { return w.Read(ctx, "books.all", nil, nil) }}}})
		if err == nil {
			_, err = h.Deploy(t.Context(), w)
		}
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- h.RunUntilIdle(t.Context()) }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Hour):
			t.Error("RunUntilIdle waits for the read")
		}
		runs, _, err := db.Runs(t.Context(), keep.RunFilter{}, keep.Page{})
		if err != nil || len(runs) == 0 || runs[0].Error == nil || runs[0].Error.Code != "read-failed" || !strings.Contains(runs[0].Error.Message, "ignores that its time is over") {
			t.Errorf("the runs are %+v, %v; want them stopped by read-failed", runs, err)
		}
		close(release)
		synctest.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}
