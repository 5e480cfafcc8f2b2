package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// What was redone before an error is said beside it: whoever repeats the command has that done once more.
func TestRedoThatEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	var ids []keep.MessageID
	for n := range 2 * redoBatch {
		ids = append(ids, keep.MessageID(fmt.Sprint("m", n)))
	}
	lost := errors.New("the database is gone")
	do := func(ids []keep.MessageID) func(api.RedoBody) (api.RedoDone, error) {
		return func(in api.RedoBody) (done api.RedoDone, err error) {
			for _, id := range ids {
				done.Events = append(done.Events, api.RedoEvent{Topic: "t", MessageID: id, Status: keep.EventConsumed, Attempt: 1})
			}
			if ids[0] != "m0" && !in.Preview {
				return done, lost
			}
			return done, nil
		}
	}
	var out, said bytes.Buffer
	a := newApp(&out, &said)
	a.JSON = true
	d := &redoer{a: a, all: true, yes: true}
	if err := d.batches(ids, do); !errors.Is(err, lost) {
		t.Errorf("the error is %v", err)
	}
	if want := fmt.Sprint(redoBatch, " events pending again"); !strings.Contains(said.String(), want) {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
	var sum redoSummary
	if err := json.Unmarshal(out.Bytes(), &sum); err != nil || sum.Redone != redoBatch || len(sum.Events) != redoBatch {
		t.Errorf("the summary has %d redone and %d events, %v, want %d of each", sum.Redone, len(sum.Events), err, redoBatch)
	}
}

// What a person names twice is meant once: with a host that does an input again at once, it would be done twice. Law: once.
func TestNamedTwiceIsMeantOnce(t *testing.T) {
	a, b := keep.InputID(keep.NounInput.Prefix()+strings.Repeat("a", madeLength)), keep.InputID(keep.NounInput.Prefix()+strings.Repeat("b", madeLength))
	ids, err := fixedIDs[keep.InputID](t.Context(), nil, keep.NounInput, []string{string(a), string(b), string(a)}) // whole ones are not looked up
	if want := []keep.InputID{a, b}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("they are %v, %v, want %v", ids, err, want)
	}
}

// A step in which something moved after it was looked at is not done, and that is no end like any other: what comes after it would be done, and it
// would be left out in silence.
func TestRedoOfAStepThatMoved(t *testing.T) {
	t.Parallel()
	var ids []keep.MessageID
	for n := range 3 * redoBatch {
		ids = append(ids, keep.MessageID(fmt.Sprint("m", n)))
	}
	looked, done := make(map[keep.MessageID]int), 0
	do := func(ids []keep.MessageID) func(api.RedoBody) (api.RedoDone, error) {
		return func(in api.RedoBody) (res api.RedoDone, err error) {
			for _, id := range ids {
				e := api.RedoEvent{Topic: "t", MessageID: id, Status: keep.EventConsumed, Attempt: 1}
				if looked[id]++; id == keep.MessageID(fmt.Sprint("m", redoBatch)) && looked[id] > 1 {
					moved := "it is pending"
					e.Refused = &moved
				}
				res.Events = append(res.Events, e)
			}
			if !in.Preview {
				done += len(ids)
			}
			return res, nil
		}
	}
	var out, said bytes.Buffer
	d := &redoer{a: newApp(&out, &said), all: true, yes: true}
	if err := d.batches(ids, do); err == nil || done != redoBatch {
		t.Errorf("%d events are done again, and the error is %v; want %d, and that it ended there\n%s", done, err, redoBatch, said.String())
	}
}
