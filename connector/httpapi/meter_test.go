package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A counter lets in so many requests.
type counter struct{ asked, most int }

func (c *counter) Next(context.Context) error {
	if c.asked++; c.asked > c.most {
		return keep.Failf(keep.ClassTransient, keep.CodeLimit, "the limit")
	}
	return nil
}

// Each request of a call is let in before it is sent; one that is not let in is not sent,
// and the call says why.
func TestEachRequestIsLetIn(t *testing.T) {
	sent := 0
	conn := openTools(t, paged, func(w http.ResponseWriter, r *http.Request) {
		sent++
		fmt.Fprintf(w, `{"data":[{"id":%d}],"meta":{"next":"%d"}}`, sent, sent)
	})
	for _, tool := range conn.Tools {
		if tool.Spec().Name != "cursor" {
			continue
		}
		m := &counter{most: 3}
		_, err := tool.(connector.Reader).Read(connector.WithMeter(t.Context(), m), json.RawMessage(`{}`))
		f, ok := errors.AsType[*keep.Failure](err)
		if !ok || f.Code != keep.CodeLimit || f.Class != keep.ClassTransient || sent != 3 || m.asked != 4 {
			t.Errorf("%d sent, %d asked, %v; want 3, 4, and the failure of the meter", sent, m.asked, err)
		}
		return
	}
	t.Fatal("no tool cursor")
}
