//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/keep-run/keep/internal/llmtest"
)

// TestRepairOnThePages looks at a repair that waits for a person: what failed, what the proposal changes, why it is not
// safe, and what it would have done otherwise with the runs that are recorded.
func TestRepairOnThePages(t *testing.T) {
	t.Parallel()
	r := newRepairSite(t, false, "safe", func(llmtest.Request) llmtest.Reply { return proposing(harmful) })
	r.keep(0, "run", ".")
	r.keep(0, "publish", "bills", "mail", "--id", "m9", oddBill)
	r.keep(4, "run", ".")
	var list []struct{ ID string }
	if r.object(&list, "repairs"); len(list) != 1 {
		t.Fatalf("the repairs are %+v, want one", list)
	}
	s := &serving{t: t, bin: buildKeep(t), dir: r.dir, env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "KEEP_SECRET_LLM="+llmtest.Key)}
	s.start()
	b := s.admitted()
	shot := func(name string) {
		dir := os.Getenv("KEEP_SCREENSHOTS")
		if dir == "" {
			return
		}
		for size, width := range map[string]int64{"wide": 1280, "phone": 390} {
			if err := chromedp.Do(b.Context, chromedp.EmulateViewport(width, 900)); err != nil {
				t.Fatal(err)
			}
			png, err := chromedp.Run(b.Context, chromedp.FullScreenshot(100))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name+"-"+size+".png"), png, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Open(s.base + "/workflows/bills")
	b.Click(`a[href="/proposals?workflow=bills"]`)
	b.Shows("waits for you")
	shot("repairs")
	b.Click(`a[href="/proposals/` + list[0].ID + `"]`)
	for _, want := range []string{"The proposal is impactful", "it takes out, changes or moves", "if (amount > 500) return;", "amount is another field", "Version 1.1 waits until a person agrees"} {
		b.Shows(want)
	}
	shot("repair")
	b.Click(`form[action$="/compare"] button`)
	b.Shows("Impactful: something would have been otherwise.")
	b.Open(s.base + "/proposals/" + list[0].ID)
	b.Click(`a[href^="/inbox/"]`)
	b.Shows("line by line beside version 1.0")
	shot("repair-question")
	r.keep(0, "repairs", "reject", list[0].ID)
	b.Open(s.base + "/proposals/" + list[0].ID)
	b.Shows("rejected")
}
