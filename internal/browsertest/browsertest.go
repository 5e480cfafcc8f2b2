// Package browsertest starts the machine's Chromium for tests: one for each test binary,
// with cookies of its own for each tab. A test without it is skipped with a line that says so.
// A tab costs a second of the processor, so the next test gets the one that a test leaves.
package browsertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// shared is the one browser of the test binary.
var shared struct {
	sync.Mutex
	ctx  context.Context // nil: not started
	stop func()
	err  error
	idle []target.ID // empty tabs, each in a browser context of its own
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
	// What a test sets in a tab (its size, its time zone, what it listens to) is of the session that ends with the context.
	opts := []chromedp.ContextOption{chromedp.WithDetachOnCancel(), chromedp.WithNewBrowserContext()}
	if id, ok := takeIdle(); ok {
		opts[1] = chromedp.WithTargetID(id)
	}
	ctx, stop := chromedp.NewContext(browser, opts...)
	tb.Cleanup(func() {
		if !tb.Failed() && empty(ctx) == nil {
			id := chromedp.FromContext(ctx).Target.TargetID
			stop()
			putIdle(id)
			return
		}
		stop() // nobody gets a tab in an unknown state; it ends with the browser
	})
	if err := chromedp.Do(ctx); err != nil {
		tb.Fatal(err)
	}
	return ctx
}

func takeIdle() (target.ID, bool) {
	shared.Lock()
	defer shared.Unlock()
	last := len(shared.idle) - 1
	if last < 0 {
		return "", false
	}
	id := shared.idle[last]
	shared.idle = shared.idle[:last]
	return id, true
}

func putIdle(id target.ID) {
	shared.Lock()
	defer shared.Unlock()
	shared.idle = append(shared.idle, id)
}

// empty leaves the page of a tab, and removes what the pages of a test stored and where they led.
func empty(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	return chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.Action[chromedp.Void](func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err1 := cdp.Call(ctx, t, network.ClearBrowserCookies, cdp.Empty{})
		_, err2 := cdp.Call(ctx, t, storage.ClearDataForOrigin, storage.ClearDataForOriginParams{Origin: "*", StorageTypes: "all"})
		_, err3 := cdp.Call(ctx, t, page.ResetNavigationHistory, cdp.Empty{})
		return chromedp.Void{}, errors.Join(err1, err2, err3)
	}))
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
	// An empty tab stays in its process, and so does the page that follows: a process for each site takes a sixth of a second more.
	flags = append(flags, chromedp.Flag("disable-site-isolation-trials", true), chromedp.Flag("renderer-process-limit", "1"),
		chromedp.Flag("disable-features", "IsolateOrigins,site-per-process"))
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
