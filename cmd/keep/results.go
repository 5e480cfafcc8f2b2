package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
)

// configured knows what the tools of a configuration bring, for decisions of this
// process. Few decisions need that, so the connections are opened for the first one.
type configured struct {
	cfg   *config.Config
	db    database.DB
	conns []connector.Connection
	tools *engine.Tools    // nil: not opened yet
	rt    *sandbox.Runtime // nil: not opened yet
}

// open opens the connections once. Of those that lack a secret the schemas are known,
// and nothing can be read.
func (c *configured) open() (*engine.Tools, error) {
	if c.tools != nil {
		return c.tools, nil
	}
	conns, err := c.cfg.Describe()
	if err == nil {
		c.tools, err = engine.NewTools(conns)
	}
	if err != nil {
		return nil, errors.Join(err, project.CloseConnections(conns))
	}
	c.conns = conns
	return c.tools, nil
}

// close closes what was opened; both parts are nil if no decision needed them.
func (c *configured) close() error {
	var err error
	if c.rt != nil {
		err = c.rt.Close()
	}
	return errors.Join(err, project.CloseConnections(c.conns))
}

// replays returns what goes through runs again, with a sandbox that is opened at need.
func (c *configured) replays(db database.DB, log *slog.Logger) *daemon.ScriptReplayer {
	return &daemon.ScriptReplayer{DB: db, Tools: func(ctx context.Context) (*sandbox.Runtime, []connector.Connection, *policy.Policy, error) {
		_, err := c.open()
		if err == nil && c.rt == nil {
			c.rt, err = project.OpenSandbox(ctx, c.cfg, log)
		}
		return c.rt, c.conns, &c.cfg.Policy, err
	}}
}

// ResultSchema implements operator.Results. Without connections nothing is known of the tool; that is
// said by CheckResult, where a result is refused for it.
func (c *configured) ResultSchema(tool keep.ToolName) json.RawMessage {
	tools, err := c.open()
	if err != nil {
		return nil
	}
	return tools.ResultSchema(tool)
}

// CheckResult implements operator.Results.
func (c *configured) CheckResult(tool keep.ToolName, result json.RawMessage) error {
	tools, err := c.open()
	if err != nil {
		return err
	}
	return tools.CheckResult(tool, result)
}

// ReadResult implements operator.Results. It is the one thing in a decision that calls a service, so
// a missing secret ends it. Other decisions work without.
func (c *configured) ReadResult(ctx context.Context, m keep.Mutation) (json.RawMessage, bool, error) {
	tools, err := c.open()
	if err != nil {
		return nil, true, err
	}
	if len(c.cfg.Missing) > 0 && tools.ReadsResult(m.Tool) { // nothing may be called then
		return nil, true, errors.New("the result cannot be read: " + c.cfg.Missing[0].Message)
	}
	key, err := c.db.LinkKey(ctx)
	if err != nil {
		return nil, true, err
	}
	return engine.NewResults(tools, c.db, key).ReadResult(ctx, m)
}
