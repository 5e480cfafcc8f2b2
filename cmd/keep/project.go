package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/sandbox"
	"github.com/keep-run/keep/workflow"
)

// A project is what a path on the command line stands for: a configuration and
// the scripts to work on.
type project struct {
	cfg   *config.Config
	root  string   // directory that scripts and their imports are in, absolute
	files []string // of scripts, relative to root with slashes, sorted
}

// loadConfig reads the configuration of the project that dir is in. The error
// may be a *config.Error, which comes with what could be understood.
func (a *app) loadConfig(dir string) (*config.Config, error) {
	file := a.config
	if file == "" {
		file = os.Getenv("KEEP_CONFIG")
	}
	if file == "" {
		file = config.Find(dir)
	}
	cfg, err := config.Load(config.Options{File: file, Dir: dir})
	if cfg == nil || a.db == "" {
		return cfg, err
	}
	db := a.db
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

// openProject finds the configuration and the scripts of a file or a directory.
// The error joins everything that is wrong.
func (a *app) openProject(name string) (*project, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("find the workflow: %w", err)
	}
	dir := abs
	if !info.IsDir() {
		dir = filepath.Dir(abs)
	}
	cfg, err := a.loadConfig(dir)
	if cfg == nil {
		return nil, err
	}
	p := &project{cfg: cfg, root: cfg.Dir}
	if !within(cfg.Dir, dir) {
		p.root = dir
	}
	if !info.IsDir() {
		rel, relErr := filepath.Rel(p.root, abs)
		p.files = []string{filepath.ToSlash(rel)}
		return p, errors.Join(err, relErr)
	}
	files, globErr := scriptsIn(p.root, dir, cfg.Workflows)
	p.files = files
	if globErr == nil && len(files) == 0 && err == nil {
		globErr = misusef("%s: no scripts match %s; write one, or see keep init", name, strings.Join(cfg.Workflows, ", "))
	}
	return p, errors.Join(err, globErr)
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

// match returns the files in dir that match a pattern, relative to root.
// Declarations of types and hidden files are no scripts.
func match(root, dir string, patterns []string) ([]string, error) {
	var out []string
	for _, p := range patterns {
		found, err := fs.Glob(os.DirFS(dir), path.Clean(p))
		if err != nil {
			return nil, fmt.Errorf("workflows: %q: %w", p, err)
		}
		for _, f := range found {
			if base := path.Base(f); strings.HasSuffix(base, ".d.ts") || strings.HasPrefix(base, ".") {
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

// A script is one file of a project that was read and checked.
type script struct {
	file string // relative to the project's root
	*host.Workflow
}

// loadToRun is load for scripts that are going to run: calls of tools that no
// connection has are complaints too.
func (a *app) loadToRun(ctx context.Context, rt *sandbox.Runtime, p *project) ([]script, []complaint, error) {
	scripts, found, err := a.load(ctx, rt, p)
	if err != nil {
		return nil, nil, err
	}
	conns, err := p.cfg.Describe()
	defer closeAll(conns)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range scripts {
		effects, err := workflow.Effects(s.Declaration, s.Sources, conns)
		if err != nil {
			return nil, nil, fmt.Errorf("effects of %s: %w", s.file, err)
		}
		effects.Findings = slices.DeleteFunc(effects.Findings, func(f workflow.Finding) bool { return f.Severity != workflow.Error })
		found = append(found, findings(p.root, effects)...)
	}
	return scripts, found, nil
}

// load reads and checks all scripts of the project. What is wrong with them
// comes back as complaints; then there may be fewer scripts.
func (a *app) load(ctx context.Context, rt *sandbox.Runtime, p *project) ([]script, []complaint, error) {
	var scripts []script
	var found []complaint
	owner := make(map[keep.WorkflowName]string)
	for _, file := range p.files {
		w, err := host.Load(ctx, rt, p.root, file)
		if err != nil {
			cs := a.complaints(p.root, err)
			if len(cs) == 0 {
				return nil, nil, fmt.Errorf("load %s: %w", file, err)
			}
			for i := range cs {
				if cs[i].File == "" {
					cs[i].File = short(filepath.Join(p.root, filepath.FromSlash(file)))
				}
			}
			found = append(found, cs...)
			continue
		}
		if first, taken := owner[w.Name]; taken {
			found = append(found, complaint{Severity: "error", File: short(filepath.Join(p.root, file)),
				Message: fmt.Sprintf("workflow %q is declared by %s too", w.Name, short(filepath.Join(p.root, first))),
				Fix:     "give one of them another name, or narrow workflows in keep.toml"})
			continue
		}
		owner[w.Name] = file
		scripts = append(scripts, script{file, w})
	}
	return scripts, found, nil
}

// openRuntime starts the sandbox with the limits of the configuration.
func (a *app) openRuntime(ctx context.Context, cfg *config.Config) (*sandbox.Runtime, error) {
	dir := cacheDir()
	rt, err := sandbox.Open(ctx, sandbox.Config{Limits: cfg.Sandbox, CacheDir: dir})
	if err != nil && dir != "" && ctx.Err() == nil {
		a.log.WarnContext(ctx, "the cache of the sandbox cannot be used", "dir", dir, "err", err)
		rt, err = sandbox.Open(ctx, sandbox.Config{Limits: cfg.Sandbox})
	}
	if err != nil {
		return nil, fmt.Errorf("open the sandbox: %w", err)
	}
	return rt, nil
}

// cacheDir returns a directory for the compiled sandbox that nobody else can
// write to, or "" for none: what lies there is run as native code.
func cacheDir() string {
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

// closeAll closes connections that no host has taken over.
func closeAll(conns []connector.Connection) error {
	var errs []error
	for _, c := range conns {
		if c.Close != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
