package view_test

import (
	"context"
	"errors"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/view"
)

// A scanned store counts the reads that look at every id.
type scanned struct {
	store.Reader
	scans int
}

func (s *scanned) IDsWith(ctx context.Context, n keep.Noun, part string, limit int) ([]string, error) {
	s.scans++
	return s.Reader.IDsWith(ctx, n, part, limit)
}

func (s *scanned) EventsWith(ctx context.Context, w keep.WorkflowName, t keep.TopicName, part string, limit int) ([]keep.Place, error) {
	s.scans++
	return s.Reader.EventsWith(ctx, w, t, part, limit)
}

func (s *scanned) ItemsWith(ctx context.Context, w keep.WorkflowName, part string, limit int) ([]keep.Place, error) {
	s.scans++
	return s.Reader.ItemsWith(ctx, w, part, limit)
}

// Find looks at every id only for what may be a part of one that a host made, and never at those that scripts made.
func TestFindScans(t *testing.T) {
	for text, want := range map[string]int{
		"invoice": 0, "order-17": 0, "ada@example.com": 0, "run_invoice": 0, "01k9x2m4ab01k9x2m4ab01k9x2m": 0,
		"x2m4ab": len(keep.Nouns()), "run_x2m4ab": 1,
	} {
		s := &scanned{Reader: memory.New()}
		if _, err := view.Find(t.Context(), s, text); !errors.Is(err, keep.ErrNotFound) || s.scans != want {
			t.Errorf("Find %q: %d scans, %v; want %d, not found", text, s.scans, err, want)
		}
	}
}
