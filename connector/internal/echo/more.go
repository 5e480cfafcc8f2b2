package echo

import (
	"encoding/json"
	"slices"
	"strings"
)

// Members in which services say whether a list has more, and those that say where: without
// underscores and the like, in lower case.
var (
	moreFlags = []string{"hasmore", "hasnext", "hasnextpage", "more", "istruncated", "truncated", "incompleteresults"}
	moreAt    = []string{
		"next", "nextcursor", "nextpage", "nextpagetoken", "nexttoken", "nextlink", "odatanextlink", "nexturl", "offset", "continuationtoken",
		"lastevaluatedkey",
	}
)

// More returns what the members of objects say, and not those of entries: the first flag that
// is true, or else one that is false, and whether there is an address, or a null in the place of one.
func More(v any) (flag *bool, at, none bool) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, false, false
	}
	for name, value := range object {
		name = strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "", "@", "", "$", "").Replace(name))
		if b, ok := value.(bool); ok && slices.Contains(moreFlags, name) && (flag == nil || b) {
			flag = &b
		}
		at = at || slices.Contains(moreAt, name) && leadsOn(name, value)
		none = none || slices.Contains(moreAt, name) && value == nil
		inner, innerAt, innerNone := More(value)
		none = none || innerNone
		if at = at || innerAt; inner != nil && (flag == nil || *inner) {
			flag = inner
		}
	}
	return flag, at, none
}

// leadsOn reports whether a value is an address of more. An offset that is a number is where this page began.
func leadsOn(name string, v any) bool {
	switch v := v.(type) {
	case string:
		return v != ""
	case json.Number:
		return name != "offset"
	case map[string]any:
		return len(v) > 0
	}
	return false
}
