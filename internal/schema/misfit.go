package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSteps is how many places of a schema are compared with a value (law: bounded). A schema whose references fan
// out has more of them than its text shows.
const maxSteps = 10_000

// Misfit returns where and why a value certainly does not fit a schema; empty: it fits, or that is not known. It ignores
// what programs read in different ways: formats, conditions and what depends on other members.
func Misfit(s *jsonschema.Schema, v any) string {
	c := comparison{steps: maxSteps}
	if why := c.misfit(s, v, ""); c.steps > 0 {
		return why
	}
	return ""
}

// A comparison counts down its steps.
type comparison struct{ steps int }

func (c *comparison) misfit(s *jsonschema.Schema, v any, at string) string {
	if c.steps--; s == nil || c.steps <= 0 {
		return ""
	}
	if why := alone(s, v); why != "" {
		return strings.TrimPrefix(at+": "+why, ": ")
	}
	for _, all := range append([]*jsonschema.Schema{s.Ref}, s.AllOf...) {
		if why := c.misfit(all, v, at); why != "" {
			return why
		}
	}
	for _, some := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		var why string
		if len(some) > 0 && !slices.ContainsFunc(some, func(one *jsonschema.Schema) bool { why = c.misfit(one, v, at); return why == "" }) {
			return why
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return c.members(s, v, at)
	case []any:
		items := s.Items2020
		if of, ok := s.Items.(*jsonschema.Schema); ok {
			items = of
		}
		for i := len(s.PrefixItems); i < len(v); i++ {
			if why := c.misfit(items, v[i], fmt.Sprintf("%s/%d", at, i)); why != "" {
				return why
			}
		}
	}
	return ""
}

// members compares the members of an object.
func (c *comparison) members(s *jsonschema.Schema, v map[string]any, at string) string {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		member, known := s.Properties[name]
		if !known && len(s.PatternProperties) == 0 {
			if s.AdditionalProperties == false {
				return strings.TrimPrefix(fmt.Sprintf("%s: there is no %.100q", at, name), ": ")
			}
			member, _ = s.AdditionalProperties.(*jsonschema.Schema)
		}
		if why := c.misfit(member, v[name], at+"/"+name); why != "" {
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
