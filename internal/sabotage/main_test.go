package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// laws are what a break can break, as docs/ARCHITECTURE.md names it.
var laws = []string{"once", "recorded-before-sent", "doubt-is-not-failure", "witnessed", "bound-to-its-world", "settled-stays", "pinned",
	"all-or-nothing", "one-at-a-time", "not-catchable", "no-ambient-power", "permitted", "within-budget", "explained", "nothing-lost", "bounded"}

// Every break still breaks something: its old text is there once, and it says
// what it breaks and which test must notice.
func TestBreaksFit(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if len(breaks) < 40 {
		t.Errorf("%d breaks, want 40 at least", len(breaks))
	}
	if err := fitting(root); err != nil {
		t.Errorf("%v: move the break to the line that now keeps the guarantee", err)
	}
	for _, b := range breaks {
		if !slices.Contains(laws, b.Law) || !strings.HasPrefix(b.Test, "./") || b.Old == b.New {
			t.Errorf("%s: law %q, test %q", b.Name, b.Law, b.Test)
		}
	}
}

// The names of tests in docs/GUARANTEES.md are those of tests, where it says.
func TestGuaranteesNameTests(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	docs := filepath.Join(root, "docs")
	text, err := os.ReadFile(filepath.Join(docs, "GUARANTEES.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, law := range laws {
		if !strings.Contains(string(text), "\n## "+law+"\n") {
			t.Errorf("the law %s has no section", law)
		}
	}
	links := regexp.MustCompile("\\[`((?:Test|Fuzz)[A-Za-z0-9_]+)`\\]\\(([^)]+)\\)").FindAllStringSubmatch(string(text), -1)
	if len(links) < 40 {
		t.Errorf("%d links to tests, want 40 at least", len(links))
	}
	for _, link := range links {
		file, err := os.ReadFile(filepath.Join(docs, filepath.FromSlash(link[2])))
		if err != nil || !strings.Contains(string(file), "func "+link[1]+"(") {
			t.Errorf("%s is not in %s (%v)", link[1], link[2], err)
		}
	}
}

// A few of them compile; the sabotage itself reports any other.
func TestBreaksCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages")
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaks {
		if !slices.Contains([]string{"early-absence", "prepare-may-mutate", "memory-half-a-commit"}, b.Name) {
			continue
		}
		overlay, err := b.overlay(root, t.TempDir())
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		cmd := exec.Command("go", "vet", "-overlay="+overlay, "./"+filepath.ToSlash(filepath.Dir(b.File)))
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", b.Name, err, out)
		}
	}
}
