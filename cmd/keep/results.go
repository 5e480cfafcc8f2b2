package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// configured knows what the tools of a configuration bring, for decisions of this
// process. Few decisions need that, so the connections are opened for the first one.
type configured struct {
	cfg   *config.Config
	conns []connector.Connection
	tools *engine.Tools // nil: not opened yet
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

func (c *configured) close() error {
	return project.CloseConnections(c.conns)
}

// ResultSchema implements operator.Results.
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

// ReadResult implements operator.Results.
func (c *configured) ReadResult(ctx context.Context, m keep.Mutation) (json.RawMessage, bool, error) {
	tools, err := c.open()
	if err != nil {
		return nil, true, err
	}
	if len(c.cfg.Missing) > 0 && tools.ReadsResult(m.Tool) { // nothing may be called then
		return nil, true, errors.New("the result cannot be read: " + c.cfg.Missing[0].Message)
	}
	return tools.ReadResult(ctx, m)
}
