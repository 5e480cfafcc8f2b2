package connector

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Duration is a length of time that configuration writes as text: "10s",
// "1m30s", "24h".
type Duration time.Duration

// UnmarshalText reads the form of [time.ParseDuration].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as \"10s\"", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String writes d as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// A Problem is one thing that is wrong with a configuration.
type Problem struct {
	Path    string // such as "connections.crm.tools.create.path"
	Message string // what is wrong and what would be right; no secrets
}

// String puts the path before the message.
func (p Problem) String() string { return p.Path + ": " + p.Message }

// A ConfigError lists everything that is wrong with one connection, in the
// order of the paths, so that a person can fix all of it at once.
type ConfigError struct {
	Problems []Problem
}

// Error has one line for each problem.
func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// A Checker collects problems while a constructor reads its configuration.
type Checker struct {
	root     string
	problems []Problem
}

// NewChecker returns a Checker for the connection of that name. It already
// holds a problem if scripts could not say the name.
func NewChecker(connection string) *Checker {
	c := &Checker{root: "connections." + connection}
	if !IsName(connection) {
		c.Addf("", "the name %q must be letters, digits and underscores, and must not start with a digit", connection)
	}
	return c
}

// Addf adds a problem at path, which is relative to the connection; an empty
// path means the connection itself.
func (c *Checker) Addf(path, format string, args ...any) {
	if path != "" {
		path = "." + path
	}
	c.problems = append(c.problems, Problem{Path: c.root + path, Message: fmt.Sprintf(format, args...)})
}

// Kind adds a problem if the configuration names another connector than want.
// An empty name is fine.
func (c *Checker) Kind(got, want string) {
	if got != "" && got != want {
		c.Addf("connector", "is %q, want %q", got, want)
	}
}

// Err returns nil or a *ConfigError with the problems sorted by path.
func (c *Checker) Err() error {
	if len(c.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return &ConfigError{Problems: c.problems}
}

// IsName reports whether s can name a connection or a tool: scripts write
// ctx.<connection>.<tool>(…).
func IsName(s string) bool {
	for i, r := range s {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
