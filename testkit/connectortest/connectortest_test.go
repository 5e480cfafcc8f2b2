package connectortest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/testkit/connectortest"
)

// A fake is a connector that keeps its promises, but for one.
type fake struct {
	lie string

	mu      sync.Mutex
	effects map[string]int  // by payload
	tokens  map[string]bool // that were seen
	memory  map[string]bool // that this connection has sent
	lose    bool            // the next answer
	down    bool            // for lookups
	calls   int
}

const secret = "hunter2"

func (f *fake) Spec() connector.Spec {
	s := connector.Spec{
		Name: "do", Effect: connector.Mutate, Level: keep.LevelKey, Identity: []string{"id"},
		Params: json.RawMessage(`{"type":"object","required":["id"],"additionalProperties":false,"properties":{"id":{"type":"integer"}}}`),
		Result: json.RawMessage(`{"type":"null"}`),
	}
	switch f.lie {
	case "schema does not compile":
		s.Params = json.RawMessage(`{"type":"objekt"}`)
	case "identity is not in the schema":
		s.Identity = []string{"key"}
	case "level D with a lookup":
		s.Level = keep.LevelNone
	case "lookup makes the change":
		s.Level = keep.LevelWitness
	case "result has another shape":
		s.Result = json.RawMessage(`{"type":"string"}`)
	case "another result for the same token":
		s.Result = json.RawMessage(`{"type":"object"}`)
	case "sets something else when asked again":
		s.Result, s.Sets = json.RawMessage(`{"type":"object"}`), true
	case "schema accepts anything":
		s.Params = json.RawMessage(`{"type":"object","properties":{"id":{}}}`)
	}
	return s
}

func (f *fake) Target(params json.RawMessage) string {
	if f.lie == "target changes something" {
		f.effects[string(params)]++
	}
	return "t" + string(params)
}

func (f *fake) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil && f.lie != "context is ignored" {
		return connector.Receipt{}, keep.Failf(keep.ClassTransient, "timeout", "too late")
	}
	if !strings.Contains(string(m.Payload), `"id":`) && f.lie != "bad params are sent" {
		return connector.Receipt{}, keep.Failf(keep.ClassLogic, "bad-params", "id is required")
	}
	key := m.Token
	if f.lie == "key is made of the params" {
		key = string(m.Payload)
	}
	seen := f.tokens[key]
	if f.lie == "token is remembered by the connection" {
		seen = f.memory[key]
	}
	f.memory[key] = true
	if !seen || f.lie == "token is not honoured" {
		f.effects[string(m.Payload)]++
	}
	f.tokens[key] = true
	if f.lose {
		f.lose = false
		switch f.lie {
		case "doubt is failure":
			return connector.Receipt{}, keep.Failf(keep.ClassTransient, "lost", "no answer")
		case "secret in the message":
			return connector.Receipt{}, keep.Failf(keep.ClassUnknown, "lost", "no answer to "+secret)
		case "call is repeated":
			f.effects[string(m.Payload)]++
		}
		return connector.Receipt{}, keep.Failf(keep.ClassUnknown, "lost", "no answer")
	}
	if f.lie == "another result for the same token" || f.lie == "sets something else when asked again" {
		f.calls++
		return connector.Receipt{Result: json.RawMessage(fmt.Sprintf(`{"id":%d}`, f.calls))}, nil
	}
	return connector.Receipt{}, nil
}

func (f *fake) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	happened := f.tokens[m.Token]
	switch {
	case f.down && f.lie == "lookup that fails finds nothing", ctx.Err() != nil && f.lie == "lookup whose time is over finds nothing":
		return connector.Answer{Verdict: connector.Absent}, nil
	case f.down, ctx.Err() != nil:
		return connector.Answer{Verdict: connector.Retry, Detail: "no answer"}, nil
	}
	switch f.lie {
	case "lookup makes the change":
		if !happened {
			f.effects[string(m.Payload)]++
			f.tokens[m.Token], happened = true, true
		}
	case "key is made of the params":
		happened = f.tokens[string(m.Payload)]
	case "lookup always finds":
		happened = true
	case "lookup never finds":
		happened = false
	case "lookup never answers":
		return connector.Answer{Verdict: connector.Retry}, nil
	}
	if happened {
		return connector.Answer{Verdict: connector.Happened}, nil
	}
	return connector.Answer{Verdict: connector.Absent}, nil
}

// lies maps each broken promise to what the suite says about it; the first one
// breaks none.
var lies = map[string]string{
	"":                              "",
	"schema does not compile":       "specs_are_complete",
	"identity is not in the schema": "specs_are_complete",
	"level D with a lookup":         "specs_are_complete",
	"result has another shape":      "result_of_the_declared_shape",
	"schema accepts anything":       "accepts_good_ones",
	"target changes something":      "costs_no_call",
	"context is ignored":            "whose_time_is_over",
	"bad params are sent":           "bad_params",
	"token is not honoured":         "same_token",
	"doubt is failure":              "no_lie_after_a_lost_answer",
	"key is made of the params":     "another_token",

	"token is remembered by the connection": "same_token",

	"another result for the same token":    "same_token",
	"sets something else when asked again": "same_token",

	"secret in the message": "no_lie_after_a_lost_answer",
	"call is repeated":      "no_lie_after_a_lost_answer",
	"lookup always finds":   "never_begun",
	"lookup never finds":    "finds_a_change_that_happened",
	"lookup never answers":  "finds_a_change_that_happened",

	"lookup makes the change":                 "never_begun",
	"lookup that fails finds nothing":         "no_lie_after_a_lost_answer_and_an_outage",
	"lookup whose time is over finds nothing": "finds_a_change_that_happened",
}

// TestFake runs the suite on the fake; alone it checks that an honest one passes.
func TestFake(t *testing.T) {
	connectortest.Run(t, func(testing.TB) *connectortest.Bench {
		f := &fake{lie: os.Getenv("KEEP_LIE"), effects: map[string]int{}, tokens: map[string]bool{}, memory: map[string]bool{}}
		params := func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"id":%d}`, n)) }
		return &connectortest.Bench{
			Connection: &connector.Connection{Name: "fake", Connector: "fake", Tools: []connector.Tool{f}},
			Again: func(testing.TB) *connector.Connection {
				again := &fake{lie: f.lie, effects: f.effects, tokens: f.tokens, memory: map[string]bool{}}
				return &connector.Connection{Name: "fake", Connector: "fake", Tools: []connector.Tool{again}}
			},
			Tool:    "do",
			Params:  params,
			Effects: func(n int) int { return f.effects[string(params(n))] },
			Refused: []json.RawMessage{json.RawMessage(`{}`)},
			Secrets: []string{secret},
			Troubles: []connectortest.Trouble{
				{Name: "a lost answer", Arm: func() { f.lose = true }, Want: ""},
				{Name: "a lost answer and an outage", Arm: func() { f.lose, f.down = true, true }, End: func() { f.down = false }},
			},
		}
	})
}

// TestSuiteCatchesEachLie runs TestFake in a process of its own for each lie.
func TestSuiteCatchesEachLie(t *testing.T) {
	for lie, promise := range lies {
		if promise == "" {
			continue
		}
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFake$")
			cmd.Env = append(os.Environ(), "KEEP_LIE="+lie)
			out, err := cmd.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL")) || !strings.Contains(string(out), promise) {
				t.Errorf("the suite says %v:\n%s", err, out)
			}
		})
	}
}

// post sends a change without ever repeating it.
func post(t testing.TB, url, token, id string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(`{"id":"`+id+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func openOracle(t testing.TB) *connectortest.Oracle {
	t.Helper()
	o, err := connectortest.NewOracle()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func TestOracleKnowsTheTruth(t *testing.T) {
	o := openOracle(t)
	for range 2 {
		post(t, o.URL()+"/keyed", "k", "1")
		post(t, o.URL()+"/marked", "m", "2")
		post(t, o.URL()+"/plain", "p", "3")
	}
	if o.Effects("k") != 1 || o.Effects("m") != 2 || o.Effects("p") != 0 || o.EffectsOn("3") != 2 || o.Requests("") != 6 {
		t.Errorf("effects %d %d %d %d of %d requests", o.Effects("k"), o.Effects("m"), o.Effects("p"), o.EffectsOn("3"), o.Requests(""))
	}
	if d := o.Duplicates(); len(d) != 1 || d[0] != "m" {
		t.Errorf("duplicates %q", d)
	}
	for name, c := range map[string]struct {
		fault  connectortest.Fault
		status int // 0: an error
		now    int // effects
		later  int // effects after Settle
	}{
		"lost":       {connectortest.Fault{Answer: connectortest.Lost}, 0, 1, 1},
		"reset":      {connectortest.Fault{Answer: connectortest.Reset}, 0, 1, 1},
		"late":       {connectortest.Fault{Late: true}, 201, 0, 1},
		"skip":       {connectortest.Fault{Skip: true, Status: 503}, 503, 0, 0},
		"wrong":      {connectortest.Fault{Answer: connectortest.WrongBody}, 201, 1, 1},
		"slow":       {connectortest.Fault{Delay: 1}, 201, 1, 1},
		"as ordered": {connectortest.Fault{}, 201, 1, 1},
	} {
		o.Script(c.fault)
		status, err := post(t, o.URL()+"/marked", name, name)
		if status != c.status || (err == nil) != (c.status != 0) || o.Effects(name) != c.now {
			t.Errorf("%s: %d, %v and %d effects", name, status, err, o.Effects(name))
		}
		if o.Settle(); o.Effects(name) != c.later {
			t.Errorf("%s: %d effects later", name, o.Effects(name))
		}
	}
	o.Script(connectortest.Fault{Answer: connectortest.Truncated})
	if _, err := post(t, o.URL()+"/marked", "cut", "cut"); err == nil {
		t.Error("a truncated answer came whole")
	}
}

func TestOracleSearchLags(t *testing.T) {
	o := openOracle(t)
	find := func() int {
		resp, err := http.Get(o.URL() + "/effects/9")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	o.LagSearch()
	post(t, o.URL()+"/marked", "m", "9")
	if got := find(); got != 404 {
		t.Errorf("before: %d", got)
	}
	if o.Settle(); find() != 200 {
		t.Error("after Settle the search finds nothing")
	}
}

func TestProxyCuts(t *testing.T) {
	o := openOracle(t)
	p, err := connectortest.NewProxy(o.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	url := "http://" + p.Addr() + "/marked"
	for i, c := range []struct {
		cut     connectortest.Cut
		ok      bool
		effects int
	}{
		{connectortest.Pass, true, 1},
		{connectortest.Cut{Request: 0, Response: connectortest.All}, false, 0},
		{connectortest.Cut{Request: 50, Response: connectortest.All}, false, 0},
		{connectortest.Cut{Request: connectortest.All, Response: 0}, false, 1},
		{connectortest.Cut{Request: connectortest.All, Response: 0, Reset: true}, false, 1},
		{connectortest.Cut{Request: connectortest.All, Response: 30}, false, 1},
		{connectortest.Cut{Request: 1 << 20, Response: 1 << 20}, true, 1},
	} {
		p.Next(c.cut)
		token := fmt.Sprint("t", i)
		if _, err := post(t, url, token, token); (err == nil) != c.ok || o.Effects(token) != c.effects {
			t.Errorf("%+v: %v and %d effects", c.cut, err, o.Effects(token))
		}
	}
	before := p.Accepted()
	p.Down()
	if _, err := post(t, url, "down", "down"); err == nil || p.Accepted() != before {
		t.Errorf("down: %v", err)
	}
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	if _, err := post(t, url, "up", "up"); err != nil {
		t.Errorf("up: %v", err)
	}
}

// A client that heard nothing has left before the service began: what is asked after Settle sees
// what the service did.
func TestProxySettles(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	var done atomic.Bool
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
		done.Store(true)
	}))
	defer service.Close()
	p, err := connectortest.NewProxy(service.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Settle() // nothing is silent
	p.Next(connectortest.Cut{Request: connectortest.All, Stall: true})
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-arrived
		leave()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Addr(), strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultTransport.RoundTrip(req); err == nil {
		t.Error("the client got an answer")
	}
	go close(release)
	if p.Settle(); !done.Load() {
		t.Error("the service had not begun")
	}
}

// A payment is sent by a client that may send again what a connection of before did not answer, and that leaves the
// answer unread.
func unread(base string) connector.Tool {
	type payment struct {
		ID string `json:"id"`
	}
	return connector.NewMutator(connector.Spec{Name: "pay", Identity: []string{"id"}, VerifyByHand: "Look at the list of effects."}, connector.Change[payment, payment]{
		Do: func(ctx context.Context, key string, p payment) (payment, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/marked", strings.NewReader(fmt.Sprintf(`{"id":%q}`, p.ID)))
			if err != nil {
				return p, err
			}
			req.Header.Set("Idempotency-Key", key)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return p, err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusCreated {
				return p, fmt.Errorf("%s", resp.Status)
			}
			return p, nil
		},
	})
}

// TestUnread runs the suite on it, in a process of its own.
func TestUnread(t *testing.T) {
	if os.Getenv("KEEP_LIE") != "unread" {
		t.Skip("it must fail: TestSuiteCatchesAClientThatSendsTwice runs it")
	}
	connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
		o := openOracle(tb)
		p, err := connectortest.NewProxy(o.Addr())
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(p.Close)
		return &connectortest.Bench{
			Connection: &connector.Connection{Name: "bank", Connector: "go", Tools: []connector.Tool{unread("http://" + p.Addr())}},
			Tool:       "pay",
			Params:     func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"id":"P%d"}`, n)) },
			Effects:    func(n int) int { return o.EffectsOn(fmt.Sprintf("P%d", n)) },
			Troubles:   connectortest.HTTPTroubles(p, o), Settle: o.Settle,
		}
	})
}

// A deaf tool is asked over HTTP, and takes for an absence, when it lies, what is no answer of the service.
type deaf struct {
	base, lie string
	client    *http.Client
}

func (d *deaf) Spec() connector.Spec {
	return connector.Spec{
		Name: "do", Effect: connector.Mutate, Level: keep.LevelWitness, Marked: true, Identity: []string{"id"},
		Params: json.RawMessage(`{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}`),
	}
}

func (d *deaf) Target(params json.RawMessage) string { return "t" + string(params) }

// send returns the status and the body of an answer; zero: there was none, and the error says why.
func (d *deaf) send(ctx context.Context, method, path, token string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Idempotency-Key", token)
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

func (d *deaf) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	if ctx.Err() != nil {
		return connector.Receipt{}, keep.Failf(keep.ClassTransient, "timeout", "too late")
	}
	status, body, err := d.send(ctx, http.MethodPost, "/marked", m.Token, m.Payload)
	class := map[int]keep.Class{401: keep.ClassPermission, 422: keep.ClassLogic, 429: keep.ClassTransient}[status]
	var dial *net.OpError
	switch {
	case status == http.StatusCreated && err == nil && json.Valid(body):
		return connector.Receipt{}, nil
	case errors.As(err, &dial) && dial.Op == "dial":
		class = keep.ClassTransient
	case class == "":
		class = keep.ClassUnknown
	}
	return connector.Receipt{}, keep.Failf(class, "no", "%d %v", status, err)
}

func (d *deaf) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	status, body, err := d.send(ctx, http.MethodGet, "/effects?ref="+m.Token, "", nil)
	var found struct{ Data []json.RawMessage }
	why := ""
	switch {
	case err != nil && status == 0:
		why = "no answer"
	case err != nil:
		why = "half an answer"
	case status != http.StatusOK || json.Unmarshal(body, &found) != nil:
		why = "a page"
	}
	switch {
	case why != "" && (d.lie != why || ctx.Err() != nil):
		return connector.Answer{Verdict: connector.Retry, Detail: why}, nil
	case len(found.Data) > 0:
		return connector.Answer{Verdict: connector.Happened}, nil
	}
	return connector.Answer{Verdict: connector.Absent}, nil
}

// TestDeaf runs the suite on it; alone it checks that an honest one passes.
func TestDeaf(t *testing.T) {
	connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
		o := openOracle(tb)
		p, err := connectortest.NewProxy(o.Addr())
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(p.Close)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		tool := &deaf{base: "http://" + p.Addr(), lie: os.Getenv("KEEP_LIE"), client: client}
		return &connectortest.Bench{
			Connection: &connector.Connection{Name: "shop", Connector: "go", Tools: []connector.Tool{tool}},
			Tool:       "do",
			Params:     func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"id":"P%d"}`, n)) },
			Effects:    func(n int) int { return o.EffectsOn(fmt.Sprintf("P%d", n)) },
			Troubles:   connectortest.HTTPTroubles(p, o), Settle: o.Settle,
		}
	})
}

// A lookup that takes for an absence what no service said is found by the troubles of HTTP.
func TestSuiteCatchesALookupThatHeardNothing(t *testing.T) {
	for _, lie := range []string{"no answer", "half an answer", "a page"} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDeaf$")
			cmd.Env = append(os.Environ(), "KEEP_LIE="+lie)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), `Reconcile says "absent" (), but the service has 1 effects`) {
				t.Errorf("the suite says %v:\n%s", err, out)
			}
		})
	}
}

// A client that sends again when a connection that was used before ends is found, though it reads no answers.
func TestSuiteCatchesAClientThatSendsTwice(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUnread$")
	cmd.Env = append(os.Environ(), "KEEP_LIE=unread")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "2 effects of one change") {
		t.Errorf("the suite says %v:\n%s", err, out)
	}
}
