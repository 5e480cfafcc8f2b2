package web_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/web"
)

// A counted store counts how often credentials are looked up.
type counted struct {
	*memory.Store
	looked atomic.Int64
}

func (c *counted) Credential(ctx context.Context, id string) (keep.Credential, error) {
	c.looked.Add(1)
	time.Sleep(time.Millisecond)
	return c.Store.Credential(ctx, id)
}

// guarded returns pages behind a guard, and a token with its id.
func guarded(t *testing.T, f *feed.Feed) (_ http.Handler, store *counted, token, id string) {
	t.Helper()
	store = &counted{Store: memory.New()}
	g, err := access.New(access.Config{Store: store, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	token, c, err := access.Issue(t.Context(), store, keep.Credential{Kind: keep.CredentialToken, Name: "ann", Role: string(access.Viewer)}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return g.Handler(pagesOver(t, f)), store, "Bearer " + token, c.ID
}

// A stream ends with the right to see it, and after that it says nothing, also if
// nobody told it that the right had ended.
func TestStreamEndsWithItsRight(t *testing.T) {
	changed := feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Run}}
	for name, end := range map[string]func(f *feed.Feed, drop func()){
		"revoked, and announced": func(f *feed.Feed, drop func()) {
			drop()
			f.Publish(feed.Change{Kinds: []feed.Kind{feed.Credential}})
		},
		"revoked, and a reset": func(f *feed.Feed, drop func()) { drop(); f.Reset() },
		"revoked unheard, and something happens": func(f *feed.Feed, drop func()) {
			drop()
			f.Publish(changed)
		},
		"revoked unheard, and nothing happens": func(_ *feed.Feed, drop func()) { drop(); time.Sleep(time.Minute) },
		"expired":                              func(*feed.Feed, func()) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := feed.New(64)
				pages, store, token, id := guarded(t, f)
				var wg sync.WaitGroup
				got := listen(t.Context(), &wg, pages, "http://localhost/live?kind=run&after="+f.Last(), "Authorization", token)
				if open := <-got; !strings.HasPrefix(open, ":") {
					t.Fatalf("the stream began with %q", open)
				}
				f.Publish(changed)
				if m := <-got; !strings.Contains(m, "keep-changed") {
					t.Fatalf("the stream says %q", m)
				}
				time.Sleep(time.Second)
				end(f, func() {
					if err := store.DropCredential(t.Context(), id); err != nil {
						t.Error(err)
					}
				})
				for m := range got {
					if name != "expired" || !strings.HasPrefix(m, ":") { // until then it lives
						t.Errorf("the stream still said %q", m)
					}
				}
				wg.Wait()
			})
		})
	}
}

// Many streams of one token share what the store is asked, and none is asked for
// what a stream does not show.
func TestStreamsShareTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := feed.New(64)
		pages, store, token, _ := guarded(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var streams []<-chan string
		for range 200 {
			streams = append(streams, listen(ctx, &wg, pages, "http://localhost/live?kind=run&after="+f.Last(), "Authorization", token))
		}
		for _, s := range streams {
			<-s
		}
		before := store.looked.Load()
		for range 50 {
			f.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Item}}) // no stream shows it
			time.Sleep(100 * time.Millisecond)
		}
		if n := store.looked.Load() - before; n != 0 {
			t.Errorf("%d questions for what nobody sees", n)
		}
		f.Publish(feed.Change{Workflow: "w", Kinds: []feed.Kind{feed.Run}})
		for _, s := range streams {
			if m := <-s; !strings.Contains(m, "keep-changed") {
				t.Errorf("a stream says %q", m)
			}
		}
		if n := store.looked.Load() - before; n > 10 { // each is for all who came while the one before was asked
			t.Errorf("%d questions for 200 streams of one token, want a few", n)
		}
		cancel()
		wg.Wait()
	})
}

// A dropping store ends a right when the second page of the ledger is read, and has a backup that ends it after the first piece.
type dropping struct {
	*memory.Store
	drop func()
	text io.Reader
	read int
}

func (d *dropping) Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error) {
	if p.After != "" {
		d.drop()
	}
	return d.Store.Mutations(ctx, f, p)
}

func (d *dropping) Instead() string { return "" }

func (d *dropping) Make(context.Context) (*web.Copy, error) {
	return &web.Copy{ReadCloser: io.NopCloser(d), Size: 1 << 20, At: time.Now()}, nil
}

func (d *dropping) Read(p []byte) (int, error) {
	n, err := d.text.Read(p)
	if d.read += n; d.read >= 256<<10 {
		d.drop()
	}
	return n, err
}

// A download that takes long ends with the right to it, and does not look like a whole one.
func TestDownloadEndsWithItsRight(t *testing.T) {
	for _, asked := range []string{"GET /mutations.csv", "GET /mutations.json", "POST /settings/backup"} {
		t.Run(asked, func(t *testing.T) {
			now := keepNow()
			s := &dropping{Store: memory.New(), text: strings.NewReader(strings.Repeat("x", 1<<20))}
			var changes []keep.Change
			for i := range 600 {
				id := fmt.Sprintf("%04d", i)
				changes = append(changes, keep.PutMutation{Mutation: keep.Mutation{Key: keep.MutationKey("mut_" + id), Workflow: "w", Run: "run_1", Tool: "crm.add", Level: keep.LevelNone, Token: id,
					State: keep.Applied, ResolvedBy: "call", Attempts: 1, CallDeadline: now, CreatedAt: now, UpdatedAt: now}})
			}
			commit(t, s.Store, "w", now, changes...)
			token, c, err := access.Issue(t.Context(), s, keep.Credential{Kind: keep.CredentialToken, Name: "ann", Role: string(access.Admin)}, time.Now(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			s.drop = func() {
				if err := s.DropCredential(context.Background(), c.ID); err != nil {
					t.Error(err)
				}
				s.drop = func() {}
			}
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			actor, err := operator.New(s, operator.Config{Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			pages, err := web.New(web.Config{Store: s, Actor: actor, Backups: s, Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			g, err := access.New(access.Config{Store: s, Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(g.Handler(pages))
			t.Cleanup(server.Close)
			method, path, _ := strings.Cut(asked, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			res, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusOK || err == nil || strings.Contains(string(got), "mut_0000") || len(got) > 512<<10 {
				t.Errorf("status %d, %d bytes and %v, want the beginning and that it was cut", res.StatusCode, len(got), err)
			}
		})
	}
}
