package grant

import (
	"fmt"
	"sync"
	"testing"
)

// TestCompiledConditions compiles more conditions than are kept, several at once: each is that of its text.
func TestCompiledConditions(t *testing.T) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range 3 * maxCompiled {
				c, err := CompileCondition(fmt.Sprintf("params.n == %d", n))
				if err != nil {
					t.Error(err)
					return
				}
				values, err := decode(fmt.Appendf(nil, `{"n":%d}`, n))
				if err != nil {
					t.Error(err)
					return
				}
				if ok, err := c.eval(values); !ok || err != nil {
					t.Errorf("params.n == %d with n = %d: %v, %v", n, n, ok, err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(compiled.m); n > maxCompiled {
		t.Errorf("%d conditions are kept, more than %d", n, maxCompiled)
	}
	for range 2 {
		if _, err := CompileCondition("params.n == "); err == nil {
			t.Error("what is no condition was compiled")
		}
	}
}
