package api

import (
	"time"

	"github.com/keep-run/keep"
)

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
	ExpiresAt     *Time               `json:"expires_at"`
	ConnectedBy   string              `json:"connected_by"`
	ConnectedAt   Time                `json:"connected_at"`
	LastRefreshAt *Time               `json:"last_refresh_at"`
	LastUsedAt    *Time               `json:"last_used_at"`
	Workflows     []keep.WorkflowName `json:"workflows" doc:"those with calls under it"`
	Error         *string             `json:"error" doc:"why it needs a person"`
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
		Generation: a.Generation, ExpiresAt: timeOf(a.ExpiresAt), ConnectedBy: a.ConnectedBy, ConnectedAt: Time(a.ConnectedAt), LastRefreshAt: timeOf(a.LastRefreshAt),
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
