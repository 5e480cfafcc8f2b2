package view

import (
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// NewestEvents is how many of the newest events that an input caused say how it ended.
const NewestEvents = 10

// A SkippedPart says how much of what came of an input people skipped, as far as its newest events show.
type SkippedPart string

const (
	// SkippedNone means that none of these was skipped.
	SkippedNone SkippedPart = "none"

	// SkippedSome means that one was, and another was not or is older than these.
	SkippedSome SkippedPart = "some"

	// SkippedAll means that each event that the input caused was skipped.
	SkippedAll SkippedPart = "all"
)

// SkippedOf returns how much of an input people skipped, of the newest events that it caused: up to limit.
func SkippedOf(newest []keep.Event, limit int) SkippedPart {
	isSkipped := func(ev keep.Event) bool { return ev.Status == keep.EventSkipped }
	switch {
	case !slices.ContainsFunc(newest, isSkipped):
		return SkippedNone
	case len(newest) < limit && !slices.ContainsFunc(newest, func(ev keep.Event) bool { return !isSkipped(ev) }):
		return SkippedAll
	}
	return SkippedSome
}

// InputState returns the status of an input in words: one of which nothing is left to do may have been done, or skipped
// event by event, as when a person rejects its call.
func InputState(s keep.InputStatus, skipped SkippedPart) string {
	if s != keep.InputDone || skipped == SkippedNone || skipped == "" {
		return string(s)
	}
	return fmt.Sprintf("%s, %s skipped", s, skipped)
}
