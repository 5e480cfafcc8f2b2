package idempotency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/keep-run/keep/law/key"
)

// A KeySource says where the key of a request is, if not in Idempotency-Key: a webhook
// has the id of its delivery elsewhere. The zero KeySource is that header.
type KeySource struct {
	// Header is the name of a header that holds the key.
	Header string

	// Field is a path in a JSON body that leads to a text or a number, "$.id" or
	// "$.event.id".
	Field string
}

// of returns the key of a request. Body is nil until it was read.
func (s KeySource) of(r *http.Request, body []byte) (string, error) {
	switch {
	case s.Header != "":
		lines := r.Header[textproto.CanonicalMIMEHeaderKey(s.Header)]
		switch len(lines) {
		case 0:
			return "", key.ErrMissing
		case 1:
			return key.Text(strings.Trim(lines[0], " \t")) // by HTTP/2 it comes as it was sent
		}
		return "", key.ErrRepeated
	case s.Field != "":
		return s.field(body)
	}
	return key.FromHeader(r.Header)
}

// field returns the key in a body; a body that has none has no key.
func (s KeySource) field(body []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var value any
	if dec.Decode(&value) != nil {
		return "", key.ErrMissing
	}
	for _, name := range strings.Split(strings.TrimPrefix(s.Field, "$."), ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return "", key.ErrMissing
		}
		value = object[name]
	}
	switch v := value.(type) {
	case string:
		return key.Text(v)
	case json.Number:
		return key.Text(v.String())
	}
	return "", key.ErrMissing
}

// check reports what is wrong with a source.
func (s KeySource) check() error {
	switch {
	case s.Header != "" && s.Field != "":
		return fmt.Errorf("key: header %q and field %q: want one", s.Header, s.Field)
	case s.Field != "" && (!strings.HasPrefix(s.Field, "$.") || strings.Contains(s.Field+".", "..")):
		return fmt.Errorf("key: field %q: want a path such as \"$.id\"", s.Field)
	}
	return nil
}
