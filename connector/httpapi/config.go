package httpapi

import (
	"encoding/json"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// Kind is what configuration calls this connector.
const Kind = "http"

// Defaults of a tool that doesn't say.
const (
	DefaultSettle   = 5 * time.Second // settle_after of a lookup
	DefaultKeyLasts = 24 * time.Hour  // key_lasts
	DefaultSetLasts = time.Hour       // key_lasts with sets
	maxTimeout      = time.Hour
)

// A Config is one connection of keep.toml. Header values are resolved secrets.
type Config struct {
	Connector string            `toml:"connector"` // Kind, or empty
	BaseURL   string            `toml:"base_url"`  // http or https, without query
	Headers   map[string]string `toml:"headers"`   // sent with each request
	Tools     map[string]Tool   `toml:"tools"`     // by name; at least one

	// Query is put into the address of each request, for services that take their
	// credential there.
	Query map[string]string `toml:"-"`

	// Auth gives each request its credentials. Nil: the headers and Query hold them.
	Auth Auth `toml:"-"`

	// Sign signs each change. Nil: they are not signed.
	Sign Signer `toml:"-"`

	// References are headers as configuration writes them, with the names of secrets
	// in place of their values. They are kept with calls.
	References map[string]string `toml:"-"`

	// Secrets are values that must never show in messages and results, besides those
	// of Headers. Values shorter than four bytes are ignored.
	Secrets []string `toml:"-"`
}

// A Tool is one callable operation of the API.
type Tool struct {
	Effect      connector.Effect `toml:"effect"`      // list, get or mutate
	Description string           `toml:"description"` // for people and LLMs

	Was connector.Names `toml:"was"` // all names that the tool had before, in the records of calls
	New bool            `toml:"new"` // it had no others

	// Method is the HTTP method. If empty, GET, or POST for a mutate tool.
	Method string `toml:"method"`

	// Path begins with / and is put after base_url. {param} is taken from the
	// params and escaped. "." is base_url itself.
	Path string `toml:"path"`

	// Query lists params that go into the query, as "name" or as
	// "name={param}". Those that are in neither path nor query are the body.
	Query []string `toml:"query"`

	// Body is "json", "form", "multipart" or "text". Empty: json.
	Body string `toml:"body"`

	// Fixed is merged into the body. Its texts may be templates with {param}; one
	// that is a single param takes the param's value and type.
	Fixed map[string]any `toml:"fixed"`

	// Rename says where params go in the body, as a dotted path.
	Rename map[string]string `toml:"rename"`

	// Pages says how a list comes in pages. Nil: it comes at once.
	Pages *Pages `toml:"pages"`

	// Cost says that a get tool is paid for by the call: the same call is made once in a
	// chain of runs.
	Cost bool `toml:"cost"`

	// Headers are sent with each request of the tool, over those of the connection.
	Headers map[string]string `toml:"headers"`

	// Timeout ends a call. Zero: connector.DefaultTimeout.
	Timeout connector.Duration `toml:"timeout"`

	// NullOn lists statuses of a read that mean "there is none": the result
	// is null. Empty: they are failures.
	NullOn []int `toml:"null_on"`

	// Params and Result are JSON Schemas. Without Params a schema is made of
	// what path, query and identity need.
	Params map[string]any `toml:"params"`
	Result map[string]any `toml:"result"`

	// Example is params that fit, for guides and tests. Scopes are what an account
	// needs for the tool, and SettleSource says where SettleAfter comes from.
	Example      map[string]any `toml:"example"`
	Scopes       []string       `toml:"scopes"`
	SettleSource string         `toml:"settle_source"`

	// CredentialHeader is the header of a read in which the bearer token of an Auth goes, alone, in
	// place of Authorization. Empty: it goes there.
	CredentialHeader string `toml:"-"`

	// AppliedIf and RefusedIf recognise answers that say in their body or header what
	// the status doesn't. RefusedIf is looked at first, and the first match decides.
	// With AppliedIf, a 2xx that none of its conditions matches is unknown. Without it, so is one
	// to a change whose JSON says that it failed: success or ok is false, or there are errors.
	AppliedIf []Condition `toml:"applied_if"`
	RefusedIf []Condition `toml:"refused_if"`

	// Statuses says what statuses mean that are not 2xx, such as 402 = "logic".
	Statuses map[string]keep.Class `toml:"statuses"`

	// The rest is for mutate tools.

	// Answer is "text" if the service answers a change with text or HTML. Empty,
	// or "json": such an answer is doubtful, because gateways answer so.
	Answer string `toml:"answer"`

	// Identity lists the params that say what is changed. The rest is payload.
	Identity []string `toml:"identity"`

	// SettleAfter is how long after its deadline a call may still take effect.
	// Nil: DefaultSettle if the tool has a lookup.
	SettleAfter *connector.Duration `toml:"settle_after"`

	// Token says where the host's key is sent. IdempotencyHeader is short for a
	// Token with only Header. Nil and empty: the key is not sent.
	Token             *Token `toml:"token"`
	IdempotencyHeader string `toml:"idempotency_header"`

	// Deduplicates says that the service honours the key, for KeyLasts from the
	// first call on. Zero: DefaultKeyLasts. DeduplicatesFor is its old name.
	Deduplicates    bool               `toml:"deduplicates"`
	KeyLasts        connector.Duration `toml:"key_lasts"`
	DeduplicatesFor connector.Duration `toml:"deduplicates_for"`

	// Sets says that the request names what is to be, such as a text or a label, so that
	// a second one changes nothing more: it is sent again after doubt, for KeyLasts from
	// the first call on. Zero: DefaultSetLasts.
	Sets bool `toml:"sets"`

	// OnResend says what answers to a repeated request mean.
	OnResend *OnResend `toml:"on_resend"`

	// Start is a request before the call, for something that the call uses up.
	Start *Start `toml:"start"`

	// Mail makes a mail of params.
	Mail *Mail `toml:"mail"`

	// NotExecuted lists statuses by which the service promises that nothing
	// happened.
	NotExecuted []int `toml:"not_executed"`

	// PayloadIgnore lists payload params whose differences are minor.
	PayloadIgnore []string `toml:"payload_ignore"`

	// Unique says that an identity is to be applied once, whichever run, item or
	// workflow asks for it: before a second time a person is asked.
	Unique bool `toml:"unique"`

	// Approve is "always" if a person must agree before each call, or a condition on params: then
	// he must if it is true.
	Approve string `toml:"approve"`

	// ResultFrom names a get tool of this connection. Called with the identity params,
	// it reads the result of a call that a person says happened.
	ResultFrom string `toml:"result_from"`

	// View says how a person reads a call that is to be approved: its kind, and by role the
	// param that has it, such as { kind = "mail", to = "to", text = "body.text" }.
	View map[string]string `toml:"view"`

	// Now names a get tool of this connection. Called with the identity params, it reads
	// what the call would change.
	Now string `toml:"now"`

	// VerifyByHand tells a person where to look when nobody can know.
	VerifyByHand string `toml:"verify_by_hand"`

	// Reconcile is the lookup after doubt. Nil: there is none.
	Reconcile *Reconcile `toml:"reconcile"`
}

// A Token says where the host's key of a change goes. Several places may be given.
type Token struct {
	Header   string `toml:"header"`   // name of a header
	Body     string `toml:"body"`     // dotted path into the body
	Query    string `toml:"query"`    // name of a query parameter
	Metadata string `toml:"metadata"` // dotted path into "metadata" of the body

	// Format is "uuid", "base32hex" or "hex32". Empty: uuid.
	Format string `toml:"format"`

	// Append adds a text with {token} to a param, such as a comment that readers
	// don't see.
	Append *Append `toml:"append"`
}

// An Append is a text that is added to a param.
type Append struct {
	Param string `toml:"param"` // that the text is added to
	Text  string `toml:"text"`  // with {token}
}

// A Start is a request that makes something harmless, such as a draft, which the call
// then uses up: level B. The params are its body; that of the call itself is only fixed.
type Start struct {
	Method string            `toml:"method" json:"method,omitempty"` // empty: POST
	Path   string            `toml:"path" json:"path"`               // as that of a tool
	Body   string            `toml:"body" json:"body,omitempty"`     // as that of a tool
	Fixed  map[string]any    `toml:"fixed" json:"fixed,omitempty"`   // as that of a tool
	Rename map[string]string `toml:"rename" json:"rename,omitempty"` // as that of a tool
	Mail   *Mail             `toml:"mail" json:"mail,omitempty"`     // as that of a tool

	// ID is the path to what {start} stands for, and Keep those to further values:
	// {start.NAME}.
	ID   string            `toml:"id" json:"id"`
	Keep map[string]string `toml:"keep" json:"keep,omitempty"`

	// Gone tells after doubt whether it was used up.
	Gone *Gone `toml:"gone" json:"gone,omitempty"`

	// GoneMeans is "applied" if nothing but the call can use it up. Empty: the lookup is
	// asked.
	GoneMeans string `toml:"gone_means" json:"gone_means,omitempty"`
}

// Gone is a request for what a Start made.
type Gone struct {
	Path     string     `toml:"path" json:"path"`                     // with {start}
	Absent   []int      `toml:"absent" json:"absent,omitempty"`       // statuses: it is gone; empty: 404
	AbsentIf *Condition `toml:"absent_if" json:"absent_if,omitempty"` // the service's own "not found"
}

// A Mail is the params to, cc, bcc, subject, text, html, reply_to, in_reply_to and
// references as a mail (RFC 5322), base64url, in a member of the body.
type Mail struct {
	Into string `toml:"into" json:"into"`           // dotted path into the body
	Mark string `toml:"mark" json:"mark,omitempty"` // a header of the mail with the host's key
}

// OnResend says what the answer to a repeated request means.
type OnResend struct {
	// Happened are statuses by which the service says that the change was made by
	// an earlier request with the same key.
	Happened []int `toml:"happened"`

	// Then is "lookup" if the result is read by the lookup. Empty: it is null.
	Then string `toml:"then"`
}

// A Reconcile is a request that tells whether a mutation happened. Its
// templates take {param}, {token} and {sent_at}.
type Reconcile struct {
	Method string `toml:"method"` // GET or POST; empty: GET
	Path   string `toml:"path"`   // may end in ?key=template&…

	// Query is a list of "name" and "name=template", or a table of templates.
	Query any `toml:"query"`

	// Fixed is the body of a POST, a template as Fixed of a tool.
	Fixed map[string]any `toml:"fixed" json:",omitempty"`

	// Since is short for an entry of Query named since.
	Since string `toml:"since"`

	// Applied and Failed are statuses: it may be there, it may not. Any other
	// answers nothing. Empty: 200 and 404.
	Applied []int `toml:"applied"`
	Failed  []int `toml:"failed"`

	// Match lists fields of a record that must equal what was sent, as "name" or as
	// "name=template", or is a table of templates. Names may be dotted paths.
	// Without Match and Contains, or if they name nothing of the call but times, a record
	// must hold the token if the lookup asks by it, and else each param by which it asks
	// in path, query and fixed: a text, number, true or false, or each of a list. There
	// must be one.
	Match any `toml:"match"`

	// Contains lists fields whose text must contain a template, or whose list must hold it.
	Contains map[string]string `toml:"contains"`

	// Items is a path to the list in the answer of a search, such as "/data" or
	// "$.data". An answer that is a list needs none.
	Items string `toml:"items"`

	// Pages says how the list comes in pages. All of them are read, to
	// maxLookupItems.
	Pages *Pages `toml:"pages"`

	// Complete says that the list holds all there is to our question, so that an
	// effect which is not in it isn't there.
	Complete bool `toml:"complete"`

	// AbsentIf recognises the service's own "not found".
	AbsentIf *Condition `toml:"absent_if"`

	// EmptyIf recognises an answer of the service that lacks Items because the list is empty.
	EmptyIf *Condition `toml:"empty_if" json:",omitempty"`
}

// Pages says how a list comes in pages.
type Pages struct {
	// Style is how the next page is asked for: "cursor" with a value of the answer,
	// "page" by its number, "offset" by the number of items before it, "link" by the
	// header Link (RFC 8288); one that cannot be read is a failure, and not the end.
	Style string `toml:"style"`

	Items string `toml:"items"` // path to the items; empty: the answer is the list
	// MayLackItems says that an object without Items is an empty page.
	MayLackItems bool `toml:"may_lack_items" json:",omitempty"`

	Param string `toml:"param"` // query parameter of cursor, page or offset

	// Next is the path to the next cursor. Without it the cursor is From of the
	// answer, as long as More is true. More is true or false on each page: one without it
	// is a failure, as is one that has more and does not say where.
	Next string `toml:"next"`
	More string `toml:"more"`
	From string `toml:"from"`

	// In is "body" if Param and SizeParam are members of the body. Empty: the query.
	In string `toml:"in" json:",omitempty"`

	First *int `toml:"first"` // number of the first page; nil: 1

	// Size is how many items a page has, asked for by SizeParam if that is given.
	// Zero: as many as the service likes.
	Size      int    `toml:"size"`
	SizeParam string `toml:"size_param"`
}

// rawOf returns m as JSON, or nil.
func rawOf(m map[string]any) (json.RawMessage, error) {
	if m == nil {
		return nil, nil
	}
	return json.Marshal(m)
}
