package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// rssBytes returns the resident memory of this process, as Linux reports it; 0
// elsewhere.
func rssBytes() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb int64
			fmt.Sscan(v, &kb)
			return kb << 10
		}
	}
	return 0
}

// watchRSS samples the resident memory until the returned function is called,
// which returns the largest sample.
func watchRSS() (stop func() int64) {
	done, most := make(chan struct{}), rssBytes()
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				most = max(most, rssBytes())
			}
		}
	})
	return func() int64 { close(done); wg.Wait(); return max(most, rssBytes()) }
}

// rss returns the resident memory of this process for a person.
func rss() string { return fmt.Sprintf("%dkB", rssBytes()>>10) }
