package stored

import (
	"cmp"
	"slices"

	"github.com/keep-run/keep"
)

// BySpending sorts records by when they began to count in budgets.
func BySpending(list []keep.Mutation) {
	slices.SortFunc(list, func(a, b keep.Mutation) int { return cmp.Or(a.SpentAt.Compare(b.SpentAt), cmp.Compare(a.Key, b.Key)) })
}
