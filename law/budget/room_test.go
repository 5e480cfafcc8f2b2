package budget_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
)

// FindRoom finds by sums what RoomAt finds by the records.
func TestFindRoom(t *testing.T) {
	start := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	r := money(t, "params.amount")
	rapid.Check(t, func(t *rapid.T) {
		var records []keep.Mutation
		for i := range rapid.IntRange(0, 12).Draw(t, "records") {
			records = append(records, keep.Mutation{Key: keep.MutationKey(fmt.Sprint(i)),
				State:   rapid.SampledFrom([]keep.MutationState{keep.Applied, keep.Applied, keep.Failed, keep.InFlight}).Draw(t, "state"),
				SpentAt: start.Add(time.Duration(rapid.IntRange(-4_000_000, 1000).Draw(t, "at")) * time.Millisecond),
				Spent:   []keep.Spent{{Budget: "money", Amount: keep.Amount(rapid.IntRange(0, 400).Draw(t, "amount")) * keep.AmountUnit}}})
		}
		now := start.Add(time.Duration(rapid.IntRange(0, 2_000_000).Draw(t, "now")) * time.Microsecond)
		var s budget.State
		if rapid.Bool().Draw(t, "raised") {
			s.Raise = &budget.Raise{Limit: keep.Amount(rapid.IntRange(1, 3000).Draw(t, "limit")) * keep.AmountUnit, Over: r.Limit,
				Until: now.Add(time.Duration(rapid.IntRange(-10, 5_000_000).Draw(t, "until")) * time.Millisecond)}
		}
		amount := keep.Amount(rapid.IntRange(0, 1200).Draw(t, "amount")) * keep.AmountUnit
		asked := 0
		got, err := r.FindRoom(s, amount, now, func(since time.Time) (sum keep.SpentSum, err error) {
			asked++
			for _, m := range records {
				sum.All = sum.All.Plus(m.Counts(r.Names(), since))
			}
			return sum, nil
		})
		if want := r.RoomAt(s, records, "", amount, now); err != nil || !got.Equal(want) {
			t.Errorf("room for %s at %s: found %s, %v, want %s", amount, now, got, err, want)
		}
		if asked > 80 {
			t.Errorf("it asked %d times", asked)
		}
	})
}
