package mcp

import (
	"errors"
	"fmt"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// TestPart goes through a list that comes at once, page by page, and sees each of it once.
func TestPart(t *testing.T) {
	list := []int{0, 1, 2, 3, 4, 5, 6}
	for limit := 1; limit <= len(list)+1; limit++ {
		var seen []int
		for p := (api.Paging{Limit: limit}); ; {
			page, err := part(p, list, nil)
			if err != nil || len(page.Items) > limit || len(page.Items) == 0 {
				t.Fatalf("limit %d, cursor %q: %v, %v", limit, p.Cursor, page.Items, err)
			}
			if seen = append(seen, page.Items...); page.Next == nil {
				break
			}
			p.Cursor = *page.Next
		}
		if fmt.Sprint(seen) != fmt.Sprint(list) {
			t.Errorf("limit %d: %v", limit, seen)
		}
	}
	for _, cursor := range []string{"x", "-1"} {
		if _, err := part(api.Paging{Limit: 1, Cursor: cursor}, list, nil); !errors.Is(err, keep.ErrBadCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	if page, err := part(api.Paging{Limit: 1, Cursor: "99"}, list, nil); err != nil || len(page.Items) != 0 || page.Next != nil {
		t.Errorf("behind the end: %+v, %v", page, err)
	}
}
