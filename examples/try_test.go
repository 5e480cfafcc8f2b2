package examples_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// try runs the command that a newcomer runs, from the root of the repository.
func try(t *testing.T, name, dir string) (stdout string) {
	t.Helper()
	stdout, stderr, err := tried(t, name, dir)
	if err != nil {
		t.Fatalf("try %s: %v\n%s%s", name, err, stdout, stderr)
	}
	return stdout
}

func tried(t *testing.T, name, dir string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program("try"), name, dir)
	cmd.Dir = ".."
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "KEEP_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "TRY_KEEP="+program("keep"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// A directory that is no copy of an example is neither removed nor run, and neither is one beside it. One that is empty is used.
func TestTrySparesOtherDirectories(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gateway", "invoices"} {
		for _, end := range []string{"", ".next"} {
			dir := filepath.Join(t.TempDir(), "mine")
			file := filepath.Join(dir+end, "letter.txt")
			if err := os.MkdirAll(dir+end, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("dear"), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, said, err := tried(t, name, dir); err == nil || !strings.Contains(said, dir+end+" is there, and no copy") {
				t.Errorf("try %s: %v, it says %q", name, err, said)
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != "dear" {
				t.Errorf("try %s: a file of the directory is %q, %v", name, text, err)
			}
		}
	}
	try(t, "invoices", t.TempDir())
}

// Each example of services does against twins what its README.md says.
func TestExamplesOnTwins(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gateway", "mail-to-sheet", "paid-events", "triage"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := ""
			for _, b := range blocks(t, filepath.Join("examples", name, "README.md")) {
				if b.lang == "" {
					want = b.text
				}
			}
			got := try(t, name, filepath.Join(t.TempDir(), name))
			if i := strings.Index(got, want); want == "" || i < 0 || got[i:] != want {
				t.Errorf("it printed (-got +want):\n%s", cmp.Diff(got, want))
			}
		})
	}
}

// sums returns a hash of each file of an example, but of those that .gitignore names.
func sums(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	all := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = sha256.Sum256(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// An example that is tried stays as it is, twice too.
func TestTryLeavesTheExample(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"invoices", "reminders", "triage"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, dir := sums(t, name), filepath.Join(t.TempDir(), name)
			first := try(t, name, dir)
			try(t, name, dir)
			if d := cmp.Diff(sums(t, name), before); d != "" {
				t.Errorf("files of the example changed:\n%s", d)
			}
			if first == "" {
				t.Error("it printed nothing")
			}
		})
	}
}
