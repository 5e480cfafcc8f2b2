package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// whenForms are the forms of a time, of which those without a zone are in UTC.
var whenForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly}

// ParsePeriod reads the period of a filter. Each end is a time as RFC 3339 has it, a part of
// one such as 2026-11-20 or 2026-11-20T09:30, in UTC, or how long before now: 90m, 2h, 7d.
// Empty: there is none.
func ParsePeriod(since, until string, now time.Time) (p keep.Period, err error) {
	if p.Since, err = parseWhen(since, now); err != nil {
		return p, fmt.Errorf("since: %w", err)
	}
	if p.Until, err = parseWhen(until, now); err != nil {
		return p, fmt.Errorf("until: %w", err)
	}
	if !p.Since.IsZero() && !p.Until.IsZero() && !p.Since.Before(p.Until) {
		return p, fmt.Errorf("since %s is not before until %s", since, until)
	}
	return p, nil
}

// parseWhen reads one end of a period.
func parseWhen(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= 36500 {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range whenForms {
		if at, err := time.Parse(form, text); err == nil && at.Year() >= 1970 {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%.40q is no time; write one such as 2026-11-20, 2026-11-20T09:30 (UTC) or 2026-11-20T09:30:00+01:00, or how long ago: 90m, 2h, 7d", text)
}
