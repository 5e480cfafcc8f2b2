package oauth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// How an authorization ends without tokens, beside the errors of Refresh.
var (
	// ErrDenied is returned when the person did not allow it.
	ErrDenied = errors.New("was refused")

	// ErrExpired is returned when nobody decided in time.
	ErrExpired = errors.New("nobody decided before the code expired")
)

// An Attempt is one authorization under way. It is kept in memory only: what ends with the
// process has to be begun again.
type Attempt struct {
	URL      string // the page that the person opens
	State    string // 256 bits that come back with the answer
	Redirect string // where the answer arrives
	verifier string
}

// Begin returns a new attempt whose answer arrives at the address redirect.
func (c *Client) Begin(redirect string) Attempt {
	a := Attempt{State: rand.Text() + rand.Text(), Redirect: redirect}
	conf := c.config()
	conf.RedirectURL = redirect
	var opts []oauth2.AuthCodeOption
	if len(c.Scopes) > 0 {
		opts = append(opts, oauth2.SetAuthURLParam("scope", c.scope()))
	}
	if c.Resource != "" {
		opts = append(opts, oauth2.SetAuthURLParam("resource", c.Resource))
	}
	for name, value := range c.Params {
		opts = append(opts, oauth2.SetAuthURLParam(name, value))
	}
	if c.pkce() {
		a.verifier = oauth2.GenerateVerifier()
		opts = append(opts, oauth2.S256ChallengeOption(a.verifier))
	}
	a.URL = conf.AuthCodeURL(a.State, opts...)
	return a
}

// Matches reports whether an answer belongs to the attempt.
func (a Attempt) Matches(answer url.Values) bool {
	return len(answer["state"]) == 1 && subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(a.State)) == 1
}

// Finish gets the tokens that an answer allows, which must belong to the attempt. Its
// code can be used once, so whoever calls does so once.
func (c *Client) Finish(ctx context.Context, a Attempt, answer url.Values) (Tokens, error) {
	if !a.Matches(answer) {
		return Tokens{}, errors.New("the answer belongs to another attempt")
	}
	if err := c.fromIssuer(answer["iss"]); err != nil {
		return Tokens{}, err
	}
	if code := answer.Get("error"); code != "" {
		err := &RefusedError{Code: c.clean(code), Description: c.clean(answer.Get("error_description"))}
		if code == "access_denied" {
			return Tokens{}, fmt.Errorf("%w: %w", ErrDenied, err)
		}
		return Tokens{}, err
	}
	if answer.Get("code") == "" {
		return Tokens{}, errors.New("the service's answer has no code")
	}
	return c.exchange(ctx, a.Redirect, answer.Get("code"), a.verifier)
}

// fromIssuer returns what is wrong with the issuers that an answer names: another server may have made it
// (RFC 9207).
func (c *Client) fromIssuer(named []string) error {
	switch {
	case c.Issuer == "" || len(named) == 0 && !c.NamesIssuer || len(named) == 1 && named[0] == c.Issuer:
		return nil
	case len(named) == 0:
		return fmt.Errorf("the answer does not say that it is of %s", c.Issuer)
	}
	return fmt.Errorf("the answer is of another server than %s", c.Issuer)
}

// LoopbackOptions say how Loopback meets the person.
type LoopbackOptions struct {
	Port int                     // of 127.0.0.1; 0: any that is free
	Open func(page string) error // shows the page to the person

	// Before is called with the address to which the answer comes, before it is asked for: it may complete
	// the client. If nil, the client is complete.
	Before func(redirect string) error
}

// Loopback opens a page of the service in the person's browser and waits on 127.0.0.1 for
// the answer (RFC 8252 §7.3), until ctx ends; an answer that came before counts. What does not belong to the attempt, as a
// wrong state or another host name, is refused, and it waits on. When it returns, its
// address is closed.
func (c *Client) Loopback(ctx context.Context, o LoopbackOptions) (Tokens, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if err != nil {
		return Tokens{}, fmt.Errorf("cannot listen on port %d of 127.0.0.1, which the answer would come to: %w", o.Port, err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	cb := &callback{client: c, port: port, ended: make(chan struct{})}
	redirect := fmt.Sprintf("http://127.0.0.1:%d/callback", port)
	if o.Before != nil {
		if err := o.Before(redirect); err != nil {
			return Tokens{}, errors.Join(err, l.Close())
		}
	}
	cb.attempt = c.Begin(redirect)
	srv := &http.Server{Handler: cb, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) }) // it ends with Shutdown
	defer func() {
		// The page that says how it ended is still to be delivered.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
		serving.Wait()
	}()
	if err := o.Open(cb.attempt.URL); err != nil {
		return Tokens{}, err
	}
	select {
	case <-ctx.Done():
		if cb.take() { // no answer came, and none counts from now on
			return Tokens{}, context.Cause(ctx)
		}
		<-cb.ended // its code is being exchanged, which has a limit of its own: the service thinks that whatever it gives is connected
		return cb.tokens, cb.err
	case <-cb.ended:
		return cb.tokens, cb.err
	}
}

// A callback serves the one address that the service sends the browser to.
type callback struct {
	client  *Client
	attempt Attempt
	port    int

	mu     sync.Mutex
	used   bool
	ended  chan struct{} // closed when tokens and err are set
	tokens Tokens
	err    error
}

//go:embed callback.html
var page string

var callbackPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("callback").Parse(page)) })

func (cb *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Connection", "close")
	switch host := strconv.Itoa(cb.port); {
	case r.Host != "127.0.0.1:"+host && r.Host != "localhost:"+host:
		show(w, http.StatusMisdirectedRequest, "This address is for this machine only", "The request came under another name. Nothing was changed.")
		return
	case r.URL.Path != "/callback":
		show(w, http.StatusNotFound, "There is nothing here", "Go back to the page of the service.")
		return
	case r.Method != http.MethodGet:
		h.Set("Allow", http.MethodGet)
		show(w, http.StatusMethodNotAllowed, "Only GET is served here", "Nothing was changed.")
		return
	}
	answer := r.URL.Query()
	if !cb.attempt.Matches(answer) {
		show(w, http.StatusBadRequest, "This answer belongs to another attempt", "Nothing was changed. Open the page that the terminal shows, and allow it there.")
		return
	}
	if !cb.take() {
		show(w, http.StatusGone, "This answer was used already", "Nothing was changed. The terminal says how it ended.")
		return
	}
	defer close(cb.ended) // whatever comes in between: Loopback waits for it
	cb.err = errors.New("the answer of the service could not be used")
	tokens, err := cb.client.Finish(context.WithoutCancel(r.Context()), cb.attempt, answer)
	switch {
	case errors.Is(err, ErrDenied):
		show(w, http.StatusOK, "Nothing was connected", "It was refused on the page of the service. You can close this window.")
	case err != nil:
		show(w, http.StatusBadGateway, "Nothing was connected", err.Error())
	default:
		show(w, http.StatusOK, "Connected", "You can close this window and go back to the terminal.")
	}
	cb.tokens, cb.err = tokens, err
}

// take reports whether the caller is the first to use the answer.
func (cb *callback) take() bool {
	cb.mu.Lock()
	defer cb.mu.Unlock()
	first := !cb.used
	cb.used = true
	return first
}

func show(w http.ResponseWriter, status int, title, text string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = callbackPage().Execute(w, struct{ Title, Text string }{title, text}) // a browser that left is no loss
}
