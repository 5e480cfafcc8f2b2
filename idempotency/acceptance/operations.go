package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// operations returns the cases about the admin address.
func operations() []testCase {
	return slices.Concat(health(), records(), decisions(), []testCase{
		operation("pages of other sites are refused", anything, func(p *probe) error {
			ref, err := p.record("done")
			if err != nil {
				return err
			}
			return p.adminSays(http.MethodPost, "/api/v1/keys/"+ref+"/forget", `{"by":"suite"}`, 403, "", "Sec-Fetch-Site", "cross-site")
		}),
		operation("without its store it is not ready", store, func(p *probe) error {
			return p.without(func() error {
				return p.soon("it says that it is ready", func() bool { return p.adminSays(http.MethodGet, "/readyz", "", 503, "") == nil })
			})
		}),
	})
}

// operation returns a case that needs the admin address.
func operation(name string, needs need, run func(*probe) error) testCase {
	return testCase{"operations", name, needs | admin, run}
}

// health returns the cases about what watches the server.
func health() []testCase {
	var c []testCase
	add := func(name string, needs need, run func(*probe) error) { c = append(c, operation(name, needs, run)) }
	for _, path := range []string{"/healthz", "/readyz"} {
		add(path+" is 200", anything, func(p *probe) error { return p.adminSays(http.MethodGet, path, "", 200, "") })
	}
	add("/metrics counts requests", anything, func(p *probe) error {
		if err := p.once(request{}, request{}); err != nil {
			return err
		}
		return p.adminSays(http.MethodGet, "/metrics", "", 200, `outcome="replayed"`)
	})
	return c
}

// records returns the cases about reading what is recorded.
func records() []testCase {
	var c []testCase
	add := func(name string, needs need, run func(*probe) error) { c = append(c, operation(name, needs, run)) }
	add("a list finds a key", anything, func(p *probe) error { _, err := p.record("done"); return err })
	add("a list says nothing of callers", anything, func(p *probe) error {
		if _, err := p.record("done"); err != nil {
			return err
		}
		text, err := p.admin(http.MethodGet, "/api/v1/keys?key="+p.key, "", 200)
		for name, value := range p.t.Headers {
			if http.CanonicalHeaderKey(name) == "Authorization" && strings.Contains(text, value) {
				err = errors.Join(err, errors.New("the list shows the credential of the caller"))
			}
		}
		return err
	})
	add("a record shows its answer", anything, func(p *probe) error {
		ref, err := p.record("done")
		if err != nil {
			return err
		}
		return p.adminSays(http.MethodGet, "/api/v1/keys/"+ref, "", 200, `"body":`)
	})
	add("an unknown reference is 404", anything, func(p *probe) error {
		return p.adminSays(http.MethodGet, "/api/v1/keys/key_00000000000000000000000000", "", 404, "")
	})
	add("what is no reference is 400", anything, func(p *probe) error {
		return p.adminSays(http.MethodGet, "/api/v1/keys/nonsense", "", 400, "")
	})
	return c
}

// decisions returns the cases about what people decide of a key.
func decisions() []testCase {
	var c []testCase
	add := func(name string, needs need, run func(*probe) error) { c = append(c, operation(name, needs, run)) }
	add("an answered key can't be resolved", anything, func(p *probe) error {
		ref, err := p.record("done")
		if err != nil {
			return err
		}
		return p.adminSays(http.MethodPost, "/api/v1/keys/"+ref+"/resolve", `{"happened":false,"by":"suite"}`, 409, "")
	})
	add("who decides is required", anything, func(p *probe) error {
		ref, err := p.record("done")
		if err != nil {
			return err
		}
		return p.adminSays(http.MethodPost, "/api/v1/keys/"+ref+"/forget", `{}`, 400, "")
	})
	add("a forgotten key runs again", programmable, func(p *probe) error {
		ref, err := p.record("done")
		if err == nil {
			err = p.adminSays(http.MethodPost, "/api/v1/keys/"+ref+"/forget", `{"by":"suite"}`, 200, "released")
		}
		if err != nil {
			return err
		}
		_, err = p.send(request{})
		return errors.Join(err, p.ran(2))
	})
	add("a doubt that is resolved as happened is replayed", programmable, func(p *probe) error {
		ref, err := p.cut()
		if err == nil {
			err = p.adminSays(http.MethodPost, "/api/v1/keys/"+ref+"/resolve", `{"happened":true,"status":202,"body":"found","by":"suite"}`, 200, "done")
		}
		if err != nil {
			return err
		}
		a, err := p.send(request{do: cutOff})
		if err == nil && (a.status != 202 || string(a.body) != "found" || !a.replayed()) {
			err = fmt.Errorf("the retry got %s", a)
		}
		return errors.Join(err, p.ran(1))
	})
	add("a doubt that is resolved as absent runs again", programmable, func(p *probe) error {
		ref, err := p.cut()
		if err == nil {
			err = p.adminSays(http.MethodPost, "/api/v1/keys/"+ref+"/resolve", `{"happened":false,"by":"suite"}`, 200, "released")
		}
		if err != nil {
			return err
		}
		a, err := p.send(request{})
		if err == nil && a.status != 201 {
			err = fmt.Errorf("the retry got %s", a)
		}
		return errors.Join(err, p.ran(2))
	})
	return c
}

// cutOff makes the endpoint hang up in the middle.
var cutOff = []string{"X-Do-Cut", "yes"}

// cut sends a request whose outcome nobody knows, and returns its reference.
func (p *probe) cut() (string, error) {
	a, err := p.send(request{do: cutOff})
	if err == nil && a.status != http.StatusBadGateway {
		err = fmt.Errorf("a request that was cut off got %s, want 502", a)
	}
	if err != nil {
		return "", err
	}
	return p.find("unknown")
}

// record makes a record and returns its reference.
func (p *probe) record(state string) (string, error) {
	if _, err := p.send(request{}); err != nil {
		return "", err
	}
	return p.find(state)
}

// find returns the reference of the case's key.
func (p *probe) find(state string) (string, error) {
	text, err := p.admin(http.MethodGet, "/api/v1/keys?state="+state+"&key="+p.key, "", 200)
	if err != nil {
		return "", err
	}
	var list []struct{ Reference, State, Key string }
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 1 || list[0].State != state || list[0].Key != p.key {
		return "", fmt.Errorf("the list of key %s in state %s is %s", p.key, state, text)
	}
	return list[0].Reference, nil
}

// adminSays wants a status of the admin address, and a word in its answer.
func (p *probe) adminSays(method, path, body string, status int, word string, header ...string) error {
	text, err := p.admin(method, path, body, status, header...)
	if err == nil && !strings.Contains(text, word) {
		err = fmt.Errorf("%s %s says %q, want %s in it", method, path, text, word)
	}
	return err
}

// admin asks the admin address and wants a status.
func (p *probe) admin(method, path, body string, status int, header ...string) (string, error) {
	r, err := http.NewRequestWithContext(p.ctx, method, strings.TrimSuffix(p.t.Admin, "/")+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+p.t.AdminToken)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := p.t.Client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != status {
		err = fmt.Errorf("%s %s got %s, want %d: %s", method, path, resp.Status, status, text)
	}
	return string(text), err
}
