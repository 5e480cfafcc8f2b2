package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

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

// orNewest returns the record that a person named by an id that a script made, or the newest one if the
// name is last and no record has it.
func orNewest[T any](given string, named, newest func() (T, error)) (T, error) {
	v, err := named()
	if given != view.Last || !errors.Is(err, keep.ErrNotFound) {
		return v, err
	}
	return newest()
}

// byName returns the event of a topic, or the item if topic is empty, that a person named by the id that a
// script made, or by a part of it if nothing has that id. What changes something takes no such part: it may be
// the whole id of what is not there yet.
func byName[T any](ctx context.Context, c *api.Client, w keep.WorkflowName, topic keep.TopicName, given string, show func(id string) (T, error)) (T, error) {
	v, err := show(given)
	if !errors.Is(err, keep.ErrNotFound) || given == view.Last || len(given) < view.MinPart {
		return v, err
	}
	id, err := c.FullName(ctx, w, topic, given)
	if err != nil {
		return v, err
	}
	return show(id)
}

// firstOf returns the first row of a page.
func firstOf[T any](what string, p api.Page[T], err error) (T, error) {
	if err == nil && len(p.Items) == 0 {
		err = &keep.NotFoundError{What: what, ID: view.Last}
	}
	if err != nil {
		return *new(T), err
	}
	return p.Items[0], nil
}

// byIDAlone finds the event or item that a person named by its id, or by a part of it, without saying
// whose it is.
func byIDAlone(ctx context.Context, c *api.Client, is view.Nature, given string) (api.Why, error) {
	w, err := c.Why(ctx, given)
	if err == nil && w.Is != is || errors.Is(err, keep.ErrNotFound) {
		return w, &keep.NotFoundError{What: string(is), ID: given}
	}
	return w, err
}

// placedOrAlone refuses arguments that are neither n, the last of which is an id, nor the id alone.
func placedOrAlone(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return cobra.ExactArgs(n)(cmd, args)
	}
}

// fixedID is fullID for what changes something. It does not take last: something newer
// may have come since the person looked.
func fixedID[ID ~string](ctx context.Context, c *api.Client, n keep.Noun, given string) (ID, error) {
	if given == view.Last {
		return "", exit.Misusef("name the %s by its id: what is last may be another one by now", n)
	}
	return fullID[ID](ctx, c, n, given)
}

// fixedIDs is fixedID for each of several. What is named twice is meant once, also by its id and a part of that.
func fixedIDs[ID ~string](ctx context.Context, c *api.Client, n keep.Noun, given []string) ([]ID, error) {
	ids, seen := make([]ID, 0, len(given)), make(map[ID]bool, len(given))
	for _, name := range given {
		id, err := fixedID[ID](ctx, c, n, name)
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id], ids = true, append(ids, id)
		}
	}
	return ids, nil
}
