package connector

import (
	"context"

	"github.com/keep-run/keep"
)

// A Sender returns whose credentials a connection sends with now, as keep.SentAs.As has it; of secrets it
// has what mac makes of them. An account that holds nothing is there, and empty; one that is not there is not
// named any more.
type Sender func(ctx context.Context, mac func(secret string) string) (map[string]string, error)

type sendAs struct{}

// SendAs returns a context in which accounts give no other credentials than those of as, which is
// that of keep.SentAs: an account that is connected as another user between two steps of a call
// sends nothing then, and neither does one that held nothing.
func SendAs(ctx context.Context, as map[string]string) context.Context {
	return context.WithValue(ctx, sendAs{}, as)
}

// MayGive reports whether an account of that owner may give its credential to a request.
func MayGive(ctx context.Context, account, owner string) bool {
	as, _ := ctx.Value(sendAs{}).(map[string]string)
	want, named := as[keep.AccountRef(account)]
	return !named || want == owner
}
