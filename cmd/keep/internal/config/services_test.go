package config_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/testkit/connectortest"
)

var update = flag.Bool("update", false, "write docs/SERVICES.md instead of comparing it")

const servicesDoc = "../../../../docs/SERVICES.md"

// TestServicesDocument makes docs/SERVICES.md of the packs and of what their tools do after a
// lost answer. It is written with: go test ./cmd/keep/internal/config -run ServicesDocument -update
func TestServicesDocument(t *testing.T) {
	t.Parallel()
	all, err := config.Packs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lines, losses, hashes := []string{}, readLosses(t), toolHashes(t)
	for _, p := range all {
		for name, tool := range p.Config.Tools {
			if tool.Effect != connector.Mutate {
				continue
			}
			spec := specOf(t, p, name)
			full := p.Name + "." + name
			happened, absent := certain(t, full, false), certain(t, full, true)
			lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s | %s |", full, spec.Level, spec.SettleAfter,
				tool.SettleSource, happened, absent, losses[full], spec.VerifyByHand))
			if why := losses[full].problem(hashes[full]); why != "" {
				t.Errorf("%s has no losses on record: %s; try it with: make losses TOOL=%s", full, why, full)
			}
		}
	}
	slices.Sort(lines)
	text := servicesHead + strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(servicesDoc, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(servicesDoc); err != nil || string(was) != text {
		t.Errorf("docs/SERVICES.md is not what the packs do, %v; write it with: go test ./cmd/keep/internal/config -run ServicesDocument -update", err)
	}
}

const servicesHead = `# Services

What is known of each tool that changes something. A test makes this page: it runs each tool against a twin
of its service, which follows the vendor's documentation, loses the answer of a call, and counts the requests
until it is certain what became of it. [PACKS.md](PACKS.md) says what levels and packs are.

"Settles" is how long after the deadline of a call its effect may still appear, as far as Keep believes; until
then an absence counts for nothing.

"Losses" are lives of a call, over as many hosts as die in it, each with one or more of: an answer that is lost,
reset, cut or another's, an effect that is skipped or late, a refusal, a connection that is cut at any byte, a host
that is killed at that moment or at any step. "Twice" and "silent" are those after which the service had the effect more
than once, or not at all and nobody was asked. "Asked" ended in one question to a person: the outcome could not be known
from the service, or nothing was sent and the attempts of the policy were used up. "Until certain" are the requests from the first doubt of a life to its end, in the median and at
most: repetitions of the call, lookups, and what they had to be repeated for. The target losses of the Makefile tries them, and CI
tries some of them each time and refuses this page if a tool is another than the one that was tried.

The last column is for a person whom Keep asks.

| tool | level | settles | where that is from | requests if it happened | requests if it did not | losses | twice | silent | asked | until certain | what a person verifies |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

// specOf returns the spec of a tool of a pack.
func specOf(t *testing.T, p config.Pack, tool string) connector.Spec {
	t.Helper()
	conn := openPack(t, fmt.Sprintf("[connections.svc]\nconnector = %q\nbase_url = \"https://example.com\"\nsecret = \"${secret:svc}\"\n", p.Name), "whsec_Y2FuYXJ5LXNlY3JldC10b2tlbg==")
	for _, tl := range conn.Tools {
		if tl.Spec().Name == tool {
			return tl.Spec()
		}
	}
	t.Fatalf("no tool %s", tool)
	return connector.Spec{}
}

// certain loses the answer to a call, with or without an effect, and returns how many requests
// it took to know what became of it, and how it is known.
func certain(t *testing.T, full string, skip bool) string {
	t.Helper()
	pack, name, _ := strings.Cut(full, ".")
	b, service := proofs[full].start(t, pack, name)
	i := slices.IndexFunc(b.Connection.Tools, func(tl connector.Tool) bool { return tl.Spec().Name == name })
	tool := b.Connection.Tools[i]
	now := time.Now()
	var m keep.Mutation
	for n := 2; n > 0; n-- { // another call first: a list is then not empty
		m = keep.Mutation{Key: "k", Token: fmt.Sprint("token-", n), Payload: b.Params(n), Attempts: 1, CreatedAt: now, CallDeadline: now.Add(time.Minute)}
		if c, ok := tool.(connector.Claimer); ok {
			id, err := c.Claim(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			m.Pin, _ = json.Marshal(keep.SentAs{Claim: id}) // of strings
		}
		if n == 1 {
			service.Script(connectortest.Fault{Skip: skip, Answer: connectortest.Lost})
		}
		if _, err := tool.(connector.Mutator).Mutate(t.Context(), m); (err == nil) == (n == 1) {
			t.Fatalf("%s: Mutate %d = %v", full, n, err)
		}
	}
	before := service.Requests()
	a, err := tool.(connector.Reconciler).Reconcile(t.Context(), m)
	took := service.Requests() - before
	effects := b.Effects(1)
	switch {
	case err != nil || a.Verdict == connector.Happened && effects != 1 || a.Verdict == connector.Absent && effects != 0:
		t.Fatalf("%s: %+v, %v with %d effects", full, a, err, effects)
	case a.Verdict == connector.Happened && skip:
		return fmt.Sprintf("%d: sent again", took)
	case a.Verdict == connector.Happened || a.Verdict == connector.Absent:
		return fmt.Sprintf("%d: %s", took, a.Verdict)
	}
	return fmt.Sprintf("%d: a person is asked", took)
}
