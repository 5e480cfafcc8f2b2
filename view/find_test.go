package view_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/view"
)

func TestFoundOf(t *testing.T) {
	for name, c := range map[string]struct {
		bound bool
		by    map[keep.InputStatus]int
		total int
		more  bool
	}{
		"nothing":             {true, nil, 0, false},
		"exact":               {true, map[keep.InputStatus]int{keep.InputDone: 7, keep.InputPending: 2}, 9, false},
		"exactly the limit":   {true, map[keep.InputStatus]int{keep.InputDone: search.MaxCount - 1, keep.InputPending: 1}, search.MaxCount, false},
		"beyond the limit":    {true, map[keep.InputStatus]int{keep.InputDone: search.MaxCount, keep.InputPending: 1}, search.MaxCount, true},
		"all without a text":  {false, map[keep.InputStatus]int{keep.InputDone: search.MaxCount, keep.InputPending: 1}, search.MaxCount + 1, false},
		"each below, sum not": {true, map[keep.InputStatus]int{keep.InputDone: 6000, keep.InputSkipped: 4001}, search.MaxCount, true},
	} {
		if got := view.FoundOf(c.bound, c.by); got.Total != c.total || got.More != c.more {
			t.Errorf("%s: %d, more %t; want %d, %t", name, got.Total, got.More, c.total, c.more)
		}
	}
}

func TestCheckText(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true, "order=O00070": true, strings.Repeat("ж", view.MaxText): true, strings.Repeat("a", view.MaxText+1): false,
	} {
		if err := view.CheckText(text); (err == nil) != ok {
			t.Errorf("a text of %d bytes: %v", len(text), err)
		}
	}
}
