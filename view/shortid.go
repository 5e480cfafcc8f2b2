package view

import (
	"context"
	"errors"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// MinPart is the fewest characters of an id that stand for the whole.
const MinPart = 6

// Last names the newest record of a noun.
const Last = "last"

// maxCandidates bounds how many ids an ambiguous part names.
const maxCandidates = 10

// FullID returns the id of a noun that a person named: by the whole of it, by how it begins or
// ends after its prefix ([MinPart] characters or more, with or without the prefix), or as
// [Last]. Several ids are an *AmbiguousError; none is a *keep.NotFoundError.
func FullID(ctx context.Context, s store.Reader, n keep.Noun, given string) (string, error) {
	if n.Prefix() == "" {
		return "", &keep.NotFoundError{What: "noun", ID: string(n)}
	}
	if given == Last {
		return newest(ctx, s, n)
	}
	part := strings.TrimPrefix(given, n.Prefix())
	if len(part) < MinPart {
		return whole(ctx, s, n, given)
	}
	// The whole comes first: that of a question may be how many others begin.
	if id, err := whole(ctx, s, n, given); !errors.Is(err, keep.ErrNotFound) {
		return id, err
	}
	ids, err := s.IDsWith(ctx, n, part, maxCandidates+1)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", &keep.NotFoundError{What: string(n), ID: given}
	case len(ids) > 1:
		return "", &AmbiguousError{ID: given, Names: ids}
	}
	return ids[0], nil
}

// FullName returns the id of an event of a topic, or of an item if topic is empty, that a person named by
// the whole of it, or by how it begins or ends, as [FullID] does.
func FullName(ctx context.Context, s store.Reader, w keep.WorkflowName, topic keep.TopicName, given string) (string, error) {
	what, err := "item", error(nil)
	if topic == "" {
		_, err = s.Item(ctx, w, given)
	} else {
		what = "event"
		_, err = s.Event(ctx, w, topic, keep.MessageID(given))
	}
	if !errors.Is(err, keep.ErrNotFound) || len(given) < MinPart {
		return given, err
	}
	var places []keep.Place
	if topic == "" {
		places, err = s.ItemsWith(ctx, w, given, maxCandidates+1)
	} else {
		places, err = s.EventsWith(ctx, w, topic, given, maxCandidates+1)
	}
	switch {
	case err != nil:
		return "", err
	case len(places) == 0:
		return "", &keep.NotFoundError{What: what, ID: given}
	case len(places) > 1:
		e := &AmbiguousError{ID: given}
		for _, p := range places {
			e.Names = append(e.Names, p.ID)
		}
		return "", e
	}
	return places[0].ID, nil
}

// whole returns an id if there is one.
func whole(ctx context.Context, s store.Reader, n keep.Noun, id string) (string, error) {
	var err error
	switch n {
	case keep.NounRun:
		_, err = s.Run(ctx, keep.RunID(id))
	case keep.NounMutation:
		_, err = s.Mutation(ctx, keep.MutationKey(id))
	case keep.NounInput:
		_, err = s.Input(ctx, keep.InputID(id))
	case keep.NounQuestion:
		_, err = s.Escalation(ctx, keep.EscalationID(id))
	}
	return id, err
}

// newest returns the id of the newest record of a noun.
func newest(ctx context.Context, s store.Reader, n keep.Noun) (id string, err error) {
	one := keep.Page{Limit: 1, Bare: true}
	switch n {
	case keep.NounRun:
		id, err = first(s.Runs(ctx, keep.RunFilter{}, one))(func(r keep.Run) string { return string(r.ID) })
	case keep.NounMutation:
		id, err = first(s.Mutations(ctx, keep.MutationFilter{}, one))(func(m keep.Mutation) string { return string(m.Key) })
	case keep.NounInput:
		id, err = first(s.Inputs(ctx, keep.InputFilter{}, one))(func(in keep.Input) string { return string(in.ID) })
	case keep.NounQuestion:
		id, err = first(s.Escalations(ctx, keep.EscalationFilter{}, one))(func(q keep.Escalation) string { return string(q.ID) })
	}
	if errors.Is(err, keep.ErrNotFound) {
		err = &keep.NotFoundError{What: string(n), ID: Last}
	}
	return id, err
}

// first returns a function that returns the id of the first row of a page.
func first[T any](rows []T, _ string, err error) func(id func(T) string) (string, error) {
	return func(id func(T) string) (string, error) {
		switch {
		case err != nil:
			return "", err
		case len(rows) == 0:
			return "", keep.ErrNotFound
		}
		return id(rows[0]), nil
	}
}
