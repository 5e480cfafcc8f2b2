package storetest

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// Looks are what benchmarks of stores search for in a million inputs with titles such
// as "Invoice 543210 from ada early", of ten workflows, w0 to w9, one in a hundred
// of them pending. Each returns how much it found.
func Looks(ctx context.Context, s store.Inputs) (map[string]func() (int, error), error) {
	bare := keep.Page{Bare: true}
	looks := make(map[string]func() (int, error))
	for name, f := range map[string]keep.InputFilter{
		"Common":           {Text: "invoice"},
		"CommonOfWorkflow": {Text: "invoice", Workflow: "w3"},
		"CommonPending":    {Text: "invoice", Status: keep.InputPending},
		"CommonDone":       {Text: "invoice", Workflow: "w3", Status: keep.InputDone},
		"Third":            {Text: "ada"},
		"CommonAndThird":   {Text: "invoice ada"},
		"Rare":             {Text: "543210"},
		"CommonAndRare":    {Text: "invoice 543210"},
		"OldOnly":          {Text: "early"},
		"NeverTogether":    {Text: "ada bob"},
		"Absent":           {Text: "nothing"},
		"Prefix":           {Text: "invo"},
		"PrefixOfMany":     {Text: "1"},
	} {
		looks["Search"+name] = func() (int, error) { l, _, err := s.Inputs(ctx, f, bare); return len(l), err }
		looks["Count"+name] = func() (int, error) { c, err := s.CountInputs(ctx, f); return len(c), err }
	}
	deep, after := keep.InputFilter{Text: "invoice ada"}, keep.Page{Limit: 100}
	for range 1000 {
		_, next, err := s.Inputs(ctx, deep, after)
		if err != nil {
			return nil, err
		}
		if next == "" {
			return nil, fmt.Errorf("there are fewer than 1,000 pages of %q", deep.Text)
		}
		after.After = next
	}
	looks["SearchPage1000"] = func() (int, error) { l, _, err := s.Inputs(ctx, deep, after); return len(l), err }
	return looks, nil
}
