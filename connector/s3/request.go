package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/native"
	"github.com/keep-run/keep/connector/once"
	"github.com/keep-run/keep/internal/redact"
)

// Bounds.
const (
	maxPiece = 700 << 10 // of an object in one result
	maxPage  = 4 << 20   // of a page of a list
	maxError = 64 << 10
)

// A service is what the tools of a connection share.
type service struct {
	name           string
	base           *url.URL // of the bucket
	bucket, region string
	credentials    aws.Credentials
	signer         *v4.Signer
	hide           redact.Redactor
	pinned         json.RawMessage
	reads, changes *once.Transport
	timeout        time.Duration
	settle         time.Duration
	complete       bool // nobody else takes objects away
}

// A request is one call of the service.
type request struct {
	method string
	key    string // of the object; empty: the bucket
	query  url.Values
	header http.Header
	body   []byte
	limit  int64 // bytes of the answer that are read
	change bool
}

// A response is what came, with at most limit bytes of its body.
type response struct {
	status int
	header http.Header
	body   []byte
	code   string // of an error, such as NoSuchKey; empty: it is none, or none of S3
	of     string // the key that an error is about; empty: it is not said
	text   string
}

// send makes one request, once, and follows no redirect. An error is once.ErrNotSent if no
// connection was made; after that anything may have reached the service.
func (s *service) send(ctx context.Context, r request) (*response, error) {
	req, err := s.sign(ctx, r)
	if err != nil {
		return nil, errors.Join(once.ErrNotSent, err)
	}
	t := s.reads
	if r.change {
		t = s.changes
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &response{status: resp.StatusCode, header: resp.Header}
	limit := r.limit
	if a.status >= 300 {
		limit = maxError
	}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1)); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	a.parseError()
	return a, nil
}

// sign writes the request and its signature, which is good for some minutes.
func (s *service) sign(ctx context.Context, r request) (*http.Request, error) {
	u := *s.base
	u.Path += r.key
	u.RawPath = escape(u.Path)
	u.RawQuery = strings.ReplaceAll(r.query.Encode(), "+", "%20")
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if r.header != nil {
		req.Header = r.header.Clone()
	}
	if r.method == http.MethodPut {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	sum := sha256.Sum256(r.body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	return req, s.signer.SignHTTP(ctx, s.credentials, req, hash, "s3", s.region, time.Now())
}

// escape writes a path as the signature wants it: everything but unreserved characters
// and slashes.
func escape(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		switch {
		case c == '/' || c == '-' || c == '_' || c == '.' || c == '~' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// parseError reads the code of an error that S3 wrote.
func (a *response) parseError() {
	if a.status < 300 {
		return
	}
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
		Message string   `xml:"Message"`
		Key     string   `xml:"Key"`
	}
	if xml.Unmarshal(a.body, &e) == nil {
		a.code, a.of, a.text = e.Code, e.Key, e.Message
	}
}

// lacks reports whether the service says itself that there is no object of that key.
func (a *response) lacks(key string) bool {
	return a.status == http.StatusNotFound && a.code == "NoSuchKey" && (a.of == "" || strings.TrimPrefix(a.of, "/") == strings.TrimPrefix(key, "/"))
}

// say describes an answer for a person.
func (a *response) say() string {
	if a.code != "" {
		return fmt.Sprintf("%d %s: %s", a.status, a.code, a.text)
	}
	return fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
}

// failf returns a failure of a tool, without keys and control characters.
func (s *service) failf(tool string, class keep.Class, code, format string, args ...any) *keep.Failure {
	f := keep.Failf(class, code, "%s", native.Message(s.hide.Text(fmt.Sprintf(format, args...))))
	f.Tool = keep.ToolName(s.name + "." + tool)
	return f
}

// lost is the failure of a request without an answer. Of a read nothing is lost.
func (s *service) lost(ctx context.Context, tool string, change bool, err error) *keep.Failure {
	class, code := keep.ClassTransient, "connection"
	if ctx.Err() != nil {
		code = "timeout"
	}
	if change && !errors.Is(err, once.ErrNotSent) {
		return s.failf(tool, keep.ClassUnknown, code, "no answer: %v; it may have happened", err)
	}
	return s.failf(tool, class, code, "%v", err)
}

// refused is the failure of an answer that is no success.
func (s *service) refused(tool string, change bool, a *response) *keep.Failure {
	class, code := classify(a)
	switch {
	case change && a.code == "":
		class, code = keep.ClassUnknown, fmt.Sprintf("http-%d", a.status)
	case class == keep.ClassUnknown && !change:
		class = keep.ClassTransient
	}
	say := a.say()
	switch a.code {
	case "PermanentRedirect", "AuthorizationHeaderMalformed":
		say += "; look at region and base_url"
	case "RequestTimeTooSkewed":
		say += "; set the clock of this machine"
	}
	return s.failf(tool, class, code, "%s", say)
}

// classify says what an answer means. What S3 refuses by a code of its own was not done. Without one the
// answer may be that of a proxy, which says nothing about the change.
func classify(a *response) (keep.Class, string) {
	code := fmt.Sprintf("http-%d", a.status)
	if a.code != "" {
		code = a.code
	}
	switch a.code {
	case "SlowDown", "ServiceUnavailable", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted":
		return keep.ClassTransient, code
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken":
		return keep.ClassPermission, keep.CodeUnauthenticated
	case "AccessDenied", "AllAccessDisabled":
		return keep.ClassPermission, keep.CodeForbidden
	case "NoSuchBucket", "RequestTimeTooSkewed", "PermanentRedirect", "AuthorizationHeaderMalformed", "QuotaExceeded":
		return keep.ClassPrecondition, code
	}
	switch {
	case a.status == 401:
		return keep.ClassPermission, keep.CodeUnauthenticated
	case a.status == 403:
		return keep.ClassPermission, keep.CodeForbidden
	case a.status == 404 && a.code != "":
		return keep.ClassPrecondition, code
	case a.status == 429, a.status == 409:
		return keep.ClassTransient, code
	case a.status == 408, a.status < 400, a.status >= 500:
		return keep.ClassUnknown, code
	}
	return keep.ClassLogic, code
}
