package memory_test

import (
	"testing"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/testkit/idempotencytest"
)

func TestKeys(t *testing.T) {
	idempotencytest.Run(t, func(testing.TB) idempotency.Store { return new(memory.Keys) })
}
