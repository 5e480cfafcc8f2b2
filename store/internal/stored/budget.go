package stored

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// BySpending sorts records by when they began to count in budgets.
func BySpending(list []keep.Mutation) {
	slices.SortFunc(list, func(a, b keep.Mutation) int { return cmp.Or(a.SpentAt.Compare(b.SpentAt), cmp.Compare(a.Key, b.Key)) })
}

// FoldAt is how many settled records a reader of sums may find beside them before it has them summed, and FoldSize how
// many are summed in one transaction.
const (
	FoldAt   = 128
	FoldSize = 1000
)

// Parts of statements about sums of what calls count. A record is in the sums if InSums says so.
const (
	InSums   = `summed_at <> 0 AND summed_at = spent_at`
	Unsummed = `spent_at <> 0 AND summed_at <> spent_at AND state <> 'failed'`
	Foldable = Unsummed + ` AND state IN ('applied', 'skipped')`
)

// High and Low are the two numbers of an amount; see commit.JoinSum.
func High(amount string) string { return fmt.Sprintf("(%s >> %d)", amount, commit.LowBits) }
func Low(amount string) string  { return fmt.Sprintf("(%s & %d)", amount, 1<<commit.LowBits-1) }

// PiecesOf returns the sums of the spans of a budget, as a part of a UNION ALL with the columns high and low. Name, from and
// to are how the statement calls what commit.SpansAfter returns.
func PiecesOf(name string, from, to func(i int) string) string {
	arms := make([]string, len(commit.SumLevels))
	for i, level := range commit.SumLevels {
		arms[i] = fmt.Sprintf("SELECT high, low FROM spent_sum WHERE budget = %s AND level = %d AND piece >= %s AND piece < %s", name, level, from(i), to(i))
	}
	return strings.Join(arms, "\n\t\tUNION ALL ")
}

// Levels lists commit.SumLevels for SQL.
func Levels(separator string) string {
	list := make([]string, len(commit.SumLevels))
	for i, level := range commit.SumLevels {
		list[i] = fmt.Sprint(level)
	}
	return strings.Join(list, separator)
}
