package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/given"
)

// errMediaType is returned for a body that is neither JSON nor a form.
var errMediaType = errors.New("the body is neither JSON nor a form, as it is sent")

const formType = "application/x-www-form-urlencoded"

// payloadOf returns the body of a verified delivery as the payload of an event: JSON as it
// came, a form as an object of its fields. A field that repeats is a list.
func payloadOf(h http.Header, body []byte) (json.RawMessage, error) {
	contentType, coding := h.Get("Content-Type"), strings.Join(h.Values("Content-Encoding"), ", ")
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return nil, fmt.Errorf("%w (Content-Encoding: %.60s); have it sent without being compressed", errMediaType, coding)
	case contentType == "" || err == nil && (media == "application/json" || strings.HasSuffix(media, "+json")):
		return body, checkJSON(body)
	case err != nil || media != formType:
		return nil, fmt.Errorf("%w (Content-Type: %.60s); have application/json sent", errMediaType, contentType)
	}
	fields, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, errors.New("the body is not a form")
	}
	object := make(map[string]any, len(fields))
	for name, values := range fields {
		if !utf8.ValidString(name) || !utf8.ValidString(strings.Join(values, "")) {
			return nil, errors.New("the form is not in UTF-8")
		}
		object[name] = values
		if len(values) == 1 {
			object[name] = values[0]
		}
	}
	return eventOf(object)
}

// errTooLarge is returned for a form that makes more than one event holds.
var errTooLarge = fmt.Errorf("the form has more than %d bytes as JSON", MaxBodyLimit)

// eventOf writes the fields of a form. Its texts stay as they are where JSON allows it.
func eventOf(fields map[string]any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(fields); err != nil {
		return nil, err
	}
	payload := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(payload) > MaxBodyLimit {
		return nil, errTooLarge
	}
	return payload, nil
}

// checkJSON returns why a body is no JSON that every reader reads alike.
func checkJSON(body []byte) error {
	if !utf8.Valid(body) {
		return errors.New("the body is not JSON in UTF-8: it has bytes that are not UTF-8")
	}
	if err := canonical.Unambiguous(body); err != nil {
		return fmt.Errorf("the body, %w", err)
	}
	var raw json.RawMessage
	err := json.Unmarshal(body, &raw)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("the body is not JSON in UTF-8: %w, at byte %d of %d", err, syntax.Offset, len(body))
	}
	return err
}

// An idRule says where a delivery has its id: in a header, or in the payload; or that its body is what it is known by.
type idRule struct {
	text   string // as it was declared
	body   bool
	header string
	path   []any // names and indexes
}

var (
	headerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$") })
	pathStep   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\[([0-9]{1,6})\])`) })
)

// wholeBody is the rule by which a delivery is known by its body, which each scheme but Token signs.
const wholeBody = "body"

// parseID reads "$.path", "header:NAME" or "body".
func parseID(text string) (idRule, error) {
	if text == wholeBody {
		return idRule{text: text, body: true}, nil
	}
	if name, ok := strings.CutPrefix(text, "header:"); ok {
		if !headerName().MatchString(name) {
			return idRule{}, fmt.Errorf("%q is no name of a header", name)
		}
		return idRule{header: name}, nil
	}
	rest, ok := strings.CutPrefix(text, "$")
	rule := idRule{text: text}
	for ok && rest != "" && len(rule.path) < 32 {
		m := pathStep().FindStringSubmatch(rest)
		if m == nil {
			break
		}
		if m[1] != "" {
			rule.path = append(rule.path, m[1])
		} else {
			n, _ := strconv.Atoi(m[2]) // at most six digits
			rule.path = append(rule.path, n)
		}
		rest = rest[len(m[0]):]
	}
	if !ok || rest != "" || len(rule.path) == 0 {
		return idRule{}, fmt.Errorf(`%q is neither a path such as "$.id" nor "header:NAME" nor "body"`, text)
	}
	return rule, nil
}

// of returns the id of a verified delivery. The hash is that of the body and not of the payload, which a header may
// change that nobody signed.
func (r idRule) of(h http.Header, body []byte, payload json.RawMessage) (keep.MessageID, error) {
	if r.body {
		sum := sha256.Sum256(body)
		return checked("sha256-" + hex.EncodeToString(sum[:]))
	}
	if r.header != "" {
		text, err := one(h, r.header)
		if err != nil {
			return "", err
		}
		return checked(text)
	}
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	if media == formType && json.Valid(body) {
		payload = nil // its fields would be what a text within what was signed says, by a header that nobody signed
	}
	for _, step := range r.path {
		payload = child(payload, step)
	}
	text, err := given.ID(payload)
	if err == nil {
		return checked(text)
	}
	err = fmt.Errorf("the delivery has no id: %w", err)
	if media == formType {
		return "", fmt.Errorf("at %s, %w; the body was read as a form, as its Content-Type says: have application/json sent, or set id to what tells such forms apart (slash commands of Slack: \"$.trigger_id\", its buttons: \"body\")", r.text, err)
	}
	return "", fmt.Errorf("at %s, %w", r.text, err)
}

func checked(text string) (keep.MessageID, error) {
	id := keep.MessageID(text)
	return id, id.Validate()
}

// child returns a member of an object or an element of a list; nil if there is none.
func child(v json.RawMessage, step any) json.RawMessage {
	switch step := step.(type) {
	case string:
		var object map[string]json.RawMessage
		if json.Unmarshal(v, &object) == nil {
			return object[step]
		}
	case int:
		var list []json.RawMessage
		if json.Unmarshal(v, &list) == nil && step < len(list) {
			return list[step]
		}
	}
	return nil
}
