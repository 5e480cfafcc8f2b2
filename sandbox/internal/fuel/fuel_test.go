package fuel_test

import (
	"testing"

	"github.com/keep-run/keep/sandbox/internal/fuel"
	"github.com/keep-run/keep/sandbox/internal/quickjs"
)

func TestQuick(t *testing.T) {
	out, st, err := fuel.Rewrite(quickjs.Module, 20000)
	t.Log(len(out), st, err)
}
func BenchmarkRewrite(b *testing.B) {
	for b.Loop() {
		fuel.Rewrite(quickjs.Module, 20000)
	}
}
