package host

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/script/sandbox"
)

// Scripts beyond those that stay loaded work all the same, also at once.
func TestScriptsAreDropped(t *testing.T) {
	rt, err := sandbox.Open(t.Context(), sandbox.Config{CacheDir: sandboxtest.CacheDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	s := newScripts(rt.Load)
	var all []engine.Script
	for i := range maxLoaded + 20 {
		b, err := sandbox.BuildSource("w.js", fmt.Appendf(nil, `export default Keep.workflow({ name: "w", jobs: { async n() { return %d } } })`, i))
		if err != nil {
			t.Fatal(err)
		}
		sc, err := s.Script(t.Context(), keep.Deployment{Workflow: "w", Version: keep.Version{Major: i}, Entry: b.Entry, Code: b.Code, Map: b.Map})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sc)
	}
	var wg sync.WaitGroup
	for range 2 {
		for i, sc := range all {
			if i%7 != 0 && i < maxLoaded { // those that were dropped, and a part of the others
				continue
			}
			wg.Go(func() {
				out, err := sc.Call(context.Background(), engine.ScriptCall{Path: []string{"jobs", "n"}, Now: time.Unix(1, 0),
					Log: func(level, text, where string) { slog.Info(text) }})
				if n := json.RawMessage(fmt.Sprint(i)); err != nil || string(out) != string(n) {
					t.Errorf("script %d returned %s, %v", i, out, err)
				}
			})
		}
		wg.Wait()
	}
	if n := s.recent.Len(); n != maxLoaded {
		t.Errorf("%d scripts are loaded, want %d", n, maxLoaded)
	}
}
