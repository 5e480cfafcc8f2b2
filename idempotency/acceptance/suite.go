package acceptance

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Target describes the endpoint that is tested. In a file it is TOML with these
// names.
type Target struct {
	// URL is where the endpoint is. It must make something, once per key.
	URL string `toml:"url"`

	// Method of the endpoint. If empty, POST.
	Method string `toml:"method"`

	// Body of a request that works. {n} stands for a new number in each case.
	Body string `toml:"body"`

	// Headers of a request that works, such as Content-Type and Authorization.
	Headers map[string]string `toml:"headers"`

	// OtherCaller are the headers by which another caller is known, instead of
	// those in Headers. Empty: cases about callers are skipped.
	OtherCaller map[string]string `toml:"other_caller"`

	// Programmable says that the endpoint is a Backend.
	Programmable bool `toml:"programmable"`

	// BodyLimit is the longest request that is accepted, ResponseLimit the
	// longest answer that is kept. Zero: cases about them are skipped.
	BodyLimit     int `toml:"body_limit"`
	ResponseLimit int `toml:"response_limit"`

	// Admin is the admin address of a keep proxy. Empty: cases about operations
	// are skipped.
	Admin string `toml:"admin"`

	// AdminToken is the proxy's admin_token.
	AdminToken string `toml:"admin_token"`

	// Restart ends the server without warning (SIGKILL) and has it started again;
	// it need not wait until it answers. If nil, cases about crashes are skipped.
	Restart func(context.Context) error `toml:"-"`

	// StoreDown takes the server's store away, and StoreUp gives it back. If nil,
	// cases about that are skipped.
	StoreDown, StoreUp func(context.Context) error `toml:"-"`

	// Lease is how long after its death an owner is believed to live. If zero,
	// 30 seconds.
	Lease time.Duration `toml:"-"`

	// Client sends the requests. If nil, one that asks for nothing by itself.
	Client *http.Client `toml:"-"`
}

// A Result says how a case went.
type Result struct {
	Group   string `json:"group"`
	Name    string `json:"name"`
	Passed  bool   `json:"passed"`
	Skipped string `json:"skipped,omitempty"` // why it was not asked
	Problem string `json:"problem,omitempty"` // what was wrong
}

// A testCase asks one question.
type testCase struct {
	group, name string
	needs       need
	run         func(*probe) error
}

// What a case needs of its target.
type need int

const (
	programmable need = 1 << iota
	otherCaller
	bodyLimit
	responseLimit
	restart
	store
	admin

	anything need = 0
)

// missing says what the target lacks; "" if it has it.
func (t Target) missing(n need) string {
	switch {
	case n&restart != 0 && t.Restart == nil:
		return "needs a command that kills and restarts the server (restart)"
	case n&store != 0 && (t.StoreDown == nil || t.StoreUp == nil):
		return "needs commands that take the store away (store_down, store_up)"
	case n&admin != 0 && t.Admin == "":
		return "needs the admin address of a keep proxy (admin)"
	case n&(programmable|responseLimit) != 0 && !t.Programmable:
		return "needs an endpoint that does as it is told (programmable)"
	case n&otherCaller != 0 && len(t.OtherCaller) == 0:
		return "needs other_caller"
	case n&bodyLimit != 0 && t.BodyLimit == 0:
		return "needs body_limit"
	case n&responseLimit != 0 && t.ResponseLimit == 0:
		return "needs response_limit"
	}
	return ""
}

// Run asks every question, one after the other, and calls each as it is answered
// if that is not nil.
func Run(ctx context.Context, t Target, each func(Result)) ([]Result, error) {
	if t.URL == "" {
		return nil, errors.New("acceptance: url required")
	}
	t.Method = cmp.Or(t.Method, http.MethodPost)
	t.Lease = cmp.Or(t.Lease, 30*time.Second)
	if t.Client == nil {
		transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32}
		defer transport.CloseIdleConnections()
		t.Client = &http.Client{Transport: transport, Timeout: time.Minute}
	}
	t.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	var results []Result
	for _, c := range cases() {
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		r := Result{Group: c.group, Name: c.name, Skipped: t.missing(c.needs)}
		if r.Skipped == "" {
			err := c.run(&probe{ctx: ctx, t: t, key: newKey()})
			if r.Passed = err == nil; err != nil {
				r.Problem = err.Error()
			}
		}
		results = append(results, r)
		if each != nil {
			each(r)
		}
	}
	return results, nil
}

func newKey() string { return rand.Text() }

// A probe asks the questions of one case, with a key of its own.
type probe struct {
	ctx context.Context // of the run; a case is one call
	t   Target
	key string
}

// A request is what a case sends, and how it differs from the usual.
type request struct {
	key     []string          // lines of Idempotency-Key; nil: the case's key
	legacy  []string          // lines of X-Idempotency-Key
	noKey   bool              // sends no key
	method  string            // "" is the target's
	path    string            // appended to the URL
	body    *string           // nil: the target's
	chunked bool              // sends no Content-Length
	headers map[string]string // replaces or adds
	caller  bool              // as the other caller
	do      []string          // pairs of X-Do-… names and values
}

// A response is what came back.
type response struct {
	status int
	header http.Header
	body   []byte
}

func (a response) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// String is the answer as a failed case shows it.
func (a response) String() string {
	return fmt.Sprintf("%d %s", a.status, strconv.Quote(string(a.body[:min(len(a.body), 120)])))
}

// send sends a request of the case.
func (p *probe) send(q request) (response, error) {
	body := strings.ReplaceAll(p.t.Body, "{n}", p.key)
	if q.body != nil {
		body = *q.body
	}
	var reader io.Reader = strings.NewReader(body)
	if q.chunked {
		reader = io.MultiReader(reader)
	}
	r, err := http.NewRequestWithContext(p.ctx, cmp.Or(q.method, p.t.Method), p.t.URL+q.path, reader)
	if err != nil {
		return response{}, err
	}
	r.GetBody = nil
	for name, value := range p.t.Headers {
		r.Header.Set(name, value)
	}
	if q.caller {
		for name, value := range p.t.OtherCaller {
			r.Header.Set(name, value)
		}
	}
	for name, value := range q.headers {
		r.Header.Set(name, value)
	}
	p.name(r, q)
	for i := 0; i+1 < len(q.do); i += 2 {
		r.Header.Add(q.do[i], q.do[i+1])
	}
	if p.t.Programmable {
		r.Header.Set("X-Do-Id", p.key)
	}
	resp, err := p.t.Client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, b}, err
}

// name puts the key on the request.
func (p *probe) name(r *http.Request, q request) {
	if q.noKey {
		return
	}
	lines := q.key
	if lines == nil && q.legacy == nil {
		lines = []string{p.key}
	}
	if lines != nil {
		r.Header["Idempotency-Key"] = lines
	}
	if q.legacy != nil {
		r.Header["X-Idempotency-Key"] = q.legacy
	}
}

// once sends q, then again, and wants one run and a replay.
func (p *probe) once(first, again request) error {
	a, err := p.first(first)
	if err != nil {
		return err
	}
	return p.still(a, again)
}

// first sends a request, and wants that it works.
func (p *probe) first(q request) (response, error) {
	a, err := p.send(q)
	if err != nil {
		return a, fmt.Errorf("first request: %w", err)
	}
	if a.status >= 400 && len(q.do) == 0 {
		return a, fmt.Errorf("the first request got %s", a)
	}
	return a, nil
}

// still sends a request again, and wants the answer a of the first one, and no other run. Where nothing counts the runs the answer
// alone tells.
func (p *probe) still(a response, again request) error {
	b, err := p.send(again)
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	switch {
	case b.status != a.status:
		return fmt.Errorf("the retry got %s, want %s", b, a)
	case !bytes.Equal(a.body, b.body):
		return fmt.Errorf("the retry's body is %s, want %s", b, a)
	case !b.replayed():
		return fmt.Errorf("the retry is not marked with Idempotent-Replayed: %s", b)
	}
	for _, name := range []string{"Content-Type", "Location"} { // what clients read
		if was, is := a.header.Values(name), b.header.Values(name); !slices.Equal(was, is) {
			return fmt.Errorf("the retry has %s: %q, want %q", name, is, was)
		}
	}
	return p.ran(1)
}

// ran wants a number of runs, if the target counts.
func (p *probe) ran(want int) error {
	if !p.t.Programmable {
		return nil
	}
	r, err := http.NewRequestWithContext(p.ctx, http.MethodGet, p.t.URL, nil)
	if err != nil {
		return err
	}
	r.Header.Set("X-Do-Count", p.key)
	resp, err := p.t.Client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if got, err := strconv.Atoi(string(b)); err != nil || got != want {
		return fmt.Errorf("it ran %s times, want %d", b, want)
	}
	return nil
}

// refused sends q and wants a problem of a status, and no run.
func (p *probe) refused(q request, runs int, statuses ...int) error {
	a, err := p.send(q)
	if err != nil {
		return err
	}
	if !slices.Contains(statuses, a.status) {
		return fmt.Errorf("got %s, want status %v", a, statuses)
	}
	var problem struct{ Type, Title, Detail string }
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	if err := json.Unmarshal(a.body, &problem); err != nil || media != "application/problem+json" || problem.Type == "" || problem.Title == "" {
		return fmt.Errorf("got %s of type %q, want problem+json with type and title", a, media)
	}
	return p.ran(runs)
}

// callerChanged reports whether the answer refuses the same request of another caller,
// who may be the same one with a renewed credential.
func (a response) callerChanged() bool {
	return a.status == http.StatusConflict && strings.Contains(string(a.body), "caller-changed")
}
