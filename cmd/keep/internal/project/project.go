// Package project finds what a path on the command line stands for: a keep.toml and the
// scripts to work on, with all that is wrong with them.
package project

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/cmd/keep/internal/trust"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/internal/regular"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
)

// A Project is what a path on the command line stands for: a configuration and
// the scripts to work on.
type Project struct {
	Cfg   *config.Config
	Root  string   // directory that scripts and their imports are in, absolute
	files []string // of scripts, relative to root with slashes, sorted
}

// Files returns the scripts, relative to Root with slashes, sorted.
func (p *Project) Files() []string { return slices.Clone(p.files) }

// Flags say where things are, as the command line does.
type Flags struct {
	Config string // file; empty: the nearest keep.toml upwards
	DB     string // file or URL; empty: as keep.toml says
	Anew   bool   // --new: a database that is gone is begun anew
}

// LoadConfig reads the configuration of the project that dir is in. The error
// may be a *config.Error, which comes with what could be understood.
//
// It is read twice if it lacks secrets: which database may have them is known after the first time only. A
// keep.toml that nobody named is found by where somebody stands, so whoever owns it must be trusted.
func (f *Flags) LoadConfig(dir string) (*config.Config, error) {
	file := f.Config
	file = cmp.Or(file, os.Getenv("KEEP_CONFIG"))
	if file == "" {
		if file = config.Find(dir); file != "" {
			if err := trust.Check(file); err != nil { // nobody named it
				return nil, exit.Misusef("%w", err)
			}
		}
	}
	cfg, err := config.Load(config.Options{File: file, Dir: dir})
	if cfg != nil && len(cfg.Missing) > 0 {
		if sealed, mark := f.sealed(cfg); len(sealed) > 0 {
			cfg, err = config.Load(config.Options{File: file, Dir: dir, Sealed: sealed})
			if cfg != nil {
				cfg.Stored = mark
			}
		}
	}
	if cfg != nil {
		cfg.Anew = f.Anew
	}
	if cfg == nil || f.DB == "" {
		return cfg, err
	}
	db := f.DB
	if !strings.Contains(db, "://") {
		var absErr error
		if db, absErr = filepath.Abs(db); absErr != nil {
			return cfg, absErr
		}
	}
	if db != cfg.DB {
		cfg.Server.Socket = "" // it is of the other database
	}
	cfg.DB = db
	return cfg, err
}

// sealed returns the secrets of the database, if it can be read: they count where no other
// place has one. Why it cannot be read is said by what needs
// it. The mark is another one when they are.
func (f *Flags) sealed(cfg *config.Config) (secrets map[string]config.Sealed, mark string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	name := cfg.DB
	if f.DB != "" {
		name = f.DB
	}
	db, err := database.OpenName(ctx, name, database.ToRead)
	if err != nil {
		return nil, ""
	}
	defer db.Close()
	m := account.New(account.Config{Store: db, Ring: cfg.Ring})
	all, err := m.Secrets(ctx)
	if err != nil {
		return nil, ""
	}
	out := map[string]config.Sealed{}
	for _, s := range all {
		value, err := m.Secret(ctx, s.Name)
		out[s.Name] = config.Sealed{Value: value, Mark: SecretsMark([]keep.Account{s}), Err: err}
	}
	return out, SecretsMark(all)
}

// SecretsMark returns a text that differs when the secrets of a database do.
func SecretsMark(secrets []keep.Account) string {
	var b strings.Builder
	for _, s := range secrets {
		fmt.Fprintf(&b, "%s %d %s\n", s.Name, s.Generation, s.ConnectedAt.Format(time.RFC3339Nano))
	}
	return b.String()
}

// OpenProject finds the configuration and the scripts of a file or a directory.
// The error joins everything that is wrong.
//
// Scripts outside of the directory of keep.toml, such as with --config, are relative to their own.
func (f *Flags) OpenProject(name string) (*Project, error) {
	abs, info, err := LookForScripts(name)
	if err != nil {
		return nil, err
	}
	dir := abs
	if !info.IsDir() {
		dir = filepath.Dir(abs)
	}
	cfg, err := f.LoadConfig(dir)
	if cfg == nil {
		return nil, err
	}
	p := &Project{Cfg: cfg, Root: cfg.Dir}
	if !within(cfg.Dir, dir) {
		p.Root = dir
	}
	if !info.IsDir() {
		rel, relErr := filepath.Rel(p.Root, abs)
		p.files = []string{filepath.ToSlash(rel)}
		return p, errors.Join(err, relErr)
	}
	files, globErr := scriptsIn(p.Root, dir, cfg.Workflows)
	p.files = files
	if globErr == nil && len(files) == 0 && err == nil {
		globErr = noScripts(name, dir, cfg.Workflows)
	}
	return p, errors.Join(err, globErr)
}

// FinishWritesOf finishes what WriteTogether began in the project that a directory is of, before a file of it is read that is no script.
func (f *Flags) FinishWritesOf(dir string) error {
	root := dir
	if cfg, _ := f.LoadConfig(dir); cfg != nil && within(cfg.Dir, dir) { // what is wrong with it is said later
		root = cfg.Dir
	}
	return FinishWrites(root)
}

// within reports whether dir is root or below it.
func within(root, dir string) bool {
	rel, err := filepath.Rel(root, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// scriptsIn returns the scripts in dir or below: those that match a pattern of
// the project; if that gives none, those with the extension of a script in dir.
func scriptsIn(root, dir string, patterns []string) ([]string, error) {
	files, err := match(root, root, patterns)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f string) bool { return !within(dir, filepath.Join(root, filepath.FromSlash(f))) })
	if len(files) == 0 && dir != root {
		return match(root, dir, []string{"*.js", "*.ts"})
	}
	return files, nil
}

// A listing remembers that a directory, or a file, could not be read, which fs.Glob takes for one that is not there.
type listing struct {
	fs.FS
	failed error // the last one
}

// ReadDir implements fs.ReadDirFS.
func (l *listing) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(l.FS, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if info, statErr := fs.Stat(l.FS, name); statErr != nil || info.IsDir() {
			l.failed = err
		}
	}
	return list, err
}

// Stat implements fs.StatFS: a pattern without wildcards is looked up by it.
func (l *listing) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(l.FS, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if dir, dirErr := fs.Stat(l.FS, path.Dir(name)); dirErr != nil || dir.IsDir() {
			l.failed = err
		}
	}
	return info, err
}

// match returns the files in dir that match a pattern, relative to root, if they may have workflows.
func match(root, dir string, patterns []string) ([]string, error) {
	var out []string
	readable := &listing{FS: os.DirFS(dir)}
	for _, p := range patterns {
		found, err := fs.Glob(readable, path.Clean(p))
		if err = cmp.Or(err, readable.failed); err != nil {
			return nil, fmt.Errorf("workflows: %q: %w", p, err)
		}
		for _, f := range found {
			if notWorkflow(path.Base(f)) {
				continue
			}
			rel, err := filepath.Rel(root, filepath.Join(dir, filepath.FromSlash(f)))
			if err != nil {
				return nil, err
			}
			out = append(out, filepath.ToSlash(rel))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// A Script is one file of a project that was read and checked.
type Script struct {
	File   string // relative to the project's root
	Broken bool   // keep check reports an error
	*host.Workflow
}

// LoadToRun is Load for scripts that are going to run. What keep check calls an
// error makes a script broken: it comes back with broken set, and must not be deployed.
func LoadToRun(ctx context.Context, rt *sandbox.Runtime, p *Project) (scripts []Script, found []terminal.Problem, err error) {
	scripts, found, err = Load(ctx, rt, p)
	if err != nil {
		return nil, nil, err
	}
	conns, err := p.Cfg.Describe()
	defer CloseConnections(conns)
	if err != nil {
		return nil, nil, err
	}
	for i := range scripts {
		s := &scripts[i]
		effects, err := workflow.Effects(s.Declaration, s.Sources, conns)
		if err != nil {
			return nil, nil, fmt.Errorf("effects of %s: %w", s.File, err)
		}
		effects.Findings = slices.DeleteFunc(effects.Findings, func(f workflow.Finding) bool { return f.Severity != workflow.Error })
		s.Broken = len(effects.Findings) > 0
		found = append(found, Findings(p.Root, effects)...)
	}
	return scripts, found, nil
}

// Load reads and checks all scripts of the project. What is wrong with them
// comes back as complaints; then there may be fewer scripts.
func Load(ctx context.Context, rt *sandbox.Runtime, p *Project) ([]Script, []terminal.Problem, error) {
	if err := p.finishWrites(); err != nil {
		return nil, nil, err
	}
	var scripts []Script
	var found []terminal.Problem
	owner := make(map[keep.WorkflowName]string)
	for _, file := range p.files {
		w, err := host.Load(ctx, rt, p.Root, file)
		if err != nil {
			cs := Problems(p.Root, err)
			if no, is := noScript(filepath.Join(p.Root, filepath.FromSlash(file))); is {
				cs = []terminal.Problem{no}
			}
			if len(cs) == 0 {
				return nil, nil, fmt.Errorf("load %s: %w", file, err)
			}
			for i := range cs {
				if cs[i].File == "" {
					cs[i].File = terminal.Short(filepath.Join(p.Root, filepath.FromSlash(file)))
				}
			}
			found = append(found, cs...)
			continue
		}
		names := slices.DeleteFunc([]keep.WorkflowName{w.Name, w.Was}, func(n keep.WorkflowName) bool { return n == "" })
		if i := slices.IndexFunc(names, func(n keep.WorkflowName) bool { return owner[n] != "" }); i >= 0 {
			found = append(found, terminal.Problem{Severity: "error", Code: "twice", File: terminal.Short(filepath.Join(p.Root, file)),
				Message: fmt.Sprintf("workflow %q is declared by %s too", names[i], terminal.Short(filepath.Join(p.Root, owner[names[i]]))),
				Fix:     "give one of them another name (two cannot be what one was), or narrow workflows in keep.toml"})
			continue
		}
		for _, name := range names {
			owner[name] = file
		}
		scripts = append(scripts, Script{File: file, Workflow: w})
	}
	return scripts, found, nil
}

// finishWrites finishes what edits began in the project, and in those below it that scripts are of.
func (p *Project) finishWrites() error {
	dirs := map[string]bool{".": true}
	for _, file := range p.files {
		for dir := path.Dir(file); !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := FinishWrites(filepath.Join(p.Root, filepath.FromSlash(dir))); err != nil {
			return err
		}
	}
	return nil
}

// noScript says why a file that cannot be loaded holds no script at all, if that is what is wrong with it.
func noScript(file string) (terminal.Problem, bool) {
	text, err := regular.Read(file, config.MaxFile)
	switch {
	case err != nil:
	case len(bytes.TrimSpace(text)) == 0:
		return terminal.Problem{Severity: "error", Code: "empty", Message: "the file is empty", Fix: "write a workflow in it; keep init DIR makes an example"}, true
	case regular.IsUTF16(text):
		return terminal.Problem{Severity: "error", Code: "encoding", Message: "the file is in UTF-16", Fix: "save it as UTF-8"}, true
	}
	return terminal.Problem{}, false
}

// OpenSandbox starts the sandbox with the limits of the configuration.
//
// A cache that cannot be used is left out: the sandbox is then compiled anew.
func OpenSandbox(ctx context.Context, cfg *config.Config, log *slog.Logger) (*sandbox.Runtime, error) {
	dir := CacheDir()
	rt, err := sandbox.Open(ctx, sandbox.Config{Limits: cfg.Sandbox, CacheDir: dir})
	if err != nil && dir != "" && ctx.Err() == nil {
		log.WarnContext(ctx, "the cache of the sandbox cannot be used", "dir", dir, "err", err)
		rt, err = sandbox.Open(ctx, sandbox.Config{Limits: cfg.Sandbox})
	}
	if err != nil {
		return nil, fmt.Errorf("open the sandbox: %w", err)
	}
	return rt, nil
}

// CacheDir returns a directory for the compiled sandbox that nobody else can
// write to, or "" for none: what lies there is run as native code.
func CacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir := filepath.Join(base, "keep")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return ""
	}
	return dir
}

// CloseConnections closes connections that no host has taken over.
func CloseConnections(conns []connector.Connection) error {
	var errs []error
	for _, c := range conns {
		if c.Close != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// WithConnectionErrors adds what else is wrong with a project to an error about it, so that
// a person can fix everything at once.
func WithConnectionErrors(p *Project, err error) error {
	if p == nil || p.Cfg == nil {
		return err
	}
	conns, connErr := p.Cfg.Connect()
	return errors.Join(err, connErr, CloseConnections(conns))
}
