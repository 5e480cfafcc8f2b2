package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/transfer"
	"github.com/keep-run/keep/testkit/storetest"
)

// TestKill kills a copy with SIGKILL before each of its steps, one after the other. After
// each kill nobody can work on both databases. The same copy then continues, and is undone for the
// next one.
func TestKill(t *testing.T) {
	t.Parallel()
	for name, places := range map[string]func(testing.TB) (from, to place){
		"file to schema": func(tb testing.TB) (place, place) { return file(tb), schema(tb) },
		"schema to file": func(tb testing.TB) (place, place) { return schema(tb), file(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := places(t)
			fill(t, from)
			want := digest(t, from)
			stride := 1
			if testing.Short() {
				stride = 7
			}
			for step := 1; ; step += stride {
				if copyKilledAt(t, from, to, step) {
					if step < 20 {
						t.Fatalf("there were %d steps", step)
					}
					break
				}
				atMostOne(t, from, to, step)
				done, err := mover.Copy(ctx, from, to)
				if err != nil {
					t.Fatalf("copy after a kill at step %d: %v", step, err)
				}
				if done.Digest != want || digest(t, to) != want {
					t.Fatalf("copy after a kill at step %d: digest %s, want %s", step, done.Digest, want)
				}
				atMostOne(t, from, to, step)
				if err := mover.Undo(ctx, from, to); err != nil {
					t.Fatalf("undo: %v", err)
				}
				atMostOne(t, from, to, step)
			}
		})
	}
}

// copyKilledAt runs a copy in a process that dies before a step. It reports whether the
// copy was over before.
func copyKilledAt(t *testing.T, from, to place, step int) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCopyAndDie$", "-test.v")
	cmd.Env = append(os.Environ(), "TRANSFER_FROM="+address(from), "TRANSFER_TO="+address(to), "TRANSFER_DIE="+strconv.Itoa(step))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return true
	}
	if state, ok := errors.AsType[*exec.ExitError](err); !ok || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("copy: %v\n%s", err, out.Bytes())
	}
	return false
}

// TestCopyAndDie is the process that TestKill kills.
func TestCopyAndDie(t *testing.T) {
	from, to := os.Getenv("TRANSFER_FROM"), os.Getenv("TRANSFER_TO")
	if from == "" {
		t.Skip("a part of TestKill")
	}
	at, err := strconv.Atoi(os.Getenv("TRANSFER_DIE"))
	if err != nil {
		t.Fatal(err)
	}
	d := &death{left: at, end: die}
	if _, err := mover.Copy(ctx, mortal{placeAt(from), d}, mortal{placeAt(to), d}); err != nil {
		t.Fatal(err)
	}
}

// A death counts steps and comes at one.
type death struct {
	left int
	end  func()
}

func (d *death) step() {
	if d.left--; d.left == 0 {
		d.end()
	}
}

// die kills this process.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// TestInterrupt interrupts copies at each step, as SIGINT and SIGTERM do. The copy ends
// there and says so, at most one database can be worked on, and a copy that begins again
// moves all.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for name, places := range map[string]func(testing.TB) (from, to place){
		"file to schema": func(tb testing.TB) (place, place) { return file(tb), schema(tb) },
		"schema to file": func(tb testing.TB) (place, place) { return schema(tb), file(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := places(t)
			fill(t, from)
			want := digest(t, from)
			ended := 0
			for step := 1; ; step += 5 {
				ctx, stop := context.WithCancel(t.Context())
				d := &death{left: step, end: stop}
				_, err := mover.Copy(ctx, mortal{from, d}, mortal{to, d})
				stop()
				if d.left > 0 { // the copy was over before
					break
				}
				if err != nil {
					ended++
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("copy that was interrupted at step %d: %v", step, err)
					}
				}
				atMostOne(t, from, to, step)
				done, err := mover.Copy(t.Context(), from, to)
				if err != nil {
					t.Fatalf("copy after an interrupt at step %d: %v", step, err)
				}
				if done.Digest != want || digest(t, to) != want {
					t.Fatalf("copy after an interrupt at step %d: digest %s, want %s", step, done.Digest, want)
				}
				if err := mover.Undo(t.Context(), from, to); err != nil {
					t.Fatalf("undo: %v", err)
				}
				atMostOne(t, from, to, step)
			}
			if ended < 3 {
				t.Errorf("%d interrupts ended a copy, want at least 3", ended)
			}
		})
	}
}

type mortal struct {
	transfer.Place
	d *death
}

func (m mortal) Hold(ctx context.Context) (transfer.Held, error) {
	m.d.step()
	h, err := m.Place.Hold(ctx)
	if err != nil {
		return nil, err
	}
	return mortalHeld{h, m.d}, nil
}

func (m mortal) Receive(ctx context.Context, mark transfer.Mark, fill func(transfer.Sink) error) error {
	m.d.step()
	return m.Place.Receive(ctx, mark, func(s transfer.Sink) error {
		m.d.step()
		err := fill(mortalSink{s, m.d})
		m.d.step()
		return err
	})
}

func (m mortal) Check(ctx context.Context) iter.Seq[error] {
	m.d.step()
	return m.Place.Check(ctx)
}

type mortalHeld struct {
	transfer.Held
	d *death
}

func (h mortalHeld) Set(ctx context.Context, m transfer.Mark) error {
	h.d.step()
	err := h.Held.Set(ctx, m)
	h.d.step()
	return err
}

type mortalSink struct {
	transfer.Sink
	d *death
}

func (s mortalSink) Add(ctx context.Context, records []transfer.Record) error {
	s.d.step()
	return s.Sink.Add(ctx, records)
}

// atMostOne fails the test unless exactly one of two databases can be worked on, or none
// because the copy was about to open the second.
func atMostOne(t *testing.T, from, to place, step int) {
	t.Helper()
	a, b := workable(t, from), workable(t, to)
	if a && b {
		t.Fatalf("step %d: both databases can be worked on", step)
	}
	if !a && !b && (state(t, from) != transfer.Sealed || state(t, to) != transfer.Incoming) {
		t.Fatalf("step %d: the source is %q and the target %q", step, state(t, from), state(t, to))
	}
}

// workable reports whether a database is there and can be opened to work on it.
func workable(t *testing.T, p place) bool {
	t.Helper()
	if state(t, p) == missing {
		return false
	}
	err := p.work()
	if err != nil && !errors.Is(err, keep.ErrSealed) {
		t.Fatal(err)
	}
	return err == nil
}

// missing is the state of a place where no database is.
const missing transfer.State = "missing"

func state(t *testing.T, p place) transfer.State {
	t.Helper()
	h, err := p.Hold(ctx)
	if errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(err.Error(), "there is nothing of Keep") {
		return missing
	}
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	return h.Mark().State
}

func digest(t *testing.T, p place) string {
	t.Helper()
	h, err := p.Hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	d, err := transfer.DigestOf(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// fill makes a database with two workflows that have run, and one call in flight.
func fill(t *testing.T, p place) {
	t.Helper()
	db, closeDB := p.make(t)
	for i, w := range []keep.WorkflowName{"one", "two"} {
		l := storetest.NewLoad(w, i)
		if err := db.Commit(ctx, l.Deploy()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := l.Run(ctx, db); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Begin(ctx, db); err != nil {
			t.Fatal(err)
		}
	}
	if err := closeDB(); err != nil {
		t.Fatal(err)
	}
}
