package repair_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/host"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/repair"
	"github.com/keep-run/keep/script/sandbox"
)

const renamed = "testdata/corpus/renamed-field"

// caseOf returns a case of the corpus.
func caseOf(t testing.TB, name string) trial {
	t.Helper()
	texts := textsOf(t, renamed)
	return parseCase(t, name+".case", texts[name+".case"], texts["base.js"])
}

func (w *world) try(t testing.TB, name string) repair.Tried {
	t.Helper()
	got, err := w.bench.Try(t.Context(), w.base, w.failed, caseOf(t, name).source)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A run is gone through at another time and with other chance as well.
func TestVaries(t *testing.T) {
	w := newWorld(t, renamed)
	for name, want := range map[string]bool{"falls-back": false, "identity-made-of-time": true, "identity-made-of-chance": true} {
		if got := w.try(t, name); got.Evidence.Shadow.Varies != want {
			t.Errorf("%s varies: %t, want %t", name, got.Evidence.Shadow.Varies, want)
		}
	}
}

// A proposal for a workflow that was renamed, with its topic, has the names that the script gives, and is read as the
// database has them.
func TestRenamedWorkflow(t *testing.T) {
	w := newWorld(t, renamed)
	now := strings.NewReplacer(`name: "bills"`, `name: "payments", was: "bills"`, `mail: {}`, `letters: { was: "mail" }`, `"mail"`, `"letters"`)
	h, err := host.Open(t.Context(), w.db, host.Config{Connections: w.bench.Connections, Runtime: w.bench.Runtime, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b, err := sandbox.BuildSource("base.js", []byte(now.Replace(w.base.Source())))
	if err != nil {
		t.Fatal(err)
	}
	script, err := host.LoadBundle(t.Context(), w.bench.Runtime, b)
	if err != nil {
		t.Fatal(err)
	}
	version, err := h.Deploy(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	base, err := w.bench.Base(t.Context(), "bills", version)
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.bench.Try(t.Context(), base, w.failed, now.Replace(caseOf(t, "falls-back").source))
	if err != nil || got.Verdict == law.Refused || len(got.Evidence.Refused) > 0 {
		t.Errorf("%s %q, %v; want no refusal", got.Verdict, got.Reasons, err)
	}
}

// What a script would do next year counts, too.
func TestNextYear(t *testing.T) {
	w := newWorld(t, renamed)
	const to = "to: bill.iban"
	source := caseOf(t, "falls-back").source
	if strings.Count(source, to) != 1 {
		t.Fatalf("the script has no %q", to)
	}
	source = strings.Replace(source, to, fmt.Sprintf("to: new Date().getFullYear() > %d ? bill.reply ?? bill.iban : bill.iban", time.Now().Year()), 1)
	got, err := w.bench.Try(t.Context(), w.base, w.failed, source)
	if err != nil || got.Verdict != law.Inconclusive || !got.Evidence.Shadow.Varies {
		t.Errorf("%s %q, %v; want inconclusive", got.Verdict, got.Reasons, err)
	}
}

// A call that the ledger has for what it names is no new one.
func TestRepeats(t *testing.T) {
	w := newWorld(t, renamed)
	for name, want := range map[string][]string{"falls-back": nil, "repeats-what-was-applied": {"svc.pay"}} {
		if got := w.try(t, name); !slices.Equal(got.Evidence.Shadow.Repeated, want) {
			t.Errorf("%s repeats %q, want %q", name, got.Evidence.Shadow.Repeated, want)
		}
	}
}

// The condition of a grant is asked about the call that would be made.
func TestDenied(t *testing.T) {
	w := newWorld(t, renamed)
	for limit, want := range map[string]law.Verdict{"50.0": law.Safe, "30.0": law.Refused} {
		wf, err := w.db.Workflow(t.Context(), "bills")
		if err != nil {
			t.Fatal(err)
		}
		g := keep.Grant{Workflow: "bills", N: wf.Granted + 1, Version: wf.Version, GivenBy: "ann", From: "cli", GivenAt: time.Now(),
			Tools: []keep.GrantedTool{{Tool: "svc.pay", When: "params.amount < " + limit}}}
		if err := w.db.Commit(t.Context(), keep.Commit{Workflow: "bills", At: time.Now(), Changes: []keep.Change{keep.PutGrant{Grant: g}}}); err != nil {
			t.Fatal(err)
		}
		if got := w.try(t, "falls-back"); got.Verdict != want {
			t.Errorf("below %s: %s %q, want %s", limit, got.Verdict, got.Reasons, want)
		}
	}
}

// unrecorded is a store that lost what runs saw.
type unrecorded struct {
	repair.Store
	of func(keep.RunID) bool
}

func (u unrecorded) Trace(ctx context.Context, id keep.RunID) ([]keep.TracePart, error) {
	if u.of(id) {
		return nil, nil
	}
	return u.Store.Trace(ctx, id)
}

// What is not recorded proves nothing.
func TestNotRecorded(t *testing.T) {
	w := newWorld(t, renamed)
	for name, of := range map[string]func(keep.RunID) bool{
		"the run that failed": func(id keep.RunID) bool { return id == w.failed.ID },
		"the others":          func(id keep.RunID) bool { return id != w.failed.ID },
		"all":                 func(keep.RunID) bool { return true },
	} {
		b := *w.bench
		b.Store = unrecorded{w.db, of}
		b.Comparer = repair.Recorded{Store: b.Store, Connections: b.Connections}
		got, err := b.Try(t.Context(), w.base, w.failed, caseOf(t, "falls-back").source)
		if err != nil || got.Verdict != law.Inconclusive {
			t.Errorf("without what %s saw: %s %q, %v; want inconclusive", name, got.Verdict, got.Reasons, err)
		}
	}
	b := *w.bench
	b.Comparer = repair.Recorded{Store: w.db, Connections: b.Connections, MaxRuns: 1}
	if got, err := b.Try(t.Context(), w.base, w.failed, caseOf(t, "falls-back").source); err != nil || got.Verdict != law.Inconclusive {
		t.Errorf("with more runs than are gone through: %s %q, %v; want inconclusive", got.Verdict, got.Reasons, err)
	}
}

// spy notes what another one says.
type spy struct {
	repair.Comparer
	said law.Comparison
}

func (s *spy) Compare(ctx context.Context, base keep.Deployment, script engine.Script, d keep.Definition, failed keep.Run) (law.Comparison, error) {
	var err error
	s.said, err = s.Comparer.Compare(ctx, base, script, d, failed)
	return s.said, err
}

// What is recorded of the run that failed shows that it would have another order key, also where the texts of the scripts did not.
func TestOrderKeyOfTheRunThatFailed(t *testing.T) {
	const ordered = "testdata/corpus/ordered"
	w, texts := newWorld(t, ordered), textsOf(t, ordered)
	for name, want := range map[string]bool{"key-of-the-one-that-failed.case": true, "falls-back.case": false} {
		b, seen := *w.bench, &spy{Comparer: w.bench.Comparer}
		b.Comparer = seen
		if _, err := b.Try(t.Context(), w.base, w.failed, parseCase(t, name, texts[name], texts["base.js"]).source); err != nil {
			t.Fatal(err)
		}
		says := slices.ContainsFunc(seen.said.Differ, func(d string) bool {
			return strings.HasPrefix(d, string(w.failed.ID)+",") && strings.Contains(d, "another order key")
		})
		if says != want {
			t.Errorf("%s: it differs by %q", name, seen.said.Differ)
		}
	}
}

// A proposal that is too large, or has no end, is refused, and costs what the sandbox allows.
func TestHostile(t *testing.T) {
	w := newWorld(t, renamed)
	fixed := caseOf(t, "falls-back").source
	for name, source := range map[string]string{
		"too large":         fixed + "//" + strings.Repeat("x", repair.MaxSource),
		"empty":             "",
		"no workflow":       "export default 1",
		"an import":         `import { x } from "./other.js";` + fixed,
		"a loop at the top": "for (;;) {}\n" + fixed,
		"garbage":           strings.Repeat("\x00\xff{[", 1000),
	} {
		got, err := w.bench.Try(t.Context(), w.base, w.failed, source)
		if err != nil || got.Verdict != law.Refused {
			t.Errorf("%s: %s %q, %v; want refused", name, got.Verdict, got.Reasons, err)
		}
	}
}
