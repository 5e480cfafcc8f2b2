package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// version is that of Anthropic's protocol.
const version = "2023-06-01"

// errSilent and errSlow are the causes of the end of a request whose service says nothing, or
// does not come to an end.
var (
	errSilent = errors.New("the service is silent")
	errSlow   = errors.New("the answer has no end")
)

// once sends a request and reads its answer.
func (c *Client) once(ctx context.Context, body []byte) (Answer, Usage, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	all := time.AfterFunc(10*c.cfg.Timeout, func() { end(errSlow) })
	defer all.Stop()
	silence := time.AfterFunc(c.cfg.Timeout, func() { end(errSilent) })
	defer silence.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, Usage{}, &Error{Why: "the request cannot be made"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	c.authorize(req)
	// The transport alone: nothing follows a redirect with the key.
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		used := Usage{In: tokens(len(body))}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			used = Usage{} // nobody got it
		}
		return Answer{}, used, c.broken(ctx, err)
	}
	defer resp.Body.Close()
	alive := &awake{r: resp.Body, timer: silence, timeout: c.cfg.Timeout}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, Usage{}, refused(resp, alive)
	}
	used := Usage{In: tokens(len(body))}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return Answer{}, used, &Error{Why: "the answer is no stream of events", Again: true}
	}
	s := newStream(c.cfg.API)
	counted := &io.LimitedReader{R: alive, N: MaxAnswer + 1}
	err = events(counted, s.event)
	read := MaxAnswer + 1 - counted.N
	if said := s.used(); said.In > 0 {
		used.In = said.In
	}
	if used.Out = s.used().Out; used.Out <= 0 {
		used.Out = tokens(int(read))
	}
	switch {
	case counted.N <= 0:
		return Answer{}, used, &Error{Why: fmt.Sprintf("the answer has more than %d bytes", MaxAnswer)}
	case err != nil:
		return Answer{}, used, c.broken(ctx, err)
	}
	a, err := s.answer()
	return a, used, err
}

// authorize puts the key where the protocol has it.
func (c *Client) authorize(req *http.Request) {
	if c.cfg.API == Anthropic {
		req.Header.Set("Anthropic-Version", version)
	}
	switch {
	case c.cfg.Key == "":
	case c.cfg.API == Anthropic:
		req.Header.Set("X-Api-Key", c.cfg.Key)
	default:
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
}

// tokens estimates the tokens of so many bytes.
func tokens(n int) int64 { return int64(n+3) / 4 }

// broken says what became of a request whose answer could not be read.
func (c *Client) broken(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	why := "the connection ended in the middle"
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		why = fmt.Sprintf("the service did not answer within %s", c.cfg.Timeout)
	case errors.Is(context.Cause(ctx), errSlow):
		why = fmt.Sprintf("the service answered for more than %s", 10*c.cfg.Timeout)
	case errors.Is(err, errTooLong):
		why = err.Error()
	case errors.As(err, &dns):
		why = "the name of the service could not be looked up"
	case errors.As(err, &op) && op.Op == "dial":
		why = "the service could not be reached"
	}
	return &Error{Why: why, Again: true}
}

// An awake reader says that the service is not silent.
type awake struct {
	r       io.Reader
	timer   *time.Timer
	timeout time.Duration
}

// Read reads, and lets the time of silence begin anew.
func (a *awake) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.timer.Reset(a.timeout)
	}
	return n, err
}

// kind is how services write the types of their errors.
var kind = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`) })

// refused returns the error of an answer that is none. A limit passes, and what broke is mended; a key that is not accepted
// and a request that is wrong stay so.
func refused(resp *http.Response, body io.Reader) error {
	const most = 64 << 10
	text, _ := io.ReadAll(io.LimitReader(body, most)) // what cannot be read says nothing
	var said struct {
		Error struct {
			Type string `json:"type"`
			Code any    `json:"code"`
		} `json:"error"`
	}
	e := &Error{Status: resp.StatusCode, Why: fmt.Sprintf("the service answered %d", resp.StatusCode), Again: true}
	if json.Unmarshal(text, &said) == nil {
		if code, ok := said.Error.Code.(string); ok && kind().MatchString(code) {
			e.Why += " " + code
		} else if kind().MatchString(said.Error.Type) {
			e.Why += " " + said.Error.Type
		}
	}
	if seconds, err := strconv.ParseFloat(resp.Header.Get("Retry-After"), 64); err == nil && seconds > 0 && seconds < 86400 {
		e.wait = time.Duration(seconds * float64(time.Second))
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Again = false
		e.Why += ": it does not accept the key, or not for this model; see key in the table [llm.…] of keep.toml"
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		e.Again = false // the same request is the same mistake
	}
	return e
}

// errTooLong is returned for an event that is longer than any.
var errTooLong = errors.New("an event of the answer has more than 1 MiB")

// maxEvent bounds one line of a stream, in bytes.
const maxEvent = 1 << 20

// events reads server-sent events, and calls f for the data of each. It returns at the end of
// the stream, or when f has what it needs.
func events(r io.Reader, f func(data []byte) (done bool, err error)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) > 0 {
			if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(data)+len(rest) <= maxEvent {
				data = append(append(data, bytes.TrimPrefix(rest, []byte(" "))...), '\n')
			}
			continue
		}
		if len(data) == 0 {
			continue
		}
		done, err := f(bytes.TrimSuffix(data, []byte("\n")))
		if done || err != nil {
			return err
		}
		data = data[:0]
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errTooLong
	}
	return lines.Err()
}
