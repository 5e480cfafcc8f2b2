package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/notify"
	"github.com/keep-run/keep/law/policy"
)

// A deaf target takes a message at the second attempt.
type deaf struct {
	mu  sync.Mutex
	got []notify.Message
}

func (*deaf) Sink() keep.Sink { return "webhook" }

func (d *deaf) Deliver(_ context.Context, m notify.Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got = append(d.got, m)
	if len(d.got) == 1 {
		return context.DeadlineExceeded
	}
	return nil
}

func (d *deaf) messages() []notify.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.got)
}

// A target is notified of a key until it takes the message, and then once for each doubt.
func TestUnknownKeysAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := new(deaf)
		since := time.Now()
		var doubt atomic.Int64
		doubt.Store(1)
		n := notify.NewForKeys(notify.Config{Targets: []notify.Target{target}, Now: time.Now, Timeout: time.Second,
			Retry: policy.Backoff{First: time.Second, Max: time.Minute, Attempts: 5}, Logger: slog.New(slog.DiscardHandler),
			Unknown: func(context.Context) ([]notify.Key, error) {
				return []notify.Key{{ID: fmt.Sprint("key_1.", doubt.Load()), At: since, Data: json.RawMessage(`{"reference":"key_1"}`)}}, nil
			}})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.Run(ctx); close(done) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		got := target.messages()
		if len(got) != 2 || got[0].ID != "key_1.1" || got[1].ID != "key_1.1" ||
			!strings.Contains(string(got[1].Body), `"type":"key.unknown"`) || !strings.Contains(string(got[1].Body), `"reference":"key_1"`) {
			t.Fatalf("the target got %+v", got)
		}
		doubt.Store(2)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := target.messages(); len(got) != 3 || got[2].ID != "key_1.2" {
			t.Errorf("of another doubt the target got %+v", got[2:])
		}
		stop()
		<-done
	})
}
