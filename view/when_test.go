package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/view"
)

func TestParsePeriod(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-11-20": "2026-11-20T00:00:00Z", "2026-11-20T09:30": "2026-11-20T09:30:00Z", "2026-11-20 09:30:05": "2026-11-20T09:30:05Z",
		"2026-11-20T09:30:00+01:00": "2026-11-20T08:30:00Z", "2026-11-20T09:30:00.250Z": "2026-11-20T09:30:00.25Z",
		"90m": "2026-11-20T10:30:00Z", "2h": "2026-11-20T10:00:00Z", "7d": "2026-11-13T12:00:00Z", "0s": "2026-11-20T12:00:00Z",
	} {
		for _, end := range []bool{false, true} {
			since, until := text, ""
			if end {
				since, until = "", text
			}
			p, err := view.ParsePeriod(since, until, now)
			got := p.Since
			if end {
				got = p.Until
			}
			if err != nil || got.UTC().Format(time.RFC3339Nano) != want || p.Since.IsZero() != end || p.Until.IsZero() == end {
				t.Errorf("%s, as the end: %t, is %v, %v; want %s", text, end, p, err, want)
			}
		}
	}
	for _, wrong := range [][2]string{
		{"yesterday", "since: "}, {"-2h", "since: "}, {"2026-13-01", "since: "}, {"99999999d", "since: "}, {"0001-01-01", "since: "},
	} {
		if _, err := view.ParsePeriod(wrong[0], "", now); err == nil || !strings.Contains(err.Error(), wrong[1]) || !strings.Contains(err.Error(), "7d") {
			t.Errorf("%s: %v", wrong[0], err)
		}
	}
	if _, err := view.ParsePeriod("1h", "2h", now); err == nil || !strings.Contains(err.Error(), "not before") {
		t.Errorf("a period that ends before it begins: %v", err)
	}
}
