package host

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/keep-run/keep/internal/sandboxtest"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// A host opens the sandbox with its first script, and none after it was closed. Limits that cannot work are
// refused before.
func TestSandboxIsOpenedForScripts(t *testing.T) {
	if _, err := Open(t.Context(), memory.New(), Config{Sandbox: sandbox.Config{Limits: sandbox.Limits{Heap: 1}}}); err == nil {
		t.Error("a host with a heap of one byte opens")
	}
	h, err := Open(t.Context(), memory.New(), Config{Sandbox: sandbox.Config{CacheDir: sandboxtest.CacheDir()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.BuildSource("w.js", []byte(`export default Keep.workflow({ name: "w", jobs: { async n() {} } })`))
	if err != nil {
		t.Fatal(err)
	}
	if h.runtime.own != nil {
		t.Error("a host without scripts has a sandbox")
	}
	if _, err := h.LoadBundle(t.Context(), b); err != nil || h.runtime.own == nil {
		t.Errorf("loading a script: %v; sandbox: %v", err, h.runtime.own)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.LoadBundle(t.Context(), b); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("loading a script after Close: %v", err)
	}
}
