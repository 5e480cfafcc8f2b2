package httpapi

import (
	"encoding/json"
	"time"

	"github.com/keep-run/keep/connector"
)

// Kind is what configuration calls this connector.
const Kind = "http"

// Defaults of a tool that doesn't say.
const (
	DefaultSettle   = 5 * time.Second // settle_after of a lookup
	DefaultKeyLasts = 24 * time.Hour  // deduplicates_for
	maxTimeout      = time.Hour
)

// A Config is one connection of keep.toml. Header values are resolved secrets.
type Config struct {
	Connector string            `toml:"connector"` // Kind, or empty
	BaseURL   string            `toml:"base_url"`  // http or https, without query
	Headers   map[string]string `toml:"headers"`   // sent with each request
	Tools     map[string]Tool   `toml:"tools"`     // by name; at least one
}

// A Tool is one callable operation of the API.
type Tool struct {
	Effect      connector.Effect `toml:"effect"`      // list, get or mutate
	Description string           `toml:"description"` // for people and LLMs

	// Method is the HTTP method. If empty, GET, or POST for a mutate tool.
	Method string `toml:"method"`

	// Path begins with / and is put after base_url. {param} is taken from the
	// params and escaped.
	Path string `toml:"path"`

	// Query lists params that go into the query, as "name" or as
	// "name={param}". Those that are in neither path nor query are the body.
	Query []string `toml:"query"`

	// Timeout ends a call. Zero: connector.DefaultTimeout.
	Timeout connector.Duration `toml:"timeout"`

	// NullOn lists statuses of a read that mean "there is none": the result
	// is null. Empty: they are failures.
	NullOn []int `toml:"null_on"`

	// Params and Result are JSON Schemas. Without Params a schema is made of
	// what path, query and identity need.
	Params map[string]any `toml:"params"`
	Result map[string]any `toml:"result"`

	// The rest is for mutate tools.

	// Identity lists the params that say what is changed. The rest is payload.
	Identity []string `toml:"identity"`

	// SettleAfter is how long after its deadline a call may still take effect.
	// Nil: DefaultSettle if the tool has a lookup.
	SettleAfter *connector.Duration `toml:"settle_after"`

	// IdempotencyHeader names the header for the host's token. Empty: not sent.
	IdempotencyHeader string `toml:"idempotency_header"`

	// Deduplicates says that the service honours the header, for
	// DeduplicatesFor. Zero: DefaultKeyLasts.
	Deduplicates    bool               `toml:"deduplicates"`
	DeduplicatesFor connector.Duration `toml:"deduplicates_for"`

	// NotExecuted lists statuses by which the service promises that nothing
	// happened.
	NotExecuted []int `toml:"not_executed"`

	// PayloadIgnore lists payload params whose differences are minor.
	PayloadIgnore []string `toml:"payload_ignore"`

	// Approve is "always" if a person must agree before each call.
	Approve string `toml:"approve"`

	// VerifyByHand tells a person where to look when nobody can know.
	VerifyByHand string `toml:"verify_by_hand"`

	// Reconcile is the lookup after doubt. Nil: there is none.
	Reconcile *Reconcile `toml:"reconcile"`
}

// A Reconcile is a request that tells whether a mutation happened. Its
// templates take {param} and {token}.
type Reconcile struct {
	Method string `toml:"method"` // GET, HEAD or POST; empty: GET
	Path   string `toml:"path"`   // may end in ?key=template&…

	// Query is a list of "name" and "name=template", or a table of templates.
	Query any `toml:"query"`

	// Applied and Failed are statuses: it happened, it isn't there. Any other
	// answers nothing. Empty: 200 and 404.
	Applied []int `toml:"applied"`
	Failed  []int `toml:"failed"`

	// Match lists response fields that must equal what was sent, as "name" or
	// as "name=template". An answer that differs says nothing.
	Match []string `toml:"match"`

	// Items is a JSON pointer to the list in the answer of a search, such as
	// "/data". An answer that is a list needs none. No entry means absent.
	Items string `toml:"items"`
}

// schema returns m as JSON, or nil.
func schema(m map[string]any) (json.RawMessage, error) {
	if m == nil {
		return nil, nil
	}
	return json.Marshal(m)
}
