package mail

import (
	"cmp"
	"encoding/json"
	"net"
	"net/mail"
	"net/url"
	"strings"
	"time"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/redact"
)

// Kind is what configuration calls this connector.
const Kind = "mail"

// A Config is one connection of keep.toml.
type Config struct {
	Connector string `toml:"connector"` // Kind, or empty

	// SMTP is smtps://host:465, or smtp://host:587 with STARTTLS. Empty: there is no
	// tool send.
	SMTP string `toml:"smtp"`

	// IMAP is imaps://host:993, or imap://host:143 with STARTTLS. Empty: there are no
	// tools that read or change a mailbox.
	IMAP string `toml:"imap"`

	// TLS is "none" to use smtp:// and imap:// without STARTTLS, on the loopback only.
	TLS string `toml:"tls"`

	// CA is a PEM file of certificates to trust instead of the system's.
	CA string `toml:"ca"`

	// User and one of Password (PLAIN) and Token (XOAUTH2) log in. No user: no login.
	User     string `toml:"user"`
	Password string `toml:"password"`
	Token    string `toml:"token"`

	// Account logs in instead of Password and Token: what it holds at that moment, with
	// XOAUTH2 if that is an access token, and else with PLAIN. Without User it names the user.
	Account string `toml:"account"`

	// Accounts has the credential of Account.
	Accounts connector.Accounts `toml:"-"`

	// From is the sender: an address with or without a name.
	From string `toml:"from"`

	// Sent is the folder into which the server files what it takes. Empty: it does not.
	Sent string `toml:"sent"`

	// CopyToSelf sends a blind copy of each mail to From, which is looked for in INBOX.
	CopyToSelf bool `toml:"copy_to_self"`

	// SettleAfter is how long after a call a mail appears in Sent or in a folder, if it
	// was taken at all. Nil: that is not known, so that a person decides about a mail
	// that is not found.
	SettleAfter *connector.Duration `toml:"settle_after"`

	// Idle is the folder whose new mails begin runs of the producers that search this mailbox
	// at an interval. Empty: INBOX. "none": they wait for their next tick.
	Idle string `toml:"idle"`

	// Timeout ends a call. Zero: connector.DefaultTimeout.
	Timeout connector.Duration `toml:"timeout"`
}

// An endpoint is one server.
type endpoint struct {
	host string // without the port
	addr string // host:port; empty: there is none
	tls  encryption
}

// An encryption says when TLS begins.
type encryption int

const (
	implicit encryption = iota // at once
	startTLS                   // after STARTTLS
	none                       // never
)

// schemes are the schemes of addresses, with their ports.
var schemes = map[string]struct {
	port string
	tls  encryption
}{
	"smtps": {"465", implicit}, "smtp": {"587", startTLS},
	"imaps": {"993", implicit}, "imap": {"143", startTLS},
}

// parseEndpoint reads an address of keep.toml; problems go to c.
func parseEndpoint(c *connector.Checker, key, text, plain string) endpoint {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != key && u.Scheme != key+"s" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		c.Addf(key, `must be "%ss://host:port", or "%s://host:port" with STARTTLS`, key, key)
		return endpoint{}
	}
	if u.User != nil {
		c.Addf(key, "must not hold a user; write user and password beside it")
	}
	s := schemes[u.Scheme]
	e := endpoint{host: u.Hostname(), tls: s.tls}
	e.addr = net.JoinHostPort(e.host, cmp.Or(u.Port(), s.port))
	if plain != "none" {
		return e
	}
	switch {
	case s.tls == implicit:
		c.Addf("tls", `is "none", but %s begins with %s://`, key, u.Scheme)
	case !loopback(e.host):
		c.Addf("tls", `must not be "none": %s is another machine, and would get the password in plain text`, e.host)
	}
	e.tls = none
	return e
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// New returns the connection of that name. It makes no call.
func New(name string, cfg Config) (*connector.Connection, error) {
	c := connector.NewChecker(name)
	c.Kind(cfg.Connector, Kind)
	a := &account{name: name, user: cfg.User, password: cfg.Password, token: cfg.Token, sent: cfg.Sent, copyToSelf: cfg.CopyToSelf, ca: cfg.CA,
		connected: cfg.Account, accounts: cfg.Accounts, hide: redact.New(cfg.Password, cfg.Token)}
	if cfg.SMTP == "" && cfg.IMAP == "" {
		c.Addf("", "smtp, imap or both are required")
	}
	if cfg.TLS != "" && cfg.TLS != "none" {
		c.Addf("tls", `is %q; leave it out, or write "none"`, cfg.TLS)
	}
	if cfg.SMTP != "" {
		a.smtp = parseEndpoint(c, "smtp", cfg.SMTP, cfg.TLS)
	}
	if cfg.IMAP != "" {
		a.imap = parseEndpoint(c, "imap", cfg.IMAP, cfg.TLS)
	}
	if a.watched = cmp.Or(cfg.Idle, "INBOX"); checkFolder(a.watched) != nil {
		c.Addf("idle", `must be the name of a folder, or "none"`)
	}
	checkLogin(c, cfg)
	a.checkSender(c, cfg)
	checkTimes(c, cfg)
	if err := c.Err(); err != nil {
		return nil, err
	}
	a.timeout = time.Duration(cfg.Timeout)
	if cfg.SettleAfter != nil {
		settle := time.Duration(*cfg.SettleAfter)
		a.settle = &settle
	}
	pinned := map[string]any{"smtp": cfg.SMTP, "imap": cfg.IMAP, "user": cfg.User, "from": cfg.From, "sent": cfg.Sent, "copy_to_self": cfg.CopyToSelf}
	if cfg.Account != "" {
		pinned["account"] = cfg.Account
	}
	a.pinned, _ = json.Marshal(pinned) // of strings and a bool
	conn := &connector.Connection{Name: name, Connector: Kind, Tools: a.tools(), Close: a.close}
	if cfg.IMAP != "" && a.watched != noWatch {
		conn.Watch = a.watch
	}
	return conn, nil
}

// checkLogin adds the problems of the credentials.
func checkLogin(c *connector.Checker, cfg Config) {
	switch {
	case cfg.Account != "" && cfg.Password+cfg.Token != "":
		c.Addf("account", "stands beside password or token; one of them logs in")
	case cfg.Account != "":
	case cfg.Password != "" && cfg.Token != "":
		c.Addf("token", "stands beside password; one of them logs in")
	case cfg.User == "" && (cfg.Password != "" || cfg.Token != ""):
		c.Addf("user", "is required with password or token")
	case cfg.User != "" && cfg.Password == "" && cfg.Token == "":
		c.Addf("password", `is required with user: password = "${secret:name}", or account = "NAME" of keep connect, or token for XOAUTH2`)
	case cfg.IMAP != "" && cfg.User == "":
		c.Addf("user", "is required with imap")
	}
	if strings.ContainsAny(cfg.User+cfg.Password+cfg.Token, "\x00\r\n") {
		c.Addf("user", "user, password and token must be one line each")
	}
}

// checkSender adds the problems of what is about sending, and keeps the sender.
func (a *account) checkSender(c *connector.Checker, cfg Config) {
	if cfg.From != "" {
		from, err := mail.ParseAddress(cfg.From)
		if err != nil || !plainAddress(from.Address) {
			c.Addf("from", `must be an address such as "Ann <ann@example.com>"`)
			return
		}
		a.from = from
	}
	if a.from == nil {
		c.Addf("from", `is required: the sender, such as "Ann <ann@example.com>"; its domain is that of each Message-ID`)
	}
	if cfg.Sent != "" && cfg.CopyToSelf {
		c.Addf("copy_to_self", "stands beside sent; one of them shows what was sent")
	}
	if cfg.SMTP == "" && cfg.CopyToSelf {
		c.Addf("copy_to_self", "needs smtp")
	}
	if cfg.IMAP == "" && (cfg.Sent != "" || cfg.CopyToSelf) {
		c.Addf("imap", "is required with sent or copy_to_self: it is where a mail is looked for")
	}
}

// checkTimes adds the problems of durations.
func checkTimes(c *connector.Checker, cfg Config) {
	if cfg.Timeout < 0 {
		c.Addf("timeout", "must not be negative")
	}
	if cfg.SettleAfter == nil {
		return
	}
	if *cfg.SettleAfter < 0 {
		c.Addf("settle_after", "must not be negative")
	}
	if cfg.CopyToSelf {
		c.Addf("settle_after", "must not be set with copy_to_self: a copy may wait in a queue for days, so one that is not found shows nothing")
	}
}
