package daemon

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/hook"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/store"
)

// hooksOf checks the hooks of a configuration.
func hooksOf(cfg *config.Config) ([]*hook.Hook, error) {
	var out []*hook.Hook
	for _, c := range cfg.Hooks {
		h, err := hook.New(c)
		if err != nil {
			return nil, fmt.Errorf("%s: hooks.%s.%w", cmp.Or(cfg.File, config.Name), c.Name, err)
		}
		out = append(out, h)
	}
	return out, nil
}

// listHooks returns the hooks of a configuration with what came to them.
func listHooks(base string, hooks []hook.Config, counts []keep.HookCount) []api.Hook {
	byName := make(map[string]keep.HookCount, len(counts))
	for _, c := range counts {
		byName[c.Name] = c
	}
	out := make([]api.Hook, 0, len(hooks))
	for _, h := range hooks {
		shown := api.Hook{Name: h.Name, URL: base + hook.Prefix + h.Name, Workflow: h.Workflow, Topic: h.Topic, Verify: string(h.Verify)}
		out = append(out, shown.Counted(byName[h.Name]))
	}
	return out
}

// HooksOf returns what lists the hooks of a configuration while no host of this process
// receives for them.
func HooksOf(cfg *config.Config, s store.Hooks) func(context.Context) ([]api.Hook, error) {
	return func(ctx context.Context) ([]api.Hook, error) {
		counts, err := s.HookCounts(ctx)
		return listHooks(baseOf(cfg.Server), cfg.Hooks, counts), err
	}
}

// hooks lists the hooks that the server receives for.
//
// The receiver is asked, and not the configuration: it has what is served now, and writes its counts first.
func (s *Server) hooks(ctx context.Context) ([]api.Hook, error) {
	counts, err := s.receiver.Counts(ctx)
	var configs []hook.Config
	for _, h := range s.receiver.Hooks() {
		configs = append(configs, h.Config)
	}
	return listHooks(s.base, configs, counts), err
}

// baseOf returns the URL of the pages as far as a configuration tells.
func baseOf(cfg config.Server) string {
	scheme := "http"
	if cfg.TLSCert != "" {
		scheme = "https"
	}
	listen := cmp.Or(cfg.Listen, DefaultListen)
	if listen == "off" {
		listen = DefaultListen
	}
	return cmp.Or(strings.TrimSuffix(cfg.URL, "/"), scheme+"://"+listen)
}
