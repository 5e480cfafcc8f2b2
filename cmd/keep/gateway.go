package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/store"
)

// gatewayCmd writes nothing but messages of the protocol on stdout.
func (a *app) gatewayCmd() *cobra.Command {
	var agent, listen string
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Stand between an agent and its MCP servers, with the ledger",
		Long: `Gateway serves an agent by the Model Context Protocol on stdin and stdout, and passes
its calls on to the servers of [gateway.servers] in keep.toml. Each call is recorded before
it is sent, unless its tool is known to read only. An agent that got no answer and
makes the call again gets the answer of the first; nothing is sent twice. What nobody can
know is a question in keep inbox. It ends with its stdin.

Several can work on one file, and beside keep serve: the second hands its messages to the
first, and takes its place when that ends. Give each client an --agent of its own.

With --listen it serves agents by streamable HTTP, each by its token, until it is stopped.
keep token add NAME --role agent makes a token; [gateway.agents] may have others.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.gateway(cmd.Context(), agent, listen, cmd.InOrStdin())
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "local", "`name` of the agent: two agents never share an answer")
	cmd.Flags().StringVar(&listen, "listen", "", "serve agents by HTTP at this `address`, in place of one on stdin and stdout")
	cmd.MarkFlagsMutuallyExclusive("agent", "listen")
	cmd.AddCommand(a.gatewayImportCmd(), a.gatewayInstallCmd(), a.gatewayToolsCmd(), a.gatewayPairCmd())
	return a.anewFlag(cmd)
}

// gateway serves one agent, or those that come by HTTP. What is wrong with keep.toml ends it
// at the start, so that a client sees a server that did not begin, and not one whose calls fail.
func (a *app) gateway(ctx context.Context, agent, listen string, in io.Reader) (err error) {
	if err := gateway.CheckAgent(agent); err != nil {
		return exit.Misusef("--agent: %w", err)
	}
	// A person who typed it would sit before a program that waits for JSON.
	if listen == "" && in == os.Stdin && a.TTY {
		return exit.Misusef("keep gateway speaks to a program on stdin and stdout; see keep gateway --help for how clients start it")
	}
	load := func() (*config.Config, error) { return a.LoadConfig(".") }
	cfg, err := load()
	if err != nil {
		return project.WithConnectionErrors(&project.Project{Cfg: cfg}, err)
	}
	if len(cfg.Gateway.Servers) == 0 {
		return exit.Misusef(`no MCP server is configured; write into keep.toml, for example:
[gateway.servers.files]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "."]`)
	}
	// Tokens and calls cross the network in clear text then. By naming hosts the owner says that he
	// means it; without names, agents elsewhere are refused anyway.
	if listen != "" && len(cfg.Gateway.Hosts) == 0 {
		if at, err := net.ResolveTCPAddr("tcp", listen); err != nil {
			return exit.Misusef("--listen: %w", err)
		} else if !at.IP.IsLoopback() {
			return exit.Misusef(`--listen %s is reached by other machines, without TLS; if that is meant, write into keep.toml by which names, for example:
[gateway]
hosts = ["gateway.example.com:7421"]`, listen)
		}
	}
	// A server without its secret would start, and each of its calls would fail.
	if len(cfg.Missing) > 0 {
		return &config.Error{Problems: cfg.Missing}
	}
	// Nobody can come second where there is no socket, everybody may on Postgres, and who serves by HTTP comes first.
	if listen != "" || database.IsPostgres(cfg.DB) || daemon.SocketOf(cfg) == "" {
		if listen != "" {
			return a.serveListening(ctx, cfg, listen)
		}
		g, err := a.env().HostGateway(ctx, cfg, nil)
		if err != nil {
			return err
		}
		return errors.Join(g.ServeStdio(ctx, agent, in, a.Out), g.Close())
	}
	seat := &daemon.Seat{Env: a.env(), Cfg: cfg, Agent: agent, Load: load}
	defer func() { err = errors.Join(err, seat.Close()) }()
	return gateway.Front{Connect: seat.Connect, MessageLimit: cfg.Gateway.MessageLimit, Logger: a.log}.Serve(ctx, in, a.Out)
}

// serveListening serves agents by HTTP, until ctx ends, by a gateway of keep.toml as it is then. Another keep.toml ends
// their sessions, and clients begin new ones.
func (a *app) serveListening(ctx context.Context, cfg *config.Config, listen string) error {
	var lc net.ListenConfig
	for {
		g, err := a.env().HostGateway(ctx, cfg, nil)
		if err != nil {
			return err
		}
		l, err := lc.Listen(ctx, "tcp", listen)
		if err != nil {
			return errors.Join(exit.Misusef("--listen: %w", err), g.Close())
		}
		listen = l.Addr().String() // the next one is where this one was
		serving, stop := context.WithCancel(ctx)
		next := make(chan *config.Config, 1)
		var following sync.WaitGroup
		following.Go(func() {
			defer stop()
			other := a.env().NextGateway(serving, cfg, func() (*config.Config, error) { return a.LoadConfig(".") })
			if other != nil {
				calls, cancel := context.WithTimeout(serving, daemon.CallWait)
				defer cancel()
				g.Settle(calls)
			}
			next <- other
		})
		err = a.serveAgents(serving, g.Gateway, g.DB, cfg.Gateway, l)
		stop()
		following.Wait()
		other := <-next
		if err = errors.Join(err, g.Close()); err != nil || other == nil {
			return err
		}
		cfg = other
	}
}

// serveAgents serves agents by HTTP, until ctx ends. A token that keep.toml does not have is looked
// up in the database, where keep token made it.
func (a *app) serveAgents(ctx context.Context, g *gateway.Gateway, db store.Access, cfg config.Gateway, l net.Listener) error {
	h, err := g.HTTP(gateway.HTTPConfig{Agents: cfg.Agents, Hosts: cfg.Hosts, Origins: cfg.Origins, Agent: func(ctx context.Context, token string) (string, error) {
		name, err := access.AgentOf(ctx, db, token, a.Now())
		// No name means no agent; another error is not the fault of the one who asks.
		if errors.Is(err, access.ErrDenied) {
			return "", nil
		}
		return name, err
	}})
	if err != nil {
		return errors.Join(exit.Misusef("[gateway.agents]: %w", err), l.Close())
	}
	fmt.Fprintf(a.Err, "Agents are served at http://%s%s\n", l.Addr(), gateway.Path)
	return h.Serve(ctx, l)
}
