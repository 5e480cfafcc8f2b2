package config_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/twin"
	"github.com/keep-run/keep/testkit/connectortest"
)

// A proof is how a mutate tool of a pack is tried: the nth change, and the name of its
// effect in the twin.
type proof struct {
	service func() twin.Service
	path    string // of the base URL
	params  string // of the nth change, with %d for n
	effect  string
	refused string // params that the schema does not accept
}

func slack() twin.Service    { return new(twin.Slack) }
func stripe() twin.Service   { return new(twin.Stripe) }
func github() twin.Service   { return new(twin.GitHub) }
func calendar() twin.Service { return new(twin.Calendar) }
func gmail() twin.Service    { return new(twin.Gmail) }
func sheets() twin.Service   { return new(twin.Sheets) }
func notion() twin.Service   { return new(twin.Notion) }
func airtable() twin.Service { return new(twin.Airtable) }
func webhook() twin.Service  { return new(twin.Webhook) }

// proofs are of every mutate tool of every pack.
var proofs = map[string]proof{
	"slack.postMessage":           {slack, "/api", `{"channel":"C1","text":"hello %d"}`, "hello %d", `{"channel":"C1"}`},
	"slack.reply":                 {slack, "/api", `{"channel":"C1","thread_ts":"1.2","text":"hello %d"}`, "hello %d", `{"channel":"C1","thread_ts":"1.2"}`},
	"stripe.createCustomer":       {stripe, "", `{"email":"a%[1]d@x","description":"n%[1]d","metadata":{"order":%[1]d}}`, "n%d", `{"metadata":"x"}`},
	"stripe.createInvoice":        {stripe, "", `{"customer":"cus_%[1]d","description":"n%[1]d"}`, "n%d", `{"metadata":"x"}`},
	"stripe.createInvoiceItem":    {stripe, "", `{"customer":"cus_%[1]d","amount":5,"currency":"eur","description":"n%[1]d"}`, "n%d", `{"metadata":"x"}`},
	"stripe.createPaymentIntent":  {stripe, "", `{"customer":"cus_%[1]d","amount":5,"currency":"eur","description":"n%[1]d"}`, "n%d", `{"metadata":"x"}`},
	"stripe.createRefund":         {stripe, "", `{"payment_intent":"pi_%[1]d","amount":5,"description":"n%[1]d"}`, "n%d", `{"metadata":"x"}`},
	"github.createIssue":          {github, "", `{"owner":"o","repo":"r","title":"t%d","body":"b"}`, "t%d", `{"owner":"o","repo":"r"}`},
	"slack.updateMessage":         {slack, "/api", `{"channel":"C1","ts":"1.%[1]d","text":"new %[1]d"}`, "new %d", `{"channel":"C1"}`},
	"slack.addReaction":           {slack, "/api", `{"channel":"C1","timestamp":"1.%[1]d","name":"r%[1]d"}`, "r%d", `{"channel":"C1"}`},
	"github.updateIssue":          {github, "", `{"owner":"o","repo":"r","issue_number":%[1]d,"title":"u%[1]d"}`, "u%d", `{"owner":"o"}`},
	"github.addLabels":            {github, "", `{"owner":"o","repo":"r","issue_number":%[1]d,"labels":["l%[1]d"]}`, "l%d", `{"owner":"o"}`},
	"github.createPull":           {github, "", `{"owner":"o","repo":"r","head":"h%[1]d","base":"main","title":"p%[1]d"}`, "p%d", `{"owner":"o"}`},
	"github.putFile":              {github, "", `{"owner":"o","repo":"r","branch":"main","path":"d/f%[1]d","message":"m","content":"aGk="}`, "d/f%d", `{"owner":"o"}`},
	"google-calendar.insertEvent": {calendar, "/calendar/v3", `{"calendarId":"primary","summary":"s%[1]d","start":{"date":"2026-12-0%[1]d"},"end":{"date":"2026-12-09"}}`, "s%d", `{"calendarId":"primary"}`},
	"google-calendar.updateEvent": {calendar, "/calendar/v3", `{"calendarId":"primary","eventId":"e%[1]d","summary":"s%[1]d"}`, "s%d", `{"calendarId":"primary"}`},
	"google-calendar.deleteEvent": {calendar, "/calendar/v3", `{"calendarId":"primary","eventId":"e%[1]d"}`, "e%d", `{"calendarId":"primary"}`},
	"gmail.send":                  {gmail, "/gmail/v1/users/me", `{"to":["a@example.com"],"subject":"s%[1]d","text":"Grüße","html":"<p>Grüße</p>"}`, "s%d", `{"subject":"x"}`},
	"gmail.modify":                {gmail, "/gmail/v1/users/me", `{"id":"m%[1]d","addLabelIds":["A%[1]d"],"removeLabelIds":["UNREAD"]}`, "m%d", `{"addLabelIds":["A"]}`},
	"google-sheets.appendRow":     {sheets, "", `{"spreadsheetId":"1a","sheetId":0,"values":["r%[1]d",17.50,true,null]}`, "r%d", `{"spreadsheetId":"1a"}`},
	"google-sheets.updateRange":   {sheets, "", `{"spreadsheetId":"1a","range":"S!A%[1]d","values":[["v%[1]d"]]}`, "S!A%d", `{"spreadsheetId":"1a"}`},
	"notion.createPage":           {notion, "/v1", `{"parent":{"database_id":"d"},"properties":{"Name":{"title":[{"text":{"content":"n%[1]d"}}]}}}`, "n%d", `{"parent":{"database_id":"d"}}`},
	"notion.updatePage":           {notion, "/v1", `{"page_id":"p%[1]d","properties":{"S":{"number":%[1]d}}}`, "p%d", `{"properties":{}}`},
	"airtable.upsert":             {airtable, "", `{"baseId":"appX","table":"T","fieldsToMergeOn":["Name"],"fields":{"Name":"n%[1]d","A":%[1]d}}`, "n%d", `{"baseId":"appX","table":"T"}`},
	"airtable.create":             {airtable, "", `{"baseId":"appX","table":"T","fields":{"Name":"n%[1]d"}}`, "n%d", `{"baseId":"appX","fields":{}}`},
	"airtable.update":             {airtable, "", `{"baseId":"appX","table":"T","recordId":"rec%[1]d","fields":{"A":%[1]d}}`, "rec%d", `{"baseId":"appX","table":"T"}`},
	"webhook.send":                {webhook, "/in", `{"type":"t%[1]d","data":{"n":%[1]d}}`, "t%d", `{"type":"t"}`},
	"github.createComment":        {github, "", `{"owner":"o","repo":"r","issue_number":1,"body":"b%d"}`, "b%d", `{"owner":"o","repo":"r","body":"x"}`},
}

// TestPacks runs every mutate tool of every pack through all that can go wrong with a call,
// against a twin of the service that knows the truth. Laws: once, witnessed.
func TestPacks(t *testing.T) {
	t.Parallel()
	all, err := config.Packs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for name, tool := range p.Config.Tools {
			if full := p.Name + "." + name; tool.Effect == connector.Mutate {
				proof, ok := proofs[full]
				if !ok {
					t.Errorf("%s has no proof", full)
					continue
				}
				t.Run(full, func(t *testing.T) {
					t.Parallel()
					all := &benches{proof: proof, pack: p.Name, tool: name}
					t.Cleanup(all.close)
					connectortest.Run(t, all.take)
				})
			}
		}
	}
}

// benches are those of one tool. A test after another has the same connection and proxy, with a
// service of its own: to read a pack takes longer than most of what is tried on it.
type benches struct {
	proof      proof
	pack, tool string

	mu   sync.Mutex // protects the fields below
	free []*packed
	all  []*packed
}

// A packed is a connection on a pack, through a proxy.
type packed struct {
	conn  *connector.Connection
	proxy *connectortest.Proxy
}

// take returns a bench with a new service. It is free again when the test ends.
func (s *benches) take(tb testing.TB) *connectortest.Bench {
	tb.Helper()
	service := s.proof.twin(tb)
	c := s.next()
	if c == nil {
		c = s.proof.packed(tb, s.pack, service)
		s.mu.Lock()
		s.all = append(s.all, c)
		s.mu.Unlock()
	}
	c.proxy.Aim(service.Addr())
	tb.Cleanup(func() { // after the connection was closed, which keeps nothing of this service
		c.proxy.Next()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, c)
	})
	return s.proof.on(c, s.tool, service)
}

// next takes a free connection, or nil.
func (s *benches) next() *packed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return nil
	}
	c := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return c
}

// close ends the proxies.
func (s *benches) close() {
	for _, c := range s.all {
		c.proxy.Close()
	}
}

// bench returns a connection on the pack to a twin behind a proxy.
func (p proof) bench(tb testing.TB, pack, tool string) *connectortest.Bench {
	tb.Helper()
	b, _ := p.start(tb, pack, tool)
	return b
}

// start returns a bench and its twin.
func (p proof) start(tb testing.TB, pack, tool string) (*connectortest.Bench, *twin.Twin) {
	tb.Helper()
	service := p.twin(tb)
	c := p.packed(tb, pack, service)
	tb.Cleanup(c.proxy.Close)
	return p.on(c, tool, service), service
}

// twin starts a service, until the test ends.
func (p proof) twin(tb testing.TB) *twin.Twin {
	tb.Helper()
	service, err := twin.Start(p.service())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(service.Close)
	return service
}

// packed opens a connection on the pack to a service.
func (p proof) packed(tb testing.TB, pack string, service *twin.Twin) *packed {
	tb.Helper()
	proxy, err := connectortest.NewProxy(service.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	return &packed{openPack(tb, fmt.Sprintf("[connections.svc]\nconnector = %q\nbase_url = \"http://%s%s\"\nsecret = \"${secret:svc}\"\n",
		pack, proxy.Addr(), p.path), service.Secret), proxy}
}

// on returns a bench of a connection whose proxy leads to a service.
func (p proof) on(c *packed, tool string, service *twin.Twin) *connectortest.Bench {
	return &connectortest.Bench{
		Connection: c.conn,
		Tool:       tool,
		Params:     func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(p.params, n)) },
		Effects:    func(n int) int { return service.Effects(fmt.Sprintf(p.effect, n)) },
		Refused:    []json.RawMessage{json.RawMessage(p.refused)},
		Secrets:    []string{service.Secret},
		Troubles:   connectortest.HTTPTroubles(c.proxy, service),
		Settle:     service.Settle,
	}
}

// openPack opens the one connection of a keep.toml.
func openPack(tb testing.TB, toml, secret string) *connector.Connection {
	tb.Helper()
	dir := tb.TempDir()
	for file, text := range map[string]string{"keep.toml": toml, ".secrets/svc": secret} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	cfg, err := config.Load(config.Options{File: filepath.Join(dir, "keep.toml"), Environ: []string{}})
	if err != nil {
		tb.Fatal(err)
	}
	conns, err := cfg.Connect()
	if err != nil {
		tb.Fatal(err)
	}
	cfg.UseAccounts(holds(secret))
	return &conns[0]
}

// holds is every account.
type holds string

func (h holds) Credential(context.Context, string) (connector.Credential, error) {
	return connector.Credential{Value: string(h), Generation: 1}, nil
}

func (holds) Owner(context.Context, string) (string, error)              { return "", nil }
func (holds) Refused(context.Context, string, connector.Credential) bool { return false }
func (holds) Accepted(context.Context, string)                           {}

// TestPackExamples holds the example of each tool to the tool's schema, and every pack to what
// a person must find in it.
func TestPackExamples(t *testing.T) {
	t.Parallel()
	all, err := config.Packs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Docs == "" || p.Version == "" || len(p.Hash) != len("sha256:")+64 {
			t.Errorf("%s: docs %q, version %q, hash %q", p.Name, p.Docs, p.Version, p.Hash)
		}
		conn := openPack(t, fmt.Sprintf("[connections.svc]\nconnector = %q\nbase_url = \"https://example.com\"\nsecret = \"${secret:svc}\"\n", p.Name), twin.Secret)
		for _, tool := range conn.Tools {
			spec, cfg := tool.Spec(), p.Config.Tools[tool.Spec().Name]
			name := p.Name + "." + spec.Name
			if spec.Description == "" || cfg.Example == nil {
				t.Errorf("%s: description %q, example %v", name, spec.Description, cfg.Example)
			}
			if spec.Effect == connector.Mutate && (spec.Level == keep.LevelNone || spec.VerifyByHand == "" || cfg.SettleSource == "") {
				t.Errorf("%s: level %s, to verify by hand %q, settle time from %q", name, spec.Level, spec.VerifyByHand, cfg.SettleSource)
			}
			if spec.NeedsControl {
				t.Errorf("%s: an absence is not witnessed", name)
			}
			doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec.Params))
			if err != nil {
				t.Fatal(err)
			}
			c := jsonschema.NewCompiler()
			if err := c.AddResource("keep:schema", doc); err != nil {
				t.Fatal(err)
			}
			raw, _ := json.Marshal(cfg.Example) // of TOML
			example, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.MustCompile("keep:schema").Validate(example); err != nil {
				t.Errorf("%s: the example does not fit: %v", name, err)
			}
		}
	}
}

// TestLookupsReadEachPage has services answer a lookup with a page without entries that says where the next one is, as
// they do where a filter takes long.
func TestLookupsReadEachPage(t *testing.T) {
	t.Parallel()
	for tool, c := range map[string]struct{ base, secret, params, first, second, none string }{
		"airtable.create": {"", "pat", `{"baseId":"appX","table":"T","fields":{"Name":"n"}}`, `{"records":[],"offset":"itr/1"}`,
			`{"records":[{"id":"rec1","fields":{"KeepID":"tok-1"}}]}`, `{"records":[]}`},
		"notion.createPage": {"/v1", "ntn", `{"parent":{"database_id":"d"},"properties":{}}`, `{"results":[],"has_more":true,"next_cursor":"c-1"}`,
			`{"results":[{"id":"p1","properties":{"Keep ID":{"rich_text":[{"plain_text":"tok-1"}]}}}],"has_more":false,"next_cursor":null}`,
			`{"results":[],"has_more":false,"next_cursor":null}`},
	} {
		for _, there := range []bool{true, false} {
			answers := []string{c.first, c.second}
			if !there {
				answers[1] = c.none
			}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				next := 0
				if strings.Contains(r.URL.RawQuery+string(body), "itr%2F1") || strings.Contains(string(body), `"c-1"`) {
					next = 1
				}
				io.WriteString(w, answers[next])
			}))
			t.Cleanup(srv.Close)
			pack, name, _ := strings.Cut(tool, ".")
			conn := openPack(t, fmt.Sprintf("[connections.svc]\nconnector = %q\nbase_url = %q\nsecret = \"${secret:svc}\"\n", pack, srv.URL+c.base), c.secret)
			want := map[bool]connector.Verdict{true: connector.Happened, false: connector.Absent}[there]
			for _, tl := range conn.Tools {
				if tl.Spec().Name != name {
					continue
				}
				a, err := tl.(connector.Reconciler).Reconcile(t.Context(), keep.Mutation{Token: "tok-1", Payload: json.RawMessage(c.params)})
				if err != nil || a.Verdict != want {
					t.Errorf("%s: %s: %+v, %v; want %s", tool, answers[1], a, err, want)
				}
			}
		}
	}
}

// TestPackLists reads what was made, in pages, by the list tools of packs.
func TestPackLists(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ list, params string }{
		"slack.postMessage":           {"history", `{"channel":"C1","limit":2}`},
		"slack.reply":                 {"replies", `{"channel":"C1","ts":"1.2","limit":2}`},
		"stripe.createCustomer":       {"listCustomers", `{"limit":2}`},
		"github.createIssue":          {"listIssues", `{"owner":"o","repo":"r","limit":2}`},
		"github.createPull":           {"listIssues", `{"owner":"o","repo":"r","limit":2}`},
		"google-calendar.insertEvent": {"listEvents", `{"calendarId":"primary","limit":2}`},
		"gmail.send":                  {"list", `{"labelIds":["SENT"],"limit":2}`},
		"notion.createPage":           {"query", `{"database_id":"d","limit":2}`},
		"airtable.create":             {"list", `{"baseId":"appX","table":"T","limit":2}`},
		"github.createComment":        {"listComments", `{"owner":"o","repo":"r","issue_number":1,"limit":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pack, tool, _ := strings.Cut(name, ".")
			b := proofs[name].bench(t, pack, tool)
			tools := map[string]connector.Tool{}
			for _, tl := range b.Connection.Tools {
				tools[tl.Spec().Name] = tl
			}
			for n := range 3 {
				m := keep.Mutation{Token: fmt.Sprint("tok-", n), Payload: b.Params(n + 1)}
				if c, ok := tools[tool].(connector.Claimer); ok {
					id, err := c.Claim(t.Context(), m)
					if err != nil {
						t.Fatal(err)
					}
					m.Pin, _ = json.Marshal(keep.SentAs{Claim: id}) // of strings
				}
				if _, err := tools[tool].(connector.Mutator).Mutate(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			raw, err := tools[c.list].(connector.Reader).Read(t.Context(), json.RawMessage(c.params))
			var list struct {
				Items     []any `json:"$list"`
				Truncated bool
			}
			if err != nil || json.Unmarshal(raw, &list) != nil || len(list.Items) != 2 || !list.Truncated {
				t.Errorf("%s: %s, %v; want 2 of 3 items", c.list, raw, err)
			}
		})
	}
}
