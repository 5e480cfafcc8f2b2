package config_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
)

// lossesFile has the last whole run of TestLosses, which make losses writes.
const lossesFile = "testdata/losses.json"

// livesOnRecord is how many lives of a tool a record must be of. make losses tries 1,000.
const livesOnRecord = 100

// A lossRecord is what the lives of one tool came to when it was as Tool says.
type lossRecord struct {
	Tool   string `json:"tool"` // a hash of its tables in the pack
	Lives  int    `json:"lives"`
	Once   int    `json:"once"`
	Asked  int    `json:"asked"`
	Twice  int    `json:"twice"`
	Silent int    `json:"silent"`

	// Requests from the first doubt of a life until it was over.
	Requests int `json:"requests"` // median
	Most     int `json:"most"`
}

// toolHash returns the hash of the tables of one tool: what else a pack has changes nothing
// about its losses, nor does how a person reads a call before it is made.
func toolHash(p config.Pack, tool string) string {
	var own bytes.Buffer
	in := false
	for line := range strings.Lines(string(p.Text)) {
		text, _, _ := strings.Cut(line, "#") // a title of a table holds none
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "[") {
			name := strings.Trim(text, "[]")
			in = name == "tools."+tool || strings.HasPrefix(name, "tools."+tool+".")
		}
		if in && !strings.HasPrefix(text, "view ") {
			own.WriteString(line)
		}
	}
	sum := sha256.Sum256(own.Bytes())
	return hex.EncodeToString(sum[:6])
}

// toolHashes returns the hashes of the mutate tools of all packs, by their full names.
func toolHashes(t *testing.T) map[string]string {
	t.Helper()
	all, err := config.Packs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range all {
		for name, tool := range p.Config.Tools {
			if tool.Effect == connector.Mutate {
				out[p.Name+"."+name] = toolHash(p, name)
			}
		}
	}
	return out
}

// readLosses returns the records by the full names of tools.
func readLosses(t *testing.T) map[string]lossRecord {
	t.Helper()
	out := map[string]lossRecord{}
	raw, err := os.ReadFile(lossesFile)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatalf("read what losses came to: %v; write it with: make losses", err)
	}
	return out
}

// writeLosses adds a record to those that there are, and takes out those of tools that are gone.
func writeLosses(t *testing.T, full string, r lossRecord) {
	t.Helper()
	all := readLosses(t)
	all[full] = r
	maps.DeleteFunc(all, func(name string, _ lossRecord) bool { _, ok := proofs[name]; return !ok })
	raw, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lossesFile, append(raw, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// record returns what the lives of a tool came to.
func (y *tally) record(tool string) lossRecord {
	y.mu.Lock()
	defer y.mu.Unlock()
	r := lossRecord{Tool: tool, Lives: y.lives, Once: y.once, Asked: y.asked, Twice: y.twice, Silent: y.silent}
	if n := len(y.requests); n > 0 {
		slices.Sort(y.requests)
		r.Requests, r.Most = y.requests[n/2], y.requests[n-1]
	}
	return r
}

// problem says why the record does not stand for a tool as it is now; empty: it does.
func (r lossRecord) problem(tool string) string {
	switch {
	case r.Tool == "":
		return "it was never tried"
	case r.Tool != tool:
		return "the pack says something else of it now than when it was tried"
	case r.Lives < livesOnRecord:
		return fmt.Sprintf("%d lives, want %d", r.Lives, livesOnRecord)
	case r.Twice+r.Silent > 0, r.Once+r.Asked != r.Lives:
		return fmt.Sprintf("%d twice, %d silent, %d once and %d asked of %d", r.Twice, r.Silent, r.Once, r.Asked, r.Lives)
	}
	return ""
}

// String is the part of a line of docs/SERVICES.md.
func (r lossRecord) String() string {
	return fmt.Sprintf("%d | %d | %d | %d | %d, at most %d", r.Lives, r.Twice, r.Silent, r.Asked, r.Requests, r.Most)
}
