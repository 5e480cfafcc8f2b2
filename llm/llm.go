package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/policy"
)

// MaxAnswer bounds one answer, in bytes as they come from the service.
const MaxAnswer = 4 << 20

// An API is a protocol.
type API string

// The protocols.
const (
	Anthropic API = "anthropic" // POST BaseURL/v1/messages
	OpenAI    API = "openai"    // POST BaseURL/chat/completions
)

// APIs returns every protocol.
func APIs() []API { return []API{Anthropic, OpenAI} }

// Config says whom to ask.
type Config struct {
	// API is the protocol. Required.
	API API

	// BaseURL is where the service is. If empty, the public one of the protocol.
	BaseURL string

	// Key is the API key. If empty, none is sent.
	Key string

	// Timeout is how long the service may be silent. An answer as a whole takes at most ten
	// times as long. If zero, DefaultTimeout.
	Timeout time.Duration

	// Price is what tokens cost.
	Price Price

	// Retry says how often, and after which waits, a request is sent again. The zero Backoff
	// sends it once.
	Retry policy.Backoff

	// Waits is called before a request is sent again, with why and after which wait. Nil: nobody is told.
	Waits func(e *Error, wait time.Duration)
}

// DefaultTimeout is how long a service may be silent.
const DefaultTimeout = 60 * time.Second

// A Price is what a million tokens cost, in any currency.
type Price struct {
	In  float64 // that are sent
	Out float64 // that are answered
}

// A Usage is how much was used.
type Usage struct {
	In, Out int64 // tokens
	Cost    float64
}

// Tokens returns all tokens.
func (u Usage) Tokens() int64 { return u.In + u.Out }

// Plus returns the sum of u and v.
func (u Usage) Plus(v Usage) Usage { return Usage{u.In + v.In, u.Out + v.Out, u.Cost + v.Cost} }

// at returns u with its cost at a price.
func (u Usage) at(p Price) Usage {
	u.Cost = (float64(u.In)*p.In + float64(u.Out)*p.Out) / 1e6
	return u
}

// A Request is what a model is asked.
type Request struct {
	Model    string
	System   string
	Messages []Message
	Tools    []Tool

	// Stop says before the request is sent again why it is not, a sentence without its end, by what its tries used;
	// empty: it is. Nil: it always is.
	Stop func(used Usage) string
}

// A Message is one of the host, or an answer of the model.
type Message struct {
	Model   bool // the model said it
	Text    string
	Calls   []Call   // of the model
	Results []Result // of the calls of the message before
}

// A Tool is what a model may call.
type Tool struct {
	Name        string
	Description string
	Params      json.RawMessage // JSON Schema of an object
}

// A Call is one that a model asks for.
type Call struct {
	ID        string
	Name      string
	Arguments json.RawMessage // JSON; null if the model wrote something else
}

// A Result is what came of a call.
type Result struct {
	ID    string
	Text  string
	Wrong bool // the call failed
}

// An Answer is what a model said.
type Answer struct {
	Text  string
	Calls []Call
	Cut   bool // the model stopped for its length
}

// Message returns the answer as a message of the model.
func (a Answer) Message() Message { return Message{Model: true, Text: a.Text, Calls: a.Calls} }

// An Error says why there is no answer. It holds nothing that the service wrote but the type
// of its error.
type Error struct {
	Status int    // of HTTP; 0: there was none, or it says nothing
	Why    string // a sentence without its end
	Again  bool   // the same request may be answered later

	wait time.Duration // that the service asked for
}

// Error says why.
func (e *Error) Error() string { return e.Why }

// A Client asks one service. It is safe for concurrent use.
type Client struct {
	cfg  Config
	url  string
	http *http.Transport
}

// New returns a client. It makes no request.
func New(cfg Config) (*Client, error) {
	if !slices.Contains(APIs(), cfg.API) {
		return nil, fmt.Errorf("api: %q is none: want anthropic or openai", cfg.API)
	}
	cfg.BaseURL = cmp.Or(cfg.BaseURL, map[API]string{Anthropic: "https://api.anthropic.com", OpenAI: "https://api.openai.com/v1"}[cfg.API])
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("base_url: want https:// or http:// with a host, and without a user, a query and a fragment")
	}
	if strings.ContainsFunc(cfg.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("key: has characters that no key has")
	}
	if p := cfg.Price; p.In < 0 || p.Out < 0 || math.IsInf(p.In+p.Out, 0) || math.IsNaN(p.In+p.Out) {
		return nil, errors.New("price: must not be negative")
	}
	if cfg.Timeout < 0 {
		return nil, errors.New("timeout: must be more than zero")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	c := &Client{cfg: cfg, url: strings.TrimRight(cfg.BaseURL, "/") + "/v1/messages", http: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: new(net.Dialer).DialContext, TLSHandshakeTimeout: cfg.Timeout,
		DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
	}}
	if cfg.API == OpenAI {
		c.url = strings.TrimRight(cfg.BaseURL, "/") + "/chat/completions"
	}
	return c, nil
}

// Ask asks, again if need be, and returns the answer and what all of it used, which is also
// there beside an error. An error is an *Error, or that of ctx, with the last *Error before it if there was one.
func (c *Client) Ask(ctx context.Context, q Request) (Answer, Usage, error) {
	body, err := c.body(q)
	if err != nil {
		return Answer{}, Usage{}, &Error{Why: "the request cannot be written: " + err.Error()}
	}
	var used Usage
	var last *Error
	ended := func() (Answer, Usage, error) {
		if last == nil {
			return Answer{}, used, ctx.Err()
		}
		return Answer{}, used, fmt.Errorf("%w; before that: %w", ctx.Err(), last)
	}
	for tries := 0; ; tries++ {
		a, u, err := c.once(ctx, body)
		used = used.Plus(u.at(c.cfg.Price))
		if ctx.Err() != nil {
			return ended()
		}
		e, failed := errors.AsType[*Error](err)
		if !failed || !e.Again || c.cfg.Retry.Exhausted(tries) {
			return a, used, err
		}
		if last = e; q.Stop != nil {
			if why := q.Stop(used); why != "" {
				return a, used, &Error{Status: e.Status, Why: e.Why + "; it is not asked again: " + why}
			}
		}
		wait := c.cfg.Retry.Delay(tries, min(e.wait, c.cfg.Retry.Max), rand.Float64())
		if c.cfg.Waits != nil {
			c.cfg.Waits(e, wait)
		}
		if pause.For(ctx, wait) != nil {
			return ended()
		}
	}
}

// body returns the request as the protocol has it.
func (c *Client) body(q Request) ([]byte, error) {
	if c.cfg.API == OpenAI {
		return json.Marshal(chatRequest(q))
	}
	return json.Marshal(messagesRequest(q))
}
