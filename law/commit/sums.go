package commit

import (
	"math"

	"github.com/keep-run/keep"
)

// Stores keep sums of what settled calls count, for pieces of time of four lengths, so that what a window has is read
// from a few hundred of them, however many calls it has. Only what is not summed yet, or begins in the second in
// which the window does, is read call by call.

// SumLevels are the lengths of pieces: a piece has 1<<level milliseconds, and its number is a time in milliseconds >> level.
// They are a second, a minute, 70 minutes and three days. They stand in databases.
var SumLevels = [...]int{10, 16, 22, 28}

// A Span is the pieces of a level from one number to before another.
type Span struct{ From, To int64 }

// SpansAfter cuts the time after a time in milliseconds: calls from then to before edge are read one by one, those of
// the spans, one of each level, by their sums. The last one has no end.
func SpansAfter(since int64) (edge int64, spans [len(SumLevels)]Span) {
	ceil := func(n int64, bits int) int64 { return (n + 1<<bits - 1) >> bits }
	at := ceil(max(since, 0)+1, SumLevels[0])
	edge = at << SumLevels[0]
	for i, level := range SumLevels {
		if i == len(SumLevels)-1 {
			spans[i] = Span{at, math.MaxInt64}
			break
		}
		up := SumLevels[i+1] - level
		next := ceil(at, up)
		spans[i] = Span{at, next << up}
		at = next
	}
	return edge, spans
}

// Sums of amounts are kept as two numbers, of which neither is ever too large: those of amount >> LowBits, and of the rest.
const LowBits = 30

// JoinSum returns the sum that the two numbers say, at most the largest amount. None is below zero: a sum that is
// wrong takes nothing from others.
func JoinSum(high, low int64) keep.Amount {
	switch high += low >> LowBits; {
	case high > math.MaxInt64>>LowBits:
		return math.MaxInt64
	case high < 0:
		return 0
	}
	return keep.Amount(high<<LowBits | low&(1<<LowBits-1))
}
