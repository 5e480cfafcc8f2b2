package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/pair"
	"github.com/keep-run/keep/cmd/keep/internal/prove"
	"github.com/keep-run/keep/connector/mcp"
)

// Two proofs of tools of one server that end at once are both in its file, as both say.
func TestGatewayPairTwoProofsEndAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := mcp.NewServer(mcp.ServerConfig{Name: "shelf", URL: "http://127.0.0.1:1"})
	defer server.Close()
	const proofs = 20
	errs := make(chan error, proofs)
	for i := range proofs {
		go func() {
			var out, talk bytes.Buffer
			tool := fmt.Sprintf("tool_%d", i)
			p := pair.Proof{Tool: prove.Tool{Tool: tool, Grade: keep.LevelKey, Calls: 3}, Pairing: mcp.Pairing{Tool: tool, Identity: []string{"id"}, TokenParam: "key", Deduplicates: true}}
			errs <- newApp(&out, &talk).writeProof(&config.Config{Dir: dir}, pair.Trial{Server: server, Tool: pair.Tool{Name: tool}}, p, prove.Report{})
		}()
	}
	for range proofs {
		noError(t, <-errs)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pairings", "shelf.toml"))
	noError(t, err)
	for i := range proofs {
		if !strings.Contains(string(text), fmt.Sprintf("[tools.tool_%d]", i)) {
			t.Errorf("the proof of tool_%d said that it is written, and is not", i)
		}
	}
}
