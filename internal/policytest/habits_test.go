package policytest

import (
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// clocks are the functions of package time that read the clock, or wait for it
// without regard to a context. Timers, which only wait, are for all but the law.
var (
	clocks = []string{"Now", "Since", "Until", "Sleep", "After", "Tick"}
	timers = []string{"NewTimer", "NewTicker", "AfterFunc"}
)

// goroutines are the files that may start a goroutine with a bare go statement,
// and what waits for it. Elsewhere a function that waits starts it, with
// sync.WaitGroup.Go or errgroup.
var goroutines = map[string]string{
	"cmd/keep/stdin.go":                      "the process ends first, or this ends the process",
	"engine/abandoned.go":                    "readWithin waits for it, and abandons what ignores the end of its context",
	"engine/execution.go":                    "call waits for it",
	"handler/phase.go":                       "Call waits for it, and abandons what ignores the end of its context",
	"script/sandbox/bundler.go":              "a build that takes too long is abandoned, and the watch ends with its process",
	"store/sqlite/writer.go":                 "Close waits for the one writer",
	"cmd/keep/write.go":                      "a read of what a person types cannot be interrupted: the line is abandoned with the process",
	"cmd/keep/internal/keychain/keychain.go": "what asks a keychain cannot be interrupted: its answer is abandoned",
	"gateway/front.go":                       "what reads stdin, and what writes to an agent that does not read, cannot be interrupted, and ends with the process",
	"gateway/exchange.go":                    "a write to a client that does not read is left, and ends with its stream",
	"gateway/stdio.go":                       "what reads stdin cannot be interrupted, and ends with the process; calls that take too long are left to Close",
	"cmd/keep/accounts.go":                   "what reads a terminal cannot be interrupted, and ends with the process",
}

// mayReadClock reports whether files of that kind may. Commands are edges; the
// tests of a package run in synctest bubbles, where the clock is theirs.
func mayReadClock(kind string) bool {
	return kind == "clock" || kind == "main" || kind == "dev" || kind == "test"
}

// checkClock returns each use of a clock in a file whose package is told the time.
func checkClock(rules []rule, f sourceFile) []string {
	r, known := ruleOf(rules, f.pkg)
	if !known || mayReadClock(r.kind) || f.test {
		return nil
	}
	name := localName(f, "time")
	if name == "" {
		return nil
	}
	forbidden := clocks
	if r.kind == "pure" {
		forbidden = slices.Concat(clocks, timers)
	}
	var problems []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && slices.Contains(forbidden, sel.Sel.Name) {
			problems = append(problems, f.at(sel)+": "+f.pkg+" is told the time and must not use time."+sel.Sel.Name+": take now as an argument")
		}
		return true
	})
	return problems
}

// localName returns what an imported package is called in a file, or nothing.
func localName(f sourceFile, pkg string) string {
	for _, spec := range f.syntax.Imports {
		if spec.Path.Value != strconv.Quote(pkg) {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// at returns the place of a node.
func (f sourceFile) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// beforeMain is the one file with an init: what it is about is over when main begins.
const beforeMain = "internal/garbage/garbage.go"

// checkHabits returns each init function and each goroutine that nobody waits for.
func checkHabits(f sourceFile) []string {
	var problems []string
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && f.path != beforeMain {
			problems = append(problems, f.at(fn)+": init works at a distance: pass values from main instead")
		}
	}
	if _, listed := goroutines[f.path]; listed || f.test {
		return problems
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if stmt, ok := n.(*ast.GoStmt); ok {
			problems = append(problems, f.at(stmt)+": nobody waits for this goroutine: use sync.WaitGroup.Go, "+
				"or list the file in internal/policytest/habits_test.go with what waits")
		}
		return true
	})
	return problems
}

// checkDot returns each dot import, since the checks here cannot see through one.
func checkDot(f sourceFile) []string {
	for _, spec := range f.syntax.Imports {
		if spec.Name != nil && spec.Name.Name == "." {
			return []string{f.at(spec) + ": import with a dot hides where names come from"}
		}
	}
	return nil
}

func TestClock(t *testing.T) {
	rules := rules(t)
	for _, f := range sources(t) {
		for _, problem := range checkClock(rules, f) {
			t.Error(problem)
		}
	}
}

func TestHabits(t *testing.T) {
	for _, f := range sources(t) {
		for _, problem := range slices.Concat(checkHabits(f), checkDot(f)) {
			t.Error(problem)
		}
	}
}

// Each check does find what it looks for: a file of a package, and a part of
// what is said about it, or nothing.
func TestChecksFind(t *testing.T) {
	rules := rules(t)
	for _, tt := range []struct{ name, path, text, want string }{
		{"an unlisted package", "novel/x.go", `package novel`, "is not in the import policy"},
		{"a law that does IO", "law/ledger/x.go", `package ledger; import "os"`, "ledger is pure and must not import os"},
		{"a law that does IO below", "law/policy/x.go", `package policy; import "net/http"`, "must not import net/http"},
		{"a law with chance", ".x.go", `package keep; import "math/rand/v2"`, "must not import math/rand/v2"},
		{"a store that knows the engine", "store/sqlite/x.go", `package sqlite; import "github.com/keep-run/keep/engine"`, "sqlite must not import engine"},
		{"a connector that knows another", "connector/files/x.go", `package files; import "github.com/keep-run/keep/connector/httpapi"`, "must not import connector/httpapi"},
		{"the root with an import", "x.go", `package keep; import "github.com/keep-run/keep/law/ledger"`, "must not import law/ledger"},
		{"production with a test kit", "cmd/keep/x.go", `package main; import "github.com/keep-run/keep/testkit/storetest"`, "must not import testkit/storetest"},
		{"a command may import the rest", "cmd/keep/x.go", `package main; import "github.com/keep-run/keep/store/sqlite"`, ""},
		{"what is below a pattern", "script/sandbox/x.go", `package sandbox; import "github.com/keep-run/keep/script/sandbox/internal/fuel"`, ""},
		{"a law with a clock", "law/schedule/x.go", `package schedule; import "time"; var _ = time.Now`, "must not use time.Now"},
		{"a store with a clock under another name", "store/memory/x.go", `package memory; import tm "time"; func f() { <-tm.After(0) }`, "must not use time.After"},
		{"a connector that sleeps", "connector/x.go", `package connector; import "time"; func f() { time.Sleep(0) }`, "must not use time.Sleep"},
		{"a law that waits", "law/policy/x.go", `package policy; import "time"; var _ = time.AfterFunc`, "must not use time.AfterFunc"},
		{"a connector that waits", "connector/x.go", `package connector; import "time"; var _ = time.NewTimer`, ""},
		{"the engine reads the clock", "engine/x.go", `package engine; import "time"; var _ = time.Now`, ""},
		{"times are values everywhere", "law/ledger/x.go", `package ledger; import "time"; var _ = time.Unix`, ""},
		{"an init", "host/x.go", `package host; func init() {}`, "init works at a distance"},
		{"a method called init", "host/x.go", `package host; type t int; func (t) init() {}`, ""},
		{"a lost goroutine", "host/x.go", `package host; func f() { go f() }`, "nobody waits"},
		{"a dot import", "host/x.go", `package host; import . "fmt"`, "hides where names come from"},
	} {
		f, err := parse(tt.path, tt.text)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got := strings.Join(slices.Concat(checkImports(rules, f), checkClock(rules, f), checkHabits(f), checkDot(f)), "\n")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: found %q, want %q", tt.name, got, tt.want)
		}
	}
}
