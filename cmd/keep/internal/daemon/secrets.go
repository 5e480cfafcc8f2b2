package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/web"
)

// maxSecret bounds a secret of the database, in bytes, as one of a file.
const maxSecret = 64 << 10

// CheckSecretName refuses what ${secret:NAME} cannot name.
func CheckSecretName(name string) error {
	if !config.AccountName(name) {
		return &web.SecretError{Why: fmt.Sprintf("%.60q is no name of a secret: use letters, digits, dots, dashes and underscores", name)}
	}
	return nil
}

// SetSecret stores a secret that a person gave, in the place of the one of that name. What
// is wrong with it is a *web.SecretError.
func SetSecret(ctx context.Context, m *account.Manager, name, value, by string) error {
	err := checkSecret(name, value)
	if err == nil {
		_, err = m.SetSecret(ctx, name, value, by)
	}
	return err
}

// checkSecret says what is wrong with a secret that a person gave.
func checkSecret(name, value string) error {
	if err := CheckSecretName(name); err != nil {
		return err
	}
	why := ""
	switch {
	case value == "":
		why = "nothing was given"
	case strings.ContainsAny(value, "\r\n"):
		why = "the value has several lines; put it into a file .secrets/" + name
	case len(value) > maxSecret:
		why = fmt.Sprintf("the value has more than %d bytes", maxSecret)
	case !utf8.ValidString(value):
		why = "the value is not text in UTF-8"
	}
	if why != "" {
		return &web.SecretError{Why: why}
	}
	return nil
}

// RemoveSecret deletes a secret; a *keep.NotFoundError if there is none.
func RemoveSecret(ctx context.Context, m *account.Manager, name string) error {
	return removed(name, m.RemoveSecret(ctx, name))
}

// removed is the error of a secret that was to be deleted.
func removed(name string, err error) error {
	if errors.Is(err, keep.ErrNotFound) {
		return &keep.NotFoundError{What: "secret", ID: name}
	}
	return err
}

// ServedSecrets are the secrets of a session as a server shows them.
type ServedSecrets struct{ Session *Session }

// Secrets implements web.Secrets. What keep.toml refers to is read from the file as it is
// now: the host refuses one with a secret that is not set, and that is the one to set.
func (s ServedSecrets) Secrets(ctx context.Context) (list web.SecretList, err error) {
	m, cfg := s.Session.Accounts, s.Session.config()
	list.Key = cfg.Ring.Where()
	if r := s.Session.Settings().Refused; r != nil {
		list.Refused = r.Reason
	}
	if err := m.Ready(ctx); err != nil {
		list.Trouble = err.Error()
	}
	stored, err := m.Secrets(ctx)
	if err != nil {
		return list, err
	}
	all := map[string]web.Secret{}
	for _, n := range cfg.NamedNow() {
		all[n.Name] = web.Secret{Name: n.Name, UsedBy: n.Tables, Place: n.Place, Problem: n.Problem}
	}
	for _, a := range stored {
		one := all[a.Name]
		one.Name, one.Stored, one.SetBy, one.SetAt = a.Name, true, a.ConnectedBy, a.ConnectedAt
		// One that cannot be opened hurts nobody while another place counts before it.
		if _, err := m.Secret(ctx, a.Name); err != nil && one.Place == "" {
			one.Problem = cmp.Or(one.Problem, err.Error())
		}
		all[a.Name] = one
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list.All = append(list.All, all[name])
	}
	return list, nil
}

// SetSecret implements web.Secrets.
func (s ServedSecrets) SetSecret(ctx context.Context, by access.Identity, name, value string, over time.Time) error {
	if err := s.Session.Accounts.Ready(ctx); err != nil {
		return &web.SecretError{Why: err.Error()}
	}
	value = strings.Trim(value, "\r\n")
	err := checkSecret(name, value)
	if err == nil {
		_, err = s.Session.Accounts.SetSecretOver(ctx, name, value, by.Name, over)
	}
	return err
}

// RemoveSecret implements web.Secrets.
func (s ServedSecrets) RemoveSecret(ctx context.Context, name string, of time.Time) error {
	return removed(name, s.Session.Accounts.RemoveSecretOf(ctx, name, of))
}
