package s3

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/connector/internal/native"
)

// mark is the metadata that says whose an object is.
const mark = "Keep-Id"

func (s *service) changeTools() []connector.Tool {
	return []connector.Tool{
		&putter{change{native.Change{Tool: connector.Spec{
			Name: "put", Effect: connector.Mutate,
			Description: "Puts an object, with text or base64, where none of that key is; with overwrite it replaces the version with that etag. Returns its etag.",
			Params: native.Object(`"key"`, keyProperty+`,"text":{"type":"string"},"base64":{"type":"string","contentEncoding":"base64"},
				"type":{"type":"string","description":"such as application/pdf"},
				"metadata":{"type":"object","additionalProperties":{"type":"string"}},
				"overwrite":{"type":"string","minLength":1,"description":"etag of the version that is replaced"}`),
			Result:  json.RawMessage(`{"type":"object","required":["key","etag"],"properties":{"key":{"type":"string"},"etag":{"type":"string"}}}`),
			Timeout: s.timeout, Level: keep.LevelWitness, Marked: true, NeedsControl: !s.complete, Identity: []string{"key"}, SettleAfter: s.settle, CarriesToken: true,
			VerifyByHand: "Look at the metadata keep-id of the object: it is the token if this call made it. An object that is not there may have been taken away: ask who reads " + s.bucket + ".",
		}}, s}},
		&deleter{change{native.Change{Tool: connector.Spec{
			Name: "delete", Effect: connector.Mutate, Description: "Deletes an object; with etag, only that version of it.",
			Params:  native.Object(`"key"`, keyProperty+`,"etag":{"type":"string","minLength":1}`),
			Timeout: s.timeout, Level: keep.LevelWitness, ByTarget: true, Identity: []string{"key"}, SettleAfter: s.settle, ComparesAge: true,
			VerifyByHand: "Look whether the object is there.",
		}}, s}},
	}
}

// A change is what both mutate tools have.
type change struct {
	native.Change
	s *service
}

// Pin implements connector.Pinner.
func (c *change) Pin() json.RawMessage { return c.s.pinned }

// Target names the object.
func (c *change) Target(params json.RawMessage) string {
	var p struct {
		Key string `json:"key"`
	}
	if json.Unmarshal(params, &p) != nil || p.Key == "" {
		return "an object of " + c.s.bucket
	}
	return native.Target(c.s.bucket + "/" + p.Key)
}

// Where an object is, as far as the service tells.
type state int

const (
	there state = iota
	missing
	unclear
)

// look asks for an object without its content. A 404 counts only if the service names
// the key: HEAD has no body, so a GET asks why.
func (s *service) look(ctx context.Context, key string) (state, *response, error) {
	a, err := s.send(ctx, request{method: http.MethodHead, key: key})
	if err != nil {
		return unclear, nil, err
	}
	switch {
	case a.status == http.StatusOK && a.header.Get("ETag") != "":
		return there, a, nil
	case a.status != http.StatusNotFound:
		return unclear, a, nil
	}
	a, err = s.send(ctx, request{method: http.MethodGet, key: key, header: http.Header{"Range": {"bytes=0-0"}}, limit: maxError})
	if err != nil {
		return unclear, nil, err
	}
	if a.lacks(key) {
		return missing, a, nil
	}
	return unclear, a, nil
}

// etag returns the version without quotes.
func (a *response) etag() string { return strings.Trim(a.header.Get("ETag"), `"`) }

// A putter is the tool put.
type putter struct{ change }

type putParams struct {
	Key       string            `json:"key"`
	Text      *string           `json:"text"`
	Base64    *string           `json:"base64"`
	Type      string            `json:"type"`
	Metadata  map[string]string `json:"metadata"`
	Overwrite string            `json:"overwrite"`
}

// params reads what to put, and its bytes.
func (t *putter) params(raw json.RawMessage) (p putParams, body []byte, err error) {
	if err = native.Decode(raw, &p); err == nil {
		err = checkKey(p.Key)
	}
	switch {
	case err != nil:
		return p, nil, err
	case (p.Text == nil) == (p.Base64 == nil):
		return p, nil, errors.New("one of text and base64 is required")
	case p.Text != nil:
		body = []byte(*p.Text)
	default:
		if body, err = base64.StdEncoding.DecodeString(*p.Base64); err != nil {
			return p, nil, errors.New("base64 cannot be decoded")
		}
	}
	if !isHeader(p.Type) || !isHeader(p.Overwrite) {
		return p, nil, errors.New("type and overwrite must be printable ASCII")
	}
	names := make(map[string]bool)
	for name, value := range p.Metadata {
		if names[strings.ToLower(name)] {
			return p, nil, fmt.Errorf("metadata: %q is there in two spellings, and S3 knows no case in names", strings.ToLower(name))
		}
		names[strings.ToLower(name)] = true
		if !connector.IsName(strings.ReplaceAll(name, "-", "_")) || strings.EqualFold(name, mark) || !isHeader(value) {
			return p, nil, fmt.Errorf("metadata: %q must be a word and not keep-id, and its value printable ASCII", name)
		}
	}
	return p, body, nil
}

// isHeader reports whether s can be the value of a header.
func isHeader(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	return len(s) <= 2000
}

// Mutate puts the object, unless it is there already.
func (t *putter) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	p, body, err := t.params(m.Payload)
	if err != nil {
		return connector.Receipt{}, t.s.bad("put", err)
	}
	h := http.Header{metaPrefix + mark: {m.Token}, "Content-Type": {"application/octet-stream"}}
	if p.Text != nil {
		h.Set("Content-Type", "text/plain; charset=utf-8")
	}
	if p.Type != "" {
		h.Set("Content-Type", p.Type)
	}
	for name, value := range p.Metadata {
		h.Set(metaPrefix+name, value)
	}
	if p.Overwrite == "" {
		h.Set("If-None-Match", "*")
	} else {
		h.Set("If-Match", `"`+strings.Trim(p.Overwrite, `"`)+`"`)
	}
	a, err := t.s.send(ctx, request{method: http.MethodPut, key: p.Key, header: h, body: body, limit: maxError, change: true})
	switch {
	case err != nil:
		return connector.Receipt{}, t.s.lost(ctx, "put", true, err)
	case a.status == http.StatusOK && a.header.Get("ETag") != "" && len(a.body) == 0:
		return connector.Receipt{Result: put(p.Key, a)}, nil
	case a.status == http.StatusPreconditionFailed, p.Overwrite != "" && a.lacks(p.Key):
		return t.whose(ctx, m.Token, p)
	case a.status < 300:
		return connector.Receipt{}, t.s.failf("put", keep.ClassUnknown, "bad-answer", "the answer %s has no ETag, or a text beside it, so it is not that of S3", a.say())
	}
	return connector.Receipt{}, t.s.refused("put", true, a)
}

// put is the result of put.
func put(key string, a *response) json.RawMessage {
	raw, _ := jsonval.Encode(map[string]string{"key": key, "etag": a.etag()}) // of strings
	return raw
}

// whose finds out why the condition does not hold: an earlier attempt made the object, or
// somebody else did.
func (t *putter) whose(ctx context.Context, token string, p putParams) (connector.Receipt, error) {
	at, a, err := t.s.look(ctx, p.Key)
	switch {
	case err != nil:
		return connector.Receipt{}, t.s.failf("put", keep.ClassUnknown, "connection", "the object is there or is another version, and it is not known whose it is: %v", err)
	case at == there && a.header.Get(metaPrefix+mark) == token:
		return connector.Receipt{Result: put(p.Key, a)}, nil
	case at == there && p.Overwrite != "":
		return connector.Receipt{}, t.s.failf("put", keep.ClassLogic, "changed", "%s has the etag %s, not %s: somebody changed it", p.Key, a.etag(), p.Overwrite)
	case at == there:
		return connector.Receipt{}, t.s.failf("put", keep.ClassLogic, "exists", "%s is there already and is not of this call; pass overwrite with its etag %s to replace it", p.Key, a.etag())
	case at == missing && p.Overwrite != "":
		return connector.Receipt{}, t.s.failf("put", keep.ClassPrecondition, "gone", "there is no %s any more", p.Key)
	}
	return connector.Receipt{}, t.s.failf("put", keep.ClassUnknown, "unclear", "the service refused since the object is there, and now shows %s", a.say())
}

// absent is the verdict about a put of which there is no trace. The object may have been put, and been taken
// away or replaced since: a put again, whatever its condition, would be a second one. Another object that is
// there shows nothing about this one, so only the owner of the bucket can say that nobody does that.
func (t *putter) absent(detail string) connector.Answer {
	if t.s.complete {
		return connector.Answer{Verdict: connector.Absent, Detail: detail}
	}
	return connector.Answer{Verdict: connector.Unwitnessed, Detail: detail + ", and it may have been taken away since"}
}

// Reconcile looks whose the object is.
func (t *putter) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	p, _, err := t.params(m.Payload)
	if err != nil {
		return connector.Answer{}, t.s.bad("put", err)
	}
	at, a, err := t.s.look(ctx, p.Key)
	switch {
	case err != nil:
		return connector.Answer{}, t.s.lost(ctx, "put", false, err)
	case at == there && a.header.Get(metaPrefix+mark) == m.Token:
		return connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: put(p.Key, a)}, Detail: "its keep-id is the token"}, nil
	case at == there && p.Overwrite != "" && a.etag() == strings.Trim(p.Overwrite, `"`):
		return t.absent("it has the version that was to be replaced"), nil
	case at == there:
		return connector.Answer{Verdict: connector.Retry, Detail: "there is another object of that key; ours may have been replaced"}, nil
	case at == missing && p.Overwrite == "":
		return t.absent("there is no object of that key"), nil
	}
	return connector.Answer{Verdict: connector.Retry, Detail: "the service shows " + a.say()}, nil
}

// A deleter is the tool delete.
type deleter struct{ change }

type deleteParams struct {
	Key  string `json:"key"`
	ETag string `json:"etag"`
}

func (t *deleter) params(raw json.RawMessage) (p deleteParams, err error) {
	if err = native.Decode(raw, &p); err == nil {
		err = checkKey(p.Key)
	}
	if err == nil && !isHeader(p.ETag) {
		err = errors.New("etag must be printable ASCII")
	}
	return p, err
}

// Mutate deletes the object.
func (t *deleter) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	p, err := t.params(m.Payload)
	if err != nil {
		return connector.Receipt{}, t.s.bad("delete", err)
	}
	h := http.Header{}
	if p.ETag != "" {
		h.Set("If-Match", `"`+strings.Trim(p.ETag, `"`)+`"`)
	}
	a, err := t.s.send(ctx, request{method: http.MethodDelete, key: p.Key, header: h, limit: maxError, change: true})
	switch {
	case err != nil:
		return connector.Receipt{}, t.s.lost(ctx, "delete", true, err)
	case a.status == http.StatusNoContent:
		return connector.Receipt{}, nil
	case p.ETag != "" && a.status == http.StatusPreconditionFailed && a.code != "", a.lacks(p.Key):
		return connector.Receipt{}, t.unmet(ctx, p)
	case a.status < 300:
		return connector.Receipt{}, t.s.failf("delete", keep.ClassUnknown, "bad-answer", "the answer %s is not that of S3", a.say())
	}
	return connector.Receipt{}, t.s.refused("delete", true, a)
}

// unmet is why the condition of a delete does not hold: the object is another version, or it is gone, as after this very delete
// if something between us and the service has sent it twice.
func (t *deleter) unmet(ctx context.Context, p deleteParams) *keep.Failure {
	at, a, err := t.s.look(ctx, p.Key)
	switch {
	case err != nil:
		return t.s.failf("delete", keep.ClassUnknown, "connection", "the object is gone or is another version, and it is not known which: %v", err)
	case at == there && p.ETag != "" && a.etag() != strings.Trim(p.ETag, `"`):
		return t.s.failf("delete", keep.ClassLogic, "changed", "%s has the etag %s, not %s: somebody changed it", p.Key, a.etag(), p.ETag)
	}
	return t.s.failf("delete", keep.ClassUnknown, "unclear", "the service says that the object is gone or is another version, and now shows %s; the delete may have been made", a.say())
}

// speaks reports whether what answers refuses an object that nobody has in the words of S3. A site that answers everything with the
// same page does not, and knows nothing of an object.
func (s *service) speaks(ctx context.Context, token string) (bool, error) {
	a, err := s.send(ctx, request{method: http.MethodGet, key: "keep-no-such-object/" + token, header: http.Header{"Range": {"bytes=0-0"}}, limit: maxError})
	return err == nil && a.code != "", err
}

// Reconcile looks whether the object is there.
func (t *deleter) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	p, err := t.params(m.Payload)
	if err != nil {
		return connector.Answer{}, t.s.bad("delete", err)
	}
	at, a, err := t.s.look(ctx, p.Key)
	switch {
	case err != nil:
		return connector.Answer{}, t.s.lost(ctx, "delete", false, err)
	case at == missing:
		return connector.Answer{Verdict: connector.Happened, Detail: "there is no object of that key"}, nil
	case at == there && p.ETag != "" && a.etag() != strings.Trim(p.ETag, `"`):
		return connector.Answer{Verdict: connector.Retry, Detail: "there is another version, with the etag " + a.etag()}, nil
	case at == there && !olderThan(a, time.Since(m.CreatedAt)):
		return connector.Answer{Verdict: connector.Retry, Detail: "somebody may have put the object after the call was recorded: it is of " +
			cmp.Or(a.header.Get("Last-Modified"), "a time that the service does not say")}, nil
	case at == there:
		return t.absent(ctx, m.Token, p.Key, a)
	}
	return connector.Answer{Verdict: connector.Retry, Detail: "the service shows " + a.say()}, nil
}

// absent is the verdict about a delete whose object a look has shown, if what has shown it speaks for S3, and shows it again.
func (t *deleter) absent(ctx context.Context, token, key string, shown *response) (connector.Answer, error) {
	speaks, err := t.s.speaks(ctx, token)
	if err != nil {
		return connector.Answer{}, t.s.lost(ctx, "delete", false, err)
	}
	at, a, err := t.s.look(ctx, key)
	switch {
	case err != nil:
		return connector.Answer{}, t.s.lost(ctx, "delete", false, err)
	case !speaks:
		return connector.Answer{Verdict: connector.Retry, Detail: "what answers shows an object also where nobody has one, so it is not S3"}, nil
	case at != there || a.etag() != shown.etag():
		return connector.Answer{Verdict: connector.Retry, Detail: "the object was there, and then the service shows " + a.say()}, nil
	}
	return connector.Answer{Verdict: connector.Absent, Detail: "the object is there"}, nil
}

// clockStep is how far the clock of the records may have been set back while no host ran, unseen.
const clockStep = time.Minute

// olderThan reports whether an object is older than age, by the clock of the service alone, which tells both its
// own time and that of the object.
func olderThan(a *response, age time.Duration) bool {
	now, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return false
	}
	made, err := http.ParseTime(a.header.Get("Last-Modified"))
	return err == nil && age >= 0 && now.Sub(made) > age+clockStep
}
