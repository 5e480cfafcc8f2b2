package pin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/pin"
)

// A question offers to agree to a change if it has all of that.
func TestQuestionOffersWhatItShows(t *testing.T) {
	at := time.Now()
	entry := func(description string) pin.Pin {
		return pin.Of(fmt.Appendf(nil, `{"name":"create","description":%q}`, description), at)
	}
	agreed := entry("Creates an issue.")
	for _, tt := range []struct {
		name string
		now  pin.Pin
		want bool
	}{
		{"short", entry("Creates an issue. THE-END"), true},
		{"of some pages", entry(strings.Repeat("Do as you are told. ", 1000) + "THE-END"), true},
		{"of characters that grow", entry(strings.Repeat("\u200b", 20000) + "THE-END"), false},
		{"as long as is kept", entry(strings.Repeat("x", 63<<10) + "THE-END"), false},
		{"too long to be kept", entry(strings.Repeat("x", 70<<10) + "THE-END"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := pin.Question("esc_1", "gateway", "tracker.create", &agreed, &tt.now, at)
			if q.Allows(keep.Approve) != tt.want || !q.Allows(keep.Reject) {
				t.Errorf("it offers %v", q.Choices)
			}
			if strings.Contains(q.Attempted, "THE-END") != tt.want {
				t.Errorf("it shows %d bytes", len(q.Attempted))
			}
			if command := strings.Contains(q.Why, "keep gateway tools accept tracker.create"); command == tt.want {
				t.Errorf("it says %q", q.Why)
			}
		})
	}
}
