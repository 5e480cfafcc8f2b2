package account_test

import (
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host/account/seal"
)

// Each connecting of an account is an owner of its own, which renewals keep, unless it is known to be of
// the same user; and no request that is for one owner gets the credential of another.
func TestOwner(t *testing.T) {
	w := newBubble(t)
	m := w.host("h")
	owner := func() string {
		t.Helper()
		text, err := m.Owner(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	connect := func(c seal.Content) string {
		t.Helper()
		if _, err := m.Connect(t.Context(), keep.Account{Name: "mail", Pack: "gmail", Style: "oauth2", Renews: c.Refresh != "",
			ExpiresAt: time.Now().Add(time.Hour), Lifetime: time.Hour}, c); err != nil {
			t.Fatal(err)
		}
		return owner()
	}
	if got := owner(); got != "" {
		t.Errorf("before it is connected, it is of %q", got)
	}
	ann := seal.Content{Access: "access-token-0", Refresh: "refresh-0", Identity: "https://issuer ann"}
	first := connect(ann)
	if _, err := m.Renew(t.Context(), "mail"); err != nil || owner() != first {
		t.Errorf("renewed, it is of %q, %v; before of %q", owner(), err, first)
	}
	if again := connect(ann); again != first {
		t.Errorf("connected again as the same user, it is of %q, before of %q", again, first)
	}
	bob := ann
	bob.Identity = "https://issuer bob"
	second := connect(bob)
	if second == first {
		t.Errorf("connected as another user, it is of %q still", second)
	}
	key := seal.Content{Value: "key-1"}
	third := connect(key)
	if fourth := connect(key); third == second || fourth != third {
		t.Errorf("of %q, then with a key of %q, and with the very same of %q", second, third, fourth)
	}
	if other := connect(seal.Content{Value: "key-2"}); other == third {
		t.Errorf("another key is of %q still", other)
	}
	as := connector.SendAs(t.Context(), map[string]string{keep.AccountRef("mail"): third})
	if c, err := m.Credential(as, "mail"); err == nil {
		t.Errorf("a call of another owner got %q", c.Value)
	}
	if c, err := m.Credential(connector.SendAs(t.Context(), map[string]string{keep.AccountRef("mail"): ""}), "mail"); err == nil {
		t.Errorf("a call of nobody got %q", c.Value)
	}
	if _, err := m.Credential(connector.SendAs(t.Context(), map[string]string{keep.AccountRef("mail"): owner()}), "mail"); err != nil {
		t.Error(err)
	}
	if _, err := m.Revoke(t.Context(), "mail", time.Time{}); owner() != "" {
		t.Errorf("revoked, it is of %q, %v", owner(), err)
	}
}
