package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"

	"github.com/keep-run/keep"
)

// A cursor that clients see begins with the mark of its list: of another list, or of the same one with other filters, it
// would silently be a part of what was asked for.

// unmark takes the mark of a list from a cursor.
func unmark(cursor *string, mark string) error {
	if *cursor == "" {
		return nil
	}
	of, inner, ok := strings.Cut(*cursor, ".")
	if !ok || inner == "" || of != mark {
		return fmt.Errorf("cursor %.80q: %w, with these filters", *cursor, keep.ErrBadCursor)
	}
	*cursor = inner
	return nil
}

func (p *Paging) unmark(mark string) error    { return unmark(&p.Cursor, mark) }
func (p *KeyPaging) unmark(mark string) error { return unmark(&p.Cursor, mark) }

// mark puts the mark of the list on the cursor of the next page.
func (p *Page[T]) mark(mark string) {
	if p.Next != nil {
		next := mark + "." + *p.Next
		p.Next = &next
	}
}

// isPaged reports whether a request of type I has a cursor.
func isPaged[I any]() bool {
	_, paged := any(new(I)).(interface{ unmark(string) error })
	return paged
}

// marked returns f whose cursors continue this list with these filters alone.
func marked[I, O any](list string, f func(context.Context, *I) (O, error)) func(context.Context, *I) (O, error) {
	return func(ctx context.Context, in *I) (O, error) {
		mark := markOf(list, in)
		if err := any(in).(interface{ unmark(string) error }).unmark(mark); err != nil {
			return *new(O), err
		}
		out, err := f(ctx, in)
		if page, ok := any(&out).(interface{ mark(string) }); ok {
			page.mark(mark)
		}
		return out, err
	}
}

// markOf returns the mark of a list with the filters of a request: whatever it has but for how much of it is shown.
func markOf(list string, in any) string {
	filters := encode(reflect.ValueOf(in).Elem().Interface())
	for _, name := range []string{"cursor", "limit", "full"} {
		filters.Del(name)
	}
	sum := sha256.Sum256([]byte(list + "?" + filters.Encode()))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}
