package files_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/files"
)

// Points between the durable steps, in their order.
var points = map[string][]string{
	"write":  {"start", "temporary", "marked", "renamed", "flushed"},
	"append": {"start", "noted", "appended", "marked", "cleared"},
}

// TestMain is the process that dies, if it is asked to.
func TestMain(m *testing.M) {
	if point := os.Getenv("KEEP_DIE_AT"); point != "" {
		die(point)
	}
	os.Exit(m.Run())
}

func die(point string) {
	conn, err := files.New("docs", files.Config{Root: os.Getenv("KEEP_ROOT")})
	if err != nil {
		os.Exit(3)
	}
	files.OnStep(conn, func(at string) {
		if at == point {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			panic(err) // it is dead by now
		}
	})
	for _, t := range conn.Tools {
		if t.Spec().Name == os.Getenv("KEEP_TOOL") {
			t.(connector.Mutator).Mutate(context.Background(), mutation("t1"))
		}
	}
	os.Exit(4) // the point was not reached
}

// mutation is the change that all crash tests make.
func mutation(token string) keep.Mutation {
	return keep.Mutation{Token: token, Payload: json.RawMessage(`{"name":"sub/f.txt","text":"new ` + token + `\n"}`)}
}

// kill starts the change of t1 in root and kills the process at point.
func kill(t *testing.T, root, tool, point string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "KEEP_DIE_AT="+point, "KEEP_ROOT="+root, "KEEP_TOOL="+tool)
	err := cmd.Run()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the process was to die at %q: %v", point, err)
	}
}

func content(t testing.TB, root string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "sub/f.txt"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(raw)
}

func mutate(t testing.TB, root, name, token string) connector.Receipt {
	t.Helper()
	r, err := tool(t, open(t, files.Config{Root: root}), name).(connector.Mutator).Mutate(t.Context(), mutation(token))
	if err != nil {
		t.Fatalf("%s %s: %v", name, token, err)
	}
	return r
}

func reconcile(t testing.TB, root, name, token string) (connector.Answer, error) {
	t.Helper()
	return tool(t, open(t, files.Config{Root: root}), name).(connector.Reconciler).Reconcile(t.Context(), mutation(token))
}

// Law once: a change that a killed process began is found out about exactly,
// and sending it again completes it once.
func TestKilledAtEachStep(t *testing.T) {
	for name, list := range points {
		for _, point := range list {
			for _, old := range []string{"", "old\n"} {
				t.Run(name+" killed at "+point+" with "+old, func(t *testing.T) {
					t.Parallel()
					root := t.TempDir()
					if old != "" {
						plant(t, root, map[string]string{"sub/f.txt": old})
					}
					kill(t, root, name, point)
					want := "new t1\n"
					if name == "append" {
						want = old + want
					}
					happened := content(t, root) == want
					if !happened && content(t, root) != old {
						t.Fatalf("the file is %q", content(t, root))
					}
					a, err := reconcile(t, root, name, "t1")
					if err != nil || (a.Verdict == connector.Happened) != happened || (a.Verdict == connector.Absent) == happened {
						t.Errorf("reconcile = %q, %v; the file is %q", a.Verdict, err, content(t, root))
					}
					first := mutate(t, root, name, "t1")
					second := mutate(t, root, name, "t1")
					if got := content(t, root); got != want || string(first.Result) != string(second.Result) {
						t.Errorf("after sending again twice the file is %q, want %q; results %s, %s", got, want, first.Result, second.Result)
					}
					if happened && string(a.Result) != string(first.Result) {
						t.Errorf("results differ: %s, %s", a.Result, first.Result)
					}
					mutate(t, root, name, "t2")
					if a, err := reconcile(t, root, name, "t1"); err != nil || a.Verdict != connector.Happened {
						t.Errorf("after a later change: %q, %v; want happened", a.Verdict, err)
					}
					left, _ := filepath.Glob(filepath.Join(root, "sub", ".keep-*"))
					notes, _ := filepath.Glob(filepath.Join(root, ".keep", "note-*"))
					if len(left)+len(notes) > 0 {
						t.Errorf("left behind: %q %q", left, notes)
					}
				})
			}
		}
	}
}

// A file that others changed after the crash doesn't make a write look absent.
func TestWriteIsKnownWhateverBecameOfTheFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	kill(t, root, "write", "renamed")
	plant(t, root, map[string]string{"sub/f.txt": "edited by hand"})
	if a, err := reconcile(t, root, "write", "t1"); err != nil || a.Verdict != connector.Happened {
		t.Errorf("reconcile = %q, %v; want happened", a.Verdict, err)
	}
	mutate(t, root, "write", "t1")
	if got := content(t, root); got != "edited by hand" {
		t.Errorf("sending again wrote %q over an edit", got)
	}
}

func TestTornAppend(t *testing.T) {
	for _, c := range []struct {
		name, onDisk, want string
		verdict            connector.Verdict // empty: nobody can know
	}{
		{"nothing was written", "old\n", "old\n", connector.Absent},
		{"a part was written", "old\nne", "old\nnew t1\n", connector.Happened},
		{"all was written", "old\nnew t1\n", "old\nnew t1\n", connector.Happened},
		{"all, and others continued", "old\nnew t1\nmore", "old\nnew t1\nmore", connector.Happened},
		{"a foreign program wrote", "old\nforeign\n", "old\nforeign\n", ""},
		{"the file was cut", "o", "o", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, other := range []bool{false, true} {
				root := t.TempDir()
				plant(t, root, map[string]string{"sub/f.txt": "old\n"})
				kill(t, root, "append", "noted")
				plant(t, root, map[string]string{"sub/f.txt": c.onDisk})
				want := c.want
				if other {
					// Another workflow appends before anybody asks.
					mutate(t, root, "append", "t2")
					want += "new t2\n"
				}
				for range 2 {
					a, err := reconcile(t, root, "append", "t1")
					if a.Verdict != c.verdict || (err == nil) != (c.verdict != "") {
						t.Errorf("reconcile = %q, %v; want %q", a.Verdict, err, c.verdict)
					}
				}
				if got := content(t, root); got != want {
					t.Errorf("file is %q, want %q", got, want)
				}
			}
		})
	}
}

// What was appended whole, by a process that was killed before it flushed it, is flushed before the mark says from then on that it happened:
// it would be lost with the power.
func TestWholeAppendIsFlushed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	plant(t, root, map[string]string{"sub/f.txt": "old\n"})
	kill(t, root, "append", "noted")
	plant(t, root, map[string]string{"sub/f.txt": "old\nnew t1\n"})
	conn := open(t, files.Config{Root: root})
	marks := func() int {
		all, err := filepath.Glob(filepath.Join(root, ".keep", "mark*"))
		if err != nil {
			t.Error(err)
		}
		return len(all)
	}
	flushed := -1 // marks at the flush
	files.OnStep(conn, func(point string) {
		if point == "extended" {
			flushed = marks()
		}
	})
	a, err := tool(t, conn, "append").(connector.Reconciler).Reconcile(t.Context(), mutation("t1"))
	if err != nil || a.Verdict != connector.Happened || flushed != 0 || marks() != 1 {
		t.Errorf("reconcile = %q, %v; at the flush there were %d marks, want 0, and then %d", a.Verdict, err, flushed, marks())
	}
}

// Law doubt-is-not-failure: a new file that a consumer took away after the crash may have had the text.
func TestAppendToAFileThatWasTakenAway(t *testing.T) {
	for _, point := range []string{"noted", "appended"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			kill(t, root, "append", point)
			taken := content(t, root)
			if err := os.Remove(filepath.Join(root, "sub/f.txt")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if a, err := reconcile(t, root, "append", "t1"); err == nil {
					t.Errorf("the file was taken away with %q: %q, want that only a person can tell", taken, a.Verdict)
				}
			}
			if got := content(t, root); got != "" {
				t.Errorf("the file is there again, with %q", got)
			}
		})
	}
}

// Law doubt-is-not-failure: a write settles what a killed append left of the file, before it replaces what tells of that. Nothing is
// added to what it wrote, although that begins as the text of the append.
func TestWriteAfterAKilledAppend(t *testing.T) {
	for point, want := range map[string]connector.Verdict{"noted": connector.Absent, "appended": connector.Happened, "marked": connector.Happened} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			kill(t, root, "append", point)
			w := keep.Mutation{Token: "t2", Payload: json.RawMessage(`{"name":"sub/f.txt","text":"ne"}`)}
			if _, err := tool(t, open(t, files.Config{Root: root}), "write").(connector.Mutator).Mutate(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if a, err := reconcile(t, root, "append", "t1"); err != nil || a.Verdict != want {
					t.Errorf("reconcile = %q, %v; want %q", a.Verdict, err, want)
				}
			}
			if got := content(t, root); got != "ne" {
				t.Errorf("the file is %q, and \"ne\" was written", got)
			}
		})
	}
}

func TestChangesOfManyCallers(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	conn := open(t, files.Config{Root: root})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			token := string(rune('a' + i%10)) // each token twice
			m := tool(t, conn, "append").(connector.Mutator)
			if i%2 == 0 {
				// As from another process.
				m = tool(t, open(t, files.Config{Root: root}), "append").(connector.Mutator)
			}
			if _, err := m.Mutate(t.Context(), mutation(token)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := content(t, root)
	if strings.Count(got, "\n") != 10 {
		t.Errorf("20 calls with 10 tokens wrote %q", got)
	}
	for i := range 10 {
		if n := strings.Count(got, "new "+string(rune('a'+i))+"\n"); n != 1 {
			t.Errorf("token %c has %d effects", 'a'+i, n)
		}
	}
}

func TestChangesAreDefinite(t *testing.T) {
	root := t.TempDir()
	plant(t, root, map[string]string{"d/x": "", "script.sh": "old"})
	os.Chmod(filepath.Join(root, "script.sh"), 0o750)
	os.Symlink("/etc", filepath.Join(root, "out"))
	conn := open(t, files.Config{Root: root})
	for _, name := range []string{"write", "append"} {
		m := tool(t, conn, name).(connector.Mutator)
		for _, params := range []string{
			`{"name":"d","text":"x"}`, `{"name":"../x","text":"x"}`, `{"name":"out/x","text":"x"}`, `{"name":".keep/x","text":"x"}`,
			`{"name":"d/x/y","text":"x"}`, `{"name":"a"}`, `{"name":"a","text":"x","base64":""}`, `{"name":"a","base64":"!"}`, `{}`, `{"name":"a","text":"x","mode":7}`,
		} {
			if _, err := m.Mutate(t.Context(), keep.Mutation{Token: "x", Payload: json.RawMessage(params)}); class(err) != keep.ClassLogic {
				t.Errorf("%s %s: %v, want logic", name, params, err)
			}
		}
		gone := tool(t, open(t, files.Config{Root: root + "/gone"}), name).(connector.Mutator)
		if _, err := gone.Mutate(t.Context(), mutation("x")); class(err) != keep.ClassPrecondition {
			t.Errorf("%s without a root: %v, want precondition", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.Mutate(ctx, mutation("late")); class(err) != keep.ClassTransient {
			t.Errorf("%s after the end of ctx: %v, want transient", name, err)
		}
		// The time is over just before the effect.
		late := open(t, files.Config{Root: root})
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		files.OnStep(late, func(point string) {
			if point == points[name][1] || point == "marked" {
				cancel()
			}
		})
		if _, err := tool(t, late, name).(connector.Mutator).Mutate(ctx, mutation("late")); class(err) != keep.ClassTransient {
			t.Errorf("%s cancelled in the middle: %v, want transient", name, err)
		}
		cancel()
		if a, err := reconcile(t, root, name, "late"); err != nil || a.Verdict != connector.Absent || content(t, root) != "" {
			t.Errorf("%s cancelled in the middle: %q, %v", name, a.Verdict, err)
		}
	}
	if _, err := os.Stat("/etc/x"); err == nil {
		t.Error("a file was made outside the root")
	}
	w := tool(t, conn, "write").(connector.Mutator)
	r, err := w.Mutate(t.Context(), keep.Mutation{Token: "m", Payload: json.RawMessage(`{"name":"script.sh","base64":"bmV3"}`)})
	info, _ := os.Stat(filepath.Join(root, "script.sh"))
	if err != nil || info.Mode().Perm() != 0o750 || info.Size() != 3 || !strings.Contains(string(r.Result), `"size":3`) {
		t.Errorf("write = %s, %v; mode %v", r.Result, err, info.Mode())
	}
	// A token can't stand for two changes.
	if _, err := w.Mutate(t.Context(), keep.Mutation{Token: "m", Payload: json.RawMessage(`{"name":"script.sh","text":"x"}`)}); class(err) != keep.ClassInternal {
		t.Errorf("reused token: %v, want internal", err)
	}
}
