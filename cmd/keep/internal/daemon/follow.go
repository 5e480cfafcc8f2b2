package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/internal/regular"
)

// lookEvery is how often the files of the configuration are looked at. A secret is to be
// at most a second old when a call is made, and two looks must find the same before it is taken.
const lookEvery = 400 * time.Millisecond

// A Follower takes changes of the configuration into a running session: all of a change,
// or none of it, and not before two looks in a row found the same, since a file that is being
// written may be valid in part. What of a change that was taken has to be written to the database, such as its grants, is tried
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

	read   *config.Config // that was read last, also if it was refused: it names what it lacks
	seen   fingerprint    // of what was taken or refused last
	found  fingerprint    // of a change that the last look found; nil: it found none
	sealed string         // mark of the secrets of the database that were read last

	over       string // versions for whose calls what was refused last was refused; empty: for none
	unread     bool   // what was refused last was refused because the database could not be read
	behind     bool   // SecretsOnly: a secret changed beside another keep.toml than that of the session
	unfinished bool   // something of what was taken is not done
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var renewing sync.WaitGroup
	defer renewing.Wait()
	renewing.Go(func() { f.Session.Accounts.Run(ctx) })
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	f.begin(ctx)
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-f.Reload:
			asked = true
		case <-tick.C:
		}
		f.look(ctx, asked)
	}
}

// begin notes what the session was made of.
func (f *Follower) begin(ctx context.Context) {
	f.read, f.seen = f.Session.config(), f.Session.files
	if f.sealed = f.Session.loaded.Stored; f.sealed == "" {
		f.sealed = f.stored(ctx)
	}
	// Files are looked at after they were read: what somebody saved in between is a change that no look would find.
	if now, err := f.Load(); err != nil || !now.Same(&f.Session.loaded) {
		f.seen = nil
	}
}

// look looks once, and takes a change that the look before found too; at once if somebody asked, or if
// only secrets of the database changed.
func (f *Follower) look(ctx context.Context, asked bool) {
	before, sealed := f.fingerprint(), f.stored(ctx)
	if !asked && !f.unread && (f.over == "" || f.over == f.inForce(ctx)) && sealed == f.sealed && !f.changed(before) {
		f.found = nil
		if f.unfinished {
			f.finish(ctx)
		}
		return
	}
	cfg, err := f.Load()
	if cfg != nil {
		f.read = cfg
	}
	now := f.fingerprint() // with what it names
	if !asked && f.changed(now) && !maps.Equal(now, f.found) {
		f.found = now
		return
	}
	maps.Copy(now, before) // what changed while it was read is a change for the next look
	f.seen, f.found, f.sealed = now, nil, sealed
	f.take(ctx, cfg, err, asked)
}

// fingerprint looks at the files of the configuration in force, and at those of the one that was read last.
func (f *Follower) fingerprint() fingerprint {
	return fingerprintOf(&f.Session.loaded, f.read)
}

// changed reports whether files that matter to f are not as they were.
func (f *Follower) changed(now fingerprint) bool {
	differ := func(files []string) bool {
		return slices.ContainsFunc(files, func(file string) bool { return now[file] != f.seen[file] })
	}
	in, read := &f.Session.loaded, f.read
	return differ(in.Secrets) || differ(read.Secrets) || (!f.SecretsOnly || f.behind) && (differ(in.Files) || differ(read.Files))
}

// stored looks at the secrets of the database. It returns what was seen before if a
// configuration needs none, or they cannot be read now.
func (f *Follower) stored(ctx context.Context) string {
	if len(f.read.Secrets) == 0 {
		return f.sealed
	}
	all, err := f.Session.Accounts.Secrets(ctx)
	if err != nil {
		return f.sealed
	}
	return project.SecretsMark(all)
}

// inForce says which versions are in force, and which of them are paused: another text when that is otherwise.
func (f *Follower) inForce(ctx context.Context) string {
	all, err := f.Session.DB.Workflows(ctx)
	text := fmt.Sprint(err)
	for _, w := range all {
		text += fmt.Sprint("\n", w.Name, w.Version, w.Paused)
	}
	return text
}

// take takes what was read, or says why not. What is refused again is said again only to who asked.
func (f *Follower) take(ctx context.Context, cfg *config.Config, err error, asked bool) {
	s := f.Session
	f.unread, f.over = false, ""
	if f.behind = f.SecretsOnly && (err != nil || cfg.Hash != s.loaded.Hash); f.behind && err == nil {
		return
	}
	if gone := s.gone(cfg, f.seen); gone != nil {
		err = gone
	}
	if err == nil {
		err = f.apply(ctx, cfg)
	}
	now := api.Time(f.Env.now())
	if err == nil {
		s.mu.Lock()
		s.settings, s.files = api.Settings{TakenAt: now}, f.seen
		s.mu.Unlock()
		f.finish(ctx)
		if f.Server != nil {
			f.Server.hub.renew()
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reason := reasonOf(err)
	if before := s.settings.Refused; !asked && before != nil && before.Reason == reason {
		return
	}
	s.settings.Refused = &api.RefusedSetting{At: now, Reason: reason}
	f.Env.Log.WarnContext(ctx, "configuration refused", "reason", reason)
}

// apply makes the host use a configuration. What is wrong with it is found before anything changes.
func (f *Follower) apply(ctx context.Context, cfg *config.Config) error {
	s := f.Session
	cfg.UseAccounts(s.Accounts)
	if changed := needRestart(&s.loaded, cfg); len(changed) > 0 {
		return fmt.Errorf("%s: a change of %s needs a restart, and nothing else of the file is taken before", cfg.File, strings.Join(changed, ", "))
	}
	conns, err := cfg.Connect()
	if err != nil {
		return err
	}
	if _, err := hooksOf(cfg); err != nil {
		return errors.Join(err, project.CloseConnections(conns))
	}
	err = project.Renamed(ctx, s.DB, s.Project.Root, s.Scripts, conns)
	if err == nil {
		err = project.Ruled(ctx, s.DB, cfg) // the budget or grant would hold nobody
	}
	if err != nil {
		_, renamed := errors.AsType[*project.RenameError](err)
		f.unread = !renamed
		return errors.Join(err, project.CloseConnections(conns))
	}
	versions := f.inForce(ctx) // before they are read: others may be deployed meanwhile
	if err := project.TakenAway(ctx, s.DB, s.Runtime, s.Only, s.conns, conns); err != nil {
		f.unread = true
		if _, taken := errors.AsType[*project.TakenError](err); taken {
			f.unread, f.over = false, versions
		}
		return errors.Join(err, project.CloseConnections(conns))
	}
	if err := s.Host.Reconfigure(conns, cfg.Retention, cfg.BudgetRules(), cfg.Policy.Breaker); err != nil {
		return errors.Join(err, project.CloseConnections(conns))
	}
	s.Host.SetRepairs(s.repairsOf(f.Env, cfg, conns))
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
	err := errors.Join(s.GrantFromConfig(ctx, f.Env), s.Host.SettleBudgets(ctx))
	if f.Server != nil {
		_, offerErr := f.Server.offer(s)
		err = errors.Join(err, offerErr)
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

// Gone returns an error if a file of the configuration in force is not there any more, and nothing says that it is not
// wanted: to take what remains, such as the defaults, would drop approvals and grants without a word. cfg is what
// was read now.
func (s *Session) Gone(cfg *config.Config) error { return s.gone(cfg, fingerprintOf(cfg)) }

// gone is Gone for files that were looked at. cfg may be nil.
func (s *Session) gone(cfg *config.Config, now fingerprint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, file := range s.loaded.Files {
		named := file == s.loaded.File || cfg != nil && slices.Contains(cfg.Files, file)
		if named && s.files[file] != "" && now[file] == "" {
			return fmt.Errorf("%s is gone; to do without it, restart", file)
		}
	}
	if cfg != nil && s.loaded.File != "" && cfg.File != s.loaded.File {
		return fmt.Errorf("another file was found than %s; to use it, restart", s.loaded.File)
	}
	return nil
}

// Lacking returns an error if a version in force calls a tool that no connection of the session has: each run of it would fail.
func (s *Session) Lacking(ctx context.Context) error {
	err := project.Lacking(ctx, s.DB, s.Runtime, s.Only, s.conns)
	if _, lacks := errors.AsType[*project.TakenError](err); lacks {
		return exit.Misusef("%w", err)
	}
	return err
}

// Refused returns why keep.toml as it is now is not in force; empty: it is.
func (s *Session) Refused() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings.Refused == nil {
		return ""
	}
	return s.settings.Refused.Reason
}

// TakenBy returns an error if another session lacks a tool that a version calls which runs on in it, since its script is
// gone or broken.
func (s *Session) TakenBy(ctx context.Context, other *Session) error {
	of := slices.DeleteFunc(append([]keep.WorkflowName{}, s.Only...), func(w keep.WorkflowName) bool {
		return slices.ContainsFunc(other.Scripts, func(sc project.Script) bool { return sc.Name == w && !sc.Broken })
	})
	return project.TakenAway(ctx, s.DB, other.Runtime, of, s.conns, other.conns)
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

// A fingerprint says of files what they are: another text when they differ, and none if they are not there.
type fingerprint map[string]string

// fingerprintOf looks at the files of configurations. One that is not there counts too: it may come.
//
// Their content is read each time: files that are written twice within a tick of the clock differ in nothing else.
func fingerprintOf(all ...*config.Config) fingerprint {
	out := make(fingerprint)
	for _, cfg := range all {
		for _, file := range slices.Concat(cfg.Files, cfg.Secrets) {
			if _, known := out[file]; known {
				continue
			}
			out[file] = ""
			if info, err := os.Stat(file); err == nil {
				text, err := regular.Read(file, config.MaxFile)
				out[file] = fmt.Sprintf("%d %v %v %x %v", info.Size(), info.ModTime().UnixNano(), info.Mode(), sha256.Sum256(text), err)
			}
		}
	}
	return out
}
