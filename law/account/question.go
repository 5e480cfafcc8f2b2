package account

import (
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// Notice is how long before the end of an account a person is asked, if only a person can
// renew it.
const Notice = 15 * time.Minute

// noticeOutage is for how long requests for new tokens are lost before a person is asked.
const noticeOutage = 5 * time.Minute

// NeedsPerson reports whether a person is to connect the account again, now or soon. Of one
// that a person revoked it is false.
func NeedsPerson(a keep.Account, now time.Time) bool {
	_, failing := Failing(a)
	return a.Kind == keep.AccountConnected && (a.Status == keep.AccountNeedsReconnect || a.Expiring(now, Notice) || failing >= noticeOutage)
}

// Stuck reports whether calls wait for an account that cannot be renewed now, and about which a person is asked.
func Stuck(a keep.Account, now time.Time) bool {
	return a.Renews && a.Status == keep.AccountOK && NeedsPerson(a, now) && !Usable(a, now) && now.Before(DueAt(a))
}

// questionPrefix begins the ids of questions about accounts.
const questionPrefix = "esc_reconnect_"

// QuestionID returns the id of the one question about what an account holds now. The next
// credential of it has another one, so that of hosts that ask at once one does, and that a
// question whose id no account has is over.
func QuestionID(a keep.Account) keep.EscalationID {
	return keep.EscalationID(fmt.Sprintf("%s%s_%d_%d", questionPrefix, a.Name, a.ConnectedAt.UnixMilli(), a.Generation))
}

// Asked returns the account that a question is about by its id; empty: it is about no account.
func Asked(id keep.EscalationID) string {
	rest, ok := strings.CutPrefix(string(id), questionPrefix)
	if !ok {
		return ""
	}
	for range 2 { // the time and the generation; a name may have underscores, too
		rest = rest[:max(strings.LastIndexByte(rest, '_'), 0)]
	}
	return rest
}

// Question returns what a person is asked about an account that needs one.
func Question(a keep.Account, now time.Time) keep.Escalation {
	q := keep.Escalation{
		ID: QuestionID(a), Kind: keep.AskReconnect, CreatedAt: now,
		Question:  fmt.Sprintf("The account %s of %s must be connected again: keep connect %s --name %s", a.Name, a.Pack, a.Pack, a.Name),
		Attempted: fmt.Sprintf("account %s of %s, connected by %s at %s", a.Name, a.Pack, a.ConnectedBy, a.ConnectedAt.UTC().Format(time.RFC3339)),
		Why:       a.Error,
	}
	switch since, _ := Failing(a); {
	case a.Status != keep.AccountOK:
	case a.Renews:
		q.Question = fmt.Sprintf("The account %s of %s cannot be renewed since %s. It is tried again for a day: look whether its service works. "+
			"If that does not help, connect it again: keep connect %s --name %s", a.Name, a.Pack, since.UTC().Format(time.RFC3339), a.Pack, a.Name)
	default:
		q.Question = fmt.Sprintf("The account %s of %s ends at %s, and only a person can renew it: keep connect %s --name %s",
			a.Name, a.Pack, a.ExpiresAt.UTC().Format(time.RFC3339), a.Pack, a.Name)
		q.Why = "the service gave nothing to renew it with"
	}
	q.Why = strings.TrimSuffix(q.Why, ".") + "; runs that need it wait, send nothing, and continue by themselves when it is renewed or connected"
	return q
}

// Continues reports whether a run that failed for an account is to be tried again: what the
// account holds is not what it was then. The account is the zero one if there is none.
func Continues(f *keep.Failure, a keep.Account) bool {
	return f != nil && f.Account != "" && f.Generation != a.Generation
}

// Replaced reports whether a run that failed because of secrets of the configuration is to
// be tried again: those that the tool has now are others. mark is theirs.
func Replaced(f *keep.Failure, mark string) bool {
	return f != nil && f.Secrets != "" && f.Secrets != mark
}

// Restored returns an account as it comes out of a backup: what was done since is not
// known, so its tokens may have been used up. That is as if the answer to one request for
// them had been lost: they are tried once more at once, and then a person is asked. It
// reports false if that is so already, or cannot be.
func Restored(a keep.Account, now time.Time) (keep.Account, bool) {
	if a.Kind != keep.AccountConnected || a.Status != keep.AccountOK || !a.Renews {
		return a, false
	}
	a = Release(a.Clone())
	for i := range a.Refreshes {
		switch r := &a.Refreshes[i]; {
		case r.Generation != a.Generation:
		case r.State == keep.RefreshSent:
			r.State, r.EndedAt = keep.RefreshLost, now
			return a, true
		case r.State == keep.RefreshLost || r.State == keep.RefreshRefused:
			return a, false // the next request is the last one anyway
		}
	}
	a.Refreshes = append(a.Refreshes, keep.Refresh{Generation: a.Generation, State: keep.RefreshLost, Host: "restored", SentAt: now, EndedAt: now})
	if over := len(a.Refreshes) - keep.MaxRefreshes; over > 0 {
		a.Refreshes = a.Refreshes[over:]
	}
	return a, true
}
