package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a declaration; a good one has six levels.
const maxDepth = 64

// A kind is the JavaScript kind of a value, in the words of a message that says
// what was found instead of what was wanted.
type kind string

const (
	kNull     kind = "null"
	kBoolean  kind = "a boolean"
	kNumber   kind = "a number"
	kString   kind = "a string"
	kArray    kind = "an array"
	kObject   kind = "an object"
	kFunction kind = "a function"
	kOther    kind = "something else" // text is its type
)

// A value is one value of a declaration.
type value struct {
	kind    kind
	text    string   // strings, and what numbers, booleans and other types are written as
	members []member // of an object, in the order of the script
	items   []value  // of an array
	keep    string   // "workflow" or "consumer": the function of Keep it passed through
	at      Position // of a function, or of the call of Keep's function

	params int    // of a function
	source string // of a function; may be cut
}

type member struct {
	key   string
	value value
}

// get returns the member of that key, and whether it is there. A member that is
// undefined is not.
func (v value) get(key string) (value, bool) {
	for _, m := range v.members {
		if m.key == key && !m.value.undefined() {
			return m.value, true
		}
	}
	return value{}, false
}

// undefined reports whether v is JavaScript's undefined: a member with it counts
// as absent, as it does for JavaScript.
func (v value) undefined() bool { return v.kind == kOther && v.text == "undefined" }

// String describes v for a person who expected something else.
func (v value) String() string {
	switch v.kind {
	case kString:
		return "the string " + strconv.Quote(short(v.text))
	case kNumber:
		return "the number " + short(v.text)
	case kBoolean, kNull:
		return v.text
	case kOther:
		return "of type " + short(v.text)
	case kObject:
		if v.keep != "" {
			return "what Keep." + v.keep + " returned"
		}
	}
	return string(v.kind)
}

// short cuts what a message shows of the script's own text.
func short(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// decode reads a declaration. Unlike json.Unmarshal it keeps the order of keys.
func decode(raw json.RawMessage) (value, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		return value{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return value{}, errors.New("more than one value")
	}
	return v, nil
}

// decodeValue reads the next value. It is recursive, so depth bounds it: a
// hostile script could nest deeper than our stack.
func decodeValue(dec *json.Decoder, depth int) (value, error) {
	if depth > maxDepth {
		return value{}, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return value{}, err
	}
	switch t := tok.(type) {
	case nil:
		return value{kind: kNull, text: "null"}, nil
	case bool:
		return value{kind: kBoolean, text: strconv.FormatBool(t)}, nil
	case json.Number:
		return value{kind: kNumber, text: t.String()}, nil
	case string:
		return value{kind: kString, text: t}, nil
	case json.Delim:
		if t == '[' {
			return decodeArray(dec, depth)
		}
		return decodeObject(dec, depth)
	}
	return value{}, fmt.Errorf("unexpected token %v", tok)
}

// decodeArray reads the rest of an array whose bracket was read.
func decodeArray(dec *json.Decoder, depth int) (value, error) {
	v := value{kind: kArray}
	for dec.More() {
		item, err := decodeValue(dec, depth+1)
		if err != nil {
			return value{}, err
		}
		v.items = append(v.items, item)
	}
	_, err := dec.Token() // the bracket
	return v, err
}

// decodeObject reads the rest of an object whose brace was read.
func decodeObject(dec *json.Decoder, depth int) (value, error) {
	v := value{kind: kObject}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return value{}, err
		}
		item, err := decodeValue(dec, depth+1)
		if err != nil {
			return value{}, err
		}
		v.members = append(v.members, member{fmt.Sprint(key), item})
	}
	if _, err := dec.Token(); err != nil { // the brace
		return value{}, err
	}
	return marked(v), nil
}

// marked turns an object that stands for something else into that. A handler
// may be called $function, so that the key alone proves nothing.
func marked(v value) value {
	if by, called := v.get("$keep"); called && by.kind == kString {
		return unwrapped(v, by.text)
	}
	if len(v.members) != 1 {
		return v
	}
	switch only := v.members[0]; {
	case only.key == "$type" && only.value.kind == kString:
		return value{kind: kOther, text: only.value.text}
	case only.key == "$function" && only.value.kind == kObject:
		if f, ok := function(only.value); ok {
			return f
		}
	}
	return v
}

// unwrapped returns an object that passed through a function of Keep without
// the marks that say so.
func unwrapped(v value, by string) value {
	at, _ := v.get("$at")
	out := value{kind: kObject, keep: by, at: position(at)}
	for _, m := range v.members {
		if m.key != "$keep" && m.key != "$at" {
			out.members = append(out.members, m)
		}
	}
	return out
}

// function reads what stands for a function, and reports whether it does: params
// is always there.
func function(v value) (value, bool) {
	params, ok := v.get("params")
	if !ok || params.kind != kNumber {
		return value{}, false
	}
	at, _ := v.get("at")
	source, _ := v.get("source")
	return value{kind: kFunction, at: position(at), params: number(params), source: source.text}, true
}

// position reads a place; what is not one is the zero Position.
func position(v value) Position {
	file, _ := v.get("file")
	line, _ := v.get("line")
	column, _ := v.get("column")
	p := Position{File: file.text, Line: number(line), Column: max(1, number(column))}
	if p.Line < 1 {
		return Position{}
	}
	return p
}

// number returns a whole number, or 0 for anything else.
func number(v value) int {
	n, err := strconv.Atoi(v.text)
	if v.kind != kNumber || err != nil {
		return 0
	}
	return n
}
