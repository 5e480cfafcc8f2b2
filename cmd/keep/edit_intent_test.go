package main

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
)

// Of an intent that is too long what the workflow is for stays, and what is wanted now; the oldest changes go first.
func TestIntentAfterManyChanges(t *testing.T) {
	t.Parallel()
	const purpose = "Remind customers of invoices. Each once, at nine."
	long := func(c string, n int) string { return strings.Repeat(c, n) }
	for name, tt := range map[string]struct{ before, change, want string }{
		"the first change":               {"", "Send a mail.", "Send a mail."},
		"it fits":                        {purpose + "\nAt ten.", "At noon.", purpose + "\nAt ten.\nAt noon."},
		"the oldest change is left out":  {purpose + "\n" + long("a", 5000) + "\n" + long("b", 3000), long("c", 4000), purpose + "\n" + long("b", 3000) + "\n" + long("c", 4000)},
		"no change but the last one":     {purpose + "\n" + long("a", 5000), long("c", 8000), purpose + "\n" + long("c", 8000)},
		"its first sentence":             {purpose + " " + long("a", 5000) + "\n" + long("b", 5000), long("c", 8000), "Remind customers of invoices.\n" + long("c", 8000)},
		"only the change":                {purpose, long("c", keep.MaxIntent), long("c", keep.MaxIntent)},
		"a first line without sentences": {long("a", 8000), long("c", 8000), long("c", 8000)},
	} {
		got := intentAfter(tt.before, tt.change)
		if got != tt.want || len(got) > keep.MaxIntent {
			t.Errorf("%s: %d bytes %.60q, want %d bytes %.60q", name, len(got), got, len(tt.want), tt.want)
		}
	}
}
