// Package browsertest starts the machine's Chromium for tests: one for each test binary,
// with cookies of its own for each tab. A test without it is skipped with a line that says so.
package browsertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// shared is the one browser of the test binary.
var shared struct {
	sync.Mutex
	ctx  context.Context // nil: not started
	stop func()
	err  error
}

var errMissing = errors.New("no Chromium on this machine (apt-get install chromium)")

// Stop ends the browser, if it was started. TestMain calls it after the tests.
func Stop() {
	shared.Lock()
	defer shared.Unlock()
	if shared.stop != nil {
		shared.stop()
	}
}

// Tab returns the context of a new tab, without the cookies of any other. It ends with the
// test; whoever uses it bounds each step.
func Tab(tb testing.TB) context.Context {
	tb.Helper()
	browser, err := start()
	if errors.Is(err, errMissing) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	tb.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		tb.Fatal(err)
	}
	return ctx
}

// start returns the context of the shared browser, and starts it first.
func start() (context.Context, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.ctx != nil || shared.err != nil {
		return shared.ctx, shared.err
	}
	var file string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			file = path
			break
		}
	}
	if file == "" {
		shared.err = errMissing
		return nil, shared.err
	}
	dir, err := os.MkdirTemp("", "keep-chromium-")
	if err != nil {
		return nil, err
	}
	flags := []chromedp.ExecAllocatorOption{chromedp.ExecPath(file), chromedp.NoSandbox, chromedp.Headless, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.UserDataDir(dir), chromedp.WSURLReadTimeout(time.Minute)}
	for _, name := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"} {
		flags = append(flags, chromedp.Flag(name, true))
	}
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), flags...)
	ctx, stopTab := chromedp.NewContext(alloc)
	shared.stop = func() {
		stopTab()
		stopAlloc()
		os.RemoveAll(dir)
	}
	shared.ctx, shared.err = ctx, chromedp.Do(ctx)
	return shared.ctx, shared.err
}
