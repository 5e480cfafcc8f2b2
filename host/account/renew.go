package account

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

type Client interface{}
type renewal struct{}
type forced struct {
	generation int64
	at         time.Time
}

func (m *Manager) fresh(ctx context.Context, a keep.Account) (keep.Account, error) { return a, nil }

// Refused says that the service did not accept a credential; see connector.Accounts.
func (m *Manager) Refused(ctx context.Context, name string, c connector.Credential) bool {
	a, err := m.row(ctx, keep.AccountConnected, name)
	return err == nil && a.Generation != c.Generation && a.Status == keep.AccountOK
}
