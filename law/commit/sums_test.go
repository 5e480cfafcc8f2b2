package commit_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// Each moment after a time is in what is read one by one, or in exactly one piece; nothing before it is in any.
func TestSpansAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		since := rapid.Int64Range(0, 1<<43).Draw(t, "since")
		edge, spans := commit.SpansAfter(since)
		pieces := int64(0)
		for i, s := range spans {
			if s.To < math.MaxInt64 {
				pieces += s.To - s.From
			} else if i != len(spans)-1 {
				t.Fatalf("level %d has no end", i)
			}
		}
		if pieces > 3*63 {
			t.Errorf("%d pieces are read before those of the last level", pieces)
		}
		if edge-since > 1<<commit.SumLevels[0] {
			t.Errorf("%d ms are read one by one", edge-since)
		}
		near := rapid.SampledFrom([]int64{1, 1 << 10, 1 << 16, 1 << 22, 1 << 28, 1 << 36}).Draw(t, "near")
		for _, from := range []int64{since, edge, spans[0].To << commit.SumLevels[0], spans[2].To << commit.SumLevels[2]} {
			at := max(1, from+rapid.Int64Range(-near, near).Draw(t, "at"))
			found := 0
			if at > since && at < edge {
				found++
			}
			for i, s := range spans {
				if piece := at >> commit.SumLevels[i]; piece >= s.From && piece < s.To {
					found++
				}
			}
			if want := map[bool]int{true: 1}[at > since]; found != want {
				t.Fatalf("%d is found %d times after %d, want %d (edge %d, %v)", at, found, since, want, edge, spans)
			}
		}
	})
}

// A sum that is wrong takes nothing from others.
func TestJoinSumBelowZero(t *testing.T) {
	for _, c := range [][2]int64{{-1, 0}, {0, -1}, {-3, 1 << 31}, {2, -(2<<commit.LowBits + 1)}} {
		if got := commit.JoinSum(c[0], c[1]); got != 0 {
			t.Errorf("the sum of %d and %d is %d, want 0", c[0], c[1], got)
		}
	}
}

// A group may have the commit of one call twice, of two times: neither is judged by the smaller sum.
func TestAddSummed(t *testing.T) {
	var s commit.Snapshot
	for _, sum := range []keep.Amount{3, 7, 5} {
		s.AddSummed(commit.SummedKey{Key: "k", Name: "money"}, sum)
	}
	if got := s.Summed.Get(commit.SummedKey{Key: "k", Name: "money"}); got != 7 {
		t.Errorf("the sum is %d, want 7", got)
	}
}

func TestJoinSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var high, low int64
		var want keep.Amount
		for _, a := range rapid.SliceOfN(rapid.Int64Range(0, int64(keep.MaxAmount)), 0, 30).Draw(t, "amounts") {
			high, low, want = high+a>>commit.LowBits, low+a&(1<<commit.LowBits-1), want.Plus(keep.Amount(a))
		}
		if got := commit.JoinSum(high, low); got != want {
			t.Errorf("the sum is %d, want %d", got, want)
		}
	})
}
