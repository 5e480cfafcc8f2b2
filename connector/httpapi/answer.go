package httpapi

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/emersion/go-message/charset"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

const (
	maxBody       = 1 << 20   // of an answer
	maxText       = 128 << 10 // of an answer over maxBody
	maxRetryAfter = 24 * time.Hour
)

// An answer is what came back from the service, as far as it came.
type answer struct {
	status int
	header http.Header
	body   []byte // at most maxBody
	cut    bool   // there was more
	err    error  // the body ended early

	used   used
	behind time.Duration // of a lookup: how far the clock of the service is behind ours, at most; zero: it does not tell
}

// read reads resp and closes it.
func read(resp *http.Response) answer {
	a := answer{status: resp.StatusCode, header: resp.Header}
	defer resp.Body.Close()
	if resp.StatusCode < 200 {
		return a // 101: what follows is not HTTP
	}
	a.body, a.err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if len(a.body) > maxBody {
		a.body, a.cut = a.body[:maxBody], true
	}
	if rest, marked := bytes.CutPrefix(a.body, []byte("\ufeff")); marked && a.claimsJSON() { // some services write it before JSON (RFC 8259, 8.1)
		a.body = rest
	}
	return a
}

// inUTF8 returns a body in UTF-8, if its content type names another charset that is known.
func inUTF8(contentType string, body []byte) []byte {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["charset"] == "" || utf8.Valid(body) {
		return body
	}
	r, err := charset.Reader(params["charset"], bytes.NewReader(body))
	if err != nil {
		return body
	}
	out, err := io.ReadAll(io.LimitReader(r, 4*maxBody))
	if err != nil || bytes.ContainsRune(out, utf8.RuneError) { // of bytes that are none of that charset
		return body
	}
	return out
}

func (a answer) ok() bool { return isOK(a.status) }

// errNotJSON is returned when a body isn't what its content type claims.
var errNotJSON = errors.New("the answer claims to be JSON and is not")

// errNotUTF8 is returned for JSON in another encoding that the content type does not name: two texts in it could
// become one.
var errNotUTF8 = errors.New("the answer is JSON that is not UTF-8, and its content type names no charset that it fits")

// mediaType returns the content type without its parameters; empty if there is none.
func (a answer) mediaType() string {
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	return kind
}

// claimsJSON reports whether the content type says that the body is JSON.
func (a answer) claimsJSON() bool {
	kind := a.mediaType()
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// isJSON reports whether the body is one JSON value, whole. Many services send objects
// as text/plain or text/html.
func (a answer) isJSON() bool {
	body := bytes.TrimSpace(a.body)
	if len(body) == 0 || a.cut || a.err != nil {
		return false
	}
	likely := a.mediaType() == "" || body[0] == '{' || body[0] == '['
	return (a.claimsJSON() || likely) && json.Valid(body)
}

// isEmpty reports whether there is no body.
func (a answer) isEmpty() bool { return len(bytes.TrimSpace(a.body)) == 0 }

// isHTML reports whether the body is a page, as gateways, login forms and error handlers
// answer, whatever the content type says.
func (a answer) isHTML() bool {
	if a.isJSON() {
		return false
	}
	if kind := a.mediaType(); kind == "text/html" || kind == "application/xhtml+xml" {
		return !a.isEmpty()
	}
	body := strings.ToLower(string(bytes.TrimSpace(a.body[:min(len(a.body), 1024)])))
	body = strings.TrimPrefix(body, "\ufeff")
	return strings.HasPrefix(body, "<!doctype html") || strings.HasPrefix(body, "<html") || strings.HasPrefix(body, "<head")
}

// value returns the body for a script; nil is null. It always returns
// something that can be kept, together with errNotJSON or errNotUTF8 if the body is odd.
func (a answer) value() (json.RawMessage, error) {
	if a.isEmpty() {
		return nil, nil
	}
	if a.isJSON() {
		body := bytes.TrimSpace(a.body)
		if string(body) == "null" {
			return nil, nil
		}
		if err := connector.CheckNumbers(body); err != nil {
			return nil, err
		}
		if body = inUTF8(a.header.Get("Content-Type"), body); utf8.Valid(body) && json.Valid(body) {
			return body, nil
		}
	}
	raw, err := jsonval.Encode(a.wrapped(a.mediaType()))
	switch {
	case err != nil:
	case a.isJSON():
		err = errNotUTF8
	case a.claimsJSON() && !a.cut:
		err = errNotJSON
	}
	return raw, err
}

// record is value for a lookup, which looks for what Keep sent: another text may be changed by U+FFFD.
func (a answer) record() (json.RawMessage, error) {
	raw, err := a.value()
	if errors.Is(err, errNotUTF8) {
		return bytes.ToValidUTF8(bytes.TrimSpace(a.body), []byte(string(utf8.RuneError))), nil
	}
	return raw, err
}

// found is the receipt of an effect that a lookup finds in one of the records of a.
func (a answer) found(record json.RawMessage) connector.Receipt {
	r := connector.Receipt{Result: record}
	if !utf8.Valid(a.body) && bytes.ContainsRune(record, utf8.RuneError) {
		r.Warning = "the answer is not UTF-8; what is no UTF-8 in the result was replaced by U+FFFD"
	}
	return r
}

// wrapped is the result for a body that is not JSON.
func (a answer) wrapped(kind string) map[string]any {
	w := map[string]any{"status": a.status, "type": kind}
	body := inUTF8(a.header.Get("Content-Type"), a.body)
	if a.cut {
		body = a.body[:maxText]
		w["cut"] = true
	}
	switch {
	case utf8.Valid(body):
		w["text"] = string(body)
	case a.cut:
		w["text"] = strings.ToValidUTF8(string(body), string(utf8.RuneError))
	default:
		w["base64"] = base64.StdEncoding.EncodeToString(body)
	}
	return w
}

// retryAfter returns the wait that the service asked for. A date counts from
// the service's own clock, so that a wrong clock here or there doesn't matter.
func (a answer) retryAfter() time.Duration {
	v := a.header.Get("Retry-After")
	if n, err := strconv.ParseUint(v, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the largest
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	until, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	sent, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return 0
	}
	return min(max(until.Sub(sent), 0), maxRetryAfter)
}

// refusals are the statuses by which a service says that it did nothing
// because the request is wrong.
var refusals = []int{400, 404, 405, 409, 410, 413, 415, 422, 501}

// A verdict is what an answer to a call means. The zero verdict is a success.
type verdict struct {
	class keep.Class
	why   string // for a person; empty: the status says it
}

// mutateVerdict says what an answer to a change means, as far as the answer alone says.
func (t *tool) mutateVerdict(a answer) verdict {
	if v, decided := t.saysNo(a); decided {
		return v
	}
	switch {
	case !a.ok():
		return verdict{class: mutateClass(a.status, t.notExecuted)}
	case a.err != nil && !a.cut:
		return verdict{keep.ClassUnknown, "but the answer broke off: " + t.service.hide.Text(a.err.Error())}
	case t.answersText:
		return verdict{}
	case a.isHTML():
		return verdict{keep.ClassUnknown, "with an HTML page, which may come from a gateway"}
	case len(t.appliedIf) > 0:
		if slices.ContainsFunc(t.appliedIf, func(c condition) bool { return c.matches(a, isOK) }) {
			return verdict{}
		}
		return verdict{keep.ClassUnknown, "but nothing in the answer that applied_if names says that it happened"}
	case a.isEmpty():
		if slices.Contains(emptySuccess, a.status) {
			return verdict{}
		}
		return verdict{keep.ClassUnknown, "without a body"}
	case a.cut:
		return verdict{}
	case a.isJSON() && failure(a.body) != "":
		return verdict{keep.ClassUnknown, "but the answer says that it failed; say with refused_if what was not done then, or with applied_if what was"}
	case !a.isJSON() && (a.claimsJSON() || t.spec.Result != nil):
		return verdict{keep.ClassUnknown, "but the answer is not JSON"}
	case t.spec.Result != nil && string(bytes.TrimSpace(a.body)) == "null":
		return verdict{keep.ClassUnknown, "but the answer is null"}
	}
	return verdict{}
}

// emptySuccess are the statuses that confirm a change without a body.
var emptySuccess = []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent}

// isOK reports whether a status is 2xx.
func isOK(status int) bool { return status >= 200 && status < 300 }

// saysNo returns what refused_if and statuses make of an answer.
func (t *tool) saysNo(a answer) (verdict, bool) {
	for _, c := range t.refusedIf {
		if c.matches(a, isOK) {
			return verdict{cmp.Or(c.class, keep.ClassLogic), "and refused, as " + c.String() + " says"}, true
		}
	}
	class, ok := t.statuses[a.status]
	return verdict{class: class}, ok
}

// readVerdict says what an answer to a read means. A read is never in doubt.
func (t *tool) readVerdict(a answer) verdict {
	v, decided := t.saysNo(a)
	strict := len(t.appliedIf) > 0 || t.spec.Result != nil
	switch {
	case decided:
	case !a.ok():
		v = verdict{class: readClass(a.status)}
	case len(t.appliedIf) > 0 && !slices.ContainsFunc(t.appliedIf, func(c condition) bool { return c.matches(a, isOK) }):
		v = verdict{keep.ClassTransient, "but nothing in the answer that applied_if names says that it is one"}
	case strict && a.isHTML():
		v = verdict{keep.ClassTransient, "with an HTML page, which may come from a gateway"}
	}
	if v.class == keep.ClassUnknown {
		v.class = keep.ClassTransient
	}
	return v
}

// mutateClass says what a status that is not 2xx means for a change.
func mutateClass(status int, notExecuted []int) keep.Class {
	switch {
	case slices.Contains(notExecuted, status), status == 429:
		return keep.ClassTransient
	case status == 401, status == 403:
		return keep.ClassPermission
	case slices.Contains(refusals, status):
		return keep.ClassLogic
	default:
		return keep.ClassUnknown
	}
}

// readClass says what a status other than 2xx means for a read.
func readClass(status int) keep.Class {
	switch {
	case status == 408, status == 429, status >= 500:
		return keep.ClassTransient
	case status == 401, status == 403:
		return keep.ClassPermission
	default:
		return keep.ClassLogic
	}
}

// advice says what a person can do about a failure of that class.
var advice = map[keep.Class]string{
	keep.ClassTransient:  "it may work later",
	keep.ClassPermission: "check the credentials of the connection",
	keep.ClassLogic:      "the call must be changed",

	keep.ClassPrecondition: "something that the call needs is not there",
	keep.ClassUnknown:      "the change may have happened",
}

// refused describes an answer that is no success.
func (t *tool) refused(a answer, v verdict) *keep.Failure {
	what := strings.TrimSpace(fmt.Sprintf("the service answered %d %s", a.status, http.StatusText(a.status)))
	if v.why != "" {
		what += " " + v.why
	}
	if a.status >= 300 && a.status < 400 {
		what += ", a redirect, which is not followed"
	} else if words := t.service.snippet(a.body); words != "" {
		what += ": " + words
	}
	code, do := "http-"+strconv.Itoa(a.status), advice[v.class]
	switch {
	case v.class == keep.ClassPermission && a.used.renewed:
		v.class, code, do = keep.ClassTransient, "credential-renewed", "the credential was renewed, and the call is made again"
	case v.class == keep.ClassPermission && a.status == http.StatusUnauthorized:
		code, do = keep.CodeUnauthenticated, "the service does not accept the credential of the connection: renew it"
	case v.class == keep.ClassPermission && a.status == http.StatusForbidden:
		code, do = keep.CodeForbidden, "the credential of the connection may not do this: widen what it may do"
	}
	f := t.failf(v.class, code, "%s; %s", what, do)
	if v.class == keep.ClassPermission {
		f.Account, f.Generation = a.used.account, a.used.generation
	}
	if v.class == keep.ClassTransient || v.class == keep.ClassUnknown && a.status == http.StatusServiceUnavailable {
		f.RetryAfter = a.retryAfter()
	}
	return f
}
