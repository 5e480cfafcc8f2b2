package main

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/view"
)

// shortHelp is what commands say that take the id of a record to show it.
const shortHelp = "Six or more characters that an id begins or ends with stand for it; last is the newest."

// madeLength is how many characters follow the prefix of an id that a host makes; see keep.NewID.
const madeLength = 26

// fullID returns the id of the record of a noun that a person named. A whole id is not looked up.
func fullID[ID ~string](ctx context.Context, c *api.Client, n keep.Noun, given string) (ID, error) {
	if len(given) == len(n.Prefix())+madeLength {
		return ID(given), nil
	}
	id, err := c.FullID(ctx, n, given)
	return ID(id), err
}

// fixedID is fullID for what changes something. It does not take last: something newer
// may have come since the person looked.
func fixedID[ID ~string](ctx context.Context, c *api.Client, n keep.Noun, given string) (ID, error) {
	if given == view.Last {
		return "", exit.Misusef("name the %s by its id: what is last may be another one by now", n)
	}
	return fullID[ID](ctx, c, n, given)
}

// fixedIDs is fixedID for each of several.
func fixedIDs[ID ~string](ctx context.Context, c *api.Client, n keep.Noun, given []string) ([]ID, error) {
	ids := make([]ID, len(given))
	for i, name := range given {
		var err error
		if ids[i], err = fixedID[ID](ctx, c, n, name); err != nil {
			return nil, err
		}
	}
	return ids, nil
}
