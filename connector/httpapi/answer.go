package httpapi

import (
	"bytes"
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

	"github.com/keep-run/keep"
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
}

// read takes in resp and closes it.
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
	return a
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// errNotJSON is returned when a body isn't what its content type claims.
var errNotJSON = errors.New("the answer claims to be JSON and is not")

// value returns the body for a script; nil is null. It always returns
// something that can be kept, together with errNotJSON if the body is odd.
func (a answer) value() (json.RawMessage, error) {
	body := bytes.TrimSpace(a.body)
	if len(body) == 0 {
		return nil, nil
	}
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	claims := kind == "application/json" || strings.HasSuffix(kind, "+json")
	// Many services send objects as text/plain or text/html.
	likely := kind == "" || body[0] == '{' || body[0] == '['
	if !a.cut && (claims || likely) && json.Valid(body) {
		if string(body) == "null" {
			return nil, nil
		}
		return bytes.ToValidUTF8(body, []byte(string(utf8.RuneError))), nil
	}
	raw, err := jsonval.Encode(a.wrapped(kind))
	if err == nil && claims && !a.cut {
		err = errNotJSON
	}
	return raw, err
}

// wrapped is the result for a body that is not JSON.
func (a answer) wrapped(kind string) map[string]any {
	w := map[string]any{"status": a.status, "type": kind}
	body := a.body
	if a.cut {
		body = body[:maxText]
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
	if n, err := strconv.ParseUint(v, 10, 32); err == nil {
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

// readClass says what a status that is not 2xx means for a read.
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
	keep.ClassUnknown:    "the change may have happened",
}

// refused describes an answer that is no success.
func (t *tool) refused(a answer, class keep.Class) *keep.Failure {
	what := fmt.Sprintf("the service answered %d %s", a.status, http.StatusText(a.status))
	if a.status >= 300 && a.status < 400 {
		what += ", a redirect, which is not followed"
	} else if words := t.service.hide.snippet(a.body); words != "" {
		what += ": " + words
	}
	f := t.failf(class, "http-"+strconv.Itoa(a.status), "%s; %s", strings.TrimSpace(what), advice[class])
	if class == keep.ClassTransient {
		f.RetryAfter = a.retryAfter()
	}
	return f
}
