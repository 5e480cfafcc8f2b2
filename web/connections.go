package web

import (
	"context"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/view"
)

// connectionsData is the configured accounts.
type connectionsData struct {
	Connections []connectionRow
}

// A connectionRow is a connection with its tools.
type connectionRow struct {
	Name, Connector string
	Tools           []toolRow
	Testable        bool             // has a read that needs no params
	Limits          string           // in words; empty: none
	Use             *view.Connection // nil: it was never limited or shut
	Due             bool             // the time of the next try is over, and nobody made a call since
}

// IsShut reports whether nobody uses the connection now.
func (c connectionRow) IsShut() bool { return c.Use != nil && c.Use.State != view.Up }

// Shut says why nobody uses the connection now.
func (c connectionRow) Shut() template.HTML {
	says := "It names times before which it wants no calls, since "
	if c.Use.State == view.Down {
		says = "It does not answer, since "
	}
	parts := []lifecycle.Part{{Text: says}, {Time: c.Use.Since}, {Text: ": " + c.Use.Why + "; "}}
	if c.Due {
		return partsHTML(append(parts, lifecycle.Part{Text: "whoever makes a call next tries it."}))
	}
	return partsHTML(append(parts, lifecycle.Part{Text: "the next call is made at "}, lifecycle.Part{Time: c.Use.NextProbe}, lifecycle.Part{Text: "."}))
}

// A toolRow is a tool, and when it last did something.
type toolRow struct {
	connector.Spec
	Tool     keep.ToolName
	Last     *keep.Mutation    // the newest that was applied; nil: none
	Stopped  keep.EscalationID // the question about its calls, which are stopped; empty: they are not
	CanAsk   bool
	Harmless bool // can be tested: changes nothing and needs no params
}

// connections lists what keep.toml has, with what the store knows of it. No service is called: a page that
// is read again and again uses up no rate limit.
func (s *site) connections(r *http.Request) (page, error) {
	p := page{Title: "Connections", Section: "connections", Watch: []feed.Kind{feed.Mutation, feed.Escalation}}
	var d connectionsData
	var mutating []keep.ToolName
	for _, c := range s.cfg.Connections {
		for _, t := range c.Tools {
			if t.Spec().Effect == connector.Mutate {
				mutating = append(mutating, keep.ToolName(c.Name+"."+t.Spec().Name))
			}
		}
	}
	last, err := s.cfg.Store.LastApplied(r.Context(), mutating)
	if err != nil {
		return p, err
	}
	used, err := view.ReadConnections(r.Context(), s.cfg.Store)
	if err != nil {
		return p, err
	}
	stopped, err := view.StoppedTools(r.Context(), s.cfg.Store)
	if err != nil {
		return p, err
	}
	for _, c := range s.cfg.Connections {
		row := connectionRow{Name: c.Name, Connector: c.Connector, Limits: c.Limits.String()}
		if i := slices.IndexFunc(used, func(u view.Connection) bool { return u.Name == c.Name }); i >= 0 {
			row.Use, row.Due = &used[i], !used[i].NextProbe.After(s.cfg.Clock())
		}
		for _, t := range c.Tools {
			tool := toolRowOf(c, t, last)
			tool.Stopped = stopped[tool.Tool]
			row.Testable = row.Testable || tool.Harmless
			row.Tools = append(row.Tools, tool)
		}
		d.Connections = append(d.Connections, row)
	}
	p.Data = d
	return p, nil
}

// toolRowOf is the row of a tool. Whether it CanAsk is told by its code and not by what is written of it:
// after a doubt only a Reconciler can look a call up.
func toolRowOf(c connector.Connection, t connector.Tool, last map[keep.ToolName]keep.Mutation) toolRow {
	row := toolRow{Spec: t.Spec(), Harmless: harmless(t)}
	row.Tool = keep.ToolName(c.Name + "." + row.Name)
	_, row.CanAsk = t.(connector.Reconciler)
	if m, ok := last[row.Tool]; ok {
		row.Last = &m
	}
	return row
}

// harmless reports whether a person may press a button to call t: it lists, which
// changes nothing, and its schema requires no params.
func harmless(t connector.Tool) bool {
	spec := t.Spec()
	if _, ok := t.(connector.Reader); !ok || spec.Effect != connector.List {
		return false
	}
	var schema struct {
		Required []string `json:"required"`
		MinProps int      `json:"minProperties"`
	}
	if len(spec.Params) > 0 && json.Unmarshal(spec.Params, &schema) != nil {
		return false
	}
	return len(schema.Required) == 0 && schema.MinProps == 0
}

// testData is what came of pressing a test button.
type testData struct {
	Tool    keep.ToolName
	Took    time.Duration
	Size    int // bytes of the answer, which is not shown
	Failure *keep.Failure
}

// testTimeout bounds a test.
const testTimeout = 15 * time.Second

// testTool calls a harmless read without params. Nothing is recorded, since nothing
// is changed.
func (s *site) testTool(r *http.Request) (page, error) {
	d := testData{Tool: keep.ToolName(r.PathValue("name") + "." + r.PathValue("tool"))}
	p := page{Title: "Test of " + string(d.Tool), Section: "connections"}
	t := s.tool(r.PathValue("name"), r.PathValue("tool"))
	if t == nil {
		return p, &keep.NotFoundError{What: "tool", ID: string(d.Tool)}
	}
	reader, ok := t.(connector.Reader)
	if !ok || !harmless(t) {
		return p, refusef("%s is not a read that needs no params", d.Tool)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), testTimeout, &keep.TimeoutError{Op: "test of " + string(d.Tool), After: testTimeout})
	defer cancel()
	// Only its size is shown: the answer may be of any kind, and the question is whether there is one.
	start := time.Now()
	answer, err := reader.Read(ctx, json.RawMessage(`{}`))
	d.Took, d.Size = time.Since(start).Round(time.Millisecond), len(answer)
	if err != nil {
		if f, ok := errors.AsType[*keep.Failure](err); ok {
			d.Failure = f
		} else {
			d.Failure = keep.Failf(keep.ClassTransient, "read-failed", "%v", err)
		}
	}
	p.Data = d
	return p, nil
}

// tool returns a configured tool; nil if there is none.
func (s *site) tool(connection, name string) connector.Tool {
	for _, c := range s.cfg.Connections {
		for _, t := range c.Tools {
			if c.Name == connection && t.Spec().Name == name {
				return t
			}
		}
	}
	return nil
}
