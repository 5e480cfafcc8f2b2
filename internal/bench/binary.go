package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// binary says what is in the command: its size as it is released, of what modules its code comes, and
// how long it takes to say its version.
func binary(ctx context.Context, dir string, out io.Writer) error {
	whole, err := buildKeep(ctx, dir)
	if err != nil {
		return err
	}
	released := filepath.Join(filepath.Dir(whole), "released")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", released, "./cmd/keep") // as .goreleaser.yaml
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build keep as it is released: %w: %s", err, msg)
	}
	content, err := os.ReadFile(released)
	if err != nil {
		return err
	}
	packed, err := packedSize(content)
	if err != nil {
		return err
	}
	code, err := codeByModule(ctx, whole)
	if err != nil {
		return err
	}
	took, err := versionTime(ctx, released)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "keep as released: %.1f MB, packed with gzip %.1f MB; keep version: %s (median of 21)\n", mb(len(content)), mb(packed), ms(took))
	total := 0
	for _, n := range code {
		total += n
	}
	fmt.Fprintf(out, "machine code: %.1f MB, of these modules (the rest of the file: what Go keeps of each function for stack traces, types, data)\n", mb(total))
	names := slices.SortedFunc(maps.Keys(code), func(a, b string) int { return cmp.Compare(code[b], code[a]) })
	for _, name := range names[:min(16, len(names))] {
		fmt.Fprintf(out, "  %6.2f MB %5.1f %%  %s\n", mb(code[name]), 100*float64(code[name])/float64(total), name)
	}
	return nil
}

func mb(n int) float64 { return float64(n) / 1e6 }

func packedSize(content []byte) (int, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	if _, err := w.Write(content); err != nil {
		return 0, err
	}
	err = w.Close()
	return b.Len(), err
}

// codeByModule adds up the functions of each module; those of Go itself are "Go".
func codeByModule(ctx context.Context, bin string) (map[string]int, error) {
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	modules := []string{info.Main.Path}
	for _, d := range info.Deps {
		modules = append(modules, d.Path)
	}
	slices.SortFunc(modules, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // the longest that fits
	symbols, err := exec.CommandContext(ctx, "go", "tool", "nm", "-size", bin).Output()
	if err != nil {
		return nil, fmt.Errorf("go tool nm: %w", err)
	}
	code := make(map[string]int)
	lines := bufio.NewScanner(bytes.NewReader(symbols))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		f := strings.Fields(lines.Text()) // address, size, kind, name
		if len(f) < 4 || !strings.EqualFold(f[2], "t") {
			continue
		}
		size, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, err
		}
		name := strings.Join(f[3:], " ")
		module := "Go"
		if strings.HasPrefix(name, "main.") {
			module = info.Main.Path
		} else if i := slices.IndexFunc(modules, func(m string) bool { return strings.Contains(name, m) }); i >= 0 {
			module = modules[i]
		}
		code[module] += size
	}
	return code, lines.Err()
}

// versionTime is the median time that the command takes to say its version.
func versionTime(ctx context.Context, bin string) (time.Duration, error) {
	var took []time.Duration
	for range 21 {
		start := time.Now()
		if err := exec.CommandContext(ctx, bin, "version").Run(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
