// Package daemon builds the host of a command and what is offered beside it: the API,
// the pages, the socket. serve, dev and run all do it here, so none of them can lack what
// the others have.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/link"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
	"github.com/keep-run/keep/store"
)

// A Session is a host of this command with all that it is made of. serve, dev and
// run differ in the scripts that they deploy and in who follows the commits.
type Session struct {
	Project  *project.Project
	Scripts  []project.Script
	Only     []keep.WorkflowName    // that the host works on; nil: all
	conns    []connector.Connection // the host closes them once there is one
	Runtime  *sandbox.Runtime
	DB       database.DB
	Host     *host.Host
	Accounts *account.Manager
	links    *link.Links    // to questions; nil: none
	closers  []func() error // called from the last to the first

	texts map[keep.WorkflowName]text // of the scripts that take took last

	loaded   config.Config // as it was read, before flags changed it
	files    fingerprint   // of its files, when it was read
	mu       sync.Mutex    // protects settings, loaded and files
	settings api.Settings
}

// Settings says what became of the configuration.
func (s *Session) Settings() *api.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.settings
	return &out
}

// Refusal says since when the database takes no commits, and why; nil: it takes them.
func (s *Session) Refusal() *api.Refusal {
	r := s.Host.Refusal()
	if r.Err == nil {
		return nil
	}
	return &api.Refusal{Since: api.Time(r.Since), Reason: reasonOf(r.Err)}
}

// config returns the configuration that is in force.
func (s *Session) config() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Project.Cfg
}

// Names returns the workflows of the session.
func (s *Session) Names() []keep.WorkflowName { return s.Only }

// Close undoes assemble and open. The host must not run any more.
func (s *Session) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// Assemble opens the connections and the sandbox of a configuration.
func (e Env) Assemble(ctx context.Context, p *project.Project) (*Session, error) {
	s := &Session{Project: p, loaded: *p.Cfg, files: fingerprintOf(p.Cfg), settings: api.Settings{TakenAt: api.Time(e.now())}, texts: make(map[keep.WorkflowName]text)}
	var err error
	if s.conns, err = p.Cfg.Connect(); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error {
		if s.Host != nil {
			return nil // it has closed them
		}
		return project.CloseConnections(s.conns)
	})
	if s.Runtime, err = project.OpenSandbox(ctx, p.Cfg, e.Log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.closers = append(s.closers, s.Runtime.Close)
	return s, nil
}

// Prepare assembles a project and loads its scripts. What is wrong with
// scripts comes back as complaints, and the others are in the session.
func (e Env) Prepare(ctx context.Context, p *project.Project) (*Session, []terminal.Problem, error) {
	s, err := e.Assemble(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	scripts, found, err := project.LoadToRun(ctx, s.Runtime, p)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	s.Scripts, s.Only = scripts, append([]keep.WorkflowName{}, project.NamesOf(scripts)...) // not nil, which is all
	return s, append(project.ConfigProblems(p.Cfg.Warnings, workflow.Warning), found...), nil
}

// Open opens the database as its host, makes the host and deploys the scripts. It is
// the one place where this command builds a host that runs workflows.
//
// The order matters. Names are settled before the host is made, since what it works on goes by them; grants
// of keep.toml come last, for the workflows that the database has by then.
func (s *Session) Open(ctx context.Context, e Env, watch Watch) (err error) {
	if s.DB, err = e.openHost(ctx, s.Project.Cfg); err != nil {
		return err
	}
	s.closers = append(s.closers, s.DB.Close)
	s.Accounts = e.NewAccounts(s.config, s.DB, func(ctx context.Context, read func(context.Context) ([]keep.Account, error)) error {
		return s.Host.SettleAccounts(ctx, read)
	})
	s.Project.Cfg.UseAccounts(s.Accounts)
	if err := s.CheckNames(ctx, e, s.DB); err != nil {
		return err
	}
	s.links = linksOf(s.Project.Cfg, s.DB)
	told, err := e.notifyConfig(s.Project.Cfg, s.DB, s.links)
	if err != nil {
		return err
	}
	tracer, flush, err := e.openTraces(ctx)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, flush)
	s.Host, err = host.Open(ctx, s.DB, host.Config{
		Connections: s.conns, Policy: &s.Project.Cfg.Policy, Retention: s.Project.Cfg.Retention, Budgets: s.Project.Cfg.BudgetRules(), Runtime: s.Runtime,
		Only: s.Only, Name: hostName(), Version: buildinfo.Read().Version, Clock: e.Clock,
		Elsewhere: func(string) bool { return true }, // keep.toml was checked, with the servers of its gateway
		Presence:  presenceDir(), Repairs: s.repairsOf(e, s.Project.Cfg, s.conns),
		Notify: told, Logger: e.Log, Tracer: tracer, Committed: watch.committed, Measured: watch.Metrics.Measure,
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.Host.Close)
	for _, sc := range s.Scripts {
		if sc.Broken {
			continue // the version before stays
		}
		if _, err := s.take(ctx, e, sc); err != nil {
			return err
		}
	}
	return s.GrantFromConfig(ctx, e)
}

// CheckNames gives each script the name by which a database knows it, and refuses what may
// be by another name what the database has work of, or asks about it.
func (s *Session) CheckNames(ctx context.Context, e Env, db database.DB) error {
	before := slices.Clone(s.Scripts)
	if err := s.settleNames(ctx, e, db); err != nil {
		return err
	}
	for i, sc := range s.Scripts {
		if old := before[i].Name; sc.Name != old {
			e.Log.WarnContext(ctx, "a workflow continues under the name that the database has", "workflow", old, "was", sc.Name)
			for k := range s.Only {
				if s.Only[k] == old {
					s.Only[k] = sc.Name
				}
			}
		}
	}
	return nil
}

// maxRenameRounds bounds how often a person is asked about names: who says which workflow one
// was may be asked about its jobs then.
const maxRenameRounds = 3

// settleNames continues what was renamed, and asks until nothing is in doubt.
func (s *Session) settleNames(ctx context.Context, e Env, db database.DB) error {
	for round := 0; ; round++ {
		err := project.Continue(ctx, db, s.config(), s.Scripts)
		if err == nil {
			err = project.Ruled(ctx, db, s.config()) // of workflows without a script here, too
		}
		if err != nil {
			return err
		}
		err = project.Renamed(ctx, db, s.Project.Root, s.Scripts, s.conns)
		doubt, ok := errors.AsType[*project.RenameError](err)
		if !ok || e.AskRenames == nil || round == maxRenameRounds || !e.AskRenames(doubt, s.Scripts, s.conns) {
			return err
		}
	}
}

// A text is what tells a script from the one that the same file had before.
type text struct{ hash, entry string }

// take deploys a script if its text differs from the one that the session took last, whatever became current
// meanwhile. If the session took none, it deploys the script unless isNewer reports that a later version replaced it. The
// version is zero if nothing was deployed.
func (s *Session) take(ctx context.Context, e Env, sc project.Script) (v keep.Version, err error) {
	now := text{sc.Bundle.Hash(), sc.Bundle.Entry}
	before, known := s.texts[sc.Name]
	if before == now {
		return v, nil
	}
	newer := false
	if !known {
		newer, err = s.isNewer(ctx, e, sc)
	}
	if err == nil && !newer {
		v, err = s.deploy(ctx, e, sc)
	}
	if err == nil {
		s.texts[sc.Name] = now
	}
	return v, err
}

// Update deploys a script if it was edited while the session runs. The version is zero if nothing was deployed.
func (s *Session) Update(ctx context.Context, e Env, sc project.Script) (keep.Version, error) {
	one := []project.Script{sc}
	if err := project.Continue(ctx, s.DB, s.config(), one); err != nil {
		return keep.Version{}, err
	}
	if err := project.Renamed(ctx, s.DB, s.Project.Root, one, s.conns); err != nil {
		return keep.Version{}, err
	}
	return s.take(ctx, e, one[0])
}

// deploy makes a script current, unless a person is asked about this very script. It returns
// the version that is current then, zero if there is none.
func (s *Session) deploy(ctx context.Context, e Env, sc project.Script) (keep.Version, error) {
	c, err := s.consent(sc)
	if err != nil {
		return keep.Version{}, err
	}
	out, err := s.Host.DeployGranted(ctx, sc.Workflow, nil, c)
	if err != nil {
		return out.Version, fmt.Errorf("deploy %s: %w", sc.File, err)
	}
	if p := out.Waiting; p != nil {
		e.say("%s is version %s of %s, which waits for a person: keep inbox show %s", sc.File, p.Version, p.Workflow, p.Question)
		return out.Version, nil
	}
	e.sayGiven(sc.Name, out.Given, s.conns)
	e.Log.InfoContext(ctx, "deployed", "workflow", sc.Name, "version", out.Version.String(), "file", sc.File)
	return out.Version, nil
}

// Versions returns the current version of each workflow.
func (s *Session) Versions(ctx context.Context) (map[keep.WorkflowName]string, error) {
	all, err := s.DB.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[keep.WorkflowName]string, len(all))
	for _, w := range all {
		out[w.Name] = w.Version.String()
	}
	return out, nil
}

// A RemoteWorkflow is one that a command is to run while another host has it.
type RemoteWorkflow struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Host     keep.HostID       `json:"host"`
	Name     string            `json:"name"` // of the host
	Since    api.Time          `json:"since"`
}

// Remote returns those workflows of the session that another host has, which is
// alive, in the order of the session.
func (s *Session) Remote(ctx context.Context) (list []RemoteWorkflow, err error) {
	l, ok := s.DB.(store.Leaser)
	if !ok {
		return nil, nil // a file has one host
	}
	hosts, err := api.ListHosts(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		if h.ID == s.Host.HostID() || !h.Alive {
			continue
		}
		for _, l := range h.Workflows {
			if slices.Contains(s.Names(), l.Workflow) {
				list = append(list, RemoteWorkflow{l.Workflow, h.ID, h.Name, l.Since})
			}
		}
	}
	return list, nil
}

// presenceDir returns where the hosts of this user on this machine find each other. Nobody
// else can put something into its place: what holds it is the user's own, or sticky.
func presenceDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "keep-hosts")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("keep-hosts-%d", os.Geteuid()))
}
