// Package echo knows in which members of their answers services repeat the question, how they deny, and how they say that there is more. What stands there
// was not found, only asked for (law: witnessed).
package echo

import (
	"encoding/json"
	"slices"
	"strings"
)

// names are the members in which services repeat the question, in records too.
var names = []string{"query", "path", "self", "error", "errors", "url", "uri", "href", "link", "links"}

// ofAnswers are those in which an answer repeats the question that is not a list: in an
// entry of a list, they are data.
var ofAnswers = []string{
	"request", "params", "parameters", "filter", "filters", "search", "input", "args", "message", "detail",
	"details", "instance", "q", "debug", "warnings", "location", "next", "prev", "previous", "first", "last",
}

// In reports whether a member of that name repeats the question, in an entry of a
// list or in a whole answer.
func In(name string, entry bool) bool {
	name = strings.ToLower(strings.Trim(name, "_$@"))
	return slices.Contains(names, name) || !entry && slices.Contains(ofAnswers, name)
}

// Denies reports whether a record says itself that there is nothing: an entry of a list, of which a count or a total is data, or a whole answer.
func Denies(fields map[string]json.RawMessage, entry bool) bool {
	for name, raw := range fields {
		switch value := strings.TrimSpace(string(raw)); strings.ToLower(name) {
		case "found", "exists":
			if value == "false" {
				return true
			}
		case "total", "count", "total_count", "hits":
			if value == "0" && !entry {
				return true
			}
		}
	}
	return Fails(fields)
}

// noErrors are how services write that there is no error.
var noErrors = []string{"null", "[]", `""`, "false", "{}", "0", `"0"`}

// Fails reports whether an answer says itself that something of it failed.
func Fails(fields map[string]json.RawMessage) bool {
	for name, raw := range fields {
		switch value := strings.TrimSpace(string(raw)); strings.ToLower(name) {
		case "success", "ok":
			if value == "false" {
				return true
			}
		case "timed_out":
			if value == "true" {
				return true
			}
		case "error", "errors":
			if !slices.Contains(noErrors, value) {
				return true
			}
		}
	}
	return false
}
