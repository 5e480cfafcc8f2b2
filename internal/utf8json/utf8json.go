// Package utf8json encodes Go values as JSON without changing a text: encoding/json writes U+FFFD for each byte
// that is not UTF-8, and two ids that differ in such bytes would be one.
package utf8json

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// An Error is returned for a value with a text that is not UTF-8.
type Error struct {
	Path string // of the text in the value, such as "list[2].name"; empty: it is the value
	Text string // empty: the type of the value encodes itself
}

// Error names the field, and the text with its bytes escaped.
func (e *Error) Error() string {
	what := "a text"
	if e.Text != "" {
		what = fmt.Sprintf("the text %q", cut(e.Text))
	}
	if e.Path != "" {
		what = e.Path + ": " + what
	}
	return what + " is not UTF-8: convert it, or write its bytes as base64"
}

// In returns the error of a value that is a field of another one.
func (e *Error) In(field string) *Error {
	switch {
	case e.Path == "":
		return &Error{field, e.Text}
	case e.Path[0] == '[':
		return &Error{field + e.Path, e.Text}
	}
	return &Error{field + "." + e.Path, e.Text}
}

func cut(s string) string { return s[:min(len(s), 60)] }

// Marshal is json.Marshal, and returns an *Error for a value with a text, or the name of a field, that is not UTF-8.
func Marshal(v any) (json.RawMessage, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		if bad, ok := errors.AsType[*Error](err); ok { // of a type that encodes itself with this package
			return nil, bad
		}
		return nil, err
	}
	if sound(raw) {
		return raw, nil
	}
	// What looks so may be JSON that was passed as it is.
	if bad := find(reflect.ValueOf(v), ""); bad != nil {
		return nil, bad
	}
	return raw, nil
}

// sound reports whether nothing in what encoding/json made stands for bytes that are not UTF-8. It writes the
// escape for those, and the character U+FFFD as it is.
func sound(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return true
		}
		if bytes.HasPrefix(raw[i:], []byte(`\ufffd`)) {
			return false
		}
		raw = raw[min(i+2, len(raw)):]
	}
}

// find returns the first text of v that is not UTF-8; nil: there is none.
func find(v reflect.Value, path string) *Error {
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		return unless(utf8.Valid(v.Bytes()), path, string(v.Bytes()))
	}
	if v.Kind() == reflect.Pointer && v.Type().Elem() == reflect.TypeFor[json.RawMessage]() {
		return find(v.Elem(), path)
	}
	if encodesItself(v) {
		raw, err := json.Marshal(v.Interface())
		return unless(err != nil || sound(raw), path, "")
	}
	switch v.Kind() {
	case reflect.String:
		return unless(utf8.ValidString(v.String()), path, v.String())
	case reflect.Pointer, reflect.Interface:
		return find(v.Elem(), path)
	case reflect.Slice, reflect.Array:
		return findInList(v, path)
	case reflect.Map:
		return findInMap(v, path)
	case reflect.Struct:
		return findInStruct(v, path)
	}
	return nil
}

// unless returns nil if the text at path is ok.
func unless(ok bool, path, text string) *Error {
	if ok {
		return nil
	}
	return &Error{strings.TrimPrefix(path, "."), text}
}

func encodesItself(v reflect.Value) bool {
	if !v.CanInterface() {
		return false
	}
	for _, t := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if v.Kind() != reflect.Interface && (v.Type().Implements(t) || v.CanAddr() && reflect.PointerTo(v.Type()).Implements(t)) {
			return true
		}
	}
	return false
}

func findInList(v reflect.Value, path string) *Error {
	for i := range v.Len() {
		if bad := find(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); bad != nil {
			return bad
		}
	}
	return nil
}

func findInMap(v reflect.Value, path string) *Error {
	for it := v.MapRange(); it.Next(); {
		name := fmt.Sprint(it.Key())
		if !utf8.ValidString(name) {
			return unless(false, path, name)
		}
		if bad := find(it.Value(), path+"."+name); bad != nil {
			return bad
		}
	}
	return nil
}

func findInStruct(v reflect.Value, path string) *Error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case name == "" && f.Anonymous:
			name = path
		case name == "":
			name = path + "." + f.Name
		default:
			name = path + "." + name
		}
		if bad := find(v.Field(i), name); bad != nil {
			return bad
		}
	}
	return nil
}
