package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// Secrets are the secrets of the database, which admins set and remove. Nothing that is
// returned holds a value.
type Secrets interface {
	// Secrets returns those that keep.toml refers to and those that are stored.
	Secrets(ctx context.Context) (SecretList, error)

	// SetSecret stores a secret, in the place of the one of that name that was set at over; zero: of nothing. If another one
	// is there, the error is keep.ErrStale. What is no name or no value is a *SecretError.
	SetSecret(ctx context.Context, by access.Identity, name, value string, over time.Time) error

	// RemoveSecret deletes the stored secret that was set at of; a *keep.NotFoundError if there is none, and keep.ErrStale if
	// there is another one.
	RemoveSecret(ctx context.Context, name string, of time.Time) error
}

// A SecretList is every secret that is known of.
type SecretList struct {
	All     []Secret // sorted by name
	Key     string   // where the key is that seals
	Trouble string   // why nothing can be sealed, and what to do; empty: it can
	Refused string   // why the host continues with the keep.toml of before; empty: it does not
}

// A Secret is what is known of a secret without its value.
type Secret struct {
	Name    string
	UsedBy  []string // tables of keep.toml that refer to it, such as connections.crm
	Place   string   // variable or file that has it, which counts before the database; empty: none has
	Problem string   // why what is there cannot be used; empty: it can, or there is nothing

	Stored bool // in the database
	SetBy  string
	SetAt  time.Time
}

// A SecretError says why a secret is not set. Its text holds no value.
type SecretError struct{ Why string }

// Error says why.
func (e *SecretError) Error() string { return e.Why }

// Missing reports whether keep.toml refers to it and nobody has set it.
func (s Secret) Missing() bool { return len(s.UsedBy) > 0 && !s.Stored && s.Place == "" }

// Bad reports whether calls that need it cannot be made.
func (s Secret) Bad() bool { return s.Missing() || s.Problem != "" }

// Word is its status.
func (s Secret) Word() string {
	switch {
	case s.Problem != "":
		return "unusable"
	case s.Missing():
		return "not set"
	}
	return "set"
}

// Mark tells which secret of that name is stored, by when it was set; empty: none is.
func (s Secret) Mark() string {
	if !s.Stored {
		return ""
	}
	return timeMark(s.SetAt)
}

// timeMark tells what a person stored from what was stored at another time, in a field of a form.
func timeMark(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 36) }

// Link is the page of the secret.
func (s Secret) Link() string { return "/secrets/" + url.PathEscape(s.Name) }

// A use is a table of keep.toml that refers to a secret.
type use struct{ Name, Link string }

// Uses are the tables that refer to it; connections have a place on a page.
func (s Secret) Uses() (list []use) {
	for _, table := range s.UsedBy {
		if name, ok := strings.CutPrefix(table, "connections."); ok {
			list = append(list, use{name, "/connections#c-" + url.PathEscape(name)})
			continue
		}
		list = append(list, use{Name: "[" + table + "]"})
	}
	return list
}

// setsSecrets reports whether a reader may set secrets here.
func (s *site) setsSecrets(who access.Identity) bool {
	return s.cfg.Secrets != nil && who.Role.Covers(access.Admin)
}

// secretList reads the secrets.
func (s *site) secretList(r *http.Request) (SecretList, error) {
	if s.cfg.Secrets == nil {
		return SecretList{}, &keep.NotFoundError{What: "page", ID: cut(100, r.URL.Path)}
	}
	return s.cfg.Secrets.Secrets(r.Context())
}

func (s *site) secrets(r *http.Request) (page, error) {
	list, err := s.secretList(r)
	return page{Title: "Secrets", Section: "connections", Data: list}, err
}

// secretData is one secret, and what is true of all.
type secretData struct {
	Secret
	List SecretList
}

// secret shows one secret: where it is used, whether it is set and by whom. No page has a value.
func (s *site) secret(r *http.Request) (page, error) {
	list, err := s.secretList(r)
	if err != nil {
		return page{}, err
	}
	name := r.PathValue("name")
	i := slices.IndexFunc(list.All, func(one Secret) bool { return one.Name == name })
	if i < 0 {
		return page{}, &keep.NotFoundError{What: "secret", ID: cut(100, name)}
	}
	return page{Title: "Secret " + name, Section: "connections", Data: secretData{list.All[i], list}}, nil
}

// shown returns the secret that the page of the form showed; zero: there was none of that name, and is none. If another one is
// there, it is neither replaced nor removed: the error is keep.ErrStale.
func (s *site) shown(r *http.Request, name string) (is Secret, err error) {
	list, err := s.secretList(r)
	if err != nil {
		return is, err
	}
	if i := slices.IndexFunc(list.All, func(one Secret) bool { return one.Name == name }); i >= 0 {
		is = list.All[i]
	}
	switch {
	case r.PostForm.Get("of") == is.Mark():
		return is, nil
	case !is.Stored:
		return is, fmt.Errorf("the secret %s was removed since it was shown: %w", cut(100, name), keep.ErrStale)
	}
	return is, fmt.Errorf("%s set the secret %s, which this page did not show; it is replaced and removed on its own page: %w", is.SetBy, name, keep.ErrStale)
}

// setSecret stores what was typed. It is in no answer, also not in that of an error.
func (s *site) setSecret(r *http.Request) (to, did string, err error) {
	if s.cfg.Secrets == nil {
		return "", "", &keep.NotFoundError{What: "page", ID: r.URL.Path}
	}
	if err := parseForm(r); err != nil {
		return "", "", err
	}
	who, _ := access.From(r.Context())
	name := strings.TrimSpace(r.PostForm.Get("name"))
	is, err := s.shown(r, name)
	if err != nil {
		return "", "", err
	}
	if err := s.cfg.Secrets.SetSecret(r.Context(), who, name, r.PostForm.Get("value"), is.SetAt); err != nil {
		return "", "", err
	}
	list, err := s.secretList(r)
	did = "secret-set"
	if slices.ContainsFunc(list.All, func(one Secret) bool { return one.Name == name && one.Place != "" }) {
		did = "secret-stored"
	}
	return "/secrets/" + url.PathEscape(name), did, err
}

func (s *site) removeSecret(r *http.Request) (to, did string, err error) {
	if s.cfg.Secrets == nil {
		return "", "", &keep.NotFoundError{What: "page", ID: cut(100, r.URL.Path)}
	}
	if err := parseForm(r); err != nil {
		return "", "", err
	}
	is, err := s.shown(r, r.PathValue("name"))
	if err != nil {
		return "", "", err
	}
	return "/secrets", "secret-removed", s.cfg.Secrets.RemoveSecret(r.Context(), r.PathValue("name"), is.SetAt)
}
