package sqlite_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
)

// childEnv names the file that a child process of this test commits to.
const childEnv = "KEEP_SQLITE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := commitForEver(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// A sequence costs its fsyncs; -rapid.checks asks for more of them.
	if err := flag.Set("rapid.checks", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// commitForEver makes runs in several workflows, and prints the id of each run
// whose commit returned.
func commitForEver(path string) error {
	db := sqlite.New(path, sqlite.Config{Host: true})
	if err := db.Open(context.Background()); err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			l := newLoad(i)
			l.Workflow += keep.WorkflowName(fmt.Sprintf("-%d", os.Getpid()))
			err := db.Commit(context.Background(), l.Deploy())
			for err == nil {
				if err = l.Run(context.Background(), db); err == nil {
					mu.Lock()
					fmt.Printf("%s %s\n", l.Workflow, l.Event)
					mu.Unlock()
				}
			}
			fmt.Fprintln(os.Stderr, err)
		})
	}
	wg.Wait()
	return nil
}

// TestKill proves the guarantee of Commit against SIGKILL: what was acknowledged
// is there, and what is there is lawful.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	var acknowledged []string
	for range 5 {
		acknowledged = append(acknowledged, killAfter(t, path, 1+rand.IntN(400))...)
		db := openDB(t, path, sqlite.Config{Host: true})
		for _, line := range acknowledged {
			workflow, event, _ := strings.Cut(line, " ")
			if _, err := db.Event(t.Context(), keep.WorkflowName(workflow), "mail.received", keep.MessageID(event)); err != nil {
				t.Fatalf("an acknowledged commit is lost: %v", err)
			}
		}
		clean(t, db)
		must(t, db.Close())
	}
	t.Logf("%d acknowledged commits survived 5 kills", len(acknowledged))
}

// killAfter starts a child, kills it after some acknowledged commits, and
// returns all that it acknowledged.
func killAfter(t *testing.T, path string, commits int) (lines []string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	for in := bufio.NewScanner(out); in.Scan(); {
		if lines = append(lines, in.Text()); len(lines) == commits {
			must(t, child.Process.Kill())
		}
	}
	if err := child.Wait(); err == nil || len(lines) < commits {
		t.Fatalf("the child ended after %d commits: %v", len(lines), err)
	}
	return lines
}
