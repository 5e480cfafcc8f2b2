package web

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// A Connector connects accounts of services for admins at a browser.
type Connector interface {
	// Offers returns the packs of which an account can be connected here, sorted by name.
	Offers(ctx context.Context) ([]Offer, error)

	// Begin begins to connect an account of a service with OAuth. It returns the page of
	// the service on which the person allows it, and the scopes that are asked for. The
	// service sends the browser back to the address redirect, with the answer. What it takes the
	// place of was connected at over; zero: there is nothing of that name.
	Begin(ctx context.Context, by access.Identity, pack, name, redirect string, over time.Time) (page string, scopes []string, err error)

	// Finish stores the account that an answer of a service allows. The answer belongs to
	// what the same login began, and is used once; else the error is an
	// *UnconnectedError. It returns the name of the account.
	Finish(ctx context.Context, by access.Identity, answer url.Values) (name string, err error)

	// Put stores an account of a service without OAuth, whose credential is value, in the place of one that was connected
	// at over; zero: of nothing. If another one is there, the error is an *UnconnectedError.
	Put(ctx context.Context, by access.Identity, pack, name, value string, over time.Time) error
}

// An Offer is a pack of which an account can be connected.
type Offer struct {
	Pack, Title string
	Names       []string // of accounts that connections of the pack use; sorted
	OAuth       bool     // a page of the service asks; else a credential is typed
	Style       string   // how a credential is sent
	Docs        string   // of the service
	Missing     string   // what keep.toml lacks for it, as an error says it; empty: nothing
}

// An UnconnectedError says why nothing was connected. Its text holds no secret.
type UnconnectedError struct {
	What string // in one line
	Why  string
}

// Error says what and why.
func (e *UnconnectedError) Error() string { return e.What + ": " + e.Why }

// connectData is what the pages about connecting show.
type connectData struct {
	Offers []Offer // empty: of one pack

	Offer    Offer
	Name     string
	Replaces *accountRow // of that name; nil: there is none
	Redirect string      // that the service must allow for the client

	Page   string // of the service; empty: not begun
	Host   string // of Page
	Scopes []string
}

// connects reports whether accounts can be connected here.
func (s *site) connects() bool { return s.cfg.Connector != nil }

// offer returns an offer by the name of its pack.
func (s *site) offer(ctx context.Context, pack string) (Offer, error) {
	if !s.connects() {
		return Offer{}, &keep.NotFoundError{What: "pack", ID: pack}
	}
	all, err := s.cfg.Connector.Offers(ctx)
	i := slices.IndexFunc(all, func(o Offer) bool { return o.Pack == pack })
	if err == nil && i < 0 {
		err = &keep.NotFoundError{What: "pack", ID: pack}
	}
	if err != nil {
		return Offer{}, err
	}
	return all[i], nil
}

// connectList shows of which services an account can be connected.
func (s *site) connectList(r *http.Request) (page, error) {
	p := page{Title: "Connect an account", Section: "connections"}
	var d connectData
	var err error
	if s.connects() {
		d.Offers, err = s.cfg.Connector.Offers(r.Context())
	}
	p.Data = d
	return p, err
}

// connectForm asks for what is needed to connect an account of a pack.
func (s *site) connectForm(r *http.Request) (page, error) {
	o, err := s.offer(r.Context(), r.PathValue("pack"))
	if err != nil {
		return page{}, err
	}
	d := connectData{Offer: o, Name: r.URL.Query().Get("name"), Redirect: s.callback(r)}
	if d.Name == "" {
		if d.Name, err = s.wantedName(r.Context(), o); err != nil {
			return page{}, err
		}
	}
	if d.Replaces, _, err = s.accountNamed(r.Context(), d.Name); err != nil {
		return page{}, err
	}
	return page{Title: "Connect " + o.Title, Section: "connections", Data: d}, nil
}

// wantedName returns the name under which an account of a pack is connected unless a person chooses another one: what connections use
// and nobody connected comes first.
func (s *site) wantedName(ctx context.Context, o Offer) (string, error) {
	for _, name := range o.Names {
		if there, _, err := s.accountNamed(ctx, name); err != nil || there == nil {
			return name, err
		}
	}
	return cmp.Or(append(slices.Clone(o.Names), o.Pack)...), nil
}

// accountNamed returns the account of a name that something is left of, nil if there is none, and when what is there was connected.
func (s *site) accountNamed(ctx context.Context, name string) (*accountRow, time.Time, error) {
	rows, err := s.accountRows(ctx)
	i := slices.IndexFunc(rows, func(a accountRow) bool { return a.Name == name })
	switch {
	case i < 0:
		return nil, time.Time{}, err
	case rows[i].Revoked():
		return nil, rows[i].Connected, err
	}
	return &rows[i], rows[i].Connected, err
}

// connect stores a typed credential, or shows the way to the page of the service. That is
// a link and no redirect: the pages' own policy lets no form lead to another site.
func (s *site) connect(w http.ResponseWriter, r *http.Request) error {
	o, err := s.offer(r.Context(), r.PathValue("pack"))
	if err != nil {
		return err
	}
	if err := parseForm(r); err != nil {
		return err
	}
	by, _ := access.From(r.Context())
	name := strings.TrimSpace(r.PostForm.Get("name"))
	// What an account holds is gone when another takes its place, so that is done for who has read it.
	there, over, err := s.accountNamed(r.Context(), name)
	switch {
	case err != nil:
		return err
	case there != nil && r.PostForm.Get("of") != there.Mark():
		d := connectData{Offer: o, Name: name, Replaces: there, Redirect: s.callback(r)}
		s.render(w, r, "connect_form", page{Title: "Connect " + o.Title, Section: "connections", Status: http.StatusConflict, Data: d}, "")
		return nil
	}
	if !o.OAuth {
		if err := s.cfg.Connector.Put(r.Context(), by, o.Pack, name, r.PostForm.Get("credential"), over); err != nil {
			return err
		}
		http.Redirect(w, r, "/accounts/"+url.PathEscape(name)+"?did=account-connected", http.StatusSeeOther)
		return nil
	}
	d := connectData{Offer: o, Name: name, Redirect: s.callback(r)}
	if d.Page, d.Scopes, err = s.cfg.Connector.Begin(r.Context(), by, o.Pack, name, d.Redirect, over); err != nil {
		return err
	}
	if u, err := url.Parse(d.Page); err == nil {
		d.Host = u.Host
	}
	s.render(w, r, "connecting", page{Title: "Connect " + o.Title, Section: "connections", Data: d}, "")
	return nil
}

// finish takes the answer with which a service sends the browser back.
func (s *site) finish(r *http.Request) (to, did string, err error) {
	if !s.connects() {
		return "", "", &keep.NotFoundError{What: "page", ID: r.URL.Path}
	}
	by, _ := access.From(r.Context())
	name, err := s.cfg.Connector.Finish(r.Context(), by, r.URL.Query())
	return "/accounts/" + url.PathEscape(name), "account-connected", err
}

// callback returns the address at which answers of services arrive: at the name by which
// this browser came, since its login is known there only.
func (s *site) callback(r *http.Request) string {
	// Package access has checked that r.Host is a name of this host, so that no request sends a code elsewhere.
	base := url.URL{Scheme: "http", Host: r.Host, Path: "/callback"}
	if r.TLS != nil {
		base.Scheme = "https"
	}
	if own, err := url.Parse(s.cfg.URL); err == nil && own.Host == r.Host {
		base.Scheme = own.Scheme
	}
	return base.String()
}
