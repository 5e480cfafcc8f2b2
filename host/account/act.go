package account

import (
	"context"

	"github.com/keep-run/keep"
)

// What people do with accounts and secrets is recorded with it: one that is gone says nothing of who ended it.

// How it is called to store one, and what its records are about.
var (
	connects = map[keep.AccountKind]keep.Action{keep.AccountConnected: keep.Connect, keep.AccountSecret: keep.SetSecret}
	subjects = map[keep.AccountKind]keep.SubjectKind{keep.AccountConnected: keep.AboutAccount, keep.AccountSecret: keep.AboutSecret}
)

// act returns the record of what is done with an account, or a secret.
func (m *Manager) act(ctx context.Context, a keep.Account, action keep.Action, note string) keep.Decided {
	d := keep.Decision{Action: action, Note: note, At: m.now()}
	if action == connects[a.Kind] {
		d.By = a.ConnectedBy
	}
	if m.cfg.By != nil {
		d.By, d.From = m.cfg.By(ctx)
	}
	return keep.Decided{About: keep.Subject{Kind: subjects[a.Kind], ID: a.Name}, Decision: d}
}
