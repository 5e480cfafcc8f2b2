//go:build unix

package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Requests about resources.
const (
	watchOn  = "resources/subscribe"
	watchOff = "resources/unsubscribe"
)

func uriParams(uri string) string { return fmt.Sprintf(`{"uri":%q}`, uri) }

// about returns the requests of two methods about a resource, in their order.
func (v *vault) about(uri string) (asked []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, text := range v.asked {
		method, _, _ := strings.Cut(text, " ")
		if (method == watchOn || method == watchOff) && strings.Contains(text, fmt.Sprintf("%q", uri)) {
			asked = append(asked, method)
		}
	}
	return asked
}

// close ends the session of an agent.
func (a *httpAgent) close() {
	a.t.Helper()
	resp, err := a.client.Do(a.request(http.MethodDelete, "", nil))
	if err != nil {
		a.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		a.t.Fatal(resp.Status)
	}
}

// stream opens a stream of what the agent is told, by POST if there is a body, and returns what reads the next message.
func (a *httpAgent) stream(body string, header func(*http.Request)) (next func() string, stop func() error) {
	a.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req := a.request(method, body, header)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func() string {
		a.t.Helper()
		defer time.AfterFunc(time.Minute, func() { resp.Body.Close() }).Stop()
		for lines.Scan() {
			if message, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return message
			}
		}
		a.t.Fatalf("the stream ended: %v", lines.Err())
		return ""
	}, resp.Body.Close
}

// updated has the vault tell of a change of a resource, with a title, and then of a change of its list, which goes to all.
func (v *vault) updated(uri, title string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = append(v.told, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q,"title":%q}}`, uri, title),
		fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"after":%q}}`, title))
	v.more.Broadcast()
}

// updates reads until what vaults told after updates of these titles, and returns the titles of the updates that are passed on.
func updates(next func() string, after ...string) (titles []string) {
	for len(after) > 0 {
		var m struct{ Params struct{ Title, After string } }
		_ = json.Unmarshal([]byte(next()), &m)
		after = slices.DeleteFunc(after, func(title string) bool { return title == m.Params.After })
		if m.Params.Title != "" {
			titles = append(titles, m.Params.Title)
		}
	}
	slices.Sort(titles)
	return slices.Compact(titles)
}

// A server gives up a subscription when the last session that has it there ends, whatever others have at other servers.
func TestSessionsThatEndLeaveNoSubscription(t *testing.T) {
	t.Parallel()
	v, own := serveVault(t), serveVault(t)
	url := openOwn(t, nil, v.url, own.url)
	bob := newAgent(t, url, "bob")
	bob.begin()
	bob.send(watchOn, uriParams("vault://x"), nil)
	first, last := newAgent(t, url, "ann"), newAgent(t, url, "ann")
	for _, a := range []*httpAgent{first, last} {
		a.begin()
		a.send(watchOn, uriParams("vault://x"), nil)
	}
	first.close()
	const more = 20
	for i := range more {
		a := newAgent(t, url, "ann")
		a.begin()
		a.send(watchOn, uriParams(fmt.Sprintf("vault://of-one/%d", i)), nil)
		a.close()
	}
	v.await(t, watchOff, more)
	if got := v.about("vault://x"); !slices.Equal(got, []string{watchOn, watchOn}) {
		t.Errorf("while a session has it, the vault was asked %q", got)
	}
	last.close()
	v.await(t, watchOff, more+1)
	if got := v.about("vault://x"); !slices.Equal(got, []string{watchOn, watchOn, watchOff}) {
		t.Errorf("the vault was asked %q", got)
	}
	bob.close()
	own.await(t, watchOff, 1)
	if got := own.about("vault://x"); !slices.Equal(got, []string{watchOn, watchOff}) {
		t.Errorf("the server of the other agent was asked %q", got)
	}
}

// What is given up while the server takes it is given up after that: it leaves no watch.
func TestSubscriptionThatIsGivenUpWhileItIsTaken(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(*httpAgent){
		"by its client": func(a *httpAgent) { a.send(watchOff, uriParams("vault://x"), nil) },
		"by the end":    (*httpAgent).close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := serveVault(t)
			asked, given := make(chan bool), make(chan bool)
			v.hook = func(method string) {
				if method == watchOn {
					asked <- true
					<-given
				}
			}
			a := newAgent(t, openOwn(t, nil, v.url, serveVault(t).url), "ann")
			a.begin()
			next, _ := a.stream("", nil)
			answered := make(chan reply)
			go func() {
				r, _ := a.send(watchOn, uriParams("vault://x"), nil)
				answered <- r
			}()
			<-asked
			giveUp(a)
			close(given)
			<-answered
			v.await(t, watchOff, 1)
			if got := v.about("vault://x"); !slices.Equal(got, []string{watchOn, watchOff}) {
				t.Errorf("the vault was asked %q", got)
			}
			if name == "by its client" {
				v.updated("vault://x", "late")
				if got := updates(next, "late"); len(got) > 0 {
					t.Errorf("the client is told %q", got)
				}
			}
		})
	}
}

// Updates of a resource reach a client from the servers at which it has a subscription, and from no other that names the resource.
func TestUpdatesOfAnotherServer(t *testing.T) {
	t.Parallel()
	v, own := serveVault(t), serveVault(t)
	url := openOwn(t, nil, v.url, own.url)
	ann, bob := newAgent(t, url, "ann"), newAgent(t, url, "bob")
	var streams []func() string
	for _, a := range []*httpAgent{ann, bob} {
		a.begin()
		next, _ := a.stream("", nil)
		streams = append(streams, next)
		if r, _ := a.send(watchOn, uriParams("vault://x"), nil); r.Error != nil {
			t.Fatal(r.raw)
		}
	}
	own.updated("vault://x", "of his own") // which the other agent reaches, and has no subscription at
	for i, want := range [][]string{nil, {"of his own"}} {
		if got := updates(streams[i], "of his own"); !slices.Equal(got, want) {
			t.Errorf("agent %d is told by its second server: %q, want %q", i, got, want)
		}
	}
	v.updated("vault://x", "of the vault")
	if got := updates(streams[0], "of the vault"); !slices.Equal(got, []string{"of the vault"}) {
		t.Errorf("the agent is told by its server: %q", got)
	}
}

// listenParams is a request of 2026-07-28 to be told of a resource, and of changes of lists.
func listenParams(uri string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true,"resourceSubscriptions":[%q]},%s}}`, uri, modernMeta)
}

// A server of 2026-07-28 tells clients of both kinds; a client of 2026-07-28 has subscriptions at servers of both, and leaves none.
func TestUpdatesOfBothKinds(t *testing.T) {
	t.Parallel()
	v, own := serveVault(t), serveVault(t)
	own.modern = true
	url := openOwn(t, nil, v.url, own.url)
	ann := newAgent(t, url, "ann")
	ann.begin()
	told, _ := ann.stream("", nil)
	if r, _ := ann.send(watchOn, uriParams("own://x"), nil); r.Error != nil {
		t.Fatal(r.raw)
	}
	own.updated("own://x", "modern")
	if got := updates(told, "modern"); !slices.Equal(got, []string{"modern"}) {
		t.Errorf("a client with a handshake is told %q", got)
	}
	ann.close()
	v.await(t, watchOff, 1)

	bob := newAgent(t, url, "ann")
	listening, stop := bob.stream(listenParams("own://x"), modern("subscriptions/listen", ""))
	if text := listening(); !strings.Contains(text, "acknowledged") {
		t.Fatal(text)
	}
	v.await(t, watchOn, 2)
	v.updated("own://x", "with a handshake")
	if got := updates(listening, "modern", "with a handshake"); !slices.Equal(got, []string{"modern", "with a handshake"}) {
		t.Errorf("a client of 2026-07-28 is told %q", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	v.await(t, watchOff, 2)
}

// A server that does not answer when it is to give up what it has keeps neither a session from ending, nor others from their
// subscriptions, nor the gateway.
func TestServerThatGivesNothingUp(t *testing.T) {
	t.Parallel()
	v, own := serveVault(t), serveVault(t)
	hangs := make(chan bool)
	t.Cleanup(func() { close(hangs) }) // after the gateway ended
	v.hook = func(method string) {
		if method == watchOff {
			<-hangs
		}
	}
	var ends time.Time
	t.Cleanup(func() {
		if took := time.Since(ends); took > 5*time.Second {
			t.Errorf("the gateway took %v to end", took)
		}
	})
	url := openOwn(t, nil, v.url, own.url)
	t.Cleanup(func() { ends = time.Now() })
	for i := range 5 {
		a := newAgent(t, url, "ann")
		a.begin()
		if r, _ := a.send(watchOn, uriParams(fmt.Sprintf("vault://%d", i)), nil); r.Error != nil {
			t.Error(r.raw)
		}
		a.close()
	}
	v.await(t, watchOff, 1)
	last := newAgent(t, url, "ann")
	last.begin()
	for _, method := range []string{watchOn, watchOff} {
		if r, _ := last.send(method, uriParams("vault://x"), nil); r.Error != nil {
			t.Error(r.raw)
		}
	}
}
