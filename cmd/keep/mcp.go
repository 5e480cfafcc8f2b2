package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/client"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/mcp"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/rehearsal/plan"
	"github.com/keep-run/keep/script/sandbox"
)

// mcpCmd writes nothing but messages of the protocol on stdout. What the agent may do is limited by
// the tools that it is offered, whatever the API would let this user do.
func (a *app) mcpCmd() *cobra.Command {
	m := agentServer{app: a}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an agent by the Model Context Protocol, on stdin and stdout",
		Long: `Mcp lets an agent read the guide and the types, check, plan, test and propose
workflows, explain what happened, and pause. What it proposes never runs before a
person agrees (keep inbox). It cannot answer questions, approve calls, give grants or
see secrets. It ends with its stdin.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.run(cmd.Context(), cmd.InOrStdin()) },
	}
	cmd.Flags().StringVar(&m.role, "role", string(access.Author), "what the agent may do: `viewer`, operator or author")
	return cmd
}

// An agentServer serves one agent.
type agentServer struct {
	*app
	role string
	by   string // what is said behind the name of the user; empty: by an agent

	mu      sync.Mutex       // one request at a time opens the database; protects runtime
	runtime *sandbox.Runtime // nil: none was needed yet
}

// run serves until its stdin or ctx ends; both are a good end, since a client just closes the pipe.
func (m *agentServer) run(ctx context.Context, in io.Reader) (err error) {
	role := access.Role(m.role)
	// An agent answers no questions, so admin is no role for one; that of the name is for keep gateway.
	if role.Validate() != nil || role == access.Admin || role == access.Agent {
		return exit.Misusef("--role is %q, want viewer, operator or author", m.role)
	}
	if in == os.Stdin && m.TTY {
		return exit.Misusef("keep mcp speaks to a program on stdin and stdout; see keep mcp --help for how clients start it")
	}
	defer func() { err = errors.Join(err, m.close()) }()
	s := mcp.New(mcp.Config{Role: role, Call: m.call, Deploy: m.deploying, Open: m.open, Version: buildinfo.Read().Version, Logger: m.log})
	err = s.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(in), Writer: unclosed{m.Out}})
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil // the agent is gone
	}
	return err
}

// close releases the sandbox, if one was needed.
func (m *agentServer) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runtime == nil {
		return nil
	}
	err := m.runtime.Close()
	m.runtime = nil
	return err
}

// unclosed is a stream that ends with the process: the transport closes what it is given, and stdout
// is not its own.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }

// asAgent returns what clients get whose requests are an agent's. The history of a pause or a
// proposal then says that no person made it.
func (m *agentServer) asAgent() client.Env {
	e := m.client()
	e.By = daemon.User() + " " + cmp.Or(m.by, "by an agent")
	return e
}

// call calls f with a client that reads and pauses. keep.toml is read anew each time: the agent, or
// its person, may change it while the server runs.
func (m *agentServer) call(ctx context.Context, f func(*api.Client) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	cfg, err := m.LoadConfig(".")
	if err != nil && (cfg == nil || cfg.DB == "") {
		return err
	}
	return m.asAgent().Call(ctx, cfg, m.opening(database.ToDecide), f)
}

// deploying calls f with a client that takes scripts.
func (m *agentServer) deploying(ctx context.Context, f func(*api.Client) error) error {
	cfg, err := m.LoadConfig(".")
	if err != nil {
		return err
	}
	rt, err := m.sandbox(ctx, cfg)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asAgent().Call(ctx, cfg, m.openingToDeploy(&project.Project{Cfg: cfg}, rt), f)
}

// sandbox returns the sandbox of the process. To start one takes longer than most requests, so the
// first request that needs it makes it for all; it must not end with that request's ctx.
func (m *agentServer) sandbox(ctx context.Context, cfg *config.Config) (_ *sandbox.Runtime, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runtime == nil {
		m.runtime, err = project.OpenSandbox(context.WithoutCancel(ctx), cfg, m.log)
	}
	return m.runtime, err
}

// open opens what scripts are tried with: keep.toml as it is now. live opens the connections so that
// reads can be made, which a plan needs; otherwise they are only described. A database that is
// not there yet is an empty one.
func (m *agentServer) open(ctx context.Context, live bool) (b mcp.Bench, err error) {
	cfg, err := m.LoadConfig(".")
	if err != nil {
		return b, err
	}
	if b.Runtime, err = m.sandbox(ctx, cfg); err != nil {
		return b, err
	}
	// Which secrets are missing is not told to an agent.
	if live && len(cfg.Missing) > 0 {
		return b, errors.New("secrets of this project are not set here, so nothing can be read: a person runs keep check, which says what is missing")
	}
	if live {
		b.Connections, err = cfg.Connect()
	} else {
		b.Connections, err = cfg.Describe()
	}
	if err != nil {
		return b, errors.Join(err, project.CloseConnections(b.Connections))
	}
	b.Policy = &cfg.Policy
	// To read only, beside a daemon: what is tried must not reach the ledger.
	db, err := database.Open(ctx, cfg, database.ToRead)
	if errors.Is(err, keep.ErrNoDatabase) {
		db, err = nil, nil
	}
	if err != nil {
		return b, errors.Join(err, project.CloseConnections(b.Connections))
	}
	b.Close = func() error { return project.CloseConnections(b.Connections) }
	if db != nil {
		b.Base = db
		b.Close = func() error { return errors.Join(project.CloseConnections(b.Connections), db.Close()) }
	}
	b.Budgets = func(ctx context.Context) ([]plan.Standing, error) { return daemon.PlanBudgets(ctx, cfg, db, m.Now()) }
	b.Granted = func(ctx context.Context, scripts []*host.Workflow) (map[keep.WorkflowName]plan.Granted, error) {
		return daemon.PlanGrants(ctx, cfg, db, scripts)
	}
	return b, nil
}
