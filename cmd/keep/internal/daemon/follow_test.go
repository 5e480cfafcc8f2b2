package daemon

import (
	"testing"
	"time"
)

// A secret whose file changed is at most a second old at a call: two looks may be needed to see the file whole.
func TestSecretsAreLookedAtInTime(t *testing.T) {
	if 2*lookEvery >= time.Second {
		t.Errorf("files are looked at each %s, so a secret may be older than a second at a call", lookEvery)
	}
}
