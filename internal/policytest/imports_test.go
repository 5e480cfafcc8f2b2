package policytest

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// imports is the import policy, a statement of what depends on what: each
// package of the module, its kind, and which packages of the module it may
// import besides the standard library and other modules. Do not change it to fix
// a build: widening it is a decision about the design.
//
// A dot is the root package; a/... is everything below a; a star is everything
// that is not of kind test. The kinds:
//
//	pure   no IO, no clock, no chance: what it knows comes in as arguments
//	timed  may do IO, but is told the time (it may wait)
//	clock  may read the clock
//	test   for tests only: nothing but tests and kind test imports it
//	main   commands
//	dev    commands that nobody installs: what they name, they may import, tests' things too
const imports = `
.                       pure
law/canonical           pure
law/given               pure   law/canonical
law/ledger              pure   . law/canonical
law/lifecycle           pure   . law/ledger
law/schedule            pure   . law/lifecycle
law/policy              pure   .
law/key                 pure   . law/canonical
law/search              pure   .
law/trace               pure   .
law/rename              pure   .
law/commit              pure   .
law/account             pure   .
law/count               pure   .
law/limit               pure   . law/policy
law/grant               pure   .
law/budget              pure   . law/grant
law/breaker             pure   .
law/approval            pure   .
law/repair              pure   . internal/javascript
law/repeat              pure   . law/ledger
law/pin                 pure   . law/canonical

store                   timed  .
store/memory            timed  . law/key law/search
store/internal/...      timed  . law/commit law/ledger
store/sqlite            timed  . law/account law/commit law/key law/search store/transfer store/internal/...
store/postgres          timed  . law/account law/commit law/key law/search store/transfer store/internal/...
store/transfer          timed  . law/key

llm                     timed  law/policy internal/pause

connector               timed  . law/ledger law/limit internal/schema internal/utf8json
connector/internal/...  timed  . connector
connector/internal/ontime clock
connector/internal/native timed . connector connector/internal/jsonval
connector/internal/match timed . connector/internal/jsonval
connector/internal/eml  timed  connector/internal/jsonval
connector/once          timed  . connector/internal/...
connector/files         timed  . law/ledger connector connector/internal/... internal/regular
connector/httpapi       timed  . law/grant law/ledger connector connector/internal/... connector/once internal/redact internal/schema
connector/mcp           timed  . law/ledger connector connector/internal/... internal/childenv internal/redact internal/pause
connector/packs         timed
connector/pairings      timed
connector/logsink       timed  . law/ledger connector connector/internal/... internal/regular
connector/mail          timed  . law/ledger connector connector/internal/... internal/redact internal/regular internal/pause
connector/s3            clock  . law/ledger connector connector/internal/... connector/once internal/redact
connector/sqldb         timed  . law/ledger connector connector/internal/... internal/pause

script/workflow         timed  . connector law/policy law/schedule internal/javascript internal/spelling
script/sandbox          clock  script/sandbox/internal/... internal/regular internal/cputime internal/wall
script/sandbox/internal/... clock  script/sandbox/internal/... internal/npm

engine                  clock  . law/... store connector engine/lease internal/caller internal/commitlog internal/outcome internal/schema internal/pause
handler                 clock  . law/given engine script/workflow internal/caller internal/utf8json internal/wall
engine/lease            timed  . law/policy store internal/dbclock
operator                clock  . law/... store internal/commitlog internal/outcome

idempotency             clock  . law/ledger law/key law/canonical idempotency/... internal/dbclock internal/room
idempotency/...         clock  . law/ledger law/key idempotency idempotency/... internal/socket

host                    clock  . law/... store script/... engine engine/... handler operator connector host/... internal/pause
host/account/oauth      clock  internal/redact internal/pause
host/feed               clock  .
host/presence           clock  .
host/link               clock  . law/approval store
host/notify             clock  . law/policy store host/link internal/childenv internal/redact
host/account            clock  . law/account store connector host/account/... internal/redact internal/pause
host/account/seal       timed  . internal/regular

gateway                 clock  . law/... store connector connector/mcp engine internal/schema internal/room

view                    timed  . law/account law/breaker law/budget law/lifecycle law/limit law/repair law/schedule law/search law/trace store
api                     clock  . law/... store view host/feed api/access operator idempotency idempotency/... internal/utf8json internal/pause
api/access              clock  . store host/link
api/hook                clock  . law/canonical law/given store operator idempotency internal/room
web                     clock  . law/... store view host/feed api api/access connector operator idempotency idempotency/... web/graph internal/pause
web/graph               pure
web/internal/...        main   internal/npm

docs                    timed

rehearsal               clock  . law/lifecycle law/policy law/schedule connector engine host script/sandbox store store/memory
rehearsal/plan          clock  . law/breaker law/budget law/canonical law/grant law/limit law/policy law/trace connector host script/sandbox rehearsal
rehearsal/replay        clock  . law/lifecycle law/policy law/trace connector engine rehearsal store store/memory
rehearsal/compare       clock  . law/canonical law/ledger law/policy connector engine rehearsal/replay store
rehearsal/scripttest    clock  . law/given law/ledger law/policy law/trace connector host script/sandbox store rehearsal internal/regular

repair                  clock  . law/grant law/policy law/rename law/repair law/trace connector engine host internal/framed internal/outcome llm rehearsal rehearsal/compare script/sandbox script/workflow store store/memory

testkit/storetest       test   . law/... store engine operator
testkit/connectortest   test   . law/ledger connector internal/port internal/schema
testkit/handlertest     test   . connector handler host internal/utf8json law/policy rehearsal
testkit/idempotencytest test   . idempotency law/key

internal/policytest     test
internal/chaos          test
internal/simtest        clock  *
internal/npm            clock
internal/garbage        timed
internal/commitlog      timed  .
internal/outcome        timed  . law/lifecycle
internal/redact         pure
internal/javascript     pure
internal/framed         timed
internal/schema         pure
internal/utf8json       pure
internal/caller         timed
internal/regular        timed
internal/spelling       pure
internal/socket         timed
internal/dbclock        timed
internal/room           timed
internal/wall           clock
internal/pause          timed
internal/childenv       timed
internal/twin           test   testkit/connectortest internal/schema
internal/testserver     test
internal/port           test
internal/pgtest         test   internal/npm internal/port internal/testserver
internal/mailtest       test   internal/port internal/testserver
internal/s3test         test   internal/port internal/testserver
internal/browsertest    test
internal/oidctest       test
internal/sandboxtest    test   script/sandbox
internal/llmtest        test
internal/llmtest/record dev    internal/llmtest
internal/ceiling        test   internal/cputime
internal/cputime        clock
internal/wallog         test
internal/torture        dev    *
internal/bench          dev    * internal/pgtest internal/cputime internal/wallog
internal/sabotage       main
internal/crosscheck     dev
internal/canary         dev    internal/twin internal/mailtest internal/redact

cmd/keep                main   *
cmd/keep/internal/... clock . api api/access api/hook connector gateway host host/... idempotency law/... operator script/... rehearsal/compare rehearsal/plan rehearsal/replay rehearsal/scripttest store store/sqlite store/postgres view web llm repair internal/regular internal/schema internal/pause internal/socket cmd/keep/internal/...
cmd/keep/internal/buildinfo timed
cmd/keep/internal/config timed . connector connector/... law/account law/budget law/grant law/limit law/policy law/repair law/repeat gateway llm script/sandbox idempotency idempotency/... host/notify host/account/oauth host/account/seal api/hook internal/regular internal/spelling cmd/keep/internal/keychain cmd/keep/internal/trust
cmd/keep/internal/draft clock . cmd/keep/internal/mcp cmd/keep/internal/terminal internal/framed law/repair llm rehearsal/plan script/workflow
cmd/keep/internal/guide clock
cmd/keep/internal/guide/internal/generate clock connector connector/httpapi connector/sqldb law/policy script/workflow cmd/keep/internal/config cmd/keep/internal/exit cmd/keep/internal/guide cmd/keep/internal/metrics
cmd/keep/internal/mcp clock . api api/access cmd/keep/internal/guide cmd/keep/internal/project cmd/keep/internal/terminal connector host internal/framed law/policy llm rehearsal rehearsal/plan rehearsal/scripttest script/sandbox script/workflow
cmd/keep/internal/keychain clock
cmd/keep/internal/pair  clock  . cmd/keep/internal/prove connector connector/mcp internal/pause
cmd/keep/internal/manual timed docs idempotency
cmd/keep/internal/metrics clock . engine law/... store
cmd/keep/internal/otlp  clock  . internal/pause
cmd/keep/internal/prove clock  . api connector internal/schema internal/pause
examples/...            main
examples/gateway/agent  timed  llm
examples/try            dev    examples/gateway/agent internal/twin internal/llmtest llm testkit/connectortest
examples/go             main   . connector connector/once handler host store/memory
`

// impure are what pure packages may not import, and all below them.
var impure = []string{"os", "net", "database/sql", "log", "math/rand", "crypto/rand", "syscall", "io/fs", "embed"}

// badNames are names of packages that say what they are made of, not what they
// are about. Such a package is imported by all and can import none.
var badNames = []string{"util", "utils", "common", "types", "model", "models", "helper", "helpers", "misc", "shared", "base", "pkg"}

// A rule is one line of the policy.
type rule struct {
	pkg, kind string
	may       []string
}

func rules(t testing.TB) []rule {
	t.Helper()
	var out []rule
	for line := range strings.Lines(imports) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 || !slices.Contains([]string{"pure", "timed", "clock", "test", "main", "dev"}, words[1]) {
			t.Fatalf("the policy has a bad line: %q", line)
		}
		out = append(out, rule{words[0], words[1], words[2:]})
	}
	return out
}

// ruleOf returns the rule of a package: its own, or that of the longest a/...
func ruleOf(rules []rule, pkg string) (rule, bool) {
	var best rule
	for _, r := range rules {
		if r.pkg == pkg {
			return r, true
		}
		if within(pkg, r.pkg) && len(r.pkg) > len(best.pkg) {
			best = r
		}
	}
	return best, best.pkg != ""
}

// within reports whether pattern is a/... and pkg is below a.
func within(pkg, pattern string) bool {
	parent, ok := strings.CutSuffix(pattern, "/...")
	return ok && strings.HasPrefix(pkg, parent+"/")
}

// allows reports whether a package with rule r may import pkg of this module.
func (r rule) allows(rules []rule, pkg string) bool {
	if slices.Contains(r.may, pkg) || slices.ContainsFunc(r.may, func(p string) bool { return within(pkg, p) }) {
		return true
	}
	of, known := ruleOf(rules, pkg)
	return slices.Contains(r.may, "*") && known && of.kind != "test"
}

// checkImports returns what is wrong with the imports of a file.
func checkImports(rules []rule, f sourceFile) []string {
	r, known := ruleOf(rules, f.pkg)
	if !known {
		return []string{"package " + f.pkg + " is not in the import policy: add a line for it to internal/policytest/imports_test.go, " +
			"with as few imports as it needs; what it may import is a decision about the design"}
	}
	var problems []string
	for _, imp := range f.imports {
		ours, isOurs := strings.CutPrefix(imp, module)
		if ours = strings.TrimPrefix(ours, "/"); isOurs && ours == "" {
			ours = "."
		}
		switch {
		case isOurs && !r.allows(rules, ours):
			problems = append(problems, f.pkg+" must not import "+ours)
		case r.kind == "pure" && slices.ContainsFunc(impure, func(p string) bool { return imp == p || strings.HasPrefix(imp, p+"/") }):
			problems = append(problems, f.pkg+" is pure and must not import "+imp)
		}
	}
	return problems
}

func TestImports(t *testing.T) {
	rules := rules(t)
	said := make(map[string]bool)
	for _, f := range sources(t) {
		if f.test {
			continue // tests may import what they need
		}
		for _, problem := range checkImports(rules, f) {
			if !said[problem] {
				t.Errorf("%s: %s", f.path, problem)
			}
			said[problem] = true
		}
	}
}

// The policy itself has no circles and names what it means: each package that it
// allows to import is listed, and pure ones import pure ones only.
func TestPolicyIsSound(t *testing.T) {
	rules := rules(t)
	seen := make(map[string]bool)
	for _, r := range rules {
		if seen[r.pkg] {
			t.Errorf("%s is listed twice", r.pkg)
		}
		seen[r.pkg] = true
	}
	for _, r := range rules {
		for _, may := range r.may {
			of, known := ruleOf(rules, strings.TrimSuffix(may, "/..."))
			group := slices.ContainsFunc(rules, func(r rule) bool { return within(r.pkg, may) })
			if !known && !group && !seen[may] && may != "*" {
				t.Errorf("%s may import %s, which is not listed", r.pkg, may)
			}
			if r.kind == "pure" && of.kind != "pure" {
				t.Errorf("%s is pure and may not import %s, which is not", r.pkg, may)
			}
			if of.kind == "test" && r.kind != "test" && r.kind != "dev" {
				t.Errorf("%s may not import %s, which is for tests", r.pkg, may)
			}
		}
	}
}

func TestPackageNames(t *testing.T) {
	for _, f := range sources(t) {
		if slices.Contains(badNames, path.Base(f.pkg)) {
			t.Errorf("%s: a package is named for its subject, not %s", f.path, path.Base(f.pkg))
		}
	}
}
