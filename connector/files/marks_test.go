package files_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/files"
)

// at is the nth change, recorded n seconds after a fixed time.
func at(n int) keep.Mutation {
	return keep.Mutation{
		Token: fmt.Sprint("tok-", n), Payload: json.RawMessage(fmt.Sprintf(`{"name":"f%d.txt","text":"%d\n"}`, n%7, n)),
		CreatedAt: time.Date(2026, 11, 20, 9, 0, n, 0, time.UTC),
	}
}

// Law once: a change whose mark was removed is never said to be absent. A doubt may wait
// for a person while 10,000 other changes are made.
func TestMarks(t *testing.T) {
	for _, name := range []string{"append", "write"} {
		for _, c := range []struct {
			name        string
			least, most int
			age         time.Duration
			old, young  connector.Verdict // of changes that happened; empty: a person must look
		}{
			{"young marks stay", 2, 100, time.Hour, connector.Happened, connector.Happened},
			{"too many marks", 2, 5, time.Hour, "", connector.Happened},
			{"old marks", 5, 100, 0, "", connector.Happened},
		} {
			t.Run(name+"/"+strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				conn := open(t, files.Config{Root: t.TempDir()})
				files.KeepMarks(conn, c.least, c.most, c.age)
				m := tool(t, conn, name).(connector.Mutator)
				for n := 1; n <= 20; n++ {
					if _, err := m.Mutate(t.Context(), at(2*n)); err != nil {
						t.Fatal(err)
					}
				}
				r := m.(connector.Reconciler)
				for n, want := range map[int]connector.Verdict{2: c.old, 40: c.young, 41: connector.Absent} {
					a, err := r.Reconcile(t.Context(), at(n))
					if a.Verdict != want || want == "" && class(err) != keep.ClassPrecondition {
						t.Errorf("change %d: %q, %v; want %q", n, a.Verdict, err, want)
					}
				}
				// A change that never was, from the time of the removed marks.
				if a, err := r.Reconcile(t.Context(), at(3)); c.old == "" && err == nil {
					t.Errorf("change 3: %q, want a person to look", a.Verdict)
				}
			})
		}
	}
}

// Law once: whether the mark of a change may have been removed is told by the time at which it was recorded, as the mark has it.
// A host whose clock is ahead of that of the records, which says when by its own, must not take what happened for absent.
func TestMarksByTheClockOfTheRecords(t *testing.T) {
	for _, name := range []string{"append", "write"} {
		for clock, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
			t.Run(name+"/"+clock, func(t *testing.T) {
				conn := open(t, files.Config{Root: t.TempDir()})
				files.KeepMarks(conn, 2, 5, time.Hour)
				m := tool(t, conn, name).(connector.Mutator)
				for n := 1; n <= 20; n++ {
					if _, err := m.Mutate(t.Context(), at(2*n)); err != nil {
						t.Fatal(err)
					}
				}
				for n, want := range map[int]connector.Verdict{2: "", 40: connector.Happened, 41: connector.Absent} {
					asked := at(n)
					asked.CreatedAt = asked.CreatedAt.Add(off)
					ctx := connector.WithRecorded(t.Context(), at(n).CreatedAt)
					a, err := m.(connector.Reconciler).Reconcile(ctx, asked)
					if a.Verdict != want || want == "" && class(err) != keep.ClassPrecondition {
						t.Errorf("change %d: %q, %v; want %q", n, a.Verdict, err, want)
					}
				}
			})
		}
	}
}

// Law witnessed: a root without marks says nothing of changes from before: .keep may have been removed, and a volume not be mounted. What
// had happened was called absent, and made again.
func TestMarksThatWereTakenAway(t *testing.T) {
	for _, name := range []string{"append", "write"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			m := tool(t, open(t, files.Config{Root: root}), name).(connector.Mutator)
			for _, n := range []int{1, 3} {
				if _, err := m.Mutate(t.Context(), at(n)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.RemoveAll(filepath.Join(root, ".keep")); err != nil {
				t.Fatal(err)
			}
			asksPerson := func(when string) {
				t.Helper()
				for _, n := range []int{1, 2, 3} {
					if a, err := m.(connector.Reconciler).Reconcile(t.Context(), at(n)); class(err) != keep.ClassPrecondition {
						t.Errorf("%s, change %d: %q, %v; want a person to look", when, n, a.Verdict, err)
					}
				}
			}
			asksPerson("without marks")
			if _, err := os.Stat(filepath.Join(root, ".keep")); err == nil {
				t.Error("a question made the directory of marks")
			}
			if _, err := m.Mutate(t.Context(), at(5)); err != nil {
				t.Fatal(err)
			}
			asksPerson("with marks of later changes")
			for n, want := range map[int]connector.Verdict{5: connector.Happened, 6: connector.Absent} {
				if a, err := m.(connector.Reconciler).Reconcile(t.Context(), at(n)); err != nil || a.Verdict != want {
					t.Errorf("change %d: %q, %v, want %q", n, a.Verdict, err, want)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(root, ".keep.new*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}
