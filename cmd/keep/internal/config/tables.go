package config

import (
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
)

// The tables are keep.toml as it is written; Config is what it means.
type (
	tables struct {
		DB          string                `toml:"db"`
		Workflows   []string              `toml:"workflows"`
		Policy      policyTable           `toml:"policy"`
		Sandbox     sandboxTable          `toml:"sandbox"`
		Notify      notifyTable           `toml:"notify"`
		Retention   retentionTable        `toml:"retention"`
		Connections map[string]*node      `toml:"connections"` // bound by kind
		Hooks       map[string]hookTable  `toml:"hooks"`
		Grants      map[string]grantTable `toml:"grants"`
		Proxy       proxy.Config          `toml:"proxy"` // checked by proxy.New
		Server      Server                `toml:"server"`
		Accounts    accountsTable         `toml:"accounts"`
		Packs       map[string]PackClient `toml:"packs"`
	}

	retentionTable struct {
		After     time.Duration                       `toml:"after"`
		Workflows map[keep.WorkflowName]time.Duration `toml:"workflows"`
	}

	policyTable struct {
		Retry           backoffTable   `toml:"retry"`
		Reconcile       reconcileTable `toml:"reconcile"`
		Wake            windowTable    `toml:"wake"`
		DefaultInterval time.Duration  `toml:"default_interval"`
		OnItemBlocked   string         `toml:"on_item_blocked"`
		Shutdown        time.Duration  `toml:"shutdown"`
		Lease           leaseTable     `toml:"lease"`
		Outage          outageTable    `toml:"outage"`
	}

	outageTable struct {
		After int `toml:"after"`
	}

	leaseTable struct {
		TTL time.Duration `toml:"ttl"`
	}

	backoffTable struct {
		First    time.Duration `toml:"first"`
		Max      time.Duration `toml:"max"`
		Attempts int           `toml:"attempts"`
	}

	reconcileTable struct {
		Inline   time.Duration `toml:"inline"`
		First    time.Duration `toml:"first"`
		Max      time.Duration `toml:"max"`
		Attempts int           `toml:"attempts"`
	}

	windowTable struct {
		Min time.Duration `toml:"min"`
		Max time.Duration `toml:"max"`
	}

	sandboxTable struct {
		Memory    size          `toml:"memory"`
		Heap      size          `toml:"heap"`
		Stack     size          `toml:"stack"`
		CPU       time.Duration `toml:"cpu"`
		Wall      time.Duration `toml:"wall"`
		HostCalls int           `toml:"host_calls"`
		Result    size          `toml:"result"`
	}
)

// defaults returns the tables as they are when nothing is configured.
func defaults() tables {
	p, told := policy.Default(), notify.DefaultRetry()
	return tables{
		Notify:    notifyTable{Retry: backoffTable{told.First, told.Max, told.Attempts}, Timeout: notify.DefaultTimeout},
		DB:        "keep.db",
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

// retention returns what the table means.
func (t retentionTable) retention() policy.Retention {
	return policy.Retention{After: t.After, Workflows: t.Workflows}
}

// check adds what is wrong with values that fit their types.
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
	if t.Policy.Shutdown < 0 {
		n, at := find("policy", "shutdown")
		b.addf(n, at, "must not be negative")
	}
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

var tablesType = reflect.TypeFor[tables]()
