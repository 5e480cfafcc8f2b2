package key

import (
	"bytes"
	"errors"
	"mime"
	"strings"

	"github.com/keep-run/keep/law/canonical"
)

// A Form says which differences between two bodies matter.
type Form struct {
	// CanonicalJSON ignores white space, the order of fields and the spelling
	// of numbers in JSON bodies.
	CanonicalJSON bool

	// IgnoreFields are left out of JSON bodies. A name may be a path with dots,
	// "meta.sent_at"; it goes through objects only. It implies CanonicalJSON.
	IgnoreFields []string
}

// NewFingerprint returns the hash of what a request asks for. Query is taken as
// it is: "a=1&b=2" and "b=2&a=1" are two requests.
//
// A body that claims to be JSON and has no exact canonical form (it is no JSON,
// repeats a name, or has a number that would be rounded) is taken as it is:
// stricter, never laxer.
func NewFingerprint(method, path, query, contentType string, body []byte, form Form) Fingerprint {
	kind := "raw"
	if (form.CanonicalJSON || len(form.IgnoreFields) > 0) && isJSON(contentType) {
		if canonical, err := canonicalise(body, form.IgnoreFields); err == nil {
			kind, body = "json", canonical
		}
	}
	return hash("keep request 1", method, path, query, kind, string(body))
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// canonicalise returns the canonical form of body without the named fields.
func canonicalise(body []byte, ignore []string) ([]byte, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("no JSON")
	}
	out, err := canonical.Exact(body)
	for _, path := range ignore {
		if err != nil {
			break
		}
		out, err = canonical.Without(out, strings.Split(path, "."))
	}
	return out, err
}
