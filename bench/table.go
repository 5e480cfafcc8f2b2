package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// printTable prints the medians of the turns, and what the first system has, as a ratio.
func printTable(out io.Writer, list []system, results [][]result, clients, turns int) {
	fmt.Fprintf(out, "%d work(s) at once, each of %d durable steps with 1 KB; medians of %d turns; %s %s/%s, %d processors, %s, load %s\n",
		clients, steps, turns, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateOnly), load())
	w := tabwriter.NewWriter(out, 2, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "system\tsteps/s\tof the first\tp50\tp99\tCPU/step\tof the first\tfsyncs/step\tlog/step\tRSS\tworks\trecorded before sent\tasked after doubt\t")
	var rate, cpu float64
	for i, s := range list {
		r := middle(results[i])
		n := float64(max(1, r.Works*steps))
		myRate, myCPU := n/r.Wall.Seconds(), r.CPU.Seconds()/n
		if i == 0 {
			rate, cpu = myRate, myCPU
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.2fx\t%s\t%s\t%.0fµs\t%.2fx\t%.3f\t%.0fB\t%dMiB\t%d\t%s\t%s\t\n", s.name, myRate, myRate/rate,
			short(r.P50), short(r.P99), 1e6*myCPU, myCPU/cpu, float64(r.Syncs)/n, float64(r.Log)/n, r.RSS>>20, r.Works, yes(s.recorded), yes(s.asked))
	}
	w.Flush()
	fmt.Fprintln(out)
}

// middle returns the turn whose rate is in the middle.
func middle(turns []result) result {
	list := slices.Clone(turns)
	slices.SortFunc(list, func(a, b result) int { return a.Works - b.Works })
	return list[len(list)/2]
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func load() string {
	text, _ := os.ReadFile("/proc/loadavg") // "" where there is none
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// notes says which versions these are, what was tuned, and what they do not promise.
func notes(out io.Writer, list []system) {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			versions[d.Path] = d.Version
			if d.Replace != nil {
				versions[d.Path] = "of this checkout"
			}
		}
	}
	for _, s := range list {
		fmt.Fprintf(out, "%s: %s %s\n  tuned: %s\n  promises: %s\n", s.name, s.module, versions[s.module], s.tuned, s.promises)
	}
	fmt.Fprint(out, "\nCPU is of the process and, on Postgres, of the server's processes. fsyncs of SQLite are its transactions, which FULL syncs each;\n"+
		"those of checkpoints are besides. The log is the write-ahead log. Keep and River begin the next work in the transaction that ends\n"+
		"the one before; the others begin it by a call that waits for its result. RSS is that of the process at the end of a turn.\n\n")
}

// benchLine is a line of go test -bench: the name, and values with their units.
var benchLine = regexp.MustCompile(`^BenchmarkPeers/(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// keys measures keys of HTTP requests, and prints ratios to the bare handler.
func keys(ctx context.Context, out io.Writer, quick bool) error {
	times := "20000x"
	if quick {
		times = "200x"
	}
	const dir = "../idempotency/compattest"
	own, err := os.MkdirTemp("", "keep-bench") // its go.mod follows when ours asks for newer modules
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(own, name), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("keys of HTTP requests: %w: run this in the directory bench", err)
		}
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-mod=mod", "-modfile="+filepath.Join(own, "go.mod"), "-run", "^$", "-bench", "Peers", "-benchtime", times, ".")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("keys of HTTP requests: %w: %s", err, text)
	}
	fmt.Fprintln(out, "keys of HTTP requests, 32 connections (BenchmarkPeers of idempotency/compattest):")
	w := tabwriter.NewWriter(out, 2, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "handler\trequests/s\tof bare\tother values\t")
	bare := 0.0
	for line := range strings.Lines(string(text)) {
		found := benchLine.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		fields := strings.Fields(found[2])
		rate, rest := 0.0, ""
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i+1] == "req/s" {
				rate, _ = strconv.ParseFloat(fields[i], 64) // 0 if it is none, which shows
				continue
			}
			rest += fields[i] + " " + fields[i+1] + "  "
		}
		bare = cmp.Or(bare, rate)
		fmt.Fprintf(w, "%s\t%.0f\t%.2fx\t%s\t\n", found[1], rate, rate/bare, rest)
	}
	fmt.Fprintln(w, "\t\t\t\t")
	w.Flush()
	fmt.Fprintln(out, "fiber: its middleware keeps keys in memory, for 30 minutes, and forgets them with the process; the same key with another body is answered")
	return nil
}
