package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/law/repeat"
)

// load writes text as keep.toml and reads it with the variables.
func load(t *testing.T, text string, environ ...string) (*config.Config, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, config.Name), text, 0o600)
	return config.Load(config.Options{Dir: dir, Environ: append([]string{}, environ...)})
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// lines returns the problems of an error without the directory.
func lines(err error) string {
	if err == nil {
		return ""
	}
	var out []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if _, rest, ok := strings.Cut(line, config.Name); ok {
			line = config.Name + rest
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	cfg, err := config.Load(config.Options{Dir: dir, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		Files: []string{filepath.Join(dir, "keep.toml")}, // it may come
		Dir:   dir, DB: filepath.Join(dir, "keep.db"), Workflows: []string{"*.js", "*.ts"}, Policy: policy.Default(),
		Retention: policy.Retention{Traces: 7 * 24 * time.Hour, Empty: 7 * 24 * time.Hour},
		Write:     config.Write{Limits: repair.Limits{Attempts: 3, Tokens: 200_000}, Questions: 3, Time: 10 * time.Minute},
		Gateway:   config.Gateway{Rules: map[keep.ToolName]gateway.Rule{}, Repeat: repeat.DefaultRules(), MessageLimit: mcp.DefaultMessageLimit, ResultLimit: mcp.DefaultResultLimit},
		Warnings:  []config.Problem{}, Missing: []config.Problem{}, Ring: seal.Ring{Path: filepath.Join(dir, "keep.key")},
	}
	if diff := cmp.Diff(want, cfg, cmpopts.IgnoreUnexported(config.Config{})); diff != "" {
		t.Error(diff)
	}
	if _, err := config.Load(config.Options{File: filepath.Join(dir, "other.toml")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of a named file that is missing = %v, want not exist", err)
	}
}

// A file as PowerShell writes one says what is wrong with it, and not what is wrong with its first byte.
func TestUTF16(t *testing.T) {
	file := filepath.Join(t.TempDir(), config.Name)
	if err := os.WriteFile(file, []byte("\xff\xfe[\x00s\x00]\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(config.Options{File: file}); err == nil || err.Error() != file+" is in UTF-16: save it as UTF-8" {
		t.Errorf("Load = %v", err)
	}
}

func TestFindLooksUpwards(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, config.Name), "", 0o600)
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	if got, want := config.Find("."), filepath.Join("..", "..", config.Name); got != want {
		t.Errorf("Find = %q, want %q", got, want)
	}
	// What can't be read is said. To pass it over would take the settings of another project.
	if err := os.Symlink("gone", filepath.Join(dir, "a", config.Name)); err != nil {
		t.Skip("no links here:", err)
	}
	if got, want := config.Find("."), filepath.Join("..", config.Name); got != want {
		t.Errorf("Find = %q, want the link to nothing %q", got, want)
	}
}

const everything = `
db = "data/x.db"
workflows = ["flows/*.ts"]
[policy]
retry = { first = "1s", max = "1h", attempts = 7 }
reconcile = { inline = "2s", first = "3s", max = "4m", attempts = 8 }
wake = { min = "1m", max = "2d" }
default_interval = "1d12h"
on_item_blocked = "stop"
shutdown = "5s"
lease = { ttl = "20s" }
breaker = { failures = 3, within = "1h" }
[sandbox]
memory = "32MiB"
heap = "16 MiB"
stack = "128KiB"
cpu = "1s"
wall = "1m"
host_calls = 10
result = "10kB"
[connections.box]
connector = "files"
root = "in"
`

func TestEverySetting(t *testing.T) {
	cfg, err := load(t, everything)
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Default()
	p.Retry = policy.Backoff{First: time.Second, Max: time.Hour, Attempts: 7}
	p.Reconcile = policy.Reconcile{Inline: 2 * time.Second,
		Backoff: policy.Backoff{First: 3 * time.Second, Max: 4 * time.Minute, Attempts: 8}}
	p.Wake = policy.Window{Min: time.Minute, Max: 48 * time.Hour}
	p.DefaultInterval, p.Shutdown = 36*time.Hour, 5*time.Second
	p.Lease.TTL = 20 * time.Second
	p.Breaker = keep.Breaker{Failures: 3, Within: time.Hour}
	if diff := cmp.Diff(p, cfg.Policy); diff != "" {
		t.Errorf("policy: %s", diff)
	}
	if cfg.DB != filepath.Join(cfg.Dir, "data", "x.db") {
		t.Errorf("DB = %q, want it below %q", cfg.DB, cfg.Dir)
	}
	s := cfg.Sandbox
	if s.Memory != 32<<20 || s.Heap != 16<<20 || s.Stack != 128<<10 || s.CPU != time.Second || s.Wall != time.Minute ||
		s.HostCalls != 10 || s.Result != 10_000 {
		t.Errorf("sandbox = %+v", s)
	}
	conns, err := cfg.Connect()
	if err != nil || len(conns) != 1 || conns[0].Name != "box" {
		t.Errorf("Connect = %v, %v", conns, err)
	}
}

// Every setting has a variable, and the variable wins.
func TestEnvironmentWins(t *testing.T) {
	cfg, err := load(t, everything+`
[connections.crm]
connector = "http"
base_url = "http://localhost"
headers = { Authorization = "${env:TOKEN}" }
[connections.crm.tools.find]
effect = "list"
path = "/x"
[connections.crm.tools.make]
effect = "mutate"
path = "/x"
identity = ["id"]
`,
		"KEEP_DB=/abs/y.db", "KEEP_WORKFLOWS=a.js, b.js", "KEEP_POLICY_RETRY_FIRST=2s", "KEEP_POLICY_RETRY_ATTEMPTS=3",
		`KEEP_POLICY_WAKE={ min = "3m", max = "4m" }`, "KEEP_SANDBOX_MEMORY=48MiB",
		"KEEP_CONNECTIONS_CRM_TOOLS_FIND_PATH=/found", "KEEP_CONNECTIONS_CRM_TOOLS_MAKE_IDENTITY=id,kind",
		"KEEP_CONNECTIONS_CRM_TOOLS_MAKE_RECONCILE_PATH=/x/{token}", "KEEP_CONNECTIONS_CRM_TOOLS_MAKE_NOT_EXECUTED=503,[nothing",
		"KEEP_CONNECTIONS_CRM_HEADERS_AUTHORIZATION=Bearer ${env:TOKEN}", "TOKEN=t0ken", "KEEP_SANDBOX_HEAP=")
	if got, want := lines(err), "KEEP_CONNECTIONS_CRM_TOOLS_MAKE_NOT_EXECUTED: connections.crm.tools.make.not_executed[1]: want a whole number, not the string \"[nothing\""; got != want {
		t.Errorf("error\n got %s\nwant %s", got, want)
	}
	if cfg.DB != "/abs/y.db" || !cmp.Equal(cfg.Workflows, []string{"a.js", "b.js"}) {
		t.Errorf("DB, Workflows = %q, %q", cfg.DB, cfg.Workflows)
	}
	if p := cfg.Policy; p.Retry.First != 2*time.Second || p.Retry.Attempts != 3 || p.Retry.Max != time.Hour || p.Wake.Min != 3*time.Minute {
		t.Errorf("policy = %+v", p)
	}
	if cfg.Sandbox.Memory != 48<<20 || cfg.Sandbox.Heap != 16<<20 {
		t.Errorf("sandbox = %+v", cfg.Sandbox)
	}
	if len(cfg.Warnings) != 0 {
		t.Errorf("warnings = %v", cfg.Warnings)
	}
}

func TestVariableThatSetsNothingIsAWarning(t *testing.T) {
	cfg, err := load(t, "", "KEEP_POLICY_RETRI_FIRST=1s", "KEEP_CONNECTIONS_CRM_BASE_URL=x", "KEEP_SECRET_X=y", "KEEPER=1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range cfg.Warnings {
		names = append(names, w.File)
	}
	if want := []string{"KEEP_CONNECTIONS_CRM_BASE_URL", "KEEP_POLICY_RETRI_FIRST"}; !cmp.Equal(names, want) {
		t.Errorf("warnings about %v, want %v", names, want)
	}
}

// Each case is a keep.toml and every problem that must be found in it.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"notify": {"[notify]\nwebhook = { url = 'example.com', secret = 'hunter2' }\non_escalation = []\ntimeout = '0s'\nretry = { first = '1h', max = '1s' }\n",
			"keep.toml:2:13: notify.webhook.url: want https:// or http:// and a host\n" +
				"keep.toml:2:34: notify.webhook.secret: does not begin with whsec_: want whsec_ and the base64 of 24 to 64 random bytes, such as: echo whsec_$(openssl rand -base64 32)\n" +
				"keep.toml:3:1: notify.on_escalation: is empty; write a list such as [\"./tell.sh\", \"team\"]\n" +
				"keep.toml:4:1: notify.timeout: must be more than zero\n" +
				"keep.toml:5:1: notify.retry: want 0 < first <= max and attempts >= 0: first 1h0m0s, max 1s, attempts 20"},
		"hooks": {"[hooks.pay]\nworkflow = 'w'\ntopic = 't'\nverify = 'magic'\nsecret = 'x'\n" +
			"[hooks.std]\nworkflow = 'w'\nverify = 'standard-webhooks'\nsecret = ['x', 7]\ntolerance = '0s'\n" +
			"[hooks.tok]\nworkflow = 'w'\ntopic = 't'\nverify = 'token'\nsecret = 'x'\nids = '$.id'\n",
			"keep.toml:16:1: hooks.tok.ids: unknown key (did you mean id?)"},
		"hook": {"[hooks.pay]\nworkflow = 'w'\ntopic = 't'\nverify = 'magic'\nsecret = 'x'\n" +
			"[hooks.std]\nworkflow = 'w'\nverify = 'standard-webhooks'\nsecret = ['x', 7]\ntolerance = '0s'\n" +
			"[hooks.tok]\nworkflow = 'w'\ntopic = 't'\nverify = 'token'\nsecret = 'x'\n[hooks.\"a/b\"]\n",
			"keep.toml:4:1: hooks.pay.verify: \"magic\" is none of standard-webhooks, github, stripe, slack, token\n" +
				"keep.toml:6:8: hooks.std.topic: is missing; it is the topic that gets the events\n" +
				"keep.toml:9:1: hooks.std.secret: want a text such as \"${secret:hook}\", or a list of two while it is replaced, not 7\n" +
				"keep.toml:10:1: hooks.std.tolerance: must be more than zero\n" +
				"keep.toml:11:8: hooks.tok.id: is missing; say where a delivery has its id: \"$.id\", \"header:NAME\" or \"body\"\n" +
				"keep.toml:16:8: hooks.\"a/b\": \"a/b\" is no name of a hook: want letters, digits, - and _, at most 64"},
		"notify without": {"[notify]\n[notify.webhook]\nurll = 'x'\n",
			"keep.toml:3:1: notify.webhook.urll: unknown key (did you mean url?)"},
		"notify nobody": {"[notify.webhook]\n",
			"keep.toml:1:9: notify.webhook.secret: is missing; write \"${secret:webhook}\", and put whsec_ and the base64 of 32 random bytes into .secrets/webhook\n" +
				"keep.toml:1:9: notify.webhook.url: is missing; it is where questions are sent to"},
		"syntax": {"db = \n", "keep.toml:1:6: "},
		"twice":  {"db = 'a'\ndb = 'b'\n", "keep.toml:2:"},
		"unknown keys": {"dbb = 'a'\n[polisy]\n[policy.retry]\nmaxx = '1s'\n",
			"keep.toml:1:1: dbb: unknown key (did you mean db?)\n" +
				"keep.toml:2:2: polisy: unknown key (did you mean policy?)\n" +
				"keep.toml:4:1: policy.retry.maxx: unknown key (did you mean max?)"},
		"proxy": {"[proxy]\nupstream = 'x'\nlease = 'soon'\n[[proxy.routes]]\nmethod = ['POST']\n",
			"keep.toml:3:1: proxy.lease: \"soon\" is not a duration such as \"30s\", \"5m\" or \"7d\"\n" +
				"keep.toml:5:1: proxy.routes[0].method: unknown key (did you mean methods?)"},
		"types": {"db = 5\nworkflows = 'x'\npolicy = 1\n[sandbox]\ncpu = 5\nhost_calls = '1'\nmemory = '5 bananas'\n",
			"keep.toml:1:1: db: want a string, not 5\n" +
				"keep.toml:2:1: workflows: want a list, not the string \"x\"\n" +
				"keep.toml:3:1: policy: want a table, not 1\n" +
				"keep.toml:5:1: sandbox.cpu: want a duration such as \"10s\", \"5m\", \"1h\" or \"1d\", not 5\n" +
				"keep.toml:6:1: sandbox.host_calls: want a whole number, not the string \"1\"\n" +
				"keep.toml:7:1: sandbox.memory: \"5 bananas\" is not a size such as \"64MiB\", \"256KiB\" or \"512B\""},
		"values": {"db = ''\nworkflows = ['../x', '[']\n[policy]\nretry = { first = '0s' }\n[sandbox]\nstack = '1MiB'\ncpu = '0s'\n",
			"keep.toml:1:1: db: is empty; name a file, such as \"keep.db\"\n" +
				"keep.toml:2:1: workflows[0]: \"../x\" is not a pattern of files in this directory, such as \"*.js\" or \"flows/*.ts\"\n" +
				"keep.toml:2:1: workflows[1]: \"[\" is not a pattern of files in this directory, such as \"*.js\" or \"flows/*.ts\"\n" +
				"keep.toml:4:1: policy.retry: want 0 < first <= max: first 0s, max 10m0s\n" +
				"keep.toml:6:1: sandbox.stack: is more than the 512KiB that the sandbox has\n" +
				"keep.toml:7:1: sandbox.cpu: must be more than zero"},
		"breaker": {"[policy]\nbreaker = { failures = 5, within = '0s' }\n", "keep.toml:2:1: policy.breaker: within must be positive: 0s"},
		"connections": {"[connections.a-b]\nconnector = 'http'\n[connections.kv]\nconnector = 'http'\n[connections.c]\n[connections.d]\nconnector = 'htp'\n[connections.e]\nconnector = 'files'\nroot = 1\nfoo = 2\n",
			"keep.toml:1:14: connections.a-b: scripts could not say ctx.a-b: use letters, digits and underscores, starting with a letter\n" +
				"keep.toml:3:14: connections.kv: ctx.kv is Keep's own; call the connection something else\n" +
				"keep.toml:5:14: connections.c.connector: is missing; it is one of files, http, log, mail, mcp, s3, sql, or the name of a pack (keep packs)\n" +
				"keep.toml:7:1: connections.d.connector: is the string \"htp\", want one of files, http, log, mail, mcp, s3, sql, or the name of a pack (keep packs) (did you mean http?)\n" +
				"keep.toml:10:1: connections.e.root: want a string, not 1\n" +
				"keep.toml:11:1: connections.e.foo: unknown key (did you mean root?)"},
		"references": {"db = '${file:x}'\nworkflows = ['${secret:../x}', '${env:A']\n",
			"keep.toml:1:1: db: ${file:x} is neither ${env:NAME} nor ${secret:name}; a plain ${ is written $${\n" +
				"keep.toml:2:1: workflows[0]: ${secret:../x} is neither ${env:NAME} nor ${secret:name}; a plain ${ is written $${\n" +
				"keep.toml:2:1: workflows[1]: ${env:A has no closing brace; a plain ${ is written $${"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.text)
			got := lines(err)
			if strings.HasSuffix(c.want, ": ") || strings.HasSuffix(c.want, ":") {
				if !strings.HasPrefix(got, c.want) {
					t.Errorf("got %s\nwant %s…", got, c.want)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a connector objects to has the line of its key.
func TestConnectNamesLines(t *testing.T) {
	cfg, err := load(t, `
[connections.crm]
connector = "http"
base_url = "ftp://x"
[connections.crm.tools.make]
effect = "mutate"
path = "no"
[connections.box]
connector = "files"
`)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cfg.Connect()
	got := lines(err)
	for _, want := range []string{"keep.toml:4:1: connections.crm.base_url: ", "keep.toml:7:1: connections.crm.tools.make.path: ",
		"keep.toml:5:24: connections.crm.tools.make.identity: ", "keep.toml:8:14: connections.box.root: "} {
		if !strings.Contains(got, want) {
			t.Errorf("Connect: no %q in\n%s", want, got)
		}
	}
}

const secretive = `
[connections.crm]
connector = "http"
base_url = "http://localhost"
headers = { Authorization = "Bearer ${secret:api-key}", X = "$${x}" }
[connections.crm.tools.find]
effect = "list"
path = "/x"
`

func TestSecretIsFoundInThreePlaces(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, config.Name), secretive, 0o600)
	missing := func(environ ...string) string {
		t.Helper()
		cfg, err := config.Load(config.Options{Dir: dir, Environ: append([]string{}, environ...)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cfg.Connect()
		return lines(err)
	}
	got := missing()
	for _, want := range []string{"keep.toml:5:13: connections.crm.headers.Authorization: ${secret:api-key} is not set",
		"KEEP_SECRET_API_KEY", "$CREDENTIALS_DIRECTORY/api-key", filepath.Join(".secrets", "api-key")} {
		if !strings.Contains(got, want) {
			t.Errorf("missing secret: no %q in %s", want, got)
		}
	}
	if got := missing("KEEP_SECRET_API_KEY=x"); got != "" {
		t.Errorf("with a variable: %s", got)
	}
	creds := t.TempDir()
	write(t, filepath.Join(creds, "api-key"), "x\n", 0o644)
	if got := missing("CREDENTIALS_DIRECTORY=" + creds); got != "" {
		t.Errorf("with a credential: %s", got)
	}
	write(t, filepath.Join(dir, ".secrets", "api-key"), "x\r\n", 0o600)
	if got := missing(); got != "" {
		t.Errorf("with a file: %s", got)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(filepath.Join(dir, ".secrets", "api-key"), 0o640); err != nil {
		t.Fatal(err)
	}
	if got := missing(); !strings.Contains(got, "can be read by others (mode 0640); run: chmod 600") {
		t.Errorf("with a file that others can read: %s", got)
	}
}

// A variable whose name would be that of two secrets is none of them: one would be sent where the other belongs.
func TestVariableOfTwoSecrets(t *testing.T) {
	dir := t.TempDir()
	two := strings.Replace(secretive, `X = "$${x}"`, `Y = "${secret:api_key}", Z = "${secret:api-key}"`, 1)
	write(t, filepath.Join(dir, config.Name), two, 0o600)
	write(t, filepath.Join(dir, ".secrets", "api_key"), "other", 0o600)
	for _, c := range []struct {
		environ []string
		want    string
	}{
		{[]string{"KEEP_SECRET_API_KEY=x"}, "the variable KEEP_SECRET_API_KEY would be the secret api-key, and the secret api_key, too"},
		{[]string{}, "${secret:api-key} is not set"},
	} {
		cfg, err := config.Load(config.Options{Dir: dir, Environ: c.environ})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = cfg.Connect(); !strings.Contains(lines(err), c.want) {
			t.Errorf("with %v: %s, want %s", c.environ, lines(err), c.want)
		}
	}
}

// A secret that ends up in the wrong place is never quoted.
func TestSecretIsNeverShown(t *testing.T) {
	for _, text := range []string{
		"db = 1\n[policy]\nshutdown = '${secret:s}'\n",
		"[connections.a]\nconnector = '${secret:s}'\n",
		"[connections.a]\nconnector = 'http'\nbase_url = '${secret:s}'\n[connections.a.tools.t]\neffect = '${secret:s}'\nmethod = '${secret:s}'\npath = '${secret:s}'\nquery = ['${secret:s}']\n",
		"workflows = ['../${secret:s}']\n",
		"[policy]\non_item_blocked = '${secret:s}'\n",
		"[connections.a]\nconnector = 'sql'\nurl = '${secret:s}'\ntables = ['${secret:s}']\nledger_table = '${secret:s}'\n",
	} {
		cfg, err := load(t, text, "KEEP_SECRET_S=sw0rd\"fish")
		all := lines(err)
		if cfg != nil {
			_, err := cfg.Connect()
			all += lines(err)
		}
		if all == "" {
			t.Errorf("%s: no error", text)
		}
		if strings.Contains(all, "sw0rd") {
			t.Errorf("%s: shown in %s", text, all)
		}
	}
}

// What stands under a name of secrets is hidden in what an MCP server says, also if a variable has it itself, or the file.
func TestPlainSecretIsHidden(t *testing.T) {
	for name, text := range map[string]string{
		"gateway":     "[gateway.servers.svc]\nurl = '%s'\nheaders = { X-Api-Key = '%s', X-Trace = 'all-of-it' }\n",
		"connections": "[connections.svc]\nconnector = 'mcp'\nurl = '%s'\nheaders = { X-Api-Key = '%s', X-Trace = 'all-of-it' }\n[connections.svc.tools.t]\neffect = 'list'\n",
	} {
		for _, of := range []string{"the file", "a variable"} {
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no user has %s, %s"}}`, r.Header.Get("X-Api-Key"), r.Header.Get("X-Trace"))
			}))
			t.Cleanup(service.Close)
			value, environ := "sw0rdfish", []string{}
			if of == "a variable" {
				value, environ = "x", []string{"KEEP_" + strings.ToUpper(name) + "_SERVERS_SVC_HEADERS_X_API_KEY=sw0rdfish", "KEEP_CONNECTIONS_SVC_HEADERS_X_API_KEY=sw0rdfish"}
			}
			cfg, err := load(t, fmt.Sprintf(text, service.URL, value), environ...)
			if err != nil {
				t.Fatal(err)
			}
			at, _, err := cfg.MCPServer("svc")
			if err != nil {
				t.Fatal(err)
			}
			if name == "connections" {
				_, err = openedOf(t, cfg).Read(t.Context(), json.RawMessage(`{}`))
			} else {
				server := mcp.NewServer(at)
				_, err = server.Info(t.Context())
				_ = server.Close()
			}
			if err == nil || strings.Contains(err.Error(), "sw0rdfish") || !strings.Contains(err.Error(), "all-of-it") {
				t.Errorf("%s, in %s: %v; want the key hidden, and nothing else", name, of, err)
			}
		}
	}
}

// openedOf returns the only tool of the only connection.
func openedOf(t *testing.T, cfg *config.Config) connector.Reader {
	t.Helper()
	conns, err := cfg.Connect()
	if err != nil {
		t.Fatal(err)
	}
	return conns[0].Tools[0].(connector.Reader)
}

func TestPlainSecretIsAWarning(t *testing.T) {
	cfg, err := load(t, strings.ReplaceAll(secretive, "${secret:api-key}", "abc"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Warnings) != 1 || cfg.Warnings[0].Path != "connections.crm.headers.Authorization" || cfg.Warnings[0].Line != 5 {
		t.Errorf("warnings = %v", cfg.Warnings)
	}
}

// A credential that leaves this machine without TLS can be read on the way. That of an account is refused, as a pack refuses it; a secret of keep.toml,
// which may go to a service within a closed network, is warned of.
func TestCredentialWithoutTLS(t *testing.T) {
	const tool = "\n[connections.crm.tools.get]\neffect = \"get\"\npath = \"/x\"\n"
	for text, want := range map[string]string{
		"[connections.crm]\nconnector = \"http\"\nbase_url = \"http://crm.example.com\"\nheaders = { X-Key = \"${env:CRM_KEY}\" }" + tool:                                  "crm.base_url: the header X-Key can be read on the way",
		"[connections.crm]\nconnector = \"http\"\nbase_url = \"http://crm.example.com\"\nheaders = { Authorization = \"Bearer ${account:crm}\" }" + tool:                   "crm.base_url: a credential is sent over https only",
		"[connections.crm]\nconnector = \"http\"\nbase_url = \"http://127.0.0.1:9\"\nheaders = { Authorization = \"Bearer ${account:crm}\" }" + tool:                       "",
		"[connections.crm]\nconnector = \"http\"\nbase_url = \"http://localhost:9\"\nheaders = { X-Key = \"${env:CRM_KEY}\" }" + tool:                                      "",
		"[connections.crm]\nconnector = \"http\"\nbase_url = \"https://crm.example.com\"\nheaders = { X-Key = \"${env:CRM_KEY}\" }" + tool:                                 "",
		"[connections.crm]\nconnector = \"http\"\nbase_url = \"http://crm.example.com\"\nheaders = { Accept = \"text/csv\" }" + tool:                                       "",
		"[gateway.servers.up]\nurl = \"http://up.example.com/mcp\"\nheaders = { Authorization = \"Bearer ${env:CRM_KEY}\" }":                                               "up.url: the header Authorization can be read on the way",
		"[gateway.servers.up]\nurl = \"http://localhost:9/mcp\"\nheaders = { Authorization = \"Bearer ${env:CRM_KEY}\" }":                                                  "",
		"[connections.up]\nconnector = \"mcp\"\nurl = \"http://up.example.com/mcp\"\nheaders = { X-Key = \"${env:CRM_KEY}\" }\n[connections.up.tools.a]\neffect = \"get\"": "up.url: the header X-Key can be read on the way",
	} {
		cfg, err := load(t, text, "CRM_KEY=canary-4711")
		said := ""
		if err != nil {
			said = err.Error()
		} else {
			for _, w := range cfg.Warnings {
				said += w.String() + "\n"
			}
		}
		if want == "" && (err != nil || said != "") || !strings.Contains(said, want) || strings.Contains(said, "canary-4711") {
			t.Errorf("%s\n%q; want %q", text, said, want)
		}
	}
}

// Codes, secrets and tokens go to the addresses of an OAuth service: what anybody on the way can read is none of them, in keep.toml or in a pack.
func TestOAuthWithoutTLS(t *testing.T) {
	for _, key := range []string{"authorize_url", "token_url", "device_url", "revoke_url"} {
		for address, want := range map[string]string{
			"http://sso.example.com/x": "by https only", "http://10.0.0.7/x": "by https only", "ftp://sso.example.com": "is no address", "sso.example.com/x": "is no address",
			"https://user:pw@sso.example.com/x": "holds a user", "https://sso.example.com/x": "", "http://127.0.0.1:9/x": "", "http://localhost/x": "",
		} {
			_, err := load(t, "[packs.gmail]\nclient_id = \"me\"\n"+key+" = \""+address+"\"\n")
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "keep.toml:3:1: packs.gmail."+key+": ") || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s = %q: %v; want %q", key, address, err, want)
			}
			problems := problemsOf(t, strings.Replace(goodPack, `style = "bearer"`, "style = \"bearer\"\n"+key+" = \""+address+"\"", 1))
			if said := lines(errors.New(fmt.Sprint(problems))); want == "" && len(problems) > 0 || want != "" && (!strings.Contains(said, "auth."+key) || !strings.Contains(said, want)) {
				t.Errorf("of a pack, %s = %q: %v; want %q", key, address, problems, want)
			}
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"10s": 10 * time.Second, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "0s": 0} {
		if got, err := config.ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "d", "-1s", "1d-1s", "999999d", "1 day"} {
		if got, err := config.ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		}
	}
}

// Nothing panics, and a configuration that is accepted can be connected or says
// why not.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{"", everything, secretive, "[[a.b]]\nx=1\n[a.b.c]\n[[a.b]]", "a.b.c = {d = [{e = 1}]}", "\"a b\".c = 1", "[connections.\"\"]"} {
		f.Add(s, "KEEP_DB", "x")
	}
	f.Add("[connections.crm]\nconnector='http'", "KEEP_CONNECTIONS_CRM_TOOLS", "{x={effect='list'}}")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text, name, value string) {
		file := filepath.Join(dir, config.Name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{File: file, Environ: []string{name + "=" + value}})
		if cfg == nil {
			t.Skip(err)
		}
		conns, err := cfg.Connect()
		if err != nil && err.Error() == "" {
			t.Error("an error without a message")
		}
		for _, c := range conns {
			if c.Close != nil {
				c.Close()
			}
		}
	})
}
