package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `package sample

type list[T any] struct{ all []T }

func (l *list[T]) add(more ...T) { l.all = append(l.all, more...) }

func first[T, U any](t T, _ U) T { return t }

func pair[T any, U any](t T, u U) (T, U) {
	return t, u
}

func stop(n int) {
	panic(n)
}

const limit = 3
`

func TestSwitchAll(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "sample.go"), []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := switchAll(root, "sample.go", []Break{
		{Name: "adds-nothing", File: "sample.go", Old: `append(l.all, more...)`, New: `l.all`},
		{Name: "no-name", File: "sample.go", Old: `return t }`, New: `return *new(T) }`},
		{Name: "pair", File: "sample.go", Old: `return t, u`, New: `return t, *new(U)`},
		{Name: "zero", File: "sample.go", Old: `return t, u`, New: `return *new(T), u`},
		{Name: "no-stop", File: "sample.go", Old: `panic(n)`, New: ``},
		{Name: "limit", File: "sample.go", Old: `limit = 3`, New: `limit = 4`},
		{Name: "no-go", File: "sample.go", Old: `panic(n)`, New: `panic(`},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"func (l *list[T]) add(more ...T) { if sabotage_adds_nothing { l.add_sabotage_adds_nothing(more...); return }; l.all = append(l.all, more...) }\n",
		"func (l *list[T]) add_sabotage_adds_nothing(more ...T) { l.all = l.all }\n",
		"{ if sabotage_pair { return pair_sabotage_pair[T, U](t, u) }; if sabotage_zero { return pair_sabotage_zero[T, U](t, u) };\n\treturn t, u\n}\n",
		"func pair_sabotage_pair[T any, U any](t T, u U) (T, U) {\n\treturn t, *new(U)\n}\n",
		"func stop(n int) { if sabotage_no_stop { stop_sabotage_no_stop(n); return };\n\tpanic(n)\n}\n",
		"func stop_sabotage_no_stop(n int) {\n\t\n}\n",
	} {
		if !strings.Contains(string(s.text), want) {
			t.Errorf("not in the file: %s", want)
		}
	}
	var alone []string
	for _, b := range s.alone {
		alone = append(alone, b.Name)
	}
	if got := strings.Join(alone, " "); got != "no-name limit no-go" {
		t.Errorf("alone: %s", got)
	}
	if n, of := strings.Index(string(s.text), "const limit"), strings.Index(sample, "const limit"); strings.Count(string(s.text)[:n], "\n") != strings.Count(sample[:of], "\n") {
		t.Error("lines moved")
	}
	if s.of != "sample" {
		t.Errorf("package %s", s.of)
	}
}

// Real breaks are tried in one build: a test notices one, not another that changes nothing, and
// a test that is red anyway proves nothing.
func TestTryAll(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages")
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	probe := func(name, is, test string) Break {
		return Break{name, "bounded", "law/limit/limit.go", `case s.Probe != nil && isOut(s.Probe.Until, now):`, is, "./law/limit -run " + test}
	}
	var out strings.Builder
	count, err := tryAll(t.Context(), root, []Break{
		probe("many-probes", `case false:`, "TestOneProbe"),
		probe("nothing", `case s.Probe != nil && now.Before(s.Probe.Until) && isOut(s.Probe.Until, now):`, "TestOneProbe"),
		probe("not-a-test", `case false:`, "TestOneProbe -no-such-flag"),
	}, false, &out)
	if err != nil || count[killed] != 1 || count[survived] != 1 || count[unsound] != 1 {
		t.Errorf("%v, error %v, in:\n%s", count, err, out.String())
	}
	for _, want := range []string{"killed           many-probes", "SURVIVED         nothing", "RED WITHOUT IT   not-a-test"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not told: %s in:\n%s", want, out.String())
		}
	}
}
