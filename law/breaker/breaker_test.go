package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/keep-run/keep"
)

var start = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

// fail reports failures of one code, a minute apart.
func fail(s State, b keep.Breaker, code string, from, n int) State {
	for i := range n {
		s = Report(s, b, keep.Failf(keep.ClassLogic, code, "no %d", i), start.Add(time.Duration(from+i)*time.Minute))
	}
	return s
}

func TestReport(t *testing.T) {
	b := keep.Breaker{Failures: 3, Within: 10 * time.Minute}
	for _, c := range []struct {
		name string
		s    State
		open bool
	}{
		{"as many as that", fail(State{}, b, "a", 0, 3), true},
		{"one less", fail(State{}, b, "a", 0, 2), false},
		{"two causes", fail(fail(State{}, b, "a", 0, 2), b, "b", 2, 2), false},
		{"another cause between", fail(fail(fail(State{}, b, "a", 0, 2), b, "b", 2, 1), b, "a", 3, 1), true},
		{"too long ago", fail(fail(State{}, b, "a", 0, 2), b, "a", 10, 1), false},
		{"just within", fail(fail(State{}, b, "a", 0, 2), b, "a", 9, 1), true},
		{"off", fail(State{}, keep.Breaker{Within: time.Minute}, "a", 0, 100), false},
		{"let through since", fail(Close(fail(State{}, b, "a", 0, 3)), b, "a", 3, 2), false},
	} {
		if open := c.s.Open != nil; open != c.open {
			t.Errorf("%s: open %t, want %t: %+v", c.name, open, c.open, c.s)
		}
	}
	s := fail(Close(fail(State{}, b, "a", 0, 3)), b, "a", 3, 3)
	if s.Open == nil || s.Asked != 2 || s.Open.N != 3 || s.Open.Why != "no 2" || s.Open.Cause != "logic a" {
		t.Errorf("the second time: %+v, %+v", s, s.Open)
	}
	if id := QuestionID("svc.create_it", s); id != "esc_breaker_svc.create_it_2" || ToolOf(id) != "svc.create_it" {
		t.Errorf("question %s is about %q", id, ToolOf(id))
	}
}

// What is counted is bounded, and the cause that fails now is always counted.
func TestCausesAreBounded(t *testing.T) {
	b, s := keep.Breaker{Failures: 5, Within: time.Hour}, State{}
	for i := range 4 * maxCauses {
		s = fail(s, b, fmt.Sprint("c", i), i%50, 1)
		if len(s.Failed) > maxCauses || len(s.Failed[fmt.Sprint("logic c", i)]) == 0 {
			t.Fatalf("after %d causes %d are counted: %v", i, len(s.Failed), s.Failed)
		}
	}
	if s = fail(s, b, "c79", 51, 4); s.Open == nil {
		t.Error("among many causes none is counted to its end")
	}
}

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		class keep.Class
		code  string
		asks  bool
		want  bool
	}{
		{keep.ClassLogic, "http-422", false, true},
		{keep.ClassPermission, "http-403", false, true},
		{keep.ClassTransient, "http-503", false, false},
		{keep.ClassTransient, "http-503", true, true},
		{keep.ClassUnknown, "timeout", false, false},
		{keep.ClassUnknown, "timeout", true, true},
		{keep.ClassPermission, keep.CodeNotGranted, true, false},
		{keep.ClassPermission, keep.CodeReconnect, true, false},
		{keep.ClassPermission, keep.CodeSameUser, true, false},
		{keep.ClassPermission, keep.CodeToolChanged, true, false},
		{keep.ClassPermission, keep.CodeToolStopped, true, false},
		{keep.ClassUnknown, keep.CodeAnotherUser, true, false},
		{keep.ClassPermission, keep.CodeBudgetAmount, true, false},
		{keep.ClassPermission, keep.CodeBreaker, true, false},
		{keep.ClassLogic, "item-done", true, false},
		{keep.ClassLogic, "two-mutations", true, false},
		{keep.ClassLogic, "other-tool", true, false},
		{keep.ClassLogic, "not-a-read", true, false},
		{keep.ClassLogic, "params-too-large", true, false},
		{keep.ClassPrecondition, "call-unmatched", true, false},
	} {
		if got := Counts(keep.Failf(c.class, c.code, "no"), c.asks); got != c.want {
			t.Errorf("Counts(%s %s, %t) = %t, want %t", c.class, c.code, c.asks, got, c.want)
		}
	}
}
