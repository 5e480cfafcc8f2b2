package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What a client that reads slowly is told comes in its order, and answers behind it. The link of one that does not read is
// cut, and holds whoever tells it something up once.
func TestOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front, back := NewLink()
		b := newOutbox(back)
		defer close(b.over)
		go b.run()
		const more = 3 * maxQueued
		go func() {
			for i := range more {
				if err := b.push(fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			}
			if n, err := b.send([]byte("answer")); n != more+1 || err != nil {
				t.Errorf("the answer is frame %d, want %d: %v", n, more+1, err)
			}
		}()
		lines := bufio.NewReader(front)
		for i := range more + 1 {
			time.Sleep(slowTime / maxQueued)
			line, err := lines.ReadString('\n')
			if want := fmt.Sprintln(i); err != nil || i < more && line != want || i == more && !strings.HasPrefix(line, "answer") {
				t.Fatalf("frame %d is %q, %v", i, line, err)
			}
		}
		began, refused := time.Now(), 0
		for range more {
			if err := b.push([]byte("x")); errors.Is(err, errSlow) {
				refused++
			}
		}
		if took := time.Since(began); took != slowTime || refused == 0 {
			t.Errorf("a client that does not read holds others up for %s, %d refused; want %s and one or more", took, refused, slowTime)
		}
		if _, err := b.send([]byte("answer")); err == nil {
			t.Error("an answer was written to a link that is cut")
		}
	})
}

// A client that reads one message now and then holds whoever tells it something up no longer than one that does not read.
func TestOutboxReadNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front, back := NewLink()
		b := newOutbox(back)
		defer close(b.over)
		go b.run()
		var reading sync.WaitGroup
		reading.Go(func() {
			lines := bufio.NewReader(front)
			for _, err := lines.ReadString('\n'); err == nil; _, err = lines.ReadString('\n') {
				time.Sleep(slowTime * 9 / 10)
			}
		})
		began := time.Now()
		for range 3 * maxQueued {
			_ = b.push([]byte("x"))
		}
		if took := time.Since(began); took != slowTime {
			t.Errorf("it holds others up for %s, want %s", took, slowTime)
		}
		front.Close()
		reading.Wait()
	})
}
