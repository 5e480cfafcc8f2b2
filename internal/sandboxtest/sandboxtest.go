// Package sandboxtest is where tests keep the compiled sandbox: compiling it takes five
// seconds of a processor under the race detector, in each test binary, and loading it a
// tenth of one.
package sandboxtest

import (
	"context"
	"os"
	"path/filepath"

	"github.com/keep-run/keep/script/sandbox"
)

// CacheDir returns a directory for sandbox.Config that all packages and all runs of tests
// share. It is empty if the user has no directory for caches: then each compiles.
func CacheDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "keep-test", "sandbox")
}

// Fill makes dir a cache of the sandbox that has been filled, for processes that tests start:
// what these do with it is seen by no other test.
func Fill(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if shared := CacheDir(); shared != "" {
		rt, err := sandbox.Open(context.Background(), sandbox.Config{CacheDir: shared})
		if err != nil {
			return err
		}
		if err := rt.Close(); err != nil {
			return err
		}
		_ = os.CopyFS(dir, os.DirFS(shared)) // another process may be filling it: what lacks is compiled
	}
	rt, err := sandbox.Open(context.Background(), sandbox.Config{CacheDir: dir})
	if err != nil {
		return err
	}
	return rt.Close()
}
