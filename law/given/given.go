// Package given reads JSON that others wrote: ids, and values of a known shape. Its errors are for
// the author of that JSON: they name the field, what is wanted there and what there is.
package given

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/keep-run/keep/law/canonical"
)

var wholeNumber = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?(0|[1-9][0-9]{0,63})$`) })

// ID reads an id, which is a text or a whole number: no digit of it is lost. Null is none, or all
// things without an id would be one.
func ID(raw json.RawMessage) (string, error) {
	switch {
	case wholeNumber().Match(raw):
		return string(raw), nil
	case len(raw) > 0 && raw[0] == '"':
		return canonical.Text(raw)
	case string(raw) == "null":
		return "", fmt.Errorf("want a text or a whole number, got null (NaN and Infinity are null, too)")
	}
	return "", fmt.Errorf("want a text or a whole number, got %s", Show(raw))
}

// Decode reads raw into v, a pointer, as json.Unmarshal does.
func Decode(raw json.RawMessage, v any) error {
	err := json.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	if why := Mismatch(raw, v); why != nil {
		return why
	}
	return err
}

// Mismatch returns an error about the first value in raw that does not fit where json.Unmarshal would
// put it, and nil if each does. A value that reads itself fits.
func Mismatch(raw json.RawMessage, v any) error { return mismatch(raw, reflect.TypeOf(v), "") }

func mismatch(raw json.RawMessage, t reflect.Type, path string) error {
	if raw = bytes.TrimSpace(raw); string(raw) == "null" {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		if t.Implements(reflect.TypeFor[json.Unmarshaler]()) {
			return nil
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return mismatchOfObject(raw, t, path)
	case reflect.Slice:
		return mismatchOfList(raw, t, path)
	case reflect.Map:
		var all map[string]json.RawMessage
		return unlike(json.Unmarshal(raw, &all), raw, path, "an object")
	case reflect.String:
		return unlike(json.Unmarshal(raw, new(string)), raw, path, "a text")
	case reflect.Bool:
		return unlike(json.Unmarshal(raw, new(bool)), raw, path, "true or false")
	case reflect.Int, reflect.Int64:
		return unlike(json.Unmarshal(raw, new(int64)), raw, path, "a whole number")
	case reflect.Float64:
		return unlike(json.Unmarshal(raw, new(float64)), raw, path, "a number")
	}
	return nil
}

func mismatchOfObject(raw json.RawMessage, t reflect.Type, path string) error {
	var all map[string]json.RawMessage
	if err := unlike(json.Unmarshal(raw, &all), raw, path, "an object"); err != nil {
		return err
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		name = cmp.Or(name, t.Field(i).Name)
		for key, value := range all {
			if !strings.EqualFold(key, name) {
				continue
			}
			if err := mismatch(value, t.Field(i).Type, strings.TrimPrefix(path+"."+key, ".")); err != nil {
				return err
			}
		}
	}
	return nil
}

func mismatchOfList(raw json.RawMessage, t reflect.Type, path string) error {
	var all []json.RawMessage
	if err := unlike(json.Unmarshal(raw, &all), raw, path, "a list"); err != nil {
		return err
	}
	for i, value := range all {
		if err := mismatch(value, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

// unlike returns the error about a value that could not be read as what is wanted; nil if err is.
func unlike(err error, raw json.RawMessage, path, want string) error {
	switch {
	case err == nil:
		return nil
	case path == "":
		return fmt.Errorf("want %s, got %s", want, Show(raw))
	}
	return fmt.Errorf("%s: want %s, got %s", path, want, Show(raw))
}

// Show returns a value as a message names it; none is nothing.
func Show(raw json.RawMessage) string {
	kind := ""
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '"':
		kind = "the text "
	case raw[0] == '{':
		kind = "the object "
	case raw[0] == '[':
		kind = "the list "
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		kind = "the number "
	}
	if short := fmt.Sprintf("%.60s", raw); len(short) < len(raw) {
		return kind + short + "…"
	}
	return kind + string(raw)
}
