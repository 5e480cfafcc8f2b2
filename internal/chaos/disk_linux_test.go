package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keep-run/keep"
)

// The disk is full when a call was just made: its outcome cannot be recorded. The
// host says so and waits. Once there is space it asks what happened, or a person
// if it can't; nothing is sent again. Laws: once, nothing-lost.
func TestDiskFullAfterAnEffect(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			p := newProject(t, level+"1", level+"2", level+"3")
			disk := p.smallDisk()
			var calls atomic.Int32
			p.service.follow(func(asked, _ string) step {
				if asked == level && calls.Add(1) == 2 {
					return step{Then: disk.fill}
				}
				return step{}
			})
			h := p.start()
			h.waitFor(fullDisk)
			if n := calls.Load(); n != 2 {
				t.Errorf("%d calls while the disk is full, want none after the second", n)
			}
			disk.makeSpace()
			h.wait(exitDone, exitNeedsPerson)
			p.finish()
		})
	}
}

// The disk is full before anything is recorded, and the command gives up when its
// time is over: with the status and the words that are documented.
func TestDiskFullUntilTheTimeIsOver(t *testing.T) {
	t.Parallel()
	p := newProject(t, "a1")
	disk := p.smallDisk()
	p.service.follow(func(asked, _ string) step {
		if asked == "feed" {
			disk.fill()
		}
		return step{}
	})
	h := p.start("--timeout", "5s")
	h.waitFor(fullDisk)
	h.wait(exitFailed)
	if n := p.service.effectsOf("a1"); n > 0 {
		t.Errorf("%d calls without a record (law: recorded-before-sent)", n)
	}
	p.service.follow(well)
	disk.makeSpace()
	p.finish()
}

// A full disk when the command starts is an error, not a hang, and not a lost
// database, whether there is one already or not.
func TestDiskFullAtTheStart(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"no database": false, "a database": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t, "a1")
			disk := p.smallDisk()
			if before {
				p.finish()
				p.must(os.RemoveAll(p.db + "-shm")) // as after a copy, or a start of the machine
			}
			disk.fill()
			h := p.start()
			h.wait(exitUnreachable)
			if !strings.Contains(h.printed(), fullDisk) {
				t.Errorf("keep run printed %q, want %q in it", h.printed(), fullDisk)
			}
			disk.makeSpace()
			p.finish()
		})
	}
}

// exitUnreachable is the status when the database cannot be opened.
const exitUnreachable = 5

// fullDisk is part of what is said about a full disk.
var fullDisk = keep.ErrDiskFull.Error()

// A smallDisk is a file system of its own that holds the database.
type smallDisk struct {
	p       *project
	ballast string
}

// smallDisk puts the database of the project on a disk of 4 MiB. Mounting one
// takes a right that root has; without it the test is skipped, and
// TestFileSizeLimit shows the same with less.
func (p *project) smallDisk() *smallDisk {
	p.Helper()
	dir := p.TempDir()
	if err := syscall.Mount("keep-chaos", dir, "tmpfs", 0, "size=4m"); err != nil {
		p.Skipf("SKIPPED: a small tmpfs cannot be mounted here: %v; as root this test fills a real disk", err)
	}
	p.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			p.Errorf("unmount %s: %v", dir, err)
		}
	})
	p.db = filepath.Join(dir, "keep.db")
	return &smallDisk{p, filepath.Join(dir, "ballast")}
}

// fill writes until nothing more fits.
func (d *smallDisk) fill() {
	f, err := os.Create(d.ballast)
	if err != nil {
		d.p.Errorf("fill the disk: %v", err)
		return
	}
	defer f.Close()
	page := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.p.Errorf("fill the disk: %v, want %v", err, syscall.ENOSPC)
	}
}

// makeSpace undoes fill.
func (d *smallDisk) makeSpace() {
	d.p.Helper()
	d.p.must(os.Remove(d.ballast))
}

// The process may not let files grow (RLIMIT_FSIZE), which any user can set. It
// ends or says what is wrong; nothing is lost, and nothing is sent without a
// record.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.finish() // makes the database
	for i := range 30 {
		p.service.add(fmt.Sprintf("%c%d", "acd"[i%3], i))
	}
	limited := 0
	for kib := 64; kib < 4096; kib *= 4 {
		cmd := p.command("run", ".", "--timeout", "2s")
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -f %d; exec "$0" "$@"`, 2*kib), cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		h := p.startCommand(cmd)
		<-h.ended
		if code := h.cmd.ProcessState.ExitCode(); code != exitDone && code != exitNeedsPerson {
			limited++
			t.Logf("files of at most %d KiB: %v: %.200s", kib, h.cmd.ProcessState, h.printed())
		}
		p.doctor()
		p.decide()
	}
	if limited == 0 {
		t.Error("no limit stopped the host")
	}
	p.finish()
}
