package api

import (
	"context"
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// Accounts is what is known of accounts, and what people do with them.
type Accounts interface {
	// List returns the accounts, sorted by name.
	List(ctx context.Context) ([]AccountDetail, error)

	// Test makes a read that shows whether an account works. If a service does not accept
	// it, or the pack names no read for it, the error is a *keep.Failure.
	Test(ctx context.Context, name string) error

	// Renew gets new tokens now. An account that needs a person then says so.
	Renew(ctx context.Context, name string) error

	// Revoke tells the service that an account ends, and forgets it here, also if the
	// error says that the service could not be told. It is the one that was connected at of, else the error is keep.ErrStale; zero:
	// whichever is there.
	Revoke(ctx context.Context, name string, of time.Time) error
}

// accounts registers what is about accounts. Secrets are in no answer.
func (s *Server) accounts() {
	list := func(ctx context.Context) ([]AccountDetail, error) {
		if s.cfg.Accounts == nil {
			return []AccountDetail{}, nil
		}
		return s.cfg.Accounts.List(ctx)
	}
	one := func(ctx context.Context, name string) (AccountDetail, error) {
		all, err := list(ctx)
		if err != nil {
			return AccountDetail{}, err
		}
		for _, a := range all {
			if a.Name == name {
				return a, nil
			}
		}
		return AccountDetail{}, &keep.NotFoundError{What: "account", ID: name}
	}
	get(s, "/accounts", "list-accounts", "Accounts of services: who connected them, and whether they work; sorted by name",
		func(ctx context.Context, _ *struct{}) (Page[Account], error) {
			all, err := list(ctx)
			return paged(each(all, func(a AccountDetail) Account { return a.Account }), "", err)
		})
	type named struct {
		Name string `path:"account"`
	}
	get(s, "/accounts/{account}", "get-account", "An account with its requests for new tokens",
		func(ctx context.Context, in *named) (AccountDetail, error) { return one(ctx, in.Name) })
	for _, do := range []struct {
		verb, summary string
		do            func(ctx context.Context, name string) error
	}{
		{"test", "Make one read with an account, which shows whether it works", func(ctx context.Context, name string) error { return s.cfg.Accounts.Test(ctx, name) }},
		{"renew", "Get new tokens of an account now; the status of the answer says whether a person is needed", func(ctx context.Context, name string) error { return s.cfg.Accounts.Renew(ctx, name) }},
		{"revoke", "Revoke an account at its service, and forget it", func(ctx context.Context, name string) error { return s.cfg.Accounts.Revoke(ctx, name, time.Time{}) }},
	} {
		as(s, access.Admin, http.MethodPost, "/accounts/{account}/"+do.verb, do.verb+"-account", do.summary, func(ctx context.Context, in *named) (AccountDetail, error) {
			if _, err := one(ctx, in.Name); err != nil {
				return AccountDetail{}, err
			}
			if err := do.do(ctx, in.Name); err != nil {
				return AccountDetail{}, problemOf(http.StatusConflict, KindAccount, err.Error())
			}
			return one(ctx, in.Name)
		})
	}
}

// AccountExpiring is the status of an account that ends soon, and that only a person can
// renew.
const AccountExpiring keep.AccountStatus = "expiring"

// expiringWithin is how long before its end an account is called expiring.
const expiringWithin = 15 * time.Minute

// An Account is a credential of a service that a person connected. It holds no secret.
type Account struct {
	Name          string              `json:"name"`
	Pack          string              `json:"pack"`
	Style         string              `json:"style" doc:"how the credential is sent"`
	Subject       *string             `json:"subject" doc:"whom the service says it belongs to"`
	Scopes        []string            `json:"scopes"`
	Status        keep.AccountStatus  `json:"status" doc:"ok, expiring, needs_reconnect or revoked"`
	Generation    int64               `json:"generation"`
	Renews        bool                `json:"renews" doc:"whether new tokens come without a person"`
	ExpiresAt     *Time               `json:"expires_at"`
	ConnectedBy   string              `json:"connected_by"`
	ConnectedAt   Time                `json:"connected_at"`
	LastRefreshAt *Time               `json:"last_refresh_at"`
	LastUsedAt    *Time               `json:"last_used_at" doc:"when the service accepted it last, to a minute"`
	Workflows     []keep.WorkflowName `json:"workflows" doc:"those that may call a tool of its connections, or have made changes there"`
	Error         *string             `json:"error" doc:"why it needs a person, or since when renewing fails; of one that was revoked, why its service takes it still, or may"`
}

// AccountDetail is an account with its requests for new tokens.
type AccountDetail struct {
	Account
	Refreshes []Refresh `json:"refreshes"`
}

// A Refresh is a request for new tokens.
type Refresh struct {
	Generation int64             `json:"generation"`
	State      keep.RefreshState `json:"state"`
	Host       string            `json:"host"`
	SentAt     Time              `json:"sent_at"`
	EndedAt    *Time             `json:"ended_at"`
}

// AccountOf returns an account as people see it.
func AccountOf(a keep.Account, workflows []keep.WorkflowName, now time.Time) Account {
	out := Account{Name: a.Name, Pack: a.Pack, Style: a.Style, Subject: orNull(a.Subject), Scopes: append([]string{}, a.Scopes...), Status: a.Status,
		Generation: a.Generation, Renews: a.Renews, ExpiresAt: timeOf(a.ExpiresAt), ConnectedBy: a.ConnectedBy, ConnectedAt: Time(a.ConnectedAt), LastRefreshAt: timeOf(a.LastRefreshAt),
		LastUsedAt: timeOf(a.LastUsedAt), Workflows: append([]keep.WorkflowName{}, workflows...), Error: orNull(a.Error)}
	if a.Expiring(now, expiringWithin) {
		out.Status = AccountExpiring
	}
	return out
}

// RefreshesOf returns the requests for new tokens of an account, oldest first.
func RefreshesOf(a keep.Account) []Refresh {
	out := []Refresh{}
	for _, r := range a.Refreshes {
		out = append(out, Refresh{r.Generation, r.State, r.Host, Time(r.SentAt), timeOf(r.EndedAt)})
	}
	return out
}

// A Secret is a value that a person set. It holds no value.
type Secret struct {
	Name  string `json:"name"`
	SetBy string `json:"set_by"`
	SetAt Time   `json:"set_at"`
}

// SecretOf returns a secret as people see it.
func SecretOf(a keep.Account) Secret { return Secret{a.Name, a.ConnectedBy, Time(a.ConnectedAt)} }
