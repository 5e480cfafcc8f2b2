package files_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/files"
)

// change makes a change of a name with a text.
func change(t *testing.T, conn *connector.Connection, name, token, file, text string) error {
	t.Helper()
	payload, err := json.Marshal(map[string]string{"name": file, "text": text})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tool(t, conn, name).(connector.Mutator).Mutate(t.Context(), keep.Mutation{Token: token, Payload: payload})
	return err
}

// Law nothing-lost: what a killed append left of a file is settled before the file is changed under another name, as through a
// link. An equal text that was appended so is not the one of before.
func TestAppendUnderAnotherName(t *testing.T) {
	for _, other := range []string{"loop/f.txt", "link.txt", "chain/f.txt", "sub/again/f.txt"} {
		for _, tool := range []string{"append", "write"} {
			t.Run(tool+"_"+strings.ReplaceAll(other, "/", "_"), func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				plant(t, root, map[string]string{"sub/f.txt": "old\n"})
				for name, to := range map[string]string{"loop": "sub", "link.txt": "sub/f.txt", "chain": "./loop", "sub/again": "../chain"} {
					if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
						t.Skip("this machine has no links: ", err)
					}
				}
				kill(t, root, "append", "noted")
				text := "new t1\n"
				if tool == "write" {
					text = "old\nnew t1\nand more"
				}
				if err := change(t, open(t, files.Config{Root: root}), tool, "t2", other, text); err != nil {
					t.Fatal(err)
				}
				if a, err := reconcile(t, root, "append", "t1"); err != nil || a.Verdict != connector.Absent {
					t.Errorf("the append that was killed before it began: %q, %v; the file is %q", a.Verdict, err, content(t, root))
				}
			})
		}
	}
}

// Law doubt-is-not-failure: a file that is taken away with the text, when that cannot be made durable any more, had it.
func TestAppendToAFileThatIsTakenAway(t *testing.T) {
	root := t.TempDir()
	plant(t, root, map[string]string{"sub/f.txt": "old\n"})
	conn := open(t, files.Config{Root: root})
	files.OnStep(conn, func(at string) {
		if at == "extended" {
			if err := os.Rename(filepath.Join(root, "sub"), filepath.Join(root, "taken")); err != nil {
				t.Error(err)
			}
		}
	})
	err := change(t, conn, "append", "t1", "sub/f.txt", "new t1\n")
	taken, _ := os.ReadFile(filepath.Join(root, "taken/f.txt"))
	if class(err) != keep.ClassUnknown || string(taken) != "old\nnew t1\n" {
		t.Errorf("the file was taken with %q, and the append says %v", taken, err)
	}
	for range 2 {
		if a, err := reconcile(t, root, "append", "t1"); err == nil {
			t.Errorf("the lookup says %q, want that only a person can tell", a.Verdict)
		}
	}
}

// Law doubt-is-not-failure: a rename may be made, and answered with an error, as over a network whose answer was lost and that
// asked again.
func TestRenameWithoutItsAnswer(t *testing.T) {
	root := t.TempDir()
	plant(t, root, map[string]string{"sub/f.txt": "old\n"})
	conn := open(t, files.Config{Root: root})
	files.OnStep(conn, func(at string) {
		if at != "marked" {
			return
		}
		temps, err := filepath.Glob(filepath.Join(root, "sub", ".keep-*.tmp"))
		if err != nil || len(temps) != 1 {
			t.Fatalf("%v, %v", temps, err)
		}
		if err := os.Rename(temps[0], filepath.Join(root, "sub/f.txt")); err != nil {
			t.Error(err)
		}
	})
	err := change(t, conn, "write", "t1", "sub/f.txt", "new t1\n")
	if got := content(t, root); got != "new t1\n" || err != nil {
		t.Errorf("the file is %q, and the write says %v", got, err)
	}
	if a, err := reconcile(t, root, "write", "t1"); err != nil || a.Verdict != connector.Happened {
		t.Errorf("the lookup says %q, %v", a.Verdict, err)
	}
}
