package account_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/law/account"
)

func TestIsName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "_x": true, "my.mail-2": true, "9": true, strings.Repeat("a", 128): true,
		"": false, ".a": false, "-a": false, "a..b": false, "a/b": false, "a b": false, "é": false, "a\x1b[31m": false, "a\n": false, strings.Repeat("a", 129): false,
	} {
		if got := account.IsName(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}
