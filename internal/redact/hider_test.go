package redact_test

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep/internal/redact"
)

// shown returns which of the secrets a Hider shows.
func shown(h *redact.Hider, secrets ...string) (list []string) {
	for _, s := range secrets {
		if h.Text("a "+s+" b") != "a "+redact.Hidden+" b" {
			list = append(list, s)
		}
	}
	return list
}

// The secrets of the configuration, those of the request and the last ones of requests before are
// hidden, however many there were. Those before them are not, so that a text takes no longer
// from week to week.
func TestHiderIsBounded(t *testing.T) {
	var h redact.Hider
	h.Add("configured", "also-configured")
	all := tokens(10 * redact.MaxOld)
	for _, s := range all {
		h.Remember(s, "client-secret", "configured")
	}
	kept := append([]string{"configured", "also-configured", "client-secret"}, all[len(all)-redact.MaxOld:]...)
	if list := shown(&h, kept...); list != nil {
		t.Errorf("shows %q", list)
	}
	old := all[:len(all)-redact.MaxOld-1]
	if list := shown(&h, old...); len(list) != len(old) {
		t.Errorf("of %d tokens of long ago %d are hidden still", len(old), len(old)-len(list))
	}
}

// What a request brings once more takes the place of nothing.
func TestHiderLearnsTwice(t *testing.T) {
	var h redact.Hider
	all := tokens(redact.MaxOld)
	for range 3 {
		for _, s := range all {
			h.Remember(s, s, all[0])
		}
	}
	if list := shown(&h, all...); list != nil {
		t.Errorf("shows %q", list)
	}
}

// Of two accounts, each brings more than is remembered of others. None is without its own, and
// the token of a request that is under way stays hidden while the other account is renewed.
func TestHiderOfTwoAccounts(t *testing.T) {
	var h redact.Hider
	secretsOf := func(account string, n int) []string { // as host/account has them
		var list []string
		for _, s := range slices.Backward(tokens(n + redact.MaxOld + 2)) {
			list = append(list, account+s)
		}
		return list[:redact.MaxOld+2]
	}
	for n := range redact.MaxOld + 8 {
		a, b := secretsOf("a", n), secretsOf("b", n)
		h.Remember(a...)
		h.Remember(b...)
		if list := shown(&h, append(b, a[:redact.MaxOld]...)...); list != nil {
			t.Fatalf("when b was renewed %d times, shows %q", n, list)
		}
		h.Remember(append(a, b...)...)
		if list := shown(&h, append(a, b...)...); list != nil {
			t.Fatalf("after %d renewals, shows %q", n, list)
		}
	}
}

// A request that read its credential before another one, and says so after it, takes nothing away.
func TestHiderAtOnce(t *testing.T) {
	var h redact.Hider
	h.Add("configured")
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 8 {
				s := "token-" + strconv.Itoa(n) + "-" + strconv.Itoa(i%3)
				h.Remember("shared-token", s)
				if list := shown(&h, s, "shared-token", "configured"); list != nil {
					t.Errorf("shows %q", list)
				}
				if got := string(h.JSON([]byte(`"` + s + `"`))); strings.Contains(got, s) {
					t.Errorf("JSON shows %s", got)
				}
			}
		})
	}
	wg.Wait()
}
