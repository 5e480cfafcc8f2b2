package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tests measures the real command keep test on files of n tests of a small script, from the
// start of the process to its end: in TOML and in JavaScript, with a time in each test and
// without, in turns.
func tests(ctx context.Context, dir string, n int, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	bin, err := buildKeep(ctx, dir)
	if err != nil {
		return err
	}
	project := filepath.Join(dir, "project")
	if msg, err := exec.CommandContext(ctx, bin, "init", project).CombinedOutput(); err != nil {
		return fmt.Errorf("keep init: %w: %s", err, msg)
	}
	files := []struct{ label, name, text string }{
		{"TOML", "plain.test.toml", testsInTOML(n, false)}, {"TOML, each with now", "timed.test.toml", testsInTOML(n, true)},
		{"JavaScript", "plainjs.test.js", testsInJS(n, "")}, {"JavaScript, each with now", "timedjs.test.js", testsInJS(n, " now: new Date(Date.UTC(2026, 6, 1) + i * 1000).toISOString(),")},
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(project, f.name), []byte(f.text), 0o600); err != nil {
			return err
		}
	}
	const turns = 5
	took, cpu := make([][]time.Duration, len(files)), make([][]time.Duration, len(files))
	for range turns {
		for i, f := range files {
			cmd := exec.CommandContext(ctx, bin, "test", filepath.Join(project, f.name))
			start := time.Now()
			if msg, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("keep test %s: %w: %s", f.name, err, msg)
			}
			took[i] = append(took[i], time.Since(start))
			cpu[i] = append(cpu[i], cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}
	}
	fmt.Fprintf(out, "keep test, the command, files of %d tests of one event and one call each, %d times\n", n, turns)
	fmt.Fprintf(out, "%-28s %12s %12s %12s %14s\n", "", "tests/s min", "median", "max", "CPU per test")
	for i, f := range files {
		slices.Sort(took[i])
		slices.Sort(cpu[i])
		rate := func(d time.Duration) float64 { return float64(n) / d.Seconds() }
		fmt.Fprintf(out, "%-28s %12.0f %12.0f %12.0f %12dµs\n", f.label,
			rate(took[i][turns-1]), rate(took[i][turns/2]), rate(took[i][0]), cpu[i][turns/2].Microseconds()/int64(n))
	}
	return nil
}

func testsInTOML(n int, timed bool) string {
	var b strings.Builder
	b.WriteString("script = \"journal.js\"\n")
	for i := range n {
		fmt.Fprintf(&b, "[[test]]\nname = \"file %d\"\nhandler = \"note\"\n", i)
		if timed {
			fmt.Fprintf(&b, "now = %s\n", time.Date(2026, 7, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339))
		}
		fmt.Fprintf(&b, `events = [{ topic = "file.arrived", messageId = "f%[1]d", payload = { name = "f%[1]d.txt", size = %[1]d } }]
[test.expect]
calls = [{ tool = "journal.write", params = { text = "f%[1]d.txt arrived", data = { size = %[1]d } } }]
questions = []
`, i)
	}
	return b.String()
}

// testsInJS returns the same, with more keys for each test.
func testsInJS(n int, keys string) string {
	return fmt.Sprintf(`export const script = "journal.js";
export default Array.from({ length: %d }, (_, i) => ({
  name: "file " + i, handler: "note",%s
  events: [{ topic: "file.arrived", messageId: "f" + i, payload: { name: "f" + i + ".txt", size: i } }],
  expect: { calls: [{ tool: "journal.write", params: { text: "f" + i + ".txt arrived", data: { size: i } } }], questions: [] },
}));
`, n, keys)
}
