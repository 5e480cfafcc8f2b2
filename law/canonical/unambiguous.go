package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// MaxDepth is how many objects and lists JSON that others send may have within each other (law: bounded): parsers in other
// languages end at 64 to 1,000, some by a crash.
const MaxDepth = 100

// A ShapeError is returned for JSON that other readers would read otherwise, or not at all.
type ShapeError struct {
	Path string // of the value in the text, such as "payload.list[2]"; empty: it is the text
	What string
}

// Error names the value, and what is wrong with it.
func (e *ShapeError) Error() string {
	if e.Path == "" {
		return e.What
	}
	return "at " + e.Path + ": " + e.What
}

// Unambiguous returns a *ShapeError if an object in JSON has two members of one name, of which each reader chooses one, or if
// more than MaxDepth objects and lists are within each other. It does not look whether the text is JSON.
func Unambiguous(text []byte) error {
	var open []level
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '{' || c == '[':
			if len(open) == MaxDepth {
				return &ShapeError{pathOf(open), fmt.Sprintf("more than %d objects and lists are within each other; send a text that holds the JSON, or a reference", MaxDepth)}
			}
			open = append(open, level{object: c == '{', named: c == '['})
		case c == '"':
			end := endOfText(text[i:]) + i
			if err := named(open, text[i:end]); err != nil {
				return err
			}
			i = end - 1
		case len(open) == 0:
		case c == '}' || c == ']':
			open = open[:len(open)-1]
		case c == ',':
			in := &open[len(open)-1]
			in.index++
			in.named = !in.object
		}
	}
	return nil
}

// A level is an object or a list that has not ended.
type level struct {
	object bool
	named  bool            // the next text is no name of a member
	name   string          // of the member that is read
	names  map[string]bool // of all members so far
	index  int             // of the element that is read
}

// named takes a text of the innermost level, which may be the name of a member.
func named(open []level, raw []byte) error {
	if len(open) == 0 || open[len(open)-1].named {
		return nil
	}
	in := &open[len(open)-1]
	in.named = true
	if plainString(raw) {
		in.name = string(raw[1 : len(raw)-1])
	} else if json.Unmarshal(raw, &in.name) != nil {
		return nil // it is no JSON
	}
	if in.names[in.name] {
		return &ShapeError{pathOf(open[:len(open)-1]), fmt.Sprintf("two members have the name %q; send one of them", cutTo(in.name, 60))}
	}
	if in.names == nil {
		in.names = make(map[string]bool)
	}
	in.names[in.name] = true
	return nil
}

// endOfText returns the length of the text of JSON at the beginning of raw, with its quotation marks.
func endOfText(raw []byte) int {
	for at := 1; at < len(raw); {
		n := bytes.IndexAny(raw[at:], `"\`)
		if n < 0 {
			break
		}
		if at += n; raw[at] == '"' {
			return at + 1
		}
		at += 2
	}
	return len(raw)
}

// maxPath is how much of a path a message has, in bytes.
const maxPath = 120

// pathOf returns where the value is that the innermost level reads.
func pathOf(open []level) string {
	var b strings.Builder
	for i, l := range open {
		switch {
		case b.Len() > maxPath:
			return b.String() + "…"
		case !l.object:
			b.WriteString("[" + strconv.Itoa(l.index) + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(cutTo(l.name, 60))
		}
	}
	return b.String()
}

// cutTo returns s, or its beginning of at most n bytes.
func cutTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
