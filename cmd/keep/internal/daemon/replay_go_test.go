package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// Who asks a host what a run of a program in Go would do otherwise is told that this host cannot say it, and not that Keep failed.
func TestRunsOfAProgramAreNotGoneThrough(t *testing.T) {
	db, now, one := memory.New(), time.Now().UTC().Truncate(time.Millisecond), keep.Version{Major: 1}
	def := keep.Definition{Name: "w", Go: true, Handlers: []keep.Handler{{Name: "pay", Kind: keep.Consumer}}}
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: one, Handler: "pay", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
	err := db.Commit(t.Context(), keep.Commit{Workflow: "w", At: now, Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: one, Hash: "h", Entry: "pay (Go)", Code: []byte("{}"), Definition: def, CreatedAt: now}}, keep.PutRun{Run: run}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &ScriptReplayer{DB: db, Tools: func(context.Context) (*sandbox.Runtime, []connector.Connection, *policy.Policy, error) {
		p := policy.Default()
		return nil, nil, &p, nil
	}}
	_, replayed := r.Replay(t.Context(), run.ID, api.ReplayRequest{})
	_, compared := r.Compare(t.Context(), "w", api.CompareRequest{Version: "1.0"})
	for what, err := range map[string]error{"replay": replayed, "comparison": compared} {
		if refused, ok := errors.AsType[*api.ScriptError](err); !ok || len(refused.Mistakes) != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
}
