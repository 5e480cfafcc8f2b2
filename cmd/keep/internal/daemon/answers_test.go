package daemon

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// However many ask, one question is out, and one a second is asked. One that is not answered stays out, until it is
// given up; whoever asks is told in time, and the answer that came late counts.
func TestDatabaseCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, frozen := 0, make(chan error)
		answer := func(ctx context.Context) error { return nil }
		c := &databaseCheck{ctx: t.Context(), ask: func(ctx context.Context) error { asked++; return answer(ctx) }}
		// ask has a hundred ask at once.
		ask := func(what string, questions int, within time.Duration, want string) {
			t.Helper()
			begun := time.Now()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					got := "ready"
					if err := c.answers(t.Context()); err != nil {
						got = err.Error()
					}
					if took := time.Since(begun); got != want || took > within {
						t.Errorf("%s: %q after %s, want %q within %s", what, got, took, want, within)
					}
				})
			}
			wg.Wait()
			synctest.Wait() // the question that is out has been counted
			if asked != questions {
				t.Errorf("%s: %d questions were asked so far, want %d", what, asked, questions)
			}
		}
		ask("at first", 1, 0, "ready")
		ask("again", 1, 0, "ready")
		answer = func(ctx context.Context) error {
			select {
			case err := <-frozen:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		time.Sleep(askEvery)
		ask("frozen", 2, askWait, "the database has not answered for 2s")
		time.Sleep(3 * time.Second)
		ask("still frozen", 2, 0, "the database has not answered for 5s")
		time.Sleep(askLongest - 5*time.Second)
		synctest.Wait()
		ask("given up", 2, 0, errNoAnswer.Error())
		time.Sleep(askEvery)
		ask("asked again", 3, askWait, "the database has not answered for 2s")
		frozen <- nil
		synctest.Wait()
		ask("answered late", 3, 0, "ready")
		answer = func(context.Context) error { return errors.New("connection refused by 10.0.0.7") }
		time.Sleep(askEvery)
		ask("gone", 4, 0, errNoAnswer.Error())
		c.wg.Wait()
	})
}
