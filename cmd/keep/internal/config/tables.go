package config

import (
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/law/repeat"
	"github.com/keep-run/keep/script/sandbox"
)

// The tables are keep.toml as it is written; Config is what it means.
type (
	tables struct {
		DB          string                 `toml:"db"`          // file of the database, or a postgres:// URL
		Workflows   []string               `toml:"workflows"`   // patterns of the scripts, relative to keep.toml
		Policy      policyTable            `toml:"policy"`      // numbers that the host enforces
		Sandbox     sandboxTable           `toml:"sandbox"`     // limits of scripts
		Notify      notifyTable            `toml:"notify"`      // how people hear of questions
		Retention   retentionTable         `toml:"retention"`   // when what is finished is removed
		Trace       traceTable             `toml:"trace"`       // what is kept of the reads of runs
		Connections map[string]*node       `toml:"connections"` // the services that scripts call, by the name that ctx has for them
		Hooks       map[string]hookTable   `toml:"hooks"`       // deliveries of services that become events
		Grants      map[string]grantTable  `toml:"grants"`      // what a workflow may call
		Budgets     map[string]budgetTable `toml:"budgets"`     // how much may be done within a time
		LLMs        map[string]llmTable    `toml:"llm"`         // services of language models, by name
		Write       writeTable             `toml:"write"`       // who writes workflows: keep write and keep edit
		Gateway     gatewayTable           `toml:"gateway"`     // calls of agents, and the MCP servers behind them
		Repair      repairTable            `toml:"repair"`      // who mends scripts that fail
		Proxy       proxy.Config           `toml:"proxy"`       // checked by proxy.New
		Server      Server                 `toml:"server"`      // where the API and the pages are
		Accounts    accountsTable          `toml:"accounts"`    // where the key of sealed credentials is
		Packs       map[string]PackClient  `toml:"packs"`       // own OAuth clients, by pack
	}

	retentionTable struct {
		After     time.Duration                       `toml:"after"`     // how long after its end a thing is kept; zero: always
		Workflows map[keep.WorkflowName]time.Duration `toml:"workflows"` // the same, by workflow
		Empty     time.Duration                       `toml:"empty"`     // how long runs are kept that found nothing to do; zero: as long as the others
	}

	traceTable struct {
		Keep  time.Duration `toml:"keep"`  // for how long reads are kept; "0s": none is recorded
		Limit size          `toml:"limit"` // of what one run may keep
	}

	policyTable struct {
		Retry           backoffTable   `toml:"retry"`            // after a failure that may pass
		Reconcile       reconcileTable `toml:"reconcile"`        // asking a service what became of a call
		Wake            windowTable    `toml:"wake"`             // bounds of wakeAt
		DefaultInterval time.Duration  `toml:"default_interval"` // of producers and jobs without a schedule
		OnItemBlocked   string         `toml:"on_item_blocked"`  // whether a job continues with other items beside one in doubt
		Shutdown        time.Duration  `toml:"shutdown"`         // how long a stop waits for runs
		Lease           leaseTable     `toml:"lease"`            // of workflows, where several hosts work on one database
		Outage          outageTable    `toml:"outage"`           // when a service counts as down
		Approval        approvalTable  `toml:"approval"`         // of calls by people
		Breaker         breakerTable   `toml:"breaker"`          // stops a tool that fails too often
	}

	approvalTable struct {
		Expires time.Duration `toml:"expires"` // how long a question waits, and an approval may be used
	}

	breakerTable struct {
		Failures int           `toml:"failures"` // of one tool that stop it; zero: never
		Within   time.Duration `toml:"within"`   // how close together they are
	}

	outageTable struct {
		After int `toml:"after"` // calls of a connection that fail in a row; zero: it never does
	}

	leaseTable struct {
		TTL time.Duration `toml:"ttl"` // how long the workflows of a host that died are left alone
	}

	backoffTable struct {
		First    time.Duration `toml:"first"`    // wait before the second attempt; it doubles
		Max      time.Duration `toml:"max"`      // longest wait
		Attempts int           `toml:"attempts"` // after the first one
	}

	reconcileTable struct {
		Inline   time.Duration `toml:"inline"`   // how long a run waits for the answer itself
		First    time.Duration `toml:"first"`    // wait before the second lookup; it doubles
		Max      time.Duration `toml:"max"`      // longest wait
		Attempts int           `toml:"attempts"` // in all; then a person is asked
	}

	windowTable struct {
		Min time.Duration `toml:"min"` // soonest
		Max time.Duration `toml:"max"` // latest
	}

	sandboxTable struct {
		Memory    size          `toml:"memory"`     // of one script in all; empty: 64MiB
		Heap      size          `toml:"heap"`       // of its objects; empty: 32MiB
		Stack     size          `toml:"stack"`      // of its calls; empty: 256KiB, and at most 512KiB
		CPU       time.Duration `toml:"cpu"`        // computing time of one phase, or of one item; empty: 5s
		Wall      time.Duration `toml:"wall"`       // time of one phase or item, with waiting for services; empty: 5m
		HostCalls int           `toml:"host_calls"` // calls of services in one phase or item; empty: 1000
		Result    size          `toml:"result"`     // of one phase, and of the arguments of one call; empty: 1MiB
	}
)

// defaults returns the tables as they are when nothing is configured.
//
// keep.toml and the environment are bound over them, so a key that is left out keeps its value, and the
// schema can show it.
func defaults() tables {
	p, told, again := policy.Default(), notify.DefaultRetry(), repeat.DefaultRules()
	return tables{
		Write:     writeTable{Questions: maxWriteQuestions, Attempts: 3, Tokens: 200_000, Time: 10 * time.Minute},
		Notify:    notifyTable{Retry: backoffTable{told.First, told.Max, told.Attempts}, Timeout: notify.DefaultTimeout},
		Retention: retentionTable{Empty: 7 * 24 * time.Hour},
		Trace:     traceTable{Keep: 7 * 24 * time.Hour, Limit: size(p.Limits.Trace)},
		DB:        "keep.db",
		Gateway: gatewayTable{Repeat: string(again.Repeat), RepeatWindow: again.Window, Rejoin: again.Rejoin,
			MessageLimit: mcp.DefaultMessageLimit, ResultLimit: mcp.DefaultResultLimit},
		Repair:    repairTable{Attempts: 3, Tokens: 200_000, Activate: string(repair.Ask), PerDay: 10, Replay: 7 * 24 * time.Hour},
		Workflows: []string{"*.js", "*.ts"},
		Policy: policyTable{
			Retry:           backoffTable{p.Retry.First, p.Retry.Max, p.Retry.Attempts},
			Reconcile:       reconcileTable{p.Reconcile.Inline, p.Reconcile.First, p.Reconcile.Max, p.Reconcile.Attempts},
			Wake:            windowTable{p.Wake.Min, p.Wake.Max},
			DefaultInterval: p.DefaultInterval,
			OnItemBlocked:   string(p.OnItemBlocked),
			Shutdown:        p.Shutdown,
			Lease:           leaseTable{p.Lease.TTL},
			Outage:          outageTable{p.Outage.After},
			Approval:        approvalTable{p.Approval.Expires},
			Breaker:         breakerTable{p.Breaker.Failures, p.Breaker.Within},
		},
	}
}

// policy returns the policy that the table describes.
func (t policyTable) policy() policy.Policy {
	p := policy.Default() // its Limits are not configurable
	p.Retry = policy.Backoff{First: t.Retry.First, Max: t.Retry.Max, Attempts: t.Retry.Attempts}
	p.Reconcile = policy.Reconcile{Inline: t.Reconcile.Inline,
		Backoff: policy.Backoff{First: t.Reconcile.First, Max: t.Reconcile.Max, Attempts: t.Reconcile.Attempts}}
	p.Wake = policy.Window{Min: t.Wake.Min, Max: t.Wake.Max}
	p.DefaultInterval = t.DefaultInterval
	p.OnItemBlocked = policy.OnItemBlocked(t.OnItemBlocked)
	p.Shutdown = t.Shutdown
	p.Lease = policy.Lease{TTL: t.Lease.TTL}
	p.Outage = policy.Outage{After: t.Outage.After}
	p.Approval = policy.Approval{Expires: t.Approval.Expires}
	p.Breaker = keep.Breaker{Failures: t.Breaker.Failures, Within: t.Breaker.Within}
	return p
}

// limits returns the limits of the table. Zero fields are the sandbox's defaults.
func (t sandboxTable) limits() sandbox.Limits {
	return sandbox.Limits{
		Memory: int(t.Memory), Heap: int(t.Heap), Stack: int(t.Stack),
		CPU: t.CPU, Wall: t.Wall, HostCalls: t.HostCalls, Result: int(t.Result),
	}
}

// maxStack is what the sandbox's module has room for.
const maxStack = 512 << 10

// maxTrace bounds what a run keeps in memory of what it saw.
const maxTrace = 16 << 20

// retention returns what the table means.
func (t retentionTable) retention() policy.Retention {
	return policy.Retention{After: t.After, Workflows: t.Workflows, Empty: t.Empty}
}

// times returns for how long traces are kept, and how large one may be. With keep = "0s"
// none is, and those of before go.
func (t traceTable) times() (time.Duration, int) {
	if t.Keep == 0 {
		return 1, 0
	}
	return t.Keep, int(t.Limit)
}

// check adds what is wrong with values that fit their types.
//
// Policies say themselves what they must be; here their errors get a line. The limits of the sandbox are
// checked here, too, or they would be refused only when a host starts.
func (b *binder) check(t *tables, root *node) {
	find := func(section, key string) (*node, string) {
		return root.table()[section].table()[key], section + "." + key
	}
	if err := t.Policy.policy().Validate(); err != nil {
		section, message, _ := strings.Cut(strings.TrimPrefix(err.Error(), "policy."), " ")
		key := strings.TrimSuffix(section, ":")
		n, at := find("policy", key)
		b.addf(n, at, "%s", message)
	}
	for key, v := range map[string]int64{
		"memory": int64(t.Sandbox.Memory), "heap": int64(t.Sandbox.Heap), "stack": int64(t.Sandbox.Stack),
		"cpu": int64(t.Sandbox.CPU), "wall": int64(t.Sandbox.Wall), "host_calls": int64(t.Sandbox.HostCalls),
		"result": int64(t.Sandbox.Result),
	} {
		n, at := find("sandbox", key)
		switch {
		case n == nil:
		case v <= 0:
			b.addf(n, at, "must be more than zero")
		case key == "stack" && v > maxStack:
			b.addf(n, at, "is more than the 512KiB that the sandbox has")
		case key == "heap" && t.Sandbox.Memory > 0 && v > int64(t.Sandbox.Memory):
			b.addf(n, at, "is more than sandbox.memory")
		}
	}
	if err := t.Retention.retention().Validate(); err != nil {
		b.addf(root.table()["retention"], "retention", "%s", strings.TrimPrefix(err.Error(), "retention: "))
	}
	switch n, at := find("accounts", "keychain"); {
	case t.Accounts.Keychain == "":
	case !AccountName(t.Accounts.Keychain):
		b.addf(n, at, "%q is no name: use letters, digits, dots, dashes and underscores", t.Accounts.Keychain)
	case t.Accounts.Key != "":
		b.addf(n, at, "the key is in a file or in the keychain, and accounts.key names a file")
	}
	if n, at := find("server", "url"); t.Server.URL != "" && !isSite(t.Server.URL) {
		b.addf(n, at, `must be https:// or http:// and a host, such as "https://keep.example.com"`)
	}
	if n, at := find("server", "hosts"); slices.ContainsFunc(t.Server.Hosts, func(h string) bool { return h == "" || strings.ContainsAny(h, "/ \t\r\n") }) {
		b.addf(n, at, `must be names of hosts, such as "keep.example.com"`)
	}
	if t.Policy.Shutdown < 0 {
		n, at := find("policy", "shutdown")
		b.addf(n, at, "must not be negative")
	}
	b.checkTrace(t.Trace, root.table()["trace"])
	n := root.table()["workflows"]
	for i, g := range t.Workflows {
		if _, err := path.Match(g, ""); err != nil || g == "" || path.IsAbs(g) || strings.Contains(g, "..") {
			b.addf(n, "workflows"+element(i), "%q is not a pattern of files in this directory, such as \"*.js\" or \"flows/*.ts\"", g)
		}
	}
	if t.DB == "" {
		b.addf(root.table()["db"], "db", "is empty; name a file, such as \"keep.db\"")
	}
}

// checkTrace adds what is wrong with how reads are to be recorded.
func (b *binder) checkTrace(t traceTable, n *node) {
	if t.Keep < 0 {
		b.addf(n.table()["keep"], "trace.keep", "must not be negative; \"0s\" records nothing")
	}
	if given := n.table()["limit"]; given != nil && (t.Limit < 1<<10 || t.Limit > maxTrace) {
		b.addf(given, "trace.limit", "must be from 1KiB to 16MiB")
	}
}

var tablesType = reflect.TypeFor[tables]()
