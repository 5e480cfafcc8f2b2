package s3

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/native"
)

// Bounds of list.
const (
	defaultLimit = 1000
	maxLimit     = 10_000
	pageSize     = 1000
)

const keyProperty = `"key":{"type":"string","minLength":1,"maxLength":1024}`

// tools returns the four tools.
func (s *service) tools() []connector.Tool {
	tools := []connector.Tool{
		native.NewReader(connector.Spec{
			Name: "list", Effect: connector.List, Pages: true, Description: "Lists the objects whose keys begin with prefix, in the order of their keys.",
			Params: native.Object("", `"prefix":{"type":"string"},"limit":{"type":"integer","minimum":1,"maximum":10000,"default":1000},
				"cursor":{"type":["string","null"],"description":"next of an earlier result"}`),
			Result: json.RawMessage(`{"type":"array","items":{"type":"object","required":["key","size","etag","modified"],"properties":{
				"key":{"type":"string"},"size":{"type":"integer"},"etag":{"type":"string"},"modified":{"type":"string"}}}}`),
			Timeout: s.timeout,
		}, s.failf, s.list),
		native.NewReader(connector.Spec{
			Name: "get", Effect: connector.Get,
			Description: "Reads an object: text if it is UTF-8, else base64. Null if there is none. One over 700 KiB is read in parts, as base64: pass offset 0, then next of each part with the etag of the first one, until it is null. Without offset it fails.",
			Params:      native.Object(`"key"`, keyProperty+`,"offset":{"type":"integer","minimum":0},"etag":{"type":"string","minLength":1,"description":"of the version that is read; required with an offset above 0"}`),
			Result: json.RawMessage(`{"type":["object","null"],"required":["key","type","size","etag","modified","metadata","next"],"properties":{
				"key":{"type":"string"},"text":{"type":"string"},"base64":{"type":"string"},"type":{"type":"string"},"size":{"type":"integer"},
				"etag":{"type":"string"},"modified":{"type":"string"},"metadata":{"type":"object","additionalProperties":{"type":"string"}},
				"next":{"type":["integer","null"]}}}`),
			Timeout: s.timeout,
		}, s.failf, s.get),
	}
	return append(tools, s.changeTools()...)
}

// bad is the failure of a call that the script must change.
func (s *service) bad(tool string, err error) *keep.Failure {
	return s.failf(tool, keep.ClassLogic, "bad-params", "%v", err)
}

// checkKey refuses keys that a URL or a service would read as another one.
func checkKey(key string) error {
	switch {
	case key == "" || len(key) > 1024 || !utf8.ValidString(key):
		return errors.New("key must be 1 to 1024 bytes of UTF-8")
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("key: %q has control characters", key)
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "." || part == ".." {
			return fmt.Errorf("key: %q has a part . or .., which some services take for a directory", key)
		}
	}
	if key[0] == '/' || strings.Contains(key, "//") {
		return fmt.Errorf("key: %q has an empty part", key)
	}
	return nil
}

// A listing is what scripts get as an array with two more properties.
type listing struct {
	Items     []listed `json:"$list"`
	Truncated bool     `json:"truncated"`
	Next      *string  `json:"next"`
}

// A listed is one object of a list.
type listed struct {
	Key      string `json:"key"`
	Size     int64  `json:"size"`
	ETag     string `json:"etag"`
	Modified string `json:"modified"`
}

// list reads pages up to the limit. The cursor is the last key, so that it lasts.
func (s *service) list(ctx context.Context, params json.RawMessage) (any, error) {
	p := struct {
		Prefix string  `json:"prefix"`
		Limit  int     `json:"limit"`
		Cursor *string `json:"cursor"`
	}{Limit: defaultLimit}
	if err := native.Decode(params, &p); err != nil {
		return nil, s.bad("list", err)
	}
	if p.Limit < 1 || p.Limit > maxLimit {
		return nil, s.bad("list", fmt.Errorf("limit must be 1 to %d", maxLimit))
	}
	out := listing{Items: []listed{}}
	after, size := "", 0
	if p.Cursor != nil {
		after = *p.Cursor
	}
	for {
		page, more, err := s.page(ctx, p.Prefix, after, min(pageSize, p.Limit-len(out.Items)))
		if err != nil {
			return nil, err
		}
		for _, o := range page {
			if size += len(o.Key)*6 + 200; size > native.MaxResult {
				more = true
				break
			}
			if o.Key <= after && after != "" {
				return nil, s.failf("list", keep.ClassLogic, "pages_loop", "the service lists %q after %q", o.Key, after)
			}
			out.Items, after = append(out.Items, o), o.Key
		}
		if !more {
			return out, nil
		}
		if len(out.Items) >= p.Limit || size > native.MaxResult || len(page) == 0 {
			out.Truncated, out.Next = true, &after
			return out, nil
		}
	}
}

// page reads one page of ListObjectsV2.
func (s *service) page(ctx context.Context, prefix, after string, size int) ([]listed, bool, error) {
	q := url.Values{"list-type": {"2"}, "max-keys": {strconv.Itoa(size)}}
	if prefix != "" {
		q.Set("prefix", prefix)
	}
	if after != "" {
		q.Set("start-after", after)
	}
	a, err := s.send(ctx, request{method: http.MethodGet, query: q, limit: maxPage})
	if err != nil {
		return nil, false, s.lost(ctx, "list", false, err)
	}
	if a.status != http.StatusOK {
		return nil, false, s.refused("list", false, a)
	}
	var page struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated *bool    `xml:"IsTruncated"`
		Contents    []struct {
			Key          string `xml:"Key"`
			Size         int64  `xml:"Size"`
			ETag         string `xml:"ETag"`
			LastModified string `xml:"LastModified"`
		} `xml:"Contents"`
	}
	if err := xml.Unmarshal(a.body, &page); err != nil {
		return nil, false, s.failf("list", keep.ClassTransient, "bad-answer", "the answer is no list of objects: %v", err)
	}
	var out []listed
	for _, c := range page.Contents {
		out = append(out, listed{c.Key, c.Size, strings.Trim(c.ETag, `"`), c.LastModified})
	}
	if page.IsTruncated == nil { // a page that is full may not be the last one
		return out, len(out) >= size, nil
	}
	return out, *page.IsTruncated, nil
}

// get reads an object, or a piece of it.
func (s *service) get(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		Key    string `json:"key"`
		Offset *int64 `json:"offset"` // nil: all of it, or nothing
		ETag   string `json:"etag"`   // empty: any version
	}
	err := native.Decode(params, &p)
	if err == nil {
		err = checkKey(p.Key)
	}
	offset := int64(0)
	if p.Offset != nil {
		offset = *p.Offset
	}
	switch {
	case err != nil:
	case !isHeader(p.ETag):
		err = errors.New("etag must be printable ASCII")
	case offset > 0 && p.ETag == "":
		err = errors.New("pass the etag of the first part beside offset, so that all parts are of one version")
	}
	if err != nil {
		return nil, s.bad("get", err)
	}
	a, err := s.send(ctx, request{method: http.MethodGet, key: p.Key, limit: maxPiece, header: partOf(offset, p.ETag)})
	switch {
	case err != nil:
		return nil, s.lost(ctx, "get", false, err)
	case p.ETag != "" && (a.status == http.StatusPreconditionFailed || a.lacks(p.Key) || a.status/100 == 2 && a.etag() != strings.Trim(p.ETag, `"`)):
		return nil, s.failf("get", keep.ClassTransient, "changed", "%s is not the version %s any more: read it anew from its beginning", p.Key, p.ETag)
	case a.lacks(p.Key):
		return nil, nil
	case a.status != http.StatusOK && a.status != http.StatusPartialContent:
		return nil, s.refused("get", false, a)
	case offset > 0 && !strings.HasPrefix(a.header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset)):
		return nil, s.failf("get", keep.ClassPrecondition, "no-ranges", "the service gives another part of %s than the one from %d on", p.Key, offset)
	}
	if a.header.Get("ETag") == "" {
		return nil, s.failf("get", keep.ClassTransient, "bad-answer", "the answer %s has no ETag, so it is not that of S3", a.say())
	}
	size := a.size()
	out := map[string]any{
		"key": p.Key, "type": a.header.Get("Content-Type"), "size": size, "etag": strings.Trim(a.header.Get("ETag"), `"`),
		"modified": a.header.Get("Last-Modified"), "metadata": a.metadata(), "next": nil,
	}
	body := a.body[:min(len(a.body), maxPiece)]
	if end := offset + int64(len(body)); end < size || len(a.body) > maxPiece {
		out["next"] = end
	}
	if p.Offset == nil && out["next"] != nil {
		return nil, s.failf("get", keep.ClassLogic, "answer-too-large",
			"%s has %d bytes, more than the %d of one answer; read it in parts: pass offset: 0, then next of each part as offset until it is null", p.Key, size, maxPiece)
	}
	if out["next"] == nil && offset == 0 && utf8.Valid(body) {
		out["text"] = string(body)
	} else {
		out["base64"] = base64.StdEncoding.EncodeToString(body)
	}
	return out, nil
}

// partOf returns the headers of a request for the part of a version from an offset on.
func partOf(offset int64, etag string) http.Header {
	h := http.Header{}
	if offset > 0 {
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+maxPiece-1))
	}
	if etag != "" {
		h.Set("If-Match", `"`+strings.Trim(etag, `"`)+`"`)
	}
	return h
}

// size returns the size of the whole object.
func (a *response) size() int64 {
	text := a.header.Get("Content-Length")
	if _, total, ok := strings.Cut(a.header.Get("Content-Range"), "/"); ok {
		text = total
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return int64(len(a.body))
	}
	return n
}

// metaPrefix begins the headers of an object's own metadata.
const metaPrefix = "X-Amz-Meta-"

// metadata returns an object's own metadata, by lower-case name.
func (a *response) metadata() map[string]string {
	out := map[string]string{}
	for name := range a.header {
		if rest, ok := strings.CutPrefix(name, metaPrefix); ok {
			out[strings.ToLower(rest)] = strings.ToValidUTF8(a.header.Get(name), "\uFFFD")
		}
	}
	return out
}
