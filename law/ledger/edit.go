package ledger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// An Edit is one place at which two payloads differ, for people.
type Edit struct {
	Path string // such as to[0].name; empty: the whole
	Old  string // JSON; empty: it was not there
	New  string // JSON; empty: it is not there any more
}

// String returns the edit on one line, long values cut.
func (e Edit) String() string {
	value := func(s, none string) string {
		const most = 200
		switch {
		case s == "":
			return none
		case len(s) > most:
			return strings.ToValidUTF8(s[:most], "") + fmt.Sprintf("… (%d bytes)", len(s))
		}
		return s
	}
	path := e.Path
	path = cmp.Or(path, "all of it")
	return path + ": " + value(e.Old, "(not there)") + " → " + value(e.New, "(not there)")
}

// Edits returns the places at which two JSON payloads differ, sorted by path, at
// most limit of them, and how many there are in all.
func Edits(old, now []byte, limit int) (edits []Edit, all int) {
	a, errA := decode(old)
	b, errB := decode(now)
	if errA != nil || errB != nil {
		if bytes.Equal(old, now) {
			return nil, 0
		}
		return []Edit{{Old: string(old), New: string(now)}}, 1
	}
	d := differ{limit: limit}
	d.value("", a, b)
	return d.edits, d.all
}

func decode(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// A differ collects edits.
type differ struct {
	limit int
	edits []Edit
	all   int
}

// absent is what one payload has where only the other has a value.
type absent struct{}

func (d *differ) value(path string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			d.object(path, a, b)
			return
		}
	case []any:
		if b, ok := b.([]any); ok {
			d.list(path, a, b)
			return
		}
	}
	if old, now := text(a), text(b); old != now {
		if d.all++; len(d.edits) < d.limit {
			d.edits = append(d.edits, Edit{path, old, now})
		}
	}
}

func (d *differ) object(path string, a, b map[string]any) {
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		name := k
		if k == "" || strings.ContainsAny(k, ".[]:\" \n\t") {
			name = strconv.Quote(k)
		}
		if path != "" {
			name = path + "." + name
		}
		d.value(name, at(a, k), at(b, k))
	}
}

func at(m map[string]any, k string) any {
	if v, ok := m[k]; ok {
		return v
	}
	return absent{}
}

func (d *differ) list(path string, a, b []any) {
	for i := range max(len(a), len(b)) {
		var x, y any = absent{}, absent{}
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		d.value(fmt.Sprintf("%s[%d]", path, i), x, y)
	}
}

func text(v any) string {
	if _, none := v.(absent); none {
		return ""
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v) // decoded JSON encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
