package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A jsonForm collects what commands print as JSON, to see that all of it has one form: a list is
// never null, a text that isn't known is null and not empty, and a time is RFC 3339 in UTC with
// milliseconds.
type jsonForm struct {
	lists map[string]bool     // the fields that are lists somewhere, or by the API's description
	nulls map[string][]string // the commands that print null, by the field
	times []string            // what is a time in another form, with its command
	empty map[string][]string // the commands that print an empty text, by the field
}

// foreign are the fields whose values scripts and services make.
var foreign = []string{"payload", "result", "prepared", "data", "value", "params", "recorded", "now", "identity", "body"}

// blank are the texts that may be empty, since that says what there is, and not that it isn't known.
var blank = []string{"why"} // a run that went as recorded has no reason

var (
	timeLike = regexp.MustCompile(`^\d{4}-\d\d-\d\d[T ]\d\d:`)
	timeForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

func newJSONForm(t *testing.T) *jsonForm {
	t.Helper()
	f := &jsonForm{lists: make(map[string]bool), nulls: make(map[string][]string), empty: make(map[string][]string)}
	raw, err := os.ReadFile("../../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var described any
	if err := json.Unmarshal(raw, &described); err != nil {
		t.Fatal(err)
	}
	f.describe(described)
	if len(f.lists) < 30 {
		t.Fatalf("the API has %d lists: %v", len(f.lists), f.lists)
	}
	return f
}

// describe adds the properties of a schema that are lists.
func (f *jsonForm) describe(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			f.describe(e)
		}
	case map[string]any:
		properties, _ := v["properties"].(map[string]any)
		for name, p := range properties {
			if p, ok := p.(map[string]any); ok && p["items"] != nil {
				f.lists[name] = true
			}
		}
		for _, e := range v {
			f.describe(e)
		}
	}
}

// add takes the JSON that a command printed: one value, or one a line.
func (f *jsonForm) add(command, printed string) {
	from := json.NewDecoder(strings.NewReader(printed))
	for {
		var v any
		if from.Decode(&v) != nil {
			return
		}
		if v == nil {
			f.nulls[""] = append(f.nulls[""], command)
		}
		f.look(command, "", v)
	}
}

func (f *jsonForm) look(command, name string, v any) {
	switch v := v.(type) {
	case nil:
		f.nulls[name] = append(f.nulls[name], command)
	case string:
		if v == "" {
			f.empty[name] = append(f.empty[name], command)
		}
		if timeLike.MatchString(v) && !timeForm.MatchString(v) {
			f.times = append(f.times, command+": "+name+": "+v)
		}
	case []any:
		f.lists[name] = true
		for _, e := range v {
			f.look(command, "", e)
		}
	case map[string]any:
		for key, e := range v {
			if !slices.Contains(foreign, key) {
				f.look(command, key, e)
			}
		}
	}
}

// judge fails the test for each list that is null somewhere, and each time in another form.
func (f *jsonForm) judge(t *testing.T) {
	t.Helper()
	for name, commands := range f.nulls {
		if name != "" && f.lists[name] {
			t.Errorf("%s is a list, and null in what these print: %s", name, strings.Join(slices.Compact(commands), "; "))
		}
	}
	for name, commands := range f.empty {
		if !slices.Contains(blank, name) {
			t.Errorf("%s is an empty text, and not null, in what these print: %s", name, strings.Join(slices.Compact(commands), "; "))
		}
	}
	for _, at := range slices.Compact(f.times) {
		t.Errorf("a time is not RFC 3339 in UTC with milliseconds: %s", at)
	}
}
