package web

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
)

// settingsData is what is in force. Nothing of it is changed here: it comes from
// keep.toml.
type settingsData struct {
	Who     access.Identity
	Session bool   // the browser is logged in, and can be logged out
	Admin   bool   // sees credentials
	Once    string // of the form for a new token, which makes one
	Tokens  []keep.Credential
	Logins  []keep.Credential // sessions
	Roles   []access.Role
	Policy  []setting
	Limits  []setting
	Levels  []keep.Level
	Version []setting
	Backup  *backupOffer // nil: none is offered to the reader
	Refused *refusedSetting
}

// A setting is a name of keep.toml, its value and what it does.
type setting struct{ Name, Value, Meaning string }

// breakerWords says when a tool is stopped.
func breakerWords(b keep.Breaker) string {
	if b.Failures == 0 {
		return "never"
	}
	return number(b.Failures) + " within " + human(b.Within)
}

// A refusedSetting is a change of keep.toml that is not in force, or what the store does not take.
type refusedSetting struct {
	When   time.Time
	Reason string
}

// refused returns the last change of keep.toml, if it was refused.
func (s *site) refused() *refusedSetting {
	if s.cfg.Settings == nil {
		return nil
	}
	r := s.cfg.Settings().Refused
	if r == nil {
		return nil
	}
	return &refusedSetting{time.Time(r.At), r.Reason}
}

// settings shows what is in force to every viewer. Tokens and sessions are read for admins alone.
func (s *site) settings(r *http.Request) (page, error) {
	p := s.policy
	id, _ := access.From(r.Context())
	d := settingsData{
		Who: id, Refused: s.refused(),
		Policy: []setting{
			{"retry.first", human(p.Retry.First), "wait before a failed run is tried again; doubles each time"},
			{"retry.max", human(p.Retry.Max), "longest wait between tries"},
			{"retry.attempts", number(p.Retry.Attempts), "repeats after the first try; then a person is asked"},
			{"reconcile.inline", human(p.Reconcile.Inline), "how long the lookup right after a doubt may take"},
			{"reconcile.first", human(p.Reconcile.First), "wait before a service is asked again; doubles each time"},
			{"reconcile.max", human(p.Reconcile.Max), "longest wait between lookups"},
			{"reconcile.attempts", number(p.Reconcile.Attempts), "lookups before a person is asked"},
			{"wake", human(p.Wake.Min) + " to " + human(p.Wake.Max), "when a script that asks to be woken is woken"},
			{"default_interval", human(p.DefaultInterval), "between the runs of a producer or job without a schedule"},
			{"approval.expires", human(p.Approval.Expires), "how long a person may take to approve a call; then the run asks again"},
			{"on_item_blocked", string(p.OnItemBlocked), "what a job does about an item whose outcome is unknown"},
			{"breaker", breakerWords(p.Breaker), "calls of one tool that fail alike before no more are made; then a person is asked"},
			{"outage.after", number(p.Outage.After), "calls of one connection that fail in a row before it counts as down; 0: it never does"},
			{"lease.ttl", human(p.Lease.TTL), "how long the workflows of a host that died are left alone"},
			{"shutdown", human(p.Shutdown), "how long a stop waits for calls that are out"},
		},
		Limits: []setting{
			{"payload", byteCount(p.Limits.Payload), "of one event, or of a call's params"},
			{"reservations", number(p.Limits.Reservations), "events that one run reserves"},
			{"publishes", number(p.Limits.Publishes), "events that one run publishes"},
			{"causes", number(p.Limits.Causes), "inputs that one event comes from"},
			{"checkpoint value", byteCount(p.Limits.KVValue), "of one value of a producer's checkpoint"},
			{"checkpoint", byteCount(p.Limits.KVTotal), "of one producer's whole checkpoint"},
			{"peek", number(p.Limits.Peek), "events that one peek returns"},
		},
		Levels: keep.Levels(),
		Version: []setting{
			{"Keep", s.cfg.Version, ""},
			{"Go", runtime.Version(), ""},
			{"Platform", runtime.GOOS + "/" + runtime.GOARCH, ""},
		},
	}
	if d.Session = id.Via == access.ViaSession; s.cfg.Access != nil && id.Role.Covers(access.Admin) {
		d.Admin, d.Roles, d.Once = true, access.Roles(), access.Once()
		var err error
		if d.Tokens, err = s.cfg.Access.Credentials(r.Context(), keep.CredentialToken); err != nil {
			return page{}, err
		}
		if d.Logins, err = s.cfg.Access.Credentials(r.Context(), keep.CredentialSession); err != nil {
			return page{}, err
		}
	}
	if s.cfg.Backups != nil && id.Role.Covers(access.Admin) {
		d.Backup = &backupOffer{s.cfg.Backups.Instead()}
	}
	return page{Title: "Settings", Section: "settings", Watch: []feed.Kind{feed.Credential}, Data: d}, nil
}

// tokenData is a new token. Its secret is on this page, once, and nowhere else.
type tokenData struct {
	keep.Credential
	Secret string
}

// maxDays bounds the life of a token.
const maxDays = 3650

// issueToken makes a token for a program.
//
// Its answer is the page with the secret, and no redirect: no address leads there again.
func (s *site) issueToken(r *http.Request) (page, error) {
	p := page{Title: "New token", Section: "settings"}
	if s.cfg.Access == nil {
		return p, &keep.NotFoundError{What: "page", ID: r.URL.Path}
	}
	if err := parseForm(r); err != nil {
		return p, err
	}
	c := keep.Credential{Kind: keep.CredentialToken, Name: strings.TrimSpace(r.PostForm.Get("name")), Role: r.PostForm.Get("role")}
	days, err := strconv.Atoi(r.PostForm.Get("days"))
	switch {
	case err != nil || days < 1 || days > maxDays:
		return p, refusef("a token lasts 1 to %d days, not %q", maxDays, cut(20, r.PostForm.Get("days")))
	case c.Name == "" || len(c.Name) > access.MaxName:
		return p, refusef("a token has a name of 1 to %d bytes", access.MaxName)
	case access.Role(c.Role).Validate() != nil:
		return p, refusef("%v", access.Role(c.Role).Validate())
	}
	// To load the page with the secret again sends its form again, which makes no second token.
	secret, c, err := access.IssueOnce(r.Context(), s.cfg.Access, r.PostForm.Get("once"), c, time.Now(), time.Duration(days)*24*time.Hour)
	p.Data = tokenData{c, secret}
	return p, err
}

// revoke ends a token or a session.
func (s *site) revoke(r *http.Request) (to, did string, err error) {
	if s.cfg.Access == nil {
		return "", "", &keep.NotFoundError{What: "page", ID: r.URL.Path}
	}
	c, err := s.cfg.Access.Credential(r.Context(), r.PathValue("id"))
	if err != nil {
		return "", "", err
	}
	return "/settings", "revoked", access.End(r.Context(), s.cfg.Access, c, time.Now())
}
