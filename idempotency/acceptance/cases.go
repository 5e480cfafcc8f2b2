package acceptance

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// cases returns every case, in the order of its group.
func cases() []testCase {
	var all []testCase
	for _, group := range []func() []testCase{gating, fidelity, fingerprints, concurrency, policy, crash, scope, expiry, size, outage, operations} {
		all = append(all, group()...)
	}
	return all
}

func gating() []testCase {
	c := []testCase{
		{"gating", "a request without a key runs each time", programmable, func(p *probe) error {
			for range 2 {
				if _, err := p.send(request{noKey: true}); err != nil {
					return err
				}
			}
			return p.ran(2)
		}},
		{"gating", "a retry is replayed", anything, func(p *probe) error { return p.once(request{}, request{}) }},
		{"gating", "a third and fourth request too", anything, func(p *probe) error {
			a, err := p.first(request{})
			for range 3 {
				err = cmp.Or(err, p.still(a, request{}))
			}
			return err
		}},
		{"gating", "GET is not guarded", programmable, func(p *probe) error {
			for range 2 {
				if _, err := p.send(request{method: http.MethodGet}); err != nil {
					return err
				}
			}
			return p.ran(2)
		}},
		{"gating", "two keys run twice", programmable, func(p *probe) error {
			for range 2 {
				if _, err := p.send(request{key: []string{newKey()}}); err != nil {
					return err
				}
			}
			return p.ran(2)
		}},
		{"gating", "PUT is guarded", programmable, func(p *probe) error {
			return p.once(request{method: http.MethodPut}, request{method: http.MethodPut})
		}},
		{"gating", "PATCH is guarded", programmable, func(p *probe) error {
			return p.once(request{method: http.MethodPatch}, request{method: http.MethodPatch})
		}},
	}
	return slices.Concat(c, sameKeys(), acceptedKeys(), refusedKeys())
}

// sameKeys returns the cases of keys that are written in two ways.
func sameKeys() (c []testCase) {
	same := map[string]func(k string) (request, request){
		"quoted and bare":          func(k string) (request, request) { return request{}, request{key: []string{`"` + k + `"`}} },
		"bare after quoted":        func(k string) (request, request) { return request{key: []string{`"` + k + `"`}}, request{} },
		"X-Idempotency-Key":        func(k string) (request, request) { return request{}, request{legacy: []string{k}} },
		"quoted X-Idempotency-Key": func(k string) (request, request) { return request{legacy: []string{`"` + k + `"`}}, request{} },
		"both headers, equal":      func(k string) (request, request) { return request{}, request{key: []string{k}, legacy: []string{k}} },
		"quoted with parameters":   func(k string) (request, request) { return request{}, request{key: []string{`"` + k + `";v=1`}} },
		"spaces around":            func(k string) (request, request) { return request{}, request{key: []string{"  " + k + " "}} },
	}
	for _, name := range slices.Sorted(maps.Keys(same)) {
		c = append(c, testCase{"gating", "names the same key: " + name, anything, func(p *probe) error {
			a, b := same[name](p.key)
			return p.once(a, b)
		}})
	}
	return c
}

// acceptedKeys returns the cases of odd keys that are good.
func acceptedKeys() (c []testCase) {
	c = append(c, testCase{"gating", "accepts a key: 1 character", anything, func(p *probe) error {
		a, err := p.send(request{key: []string{"x"}}) // another run may have used it
		if err == nil && a.status >= 400 && a.status != http.StatusUnprocessableEntity && a.status != http.StatusConflict {
			err = fmt.Errorf("it got %s", a)
		}
		return err
	}})
	for name, k := range map[string]string{"255 characters": strings.Repeat("x", 222), "a space in quotes": `"a b`, "escapes": `"a\"b\\c`, "punctuation": "!#$%&'()*+,-./:;<=>?@[]^_`{|}~"} {
		c = append(c, testCase{"gating", "accepts a key: " + name, anything, func(p *probe) error {
			full := k + p.key + "xxxxxxx"
			if strings.HasPrefix(k, `"`) {
				full += `"`
			}
			return p.once(request{key: []string{full}}, request{key: []string{full}})
		}})
	}
	return c
}

// refusedKeys returns the cases of keys that are none.
func refusedKeys() (c []testCase) {
	bad := map[string]request{
		"empty": {key: []string{""}}, "empty quotes": {key: []string{`""`}}, "256 characters": {key: []string{strings.Repeat("x", 256)}},
		"an unclosed quote": {key: []string{`"abc`}}, "only a quote": {key: []string{`"`}}, "text after the quote": {key: []string{`"abc"d`}},
		"not ASCII": {key: []string{"schl\xc3\xbcssel"}}, "latin 1": {key: []string{"schl\xfcssel"}}, "a bare space": {key: []string{"a b"}},
		"a tab": {key: []string{"a\tb"}}, "two lines": {key: []string{"a", "b"}}, "two equal lines": {key: []string{"a", "a"}},
		"headers that differ": {key: []string{"a"}, legacy: []string{"b"}}, "a bad escape": {key: []string{`"a\n"`}},
		"one good and one empty header": {key: []string{"a"}, legacy: []string{""}},
	}
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		c = append(c, testCase{"gating", "refuses a key: " + name, anything, func(p *probe) error { return p.refused(bad[name], 0, 400) }})
	}
	return c
}

func fidelity() []testCase {
	var c []testCase
	for _, status := range []int{200, 201, 202, 203, 204, 205, 206, 301, 302, 303, 304, 307, 400, 402, 404, 405, 406, 409, 410, 412, 415, 418, 422, 451, 501, 505, 511} {
		c = append(c, testCase{"replay fidelity", fmt.Sprintf("status %d", status), programmable, func(p *probe) error {
			q := request{do: []string{"X-Do-Status", fmt.Sprint(status), "X-Do-Header", "Location: /there"}}
			return p.once(q, q)
		}})
	}
	bodies := map[string]string{
		"empty": "", "NUL": "a\x00b", "0xFF": "\xff\xfe", "1.10 as it was written": "1.10", "null": "null", "false": "false", "zero": "0",
		"an empty list": "[]", "white space": " \r\n\t", "gzip": "\x1f\x8b\x08\x00\x00", "HTML": "<p>&amp;</p>", "64 KiB": strings.Repeat("0123456789abcdef", 1<<12),
	}
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		c = append(c, testCase{"replay fidelity", "body: " + name, programmable, func(p *probe) error {
			if len(bodies[name]) > 16<<10 {
				q := request{do: []string{"X-Do-Size", fmt.Sprint(len(bodies[name]))}}
				return p.once(q, q)
			}
			q := request{do: []string{"X-Do-Body", "b" + base64.StdEncoding.EncodeToString([]byte(bodies[name]))}}
			return p.once(q, q)
		}})
	}
	for line, kept := range map[string]bool{
		"Location: /x": true, "ETag: \"1\"": true, "Link: <a>; rel=next": true, "Content-Type: text/plain; charset=latin1": true,
		"Content-Language: de": true, "X-Own: v": true, "Cache-Control: no-store": true, "Retry-After: 7": true, "Vary: Accept": true,
		"Last-Modified: Fri, 20 Nov 2026 12:00:00 GMT": true, "Content-Disposition: attachment": true,
		"Set-Cookie: s=1": false, "WWW-Authenticate: Basic": false, "Authorization: secret": false, "Keep-Alive: timeout=5": false,
		"Proxy-Authenticate: Basic": false, "Proxy-Authorization: x": false, "Authentication-Info: x": false,
	} {
		name, value, _ := strings.Cut(line, ": ")
		title := "does not replay " + name
		if kept {
			title = "replays " + name
		}
		c = append(c, testCase{"replay fidelity", title, programmable, func(p *probe) error {
			q := request{do: []string{"X-Do-Header", line}}
			if err := p.once(q, q); err != nil {
				return err
			}
			a, err := p.send(q)
			if got := a.header.Get(name); err == nil && (got == value) != kept {
				err = fmt.Errorf("the replay has %s: %q", name, got)
			}
			return err
		}})
	}
	return append(c, testCase{"replay fidelity", "two lines of one header stay two", programmable, func(p *probe) error {
		q := request{do: []string{"X-Do-Header", "Link: <a>", "X-Do-Header", "Link: <b>"}}
		if err := p.once(q, q); err != nil {
			return err
		}
		a, err := p.send(q)
		if got := a.header.Values("Link"); err == nil && strings.Join(got, " ") != "<a> <b>" {
			err = fmt.Errorf("the replay has Link: %q", got)
		}
		return err
	}})
}

func fingerprints() []testCase {
	other, empty := "{\"other\":true}", ""
	c := []testCase{
		{"fingerprint", "the first answer is still replayed afterwards", anything, func(p *probe) error {
			a, err := p.first(request{})
			if err != nil {
				return err
			}
			return errors.Join(p.still(a, request{}), p.refused(request{body: &other}, 1, 422), p.still(a, request{}))
		}},
		{"fingerprint", "other headers are the same request", anything, func(p *probe) error {
			return p.once(request{}, request{headers: map[string]string{"User-Agent": "other", "X-Request-Id": "2"}})
		}},
		{"fingerprint", "chunked is the same request", anything, func(p *probe) error { return p.once(request{}, request{chunked: true}) }},
	}
	for name, q := range map[string]request{
		"another body": {body: &other}, "no body": {body: &empty}, "another path": {path: "/other"}, "another query": {path: "?a=1"},
		"another method": {method: http.MethodPatch},
	} {
		c = append(c, testCase{"fingerprint", "refuses " + name, programmable, func(p *probe) error {
			if q.body == &empty && p.t.Body == "" {
				return nil // it is the same request
			}
			if _, err := p.send(request{}); err != nil {
				return err
			}
			return p.refused(q, 1, 422)
		}})
	}
	return c
}

func concurrency() []testCase {
	at := func(n int) testCase {
		return testCase{"concurrency", fmt.Sprintf("%d at once run once", n), programmable, func(p *probe) error {
			q := request{do: []string{"X-Do-Wait", "50ms"}}
			var wg sync.WaitGroup
			errs, answers := make([]error, n), make([]response, n)
			for i := range n {
				wg.Go(func() {
					a, err := p.send(q)
					answers[i] = a
					if err == nil && a.status != 201 && (a.status != 409 || a.header.Get("Retry-After") == "") {
						err = fmt.Errorf("a duplicate got %s, want 201, or 409 with Retry-After", a)
					}
					errs[i] = err
				})
			}
			wg.Wait()
			worked := slices.DeleteFunc(answers, func(a response) bool { return a.status != 201 })
			for _, a := range worked {
				if !bytes.Equal(a.body, worked[0].body) {
					errs = append(errs, fmt.Errorf("of two that worked one got %s, the other one %s", worked[0], a))
				}
			}
			return errors.Join(errors.Join(errs...), p.ran(1))
		}}
	}
	return []testCase{at(2), at(10), at(100),
		{"concurrency", "a retry at once is never 409", anything, func(p *probe) error {
			for range 10 {
				p.key = newKey()
				if err := p.once(request{}, request{}); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

func policy() []testCase {
	var c []testCase
	for _, status := range []int{401, 403, 407, 408, 425, 429} {
		c = append(c, testCase{"failure policy", fmt.Sprintf("%d frees the key", status), programmable, func(p *probe) error {
			if _, err := p.send(request{do: []string{"X-Do-Status", fmt.Sprint(status)}}); err != nil {
				return err
			}
			a, err := p.send(request{})
			if err == nil && a.status != 201 {
				err = fmt.Errorf("the retry got %s", a)
			}
			return errors.Join(err, p.ran(2))
		}})
	}
	c = append(c, testCase{"failure policy", "500 is replayed (at most once)", programmable, func(p *probe) error {
		q := request{do: []string{"X-Do-Status", "500"}}
		return p.once(q, q)
	}})
	// A gateway may have sent these after it passed the request on: what the retry
	// gets is for the endpoint to say, but it is not executed again.
	for _, status := range []int{502, 503, 504} {
		c = append(c, testCase{"failure policy", fmt.Sprintf("%d is not executed again (at most once)", status), programmable, func(p *probe) error {
			if _, err := p.send(request{do: []string{"X-Do-Status", fmt.Sprint(status)}}); err != nil {
				return err
			}
			a, err := p.send(request{})
			if err == nil && a.status < 400 {
				err = fmt.Errorf("the retry got %s", a)
			}
			return errors.Join(err, p.ran(1))
		}})
	}
	return c
}

func scope() []testCase {
	return []testCase{
		{"scope", "two callers share no answer", otherCaller, func(p *probe) error {
			if _, err := p.send(request{}); err != nil {
				return err
			}
			a, err := p.send(request{caller: true})
			if err == nil && (a.replayed() || a.status >= 400 && !a.callerChanged()) {
				err = fmt.Errorf("the other caller got %s, replayed: %t", a, a.replayed())
			}
			runs := 2
			if a.callerChanged() {
				runs = 1
			}
			return errors.Join(err, p.ran(runs))
		}},
		{"scope", "each caller's retry is its own", otherCaller, func(p *probe) error {
			if err := p.once(request{}, request{}); err != nil {
				return err
			}
			other := "{\"x\":1}" // under one key a server may refuse the same request of two callers
			b, err := p.send(request{caller: true, body: &other})
			if err != nil {
				return err
			}
			again, err := p.send(request{caller: true, body: &other})
			if err == nil && (!again.replayed() || string(again.body) != string(b.body)) {
				err = fmt.Errorf("the other caller's retry got %s, want %s", again, b)
			}
			return err
		}},
		{"scope", "another caller's body is no mismatch", otherCaller, func(p *probe) error {
			other := "{\"x\":1}"
			if _, err := p.send(request{}); err != nil {
				return err
			}
			a, err := p.send(request{caller: true, body: &other})
			if err == nil && a.status == 422 {
				err = fmt.Errorf("the other caller got %s", a)
			}
			return err
		}},
	}
}

func expiry() []testCase {
	return []testCase{{"expiry", "Idempotency-Expires is a date at least 24 hours away", anything, func(p *probe) error {
		for range 2 {
			a, err := p.send(request{})
			if err != nil {
				return err
			}
			at, err := http.ParseTime(a.header.Get("Idempotency-Expires"))
			if err != nil || time.Until(at) < 24*time.Hour-time.Minute {
				return fmt.Errorf("Idempotency-Expires is %q: %w", a.header.Get("Idempotency-Expires"), err)
			}
		}
		return nil
	}}}
}

func size() []testCase {
	tooLong := func(chunked bool) func(*probe) error {
		return func(p *probe) error {
			body := strings.Repeat("x", p.t.BodyLimit+1)
			return p.refused(request{body: &body, chunked: chunked}, 0, 413)
		}
	}
	return []testCase{
		{"size and streaming", "a body over the limit is 413", bodyLimit, tooLong(false)},
		{"size and streaming", "without Content-Length too", bodyLimit, tooLong(true)},
		{"size and streaming", "a body of exactly the limit works", bodyLimit, func(p *probe) error {
			body := strings.Repeat("x", p.t.BodyLimit)
			return p.once(request{body: &body}, request{body: &body})
		}},
		{"size and streaming", "an answer over the limit comes whole and does not run twice", responseLimit, func(p *probe) error {
			q := request{do: []string{"X-Do-Size", fmt.Sprint(p.t.ResponseLimit + 1)}}
			a, err := p.send(q)
			if err != nil || len(a.body) != p.t.ResponseLimit+1 {
				return fmt.Errorf("got %d bytes: %w", len(a.body), err)
			}
			return p.refused(q, 1, 409)
		}},
		{"size and streaming", "an event stream does not run twice", programmable, func(p *probe) error {
			q := request{do: []string{"X-Do-Header", "Content-Type: text/event-stream", "X-Do-Status", "200"}}
			if _, err := p.send(q); err != nil {
				return err
			}
			return p.refused(q, 1, 409)
		}},
	}
}
