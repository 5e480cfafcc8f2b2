package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
)

// accountsData is the accounts of services.
type accountsData struct {
	Accounts []accountRow
	Connects bool // the reader may connect one here
}

// An accountRow is an account; times are zero where there is none.
type accountRow struct {
	api.AccountDetail
	Expires, Connected, Refreshed, Used time.Time
	Why                                 string // it needs a person; empty: it does not
	Admin                               bool   // may test, renew and revoke it
	Connects                            bool   // may connect it again here
}

// Bad reports whether the account does not work, or will not soon.
func (a accountRow) Bad() bool {
	return a.Status == keep.AccountNeedsReconnect || a.Status == api.AccountExpiring
}

// Lost reports whether the account is not used until a person connects it again.
func (a accountRow) Lost() bool { return a.Status == keep.AccountNeedsReconnect }

// Revoked reports whether nothing is left of the account to work on.
func (a accountRow) Revoked() bool { return a.Status == keep.AccountRevoked }

// Granted reports whether the service may have given the credential itself: a key that was typed it did not give.
func (a accountRow) Granted() bool { return a.Style == "oauth2" }

// Word is the status in words.
func (a accountRow) Word() string { return strings.ReplaceAll(string(a.Status), "_", " ") }

// Mark tells who connected it from who connected another one of that name.
func (a accountRow) Mark() string { return timeMark(a.Connected) }

// Command connects the account again.
func (a accountRow) Command() string { return "keep connect " + a.Pack + " --name " + a.Name }

// Again is the page on which the account is connected again.
func (a accountRow) Again() string {
	return "/connect/" + url.PathEscape(a.Pack) + "?name=" + url.QueryEscape(a.Name)
}

// Link is the page of the account.
func (a accountRow) Link() string { return "/accounts/" + url.PathEscape(a.Name) }

// A requestRow is a request for new tokens.
type requestRow struct {
	api.Refresh
	Sent time.Time
}

// Requests are those for new tokens, newest first.
func (a accountRow) Requests() (list []requestRow) {
	for _, r := range slices.Backward(a.Refreshes) {
		list = append(list, requestRow{r, time.Time(r.SentAt)})
	}
	return list
}

// accountRows reads the accounts.
func (s *site) accountRows(ctx context.Context) ([]accountRow, error) {
	if s.cfg.Accounts == nil {
		return nil, nil
	}
	all, err := s.cfg.Accounts.List(ctx)
	who, _ := access.From(ctx)
	var rows []accountRow
	for _, a := range all {
		row := accountRow{AccountDetail: a, Expires: timeOf(a.ExpiresAt), Connected: time.Time(a.ConnectedAt), Refreshed: timeOf(a.LastRefreshAt),
			Used: timeOf(a.LastUsedAt), Admin: who.Role.Covers(access.Admin)}
		row.Connects = row.Admin && s.connects() && !strings.Contains(row.Pack, ":") // what is no pack is connected at a terminal
		if a.Error != nil {
			row.Why = *a.Error
		}
		rows = append(rows, row)
	}
	return rows, err
}

// accounts lists the accounts. They have no kind of change of their own; one that needs a person has a
// question, so questions are watched.
func (s *site) accounts(r *http.Request) (page, error) {
	p := page{Title: "Accounts", Section: "connections", Watch: []feed.Kind{feed.Escalation}}
	rows, err := s.accountRows(r.Context())
	who, _ := access.From(r.Context())
	p.Data = accountsData{rows, s.connects() && who.Role.Covers(access.Admin)}
	return p, err
}

// account shows one account, and what came of each request for new tokens.
func (s *site) account(r *http.Request) (page, error) {
	name := r.PathValue("name")
	p := page{Title: "Account " + name, Section: "connections", Watch: []feed.Kind{feed.Escalation}}
	rows, err := s.accountRows(r.Context())
	if err != nil {
		return p, err
	}
	i := slices.IndexFunc(rows, func(a accountRow) bool { return a.Name == name })
	if i < 0 {
		return p, &keep.NotFoundError{What: "account", ID: name}
	}
	p.Data = rows[i]
	return p, nil
}

// An accountError says why an account could not be tested, renewed or revoked.
type accountError struct {
	of  accountRow
	err error
}

// Error says why.
func (e *accountError) Error() string { return e.err.Error() }

// doAccount tests, renews or revokes an account.
func (s *site) doAccount(r *http.Request) (to, did string, err error) {
	p, err := s.account(r)
	if err != nil {
		return "", "", err
	}
	a := p.Data.(accountRow)
	switch r.PathValue("verb") {
	case "test":
		did, err = "account-works", s.cfg.Accounts.Test(r.Context(), a.Name)
	case "renew":
		did, err = "account-renewed", s.cfg.Accounts.Renew(r.Context(), a.Name)
	case "revoke":
		if r.PostFormValue("of") != a.Mark() {
			return "", "", fmt.Errorf("%s connected the account %s, which this page did not show: %w", a.ConnectedBy, a.Name, keep.ErrStale)
		}
		did, err = "account-revoked", s.cfg.Accounts.Revoke(r.Context(), a.Name, a.Connected)
	default:
		return "", "", &keep.NotFoundError{What: "page", ID: r.URL.Path}
	}
	if errors.Is(err, keep.ErrStale) { // another one is there since it was looked at
		return "", "", err
	}
	if err != nil { // it may be the service's, or ours, and says what was done and what not
		s.log.WarnContext(r.Context(), "do what an admin asked with an account", "account", a.Name, "do", r.PathValue("verb"), "err", err)
		return "", "", &accountError{a, err}
	}
	// It is read again: a renewal may end without an error and leave an account that needs a person.
	if p, err = s.account(r); err != nil {
		return "", "", err
	}
	switch now := p.Data.(accountRow); {
	case did == "account-renewed" && now.Status == keep.AccountNeedsReconnect:
		did = "" // the page says what it needs
	case did == "account-revoked" && now.Why != "":
		did = "account-forgotten"
	}
	return a.Link(), did, nil
}
