//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// What a person interrupts, or a daemon that goes with the database, may have been done: that is said, and an event can be repeated
// as the same one.
func TestChangeWithoutAnAnswer(t *testing.T) {
	for _, how := range []string{"interrupted", "the database is gone"} {
		t.Run(how, func(t *testing.T) {
			_, p := newPlaces(t)
			db := filepath.Join(p.dir, "keep.db")
			ctx, interrupt := context.WithCancel(t.Context())
			var cut atomic.Bool
			p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method != http.MethodPost || !cut.CompareAndSwap(false, true) {
					next.ServeHTTP(w, r)
					return
				}
				next.ServeHTTP(httptest.NewRecorder(), r)
				if how == "interrupted" {
					interrupt()
					<-r.Context().Done()
				} else if p.gone(); os.Rename(db, db+".aside") != nil {
					t.Error("the database is not gone")
				}
				panic(http.ErrAbortHandler)
			}
			o := p.keepUntil(ctx, "publish", "quiet", "t", `{"id": "again"}`)
			if how != "interrupted" {
				if err := os.Rename(db+".aside", db); err != nil {
					t.Fatal(err)
				}
			}
			if o.Status != exit.Failed || !strings.Contains(o.Talk, "whether it had done this is not known; look first") || strings.Contains(o.Talk, "continues at the next start") {
				t.Errorf("publish: %+v", o)
			}
			_, id, ok := strings.Cut(o.Talk, "--id ")
			if id, _, _ = strings.Cut(id, " "); !ok {
				t.Fatalf("no id to repeat it with: %s", o.Talk)
			}
			if out := p.must(0, "publish", "quiet", "t", `{"id": "again"}`, "--id", id); !strings.Contains(out, "already; it stays as it was") {
				t.Errorf("the same once more: %s", out)
			}
		})
	}
}

// Of many questions one whose answer may be recorded is not said to be refused, and nothing after it is.
func TestManyAnswersOneIsUnsure(t *testing.T) {
	_, p := newPlaces(t)
	if list := p.must(0, "inbox", "do", "--all", "skip", "--json"); strings.Count(list, `"id": "`) < 2 {
		t.Fatalf("want several questions:\n%s", list)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	p.between = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(w, r)
		if r.Method == http.MethodPost {
			interrupt()
			panic(http.ErrAbortHandler)
		}
	}
	o := p.keepUntil(ctx, "inbox", "do", "--all", "skip", "--yes")
	if o.Status != exit.Failed || strings.Contains(o.Talk, "refused esc") || !strings.Contains(o.Talk, "not known; look first") || !strings.Contains(o.Talk, "0 questions; refused: 0") {
		t.Errorf("skip all: %+v", o)
	}
}

// A change whose result cannot be written, as on a disk that is full, was done all the same, and that is said.
func TestChangeWithoutOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	command := buildKeep(t)
	for _, json := range []bool{false, true} {
		t.Run(fmt.Sprint(json), func(t *testing.T) {
			p, _ := newPlaces(t)
			args := []string{"token", "add", "x"}
			if json {
				args = []string{"publish", "quiet", "t", "{}", "--json"}
			}
			cmd := exec.Command(command, args...)
			cmd.Dir, cmd.Stdout = p.dir, full
			var talk strings.Builder
			cmd.Stderr = &talk
			if err := cmd.Run(); err == nil || !strings.Contains(talk.String(), "what was asked for was done") {
				t.Errorf("keep %v: %v\n%s", args, err, talk.String())
			}
		})
	}
}

// On a disk that is full a copy of a pack is not there, instead of in part: a part counts, and is never overwritten.
func TestPackIsCopiedWhole(t *testing.T) {
	dir, command := t.TempDir(), buildKeep(t)
	cmd := exec.Command("sh", "-c", `ulimit -f 1; exec "$0" packs copy stripe`, command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("it was to find no room: %s", out)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "packs")); err != nil || len(left) > 0 {
		t.Errorf("packs has %v, %v; want nothing\n%s", left, err, out)
	}
}
