package connector_test

import (
	"errors"
	"testing"
	"time"

	"github.com/keep-run/keep/connector"
)

func TestCheckerReportsAllProblemsInOrder(t *testing.T) {
	c := connector.NewChecker("a b")
	c.Kind("sql", "http")
	c.Kind("", "http")
	c.Addf("tools.x", "is %d", 2)
	c.Addf("base_url", "is required")
	const want = `connections.a b: the name "a b" must be letters, digits and underscores, and must not start with a digit
connections.a b.base_url: is required
connections.a b.connector: is "sql", want "http"
connections.a b.tools.x: is 2`
	err := c.Err()
	var ce *connector.ConfigError
	if !errors.As(err, &ce) || err.Error() != want {
		t.Errorf("Err() = %v, want\n%s", err, want)
	}
	if err := connector.NewChecker("crm").Err(); err != nil {
		t.Errorf("Err() without problems = %v", err)
	}
}

func TestDuration(t *testing.T) {
	var d connector.Duration
	if err := d.UnmarshalText([]byte("1m30s")); err != nil || time.Duration(d) != 90*time.Second {
		t.Errorf("1m30s = %s, %v", d, err)
	}
	if text, err := d.MarshalText(); err != nil || string(text) != "1m30s" {
		t.Errorf("MarshalText = %s, %v", text, err)
	}
	if err := d.UnmarshalText([]byte("10")); err == nil {
		t.Error("a number without a unit is no duration")
	}
}

func TestIsName(t *testing.T) {
	for s, want := range map[string]bool{"crm": true, "_a1": true, "getById": true, "": false, "1a": false, "a-b": false, "a.b": false, "ä": false} {
		if connector.IsName(s) != want {
			t.Errorf("IsName(%q) = %t", s, !want)
		}
	}
}
