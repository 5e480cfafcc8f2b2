package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a comparison (law: bounded).
const (
	maxSteps = 10_000 // places of a schema that are compared with a value: one whose references fan out has more than its text shows
	maxDepth = 100    // of a value: what is deeper is not compared
	maxShown = 100    // bytes of each name in the path to a misfit
)

// Misfit returns where and why a value certainly does not fit a schema; empty: it fits, or that is not known. It ignores
// what programs read in different ways: formats, conditions and what depends on other members.
func Misfit(s *jsonschema.Schema, v any) string {
	c := comparison{steps: maxSteps}
	if why := c.misfit(s, v); c.steps > 0 {
		return why
	}
	return ""
}

// A comparison counts down its steps, and knows where in the value it is.
type comparison struct {
	steps int
	path  []string
}

// at returns why a value does not fit, with where it is.
func (c *comparison) at(why string) string {
	var b strings.Builder
	for _, name := range c.path {
		b.WriteByte('/')
		b.WriteString(strings.ToValidUTF8(name[:min(len(name), maxShown)], ""))
	}
	return strings.TrimPrefix(b.String()+": "+why, ": ")
}

// within compares what a value has under a name.
func (c *comparison) within(name string, s *jsonschema.Schema, v any) string {
	if len(c.path) == maxDepth {
		return ""
	}
	c.path = append(c.path, name)
	defer func() { c.path = c.path[:len(c.path)-1] }()
	return c.misfit(s, v)
}

func (c *comparison) misfit(s *jsonschema.Schema, v any) string {
	if c.steps--; s == nil || c.steps <= 0 {
		return ""
	}
	if why := alone(s, v); why != "" {
		return c.at(why)
	}
	for _, all := range append([]*jsonschema.Schema{s.Ref}, s.AllOf...) {
		if why := c.misfit(all, v); why != "" {
			return why
		}
	}
	for _, some := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		var why string
		if len(some) > 0 && !slices.ContainsFunc(some, func(one *jsonschema.Schema) bool { why = c.misfit(one, v); return why == "" }) {
			return why
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return c.members(s, v)
	case []any:
		items := s.Items2020
		if of, ok := s.Items.(*jsonschema.Schema); ok {
			items = of
		}
		for i := len(s.PrefixItems); i < len(v); i++ {
			if why := c.within(strconv.Itoa(i), items, v[i]); why != "" {
				return why
			}
		}
	}
	return ""
}

// members compares the members of an object.
func (c *comparison) members(s *jsonschema.Schema, v map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		member, known := s.Properties[name]
		if !known && len(s.PatternProperties) == 0 {
			if s.AdditionalProperties == false {
				return c.at(fmt.Sprintf("there is no %.100q", name))
			}
			member, _ = s.AdditionalProperties.(*jsonschema.Schema)
		}
		if why := c.within(name, member, v[name]); why != "" {
			return why
		}
	}
	return ""
}

// alone returns why a value does not fit what a schema says without other schemas.
func alone(s *jsonschema.Schema, v any) string {
	err := (&jsonschema.Schema{
		DraftVersion: s.DraftVersion, Location: s.Location, Bool: s.Bool, Types: s.Types, Enum: s.Enum, Const: s.Const, Required: s.Required,
		MaxProperties: s.MaxProperties, MinProperties: s.MinProperties, MinItems: s.MinItems, MaxItems: s.MaxItems, MinLength: s.MinLength, MaxLength: s.MaxLength, Pattern: s.Pattern,
		Maximum: s.Maximum, Minimum: s.Minimum, ExclusiveMaximum: s.ExclusiveMaximum, ExclusiveMinimum: s.ExclusiveMinimum, MultipleOf: s.MultipleOf,
	}).Validate(v)
	if err == nil {
		return ""
	}
	_, why, _ := strings.Cut(err.Error(), "\n- at '': ")
	return why
}
