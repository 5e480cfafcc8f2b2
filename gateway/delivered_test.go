//go:build unix

package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/repeat"
)

// A client that shows late that it has the answer of an earlier call says nothing about the last one, whose answer was
// lost. Law: once.
func TestDeliveredLate(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Rules: paired()}
	h := openHall(t, s)
	one, two := newAgent(t, h.url, "ann"), newAgent(t, h.url, "ann")
	one.begin()
	two.begin()
	if r := one.create("x"); r.state() != "applied" {
		t.Fatal(r.raw)
	}
	if r := two.create("x"); r.Result.Meta["keep/replayed"] != true {
		t.Fatal(r.raw)
	}
	two.send("ping", `{}`, nil)
	if r := two.create("x"); r.state() != "applied" || effects(t, s.Dir, "x") != 2 {
		t.Fatal(r.raw)
	}
	// two goes away without having read that. one, which has the answer of the first call, continues.
	one.send("ping", `{}`, nil)
	for _, stores := range []func(){func() {}, func() { one.create("y") }} {
		stores()
		three := newAgent(t, h.url, "ann")
		three.begin()
		if r := three.create("x"); r.Result.Meta["keep/replayed"] != true || effects(t, s.Dir, "x") != 2 {
			t.Errorf("a call whose answer was lost, made again: %d effects, %s", effects(t, s.Dir, "x"), r.raw)
		}
	}
}

// A call shows that the answer before it was read, though the next call comes right behind it: that one is another
// call, and is made.
func TestDeliveredByTheCallBefore(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	d := open(t, s, nil)
	for i := range 20 {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		if r := d.make(a); r.state() != "applied" {
			t.Fatal(r.raw)
		}
		call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`
		go d.send(fmt.Sprintf(call+"\n"+call, 8, createParams(b), 9, createParams(a)))
		for range 2 {
			if line, err := d.out.ReadString('\n'); err != nil || !strings.Contains(line, `"keep/state":"applied"`) {
				t.Fatalf("%v: %s", err, line)
			}
		}
		if n := effects(t, s.Dir, a); n != 2 {
			t.Fatalf("%d: %d effects of two calls", i, n)
		}
	}
}

// A client that cancels a request, while the answer is on its way, does not take the answer: it is given to who makes the call
// again, whatever the client sent before. Law: once.
func TestCancelledAsTheAnswerComes(t *testing.T) {
	t.Parallel()
	d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}, nil)
	d.want("first", d.make("x"), "applied", 1)
	d.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	d.ping()
	d.want("again", d.make("x"), "applied", 1, `"keep/replayed":true`)
	d.ping()
	d.want("after it was delivered", d.make("x"), "applied", 2)
}

// A client that made a call again has no answer of the call before, also if it then cancels what it made again: no later message shows that it read
// that. Law: once.
func TestCancelledAgain(t *testing.T) {
	t.Parallel()
	d, store := openFaulty(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}, false)
	d.want("first", d.make("x"), "applied", 1)
	read, back := make(chan struct{}), make(chan struct{})
	hold := func() { close(read); <-back }
	store.reads.Store(&hold)
	d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":%s}`, createParams("x")))
	<-read
	d.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
	d.ping()
	close(back)
	if y := must(d.ask(9, "tools/call", createParams("y"))); y.state() != "applied" { // by then the one that was cancelled is over
		t.Fatal(y.raw)
	}
	d.want("again", d.make("x"), "applied", 1, `"keep/replayed":true`)
	d.ping()
	d.want("after it was delivered", d.make("x"), "applied", 2)
}

// The same as of a call that comes right behind, while what was delivered is being stored.
func TestDeliveredWhileItIsStored(t *testing.T) {
	t.Parallel()
	d, store := openFaulty(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}, false)
	d.want("first", d.make("x"), "applied", 1)
	stores, stored := make(chan struct{}), make(chan struct{})
	hold := func() { close(stores); <-stored }
	store.holds.Store(&hold)
	d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":%s}`, createParams("y")))
	<-stores
	d.want("while the commit of another call is out", d.make("x"), "applied", 2)
	close(stored)
	if r, _ := d.read(8); r.state() != "applied" {
		t.Error(r.raw)
	}
}

// A request that was sent before the answer to the one before it does not show that the answer was read. Law: once.
func TestPipelined(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Rules: paired()}
	h := openHall(t, s)
	a := newAgent(t, h.url, "ann")
	a.begin()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(h.url, "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var both string
	for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + createParams("x") + `}`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`} {
		both += fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s",
			agentTokens["ann"], a.session, len(body), body)
	}
	if _, err := io.WriteString(conn, both); err != nil {
		t.Fatal(err)
	}
	for answers, n := bufio.NewReader(conn), 0; n < 2; n++ { // so that both were worked on
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	if r := a.create("x"); r.Result.Meta["keep/replayed"] != true || effects(t, s.Dir, "x") != 1 {
		t.Errorf("%d effects, %s", effects(t, s.Dir, "x"), r.raw)
	}
}

// The same as of a call that reads the store just before that is stored.
func TestDeliveredAsItIsStored(t *testing.T) {
	t.Parallel()
	d, store := openFaulty(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}, false)
	d.want("first", d.make("x"), "applied", 1)
	d.ping()
	read, stored := make(chan struct{}), make(chan struct{})
	hold := func() { close(read); <-stored }
	store.reads.Store(&hold)
	d.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":%s}`, createParams("x")))
	<-read
	if r := d.make("y"); r.state() != "applied" { // and stores what was delivered
		t.Error(r.raw)
	}
	close(stored)
	r, _ := d.read(8)
	d.want("another call", r, "applied", 2)
}

// That an answer was delivered, put back since the commit with it failed, does not make its run the last again. Law: once.
func TestDeliveredBesideAFailedCommit(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprintf("made=%t", made), func(t *testing.T) {
			t.Parallel()
			d, store := openFaulty(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}, made)
			d.want("first", d.make("x"), "applied", 1)
			d.ping()
			store.armed.Store(true)
			d.want("its outcome is not stored", d.make("x"), "", 2, "the ledger could not be written")
			d.ping()
			d.want("another one, which stores what was delivered", d.make("y"), "applied", 2)
			if d.make("x"); effects(t, d.dir, "x") != 2 {
				t.Errorf("made again: %d effects", effects(t, d.dir, "x"))
			}
		})
	}
}

// What was delivered is known from the row in which earlier versions kept it.
func TestDeliveredByAnEarlierVersion(t *testing.T) {
	t.Parallel()
	d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}, nil)
	d.want("first", d.make("x"), "applied", 1)
	list, _, err := d.db.Runs(t.Context(), keep.RunFilter{}, keep.Page{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d runs, %v", len(list), err)
	}
	id := repeat.Identity{Agent: "a", Tool: "notes.create", Identity: []byte(`{"body":"text","title":"x"}`)}.Hash()
	for i, at := range []time.Time{{}, time.Now()} {
		value, _ := json.Marshal(struct {
			Run       keep.RunID `json:"run"`
			Delivered time.Time  `json:"delivered,omitzero"`
		}{list[0].ID, at})
		err := d.db.Commit(t.Context(), keep.Commit{Workflow: keep.DirectWorkflow, At: time.Now(), Changes: []keep.Change{
			keep.SetKV{Producer: keep.HandlerName("call:" + id), Key: "last", Value: value},
		}})
		if err != nil {
			t.Fatal(err)
		}
		d.want("again", d.make("x"), "applied", i+1)
	}
}

// An answer that is given again says so in a text of its own, for a model that sees no _meta, and is else as it was.
func TestAnswerAgainSaysSo(t *testing.T) {
	for policy, more := range map[repeat.Policy]string{repeat.Allow: ", or call something else first", repeat.Replay: ""} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			rules := repeat.DefaultRules()
			rules.Repeat = policy
			d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: paired(), Repeat: rules}, nil)
			first := d.make("x")
			if policy == repeat.Replay {
				d.ping()
			}
			again := d.make("x")
			c := again.Result.Content
			if len(first.Result.Content) != 1 || len(c) != 2 || c[0] != first.Result.Content[0] || !maps.Equal(again.Result.StructuredContent, first.Result.StructuredContent) {
				t.Fatalf("%s\n%s", first.raw, again.raw)
			}
			made := regexp.MustCompile(`^Keep: this call was made before, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ; it was not made again\. To make it once more, give it a text of its own as _meta\["keep/intent"\](.*)\.$`)
			if m := made.FindStringSubmatch(c[1].Text); m == nil || m[1] != more {
				t.Errorf("it says: %s", c[1].Text)
			}
		})
	}
}
