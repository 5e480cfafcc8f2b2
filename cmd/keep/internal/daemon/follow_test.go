package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	goflow "github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
)

// A secret whose file changed is at most a second old at a call: two looks must find the same.
func TestSecretsAreLookedAtInTime(t *testing.T) {
	if 2*lookEvery >= time.Second {
		t.Errorf("files are looked at each %s, so a secret may be older than a second at a call", lookEvery)
	}
}

// TestConfigIsTriedAgain has a database that cannot be read for a moment just when a host takes a keep.toml that
// grants less: it is told as taken but for that, and the grant is there once it can be.
func TestConfigIsTriedAgain(t *testing.T) {
	t.Parallel()
	said := make(saidLines, 99)
	dir := t.TempDir()
	load := func() (*config.Config, error) {
		return config.Load(config.Options{File: filepath.Join(dir, "keep.toml"), Dir: dir})
	}
	write := func(tools string) {
		t.Helper()
		text := fmt.Sprintf("[connections.journal]\nconnector = \"log\"\npath = \"journal.jsonl\"\n[grants.notes]\ntools = [%s]\n", tools)
		if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`"journal.write"`)
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	s := sessionOf(t, cfg, slog.New(said))
	granted := func() (tools int) {
		t.Helper()
		all, err := s.DB.(*outOfOrder).DB.GrantsBefore(t.Context(), "notes")
		if err != nil || len(all) == 0 {
			t.Fatalf("grants: %v, %v", all, err)
		}
		return len(all[0].Tools)
	}
	if got := granted(); got != 1 {
		t.Fatalf("%d tools at first, want 1", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	f := &Follower{Env: Env{Log: slog.New(said)}, Session: s, Load: load}
	over := make(chan struct{})
	go func() { defer close(over); f.Run(ctx) }()
	defer func() { stop(); <-over }()

	s.DB.(*outOfOrder).down.Store(true)
	write("")
	said.until(t, "configuration taken, but for a part")
	now := s.Settings()
	if now.Refused != nil || now.Unfinished == nil || !strings.Contains(now.Unfinished.Reason, "out of order") {
		t.Errorf("settings are %+v, want an unfinished one, out of order", now)
	}
	if got := granted(); got != 1 {
		t.Errorf("%d tools meanwhile, want 1", got)
	}
	s.DB.(*outOfOrder).down.Store(false)
	said.until(t, "configuration taken")
	if now := s.Settings(); now.Refused != nil || now.Unfinished != nil {
		t.Errorf("settings are %+v, want none refused or unfinished", now)
	}
	if got := granted(); got != 0 {
		t.Errorf("%d tools, want none", got)
	}

	// Where it cannot be read what may be renamed, nothing is taken until it can be.
	s.DB.(*outOfOrder).deaf.Store(true)
	write(`"journal.write"`)
	said.until(t, "configuration refused")
	if now := s.Settings(); now.Refused == nil || !strings.Contains(now.Refused.Reason, "out of order") || granted() != 0 {
		t.Errorf("settings are %+v with %d tools, want a refused one, out of order", now, granted())
	}
	s.DB.(*outOfOrder).deaf.Store(false)
	said.until(t, "configuration taken")
	if now := s.Settings(); now.Refused != nil || granted() != 1 {
		t.Errorf("settings are %+v with %d tools, want none refused and 1", now, granted())
	}
}

// writerIn returns a function that writes files below a directory.
func writerIn(t *testing.T, dir string) func(name, text string) {
	return func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPacksAreFollowed changes a pack and nothing else: that is taken as a change of keep.toml is.
func TestPacksAreFollowed(t *testing.T) {
	t.Parallel()
	said := make(saidLines, 99)
	dir := t.TempDir()
	write := writerIn(t, dir)
	const pack = "name = \"svc\"\nversion = \"1\"\ntitle = \"Service\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\nstyle = \"none\"\n[tools.read]\neffect = \"get\"\npath = \"/v1\"\n"
	write("keep.toml", "[connections.svc]\nconnector = \"svc\"\n")
	write("packs/svc.toml", pack)
	load := func() (*config.Config, error) {
		return config.Load(config.Options{File: filepath.Join(dir, "keep.toml"), Dir: dir})
	}
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	s := sessionOf(t, cfg, slog.New(said))
	ctx, stop := context.WithCancel(t.Context())
	f := &Follower{Env: Env{Log: slog.New(said)}, Session: s, Load: load}
	over := make(chan struct{})
	go func() { defer close(over); f.Run(ctx) }()
	defer func() { stop(); <-over }()
	write("packs/svc.toml", pack+"[tools.other]\neffect = \"get\"\npath = \"/v2\"\n")
	said.until(t, "configuration taken")
	if now := s.config(); now.Hash == cfg.Hash || len(now.Files) != 2 {
		t.Errorf("the configuration is %s of %q, want another than %s, of two files", now.Hash, now.Files, cfg.Hash)
	}
}

// TestOnlySecretsAreTaken has a host whose keep.toml somebody else takes: a secret that changes beside another
// keep.toml, or a broken one, is taken when the file is what it was, and nothing of the other one.
func TestOnlySecretsAreTaken(t *testing.T) {
	t.Parallel()
	said := make(saidLines, 99)
	dir := t.TempDir()
	write := writerIn(t, dir)
	const text = "[connections.svc]\nconnector = \"http\"\nbase_url = \"http://127.0.0.1:1\"\nheaders = { Authorization = \"${secret:k}\" }\n" +
		"[connections.svc.tools.read]\neffect = \"get\"\npath = \"/\"\n[grants.notes]\ntools = [\"svc.read\"]\n"
	write("keep.toml", text)
	write(".secrets/k", "one")
	read := make(chan struct{}, 99)
	load := func() (*config.Config, error) {
		defer func() { read <- struct{}{} }()
		return config.Load(config.Options{File: filepath.Join(dir, "keep.toml"), Dir: dir})
	}
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	<-read
	s := sessionOf(t, cfg, slog.New(said))
	granted := func() int {
		t.Helper()
		all, err := s.DB.(*outOfOrder).DB.GrantsBefore(t.Context(), "notes")
		if err != nil || len(all) == 0 {
			t.Fatalf("grants: %v, %v", all, err)
		}
		return len(all[0].Tools)
	}
	write("keep.toml", strings.Replace(text, `["svc.read"]`, `[]`, 1))
	write(".secrets/k", "two two")
	ctx, stop := context.WithCancel(t.Context())
	f := &Follower{Env: Env{Log: slog.New(said)}, Session: s, Load: load, SecretsOnly: true}
	over := make(chan struct{})
	go func() { defer close(over); f.Run(ctx) }()
	defer func() { stop(); <-over }()
	<-read
	<-read // the second look finds the same
	write("keep.toml", text)
	said.until(t, "configuration taken")
	if got := granted(); got != 1 {
		t.Errorf("%d tools are granted, want 1: that of the keep.toml of the session", got)
	}
	write("keep.toml", "[")
	write(".secrets/k", "three three three")
	said.until(t, "configuration refused")
	write("keep.toml", text)
	said.until(t, "configuration taken")
	if now := s.Settings(); now.Refused != nil {
		t.Errorf("settings are %+v, want none refused", now)
	}
}

// sessionOf returns a session of a configuration, with a workflow in Go and without a sandbox.
func sessionOf(t *testing.T, cfg *config.Config, log *slog.Logger) *Session {
	t.Helper()
	db, err := database.Open(t.Context(), cfg, database.ToHost)
	if err != nil {
		t.Fatal(err)
	}
	s := &Session{Project: &project.Project{Cfg: cfg, Root: cfg.Dir}, loaded: *cfg, files: fingerprintOf(cfg), settings: api.Settings{TakenAt: api.Time(time.Now())}, DB: &outOfOrder{DB: db}}
	if s.conns, err = cfg.Connect(); err != nil {
		t.Fatal(err)
	}
	env := Env{Log: log}
	s.Accounts = env.NewAccounts(s.config, db, func(context.Context, func(context.Context) ([]keep.Account, error)) error { return nil })
	s.Host, err = host.Open(t.Context(), s.DB, host.Config{Connections: s.conns, Policy: &cfg.Policy, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Host.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	w, err := s.Host.LoadGo(&goflow.Workflow{Name: "notes", Handlers: []goflow.Handler{goflow.Producer{Name: "look", Run: func(context.Context, *goflow.Ingress) error { return nil }}}})
	if err == nil {
		_, err = s.Host.Deploy(t.Context(), w)
	}
	if err := errors.Join(err, s.GrantFromConfig(t.Context(), env)); err != nil {
		t.Fatal(err)
	}
	return s
}

// An outOfOrder database reads no workflow while it is down, and not what was called while it is deaf; it commits nothing while it is full.
type outOfOrder struct {
	database.DB
	down, deaf, full atomic.Bool
}

var errOutOfOrder = errors.New("the database is out of order")

func (o *outOfOrder) UsedTools(ctx context.Context) (map[keep.WorkflowName][]keep.ToolName, error) {
	if o.deaf.Load() {
		return nil, errOutOfOrder
	}
	return o.DB.UsedTools(ctx)
}

func (o *outOfOrder) Workflow(ctx context.Context, w keep.WorkflowName) (keep.Workflow, error) {
	if o.down.Load() {
		return keep.Workflow{}, errOutOfOrder
	}
	return o.DB.Workflow(ctx, w)
}

// saidLines are the messages of a log.
type saidLines chan string

// until waits for a message that begins so.
func (s saidLines) until(t *testing.T, begin string) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case line := <-s:
			if strings.HasPrefix(line, begin) {
				return
			}
		case <-limit:
			t.Fatalf("it did not say %q", begin)
		}
	}
}

func (s saidLines) Enabled(context.Context, slog.Level) bool { return true }

func (s saidLines) Handle(_ context.Context, r slog.Record) error {
	s <- r.Message
	return nil
}

func (s saidLines) WithAttrs([]slog.Attr) slog.Handler { return s }

func (s saidLines) WithGroup(string) slog.Handler { return s }
