package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/config"
)

// Of a gateway whose server is never asked.
const (
	gateText = "[gateway.servers.notes]\nurl = \"http://127.0.0.1:1\"\nheaders = { A = \"${secret:a}\", B = \"${secret:b}\" }\n"
	gateRule = "[gateway.tools.\"notes.create\"]\napprove = \"always\"\n"
)

// gateIn writes a project with a gateway, and loads it.
func gateIn(t *testing.T) (write func(name, text string), load func() (*config.Config, error), cfg *config.Config) {
	t.Helper()
	dir := t.TempDir()
	write = writerIn(t, dir)
	write("keep.toml", gateText)
	write(".secrets/a", "one")
	write(".secrets/b", "one")
	load = func() (*config.Config, error) { return config.Load(config.Options{Dir: dir}) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return write, load, cfg
}

// headersOf returns what the server of gateIn is sent.
func headersOf(cfg *config.Config) string {
	if cfg == nil {
		return "none"
	}
	h := cfg.Gateway.Servers[0].Headers
	return h["A"] + " " + h["B"]
}

// TestSecretsOfAGatewayAreTaken changes secrets when nobody looks at them, and while keep.toml is broken: the next gateway
// has them all the same.
func TestSecretsOfAGatewayAreTaken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(write func(name, text string), next func() string) (got, want string){
		"between two gateways": func(write func(string, string), next func() string) (got, want string) {
			write(".secrets/a", "two")
			first := next()
			write(".secrets/b", "two") // calls of the one before are out still
			return first + ", " + next(), "two one, two two"
		},
		"before the first look": func(write func(string, string), next func() string) (got, want string) {
			write(".secrets/a", "two")
			return next(), "two one"
		},
		"beside a broken keep.toml": func(write func(string, string), next func() string) (got, want string) {
			write("keep.toml", "[")
			time.AfterFunc(3*lookEvery, func() { write(".secrets/a", "two") })
			time.AfterFunc(6*lookEvery, func() { write("keep.toml", gateText) })
			return next(), "two one"
		},
		"back to what it was": func(write func(string, string), next func() string) (got, want string) {
			write(".secrets/a", "two")
			time.AfterFunc(lookEvery/2, func() { write(".secrets/a", "one") })
			return next(), "none"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				write, load, cfg := gateIn(t)
				got, want := change(write, func() string {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					next := Env{Log: slog.New(slog.DiscardHandler)}.NextGateway(ctx, cfg, load)
					if next != nil {
						cfg = next
					}
					return headersOf(next)
				})
				if got != want {
					t.Errorf("the next gateways have %s, want %s", got, want)
				}
			})
		})
	}
}

// TestGatewayTakesWhatNoFileShows changes a secret of the database, and ends what a file was refused for elsewhere.
func TestGatewayTakesWhatNoFileShows(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]int{"a secret of the database": 0, "a refusal that is over": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				write := writerIn(t, dir)
				write("keep.toml", gateText)
				write(".secrets/a", "one")
				begun := time.Now()
				load := func() (*config.Config, error) {
					b := config.Sealed{Value: "one"}
					if time.Since(begun) > 4*lookEvery {
						if refused--; refused >= 0 {
							return nil, errors.New("refused")
						}
						b.Value = "two"
					}
					cfg, err := config.Load(config.Options{Dir: dir, Sealed: map[string]config.Sealed{"b": b}})
					if err == nil {
						cfg.Stored = b.Value
					}
					return cfg, err
				}
				cfg, err := load()
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				next := Env{Log: slog.New(slog.DiscardHandler)}.NextGateway(ctx, cfg, load)
				if got := headersOf(next); got != "one two" {
					t.Errorf("the next gateway has %s", got)
				}
			})
		})
	}
}

// TestGatewayTakesWhatIsStill has a keep.toml that is written in parts, each of which is valid: what is read while the rest
// is written is no configuration, for who looks and for who begins anew.
func TestGatewayTakesWhatIsStill(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(ctx context.Context, cfg *config.Config, load func() (*config.Config, error)) *config.Config{
		"the next gateway": Env{Log: slog.New(slog.DiscardHandler)}.NextGateway,
		"a seat": func(ctx context.Context, cfg *config.Config, load func() (*config.Config, error)) *config.Config {
			s := &Seat{Env: Env{Log: slog.New(slog.DiscardHandler)}, Cfg: cfg, Load: load}
			s.reload(ctx)
			return s.Cfg
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				write, load, cfg := gateIn(t)
				write("keep.toml", gateText+"# a part\n")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				rest := sync.OnceFunc(func() { write("keep.toml", gateText+"# a part\n"+gateRule) })
				got := take(ctx, cfg, func() (*config.Config, error) {
					defer rest()
					return load()
				})
				if want, _ := load(); got == nil || !got.Same(want) {
					t.Error("a part of keep.toml is taken")
				}
			})
		})
	}
}

// TestSeatBeginsWithWhatWasTaken has a keep.toml that is taken and then broken before the gateway ended for it: the next one
// is of what was taken.
func TestSeatBeginsWithWhatWasTaken(t *testing.T) {
	t.Parallel()
	write, load, cfg := gateIn(t)
	s := &Seat{Env: Env{Log: slog.New(slog.DiscardHandler)}, Cfg: cfg, Agent: "ann", Load: load}
	link, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write("keep.toml", gateText+gateRule)
	want, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, bufio.NewReader(link)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	write("keep.toml", "[")
	link, err = s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.Cfg.Same(want) {
		t.Error("the next gateway is of the keep.toml before")
	}
	if err := errors.Join(link.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
}
