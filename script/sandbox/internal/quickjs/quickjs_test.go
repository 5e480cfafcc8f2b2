package quickjs_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/keep-run/keep/script/sandbox/internal/quickjs"
)

// The module is the package's own file: whoever changes it must say so.
func TestModuleIsThePublishedOne(t *testing.T) {
	sum := sha256.Sum256(quickjs.Module)
	if got := hex.EncodeToString(sum[:]); got != quickjs.SHA256 {
		t.Errorf("quickjs.wasm has checksum %s, want %s of %s", got, quickjs.SHA256, quickjs.Version)
	}
}
