package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/law/budget"
)

// lookEvery is how often the files of the configuration are looked at. A secret is to be
// at most a second old when a call is made, and two looks may be needed to see it whole.
const lookEvery = 400 * time.Millisecond

// A Follower takes changes of the configuration into a running session: all of a change,
// or none of it. What of a change that was taken has to be written to the database, such as its grants, is tried
// until it is there.
type Follower struct {
	Env     Env
	Session *Session
	Server  *Server // nil: there is none

	// Load reads the configuration anew.
	Load func() (*config.Config, error)

	// SecretsOnly leaves changes of keep.toml, and of what it is read with, to somebody else.
	SecretsOnly bool

	// Reload asks for a look at once. Nil: nobody asks.
	Reload <-chan os.Signal

	unread     bool     // what was refused last was refused because the database could not be read
	behind     bool     // SecretsOnly: a secret changed beside another keep.toml than that of the session
	unfinished bool     // something of what was taken is not done
	rebudgeted []string // budgets that changed, until the runs that wait for them look again
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var renewing sync.WaitGroup
	defer renewing.Wait()
	renewing.Go(func() { f.Session.Accounts.Run(ctx) })
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	seen := f.Session.files
	cfg := f.Session.config() // that was read last, also if it was refused: it says which secrets it lacks
	if seen.stored = f.Session.loaded.Stored; seen.stored == "" {
		seen.stored = f.stored(ctx, cfg, "")
	}
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-f.Reload:
			asked = true
		case <-tick.C:
		}
		now := fingerprintOf(cfg)
		now.stored = f.stored(ctx, cfg, seen.stored)
		if asked || f.unread || now.secrets != seen.secrets || now.stored != seen.stored || (!f.SecretsOnly || f.behind) && now.files != seen.files {
			// If it has other secrets than the one before, the next look finds a difference,
			// and takes what came while this one was read.
			if read := f.take(ctx, asked); read != nil {
				cfg = read
			}
		} else if f.unfinished {
			f.finish(ctx)
		}
		seen = now
	}
}

// stored looks at the secrets of the database. It returns what was seen before if a
// configuration needs none, or they cannot be read now.
func (f *Follower) stored(ctx context.Context, cfg *config.Config, before string) string {
	if len(cfg.Secrets) == 0 {
		return before
	}
	all, err := f.Session.Accounts.Secrets(ctx)
	if err != nil {
		return before
	}
	return project.SecretsMark(all)
}

// take reads the configuration and takes it, or says why not. It returns what it read; nil if
// that could not be understood. What is refused again is said again only to who asked.
func (f *Follower) take(ctx context.Context, asked bool) *config.Config {
	s := f.Session
	f.unread = false
	cfg, err := f.Load()
	if f.behind = f.SecretsOnly && (err != nil || cfg.Hash != s.loaded.Hash); f.behind && err == nil {
		return nil
	}
	if err == nil {
		err = f.apply(ctx, cfg)
	}
	now := api.Time(f.Env.now())
	if err == nil {
		s.mu.Lock()
		s.settings = api.Settings{TakenAt: now}
		s.mu.Unlock()
		f.finish(ctx)
		return cfg
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reason := reasonOf(err)
	if before := s.settings.Refused; !asked && before != nil && before.Reason == reason {
		return cfg
	}
	s.settings.Refused = &api.RefusedSetting{At: now, Reason: reason}
	f.Env.Log.WarnContext(ctx, "configuration refused", "reason", reason)
	return cfg
}

// apply makes the host use a configuration. What is wrong with it is found before anything changes.
func (f *Follower) apply(ctx context.Context, cfg *config.Config) error {
	s := f.Session
	cfg.UseAccounts(s.Accounts)
	if changed := needRestart(&s.loaded, cfg); len(changed) > 0 {
		return fmt.Errorf("%s: a change of %s needs a restart", cfg.File, strings.Join(changed, ", "))
	}
	conns, err := cfg.Connect()
	if err != nil {
		return err
	}
	if _, err := hooksOf(cfg); err != nil {
		return errors.Join(err, project.CloseConnections(conns))
	}
	if err := project.Renamed(ctx, s.DB, s.Project.Root, s.Scripts, conns); err != nil {
		_, renamed := errors.AsType[*project.RenameError](err)
		f.unread = !renamed
		return errors.Join(err, project.CloseConnections(conns))
	}
	if err := s.Host.Reconfigure(conns, cfg.Retention, cfg.BudgetRules(), cfg.Policy.Breaker); err != nil {
		return errors.Join(err, project.CloseConnections(conns))
	}
	s.Host.SetRepairs(s.repairsOf(f.Env, cfg, conns))
	f.rebudgeted = append(f.rebudgeted, budget.Changed(s.loaded.BudgetRules(), cfg.BudgetRules())...)
	loaded := *cfg
	cfg.Server = s.Project.Cfg.Server // with what flags said
	s.mu.Lock()
	s.loaded, s.conns, s.Project.Cfg = loaded, conns, cfg
	s.mu.Unlock()
	return nil
}

// finish does what follows from the configuration in force: its grants, runs that its budgets let continue, and what the
// server offers. What fails, as where the database cannot be written to, is said once, and tried again at each look;
// a grant is as it was until then.
func (f *Follower) finish(ctx context.Context) {
	s := f.Session
	settleErr := s.Host.SettleBudgets(ctx, f.rebudgeted)
	if settleErr == nil {
		f.rebudgeted = nil
	}
	err := errors.Join(s.GrantFromConfig(ctx, f.Env), settleErr)
	if f.Server != nil {
		_, offerErr := f.Server.offer(s)
		err = errors.Join(err, offerErr)
		f.Server.hub.renew(ctx)
	}
	s.Accounts.SettleNow(ctx)
	if ctx.Err() != nil {
		return // the next start does it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.unfinished = err != nil; !f.unfinished {
		s.settings.Unfinished = nil
		// Who changed the file waits for this line, whatever the level of the log.
		f.Env.Log.WarnContext(ctx, "configuration taken", "file", s.Project.Cfg.File)
		return
	}
	reason := reasonOf(err)
	if before := s.settings.Unfinished; before == nil || before.Reason != reason {
		s.settings.Unfinished = &api.UnfinishedSetting{At: api.Time(f.Env.now()), Reason: reason}
		f.Env.Log.WarnContext(ctx, "configuration taken, but for a part that is tried again", "file", s.Project.Cfg.File, "reason", reason)
	}
}

// needRestart names what differs and is fixed when a host starts.
func needRestart(before, after *config.Config) []string {
	var out []string
	fixed := after.Policy
	fixed.Breaker = before.Policy.Breaker // is taken
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"db", before.DB, after.DB},
		{"[server]", before.Server, after.Server},
		{"[sandbox]", before.Sandbox, after.Sandbox},
		{"[policy]", before.Policy, fixed},
		{"[notify]", before.Notify, after.Notify},
	} {
		if part.name == "[server]" && before.Server.Listen != after.Server.Listen {
			part.name = "server.listen"
		}
		if !reflect.DeepEqual(part.a, part.b) {
			out = append(out, part.name)
		}
	}
	return out
}

// reasonOf returns an error on one line, problems of files with their lines.
func reasonOf(err error) string {
	found := project.Problems("", err)
	if len(found) == 0 {
		return err.Error()
	}
	lines := make([]string, 0, len(found))
	for _, p := range found {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "; ")
}

// A fingerprint differs when files do.
type fingerprint struct{ files, secrets, stored string }

// fingerprintOf looks at the files of a configuration.
func fingerprintOf(cfg *config.Config) fingerprint {
	return fingerprint{files: look(cfg.Files...), secrets: look(cfg.Secrets...)}
}

// look returns what the file system says of files. One that is not there counts too: it
// may come.
func look(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			fmt.Fprintf(&b, "%s %d %v %v;", name, info.Size(), info.ModTime().UnixNano(), info.Mode())
		}
	}
	return b.String()
}
