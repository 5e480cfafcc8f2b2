// Package rename finds what may have been renamed: something that the records of a
// database name is gone from the configuration or the scripts, while something appears
// there that no record names. Both may be one. Then what was done under the old name would
// be done again under the new one, so Keep asks which it is (was = "old", or new = true).
//
// A record says by which names its tool was known when the call was made. A name that the
// configuration said then, and says no more, is asked about whatever was called since.
//
// The package reads nothing; it compares what its caller read.
package rename

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// A Kind says what may have been renamed.
type Kind string

const (
	Connection Kind = "connection" // of keep.toml
	Tool       Kind = "tool"       // of a connection that is there
	Job        Kind = "job"        // of a workflow
	Topic      Kind = "topic"      // of a workflow, that has events
	Producer   Kind = "producer"   // of a workflow, that has a checkpoint
	Workflow   Kind = "workflow"   // with all that it did

	// Both says that a workflow names another one as what it was, and that both have work.
	Both Kind = "workflows"

	// Ruled says that keep.toml has rules for a workflow by its new name, and none by the first one, under which it is
	// continued: they would be about nothing.
	Ruled Kind = "rules"
)

// A Doubt is one thing that is gone, and what it may be called now.
type Doubt struct {
	Kind     Kind
	Workflow keep.WorkflowName // of a job, topic or producer
	Gone     string            // as records name it
	Fresh    string            // that may be it
	Said     bool              // of Connection and Tool: by records, it is
	Names    string            // of Connection and Tool: all that was is to say, in TOML
	Table    string            // of Ruled: where the rules are
	Taken    bool              // of Topic, Job and Producer: it was Gone first, and another one has that name now
	Idle     bool              // of Workflow: it has done nothing yet, and continues
	InGo     bool              // what is to be written is in a Go program
}

// Error says what is in doubt.
func (d Doubt) Error() string {
	if d.Kind == Both {
		return fmt.Sprintf("the workflow %s says that it was %s, and the database has both", d.Fresh, d.Gone)
	}
	if d.Kind == Ruled {
		return fmt.Sprintf("%s is about the workflow %s, which the database continues under its first name, %s: it would not hold", d.Table, d.Fresh, d.Gone)
	}
	if d.Said {
		by := "keep.toml"
		if d.InGo {
			by = "the program"
		}
		return fmt.Sprintf("records say that the %s %s was %s, and %s says it no more: what was done under that name would be done again",
			d.Kind, d.Fresh, d.Gone, by)
	}
	if d.Taken {
		return fmt.Sprintf("the %s %s of workflow %s was %s first, and another one has that name now: what one did would count for the other", d.Kind, d.Fresh, d.Workflow, d.Gone)
	}
	if d.Idle {
		return fmt.Sprintf("the workflow %s continues in the database, no script has its name, and the workflow %s is new: if they are one, both would do the work", d.Gone, d.Fresh)
	}
	of := ""
	if d.Workflow != "" {
		of = fmt.Sprintf(" of workflow %s", d.Workflow)
	}
	return fmt.Sprintf("the %s %s%s has work in the database and is gone, and the %s %s is new: "+
		"if they are one, what was done under the old name would be done again", d.Kind, d.Gone, of, d.Kind, d.Fresh)
}

// Fix says what to write.
func (d Doubt) Fix() string {
	if d.Taken {
		return fmt.Sprintf("give the other %s a name that nothing had", d.Kind)
	}
	if part := d.Kind == Topic || d.Kind == Job || d.Kind == Producer; part && d.Fresh == d.Gone {
		return fmt.Sprintf("leave out what %s says that it was: it has its first name", d.Fresh)
	}
	if d.InGo {
		return d.fixInGo()
	}
	switch d.Kind {
	case Connection:
		return fmt.Sprintf("write was = %s in [connections.%s] if it is the same, new = true if it is another one", d.Names, d.Fresh)
	case Tool:
		conn, tool, _ := strings.Cut(d.Fresh, ".")
		return fmt.Sprintf("write was = %s in [connections.%s.tools.%s] if it is the same, new = true if it is another one", d.Names, conn, tool)
	case Ruled:
		return fmt.Sprintf("write %s there in place of %s, or besides it", d.Gone, d.Fresh)
	case Both:
		return "remove was, or run it on another database"
	case Topic:
		return fmt.Sprintf("write topics: { %q: { was: %q } } if it is the same, new: true if it is another one", d.Fresh, d.Gone)
	case Job, Producer:
		return fmt.Sprintf("write %s: { was: %q, … } if it is the same, new: true if it is another one", d.Fresh, d.Gone)
	}
	return fmt.Sprintf("write was: %q in Keep.workflow if it is the same, new: true if it is another one; the old one then continues, and keep pause %s ends it", d.Gone, d.Gone)
}

// fixInGo is Fix for the author of a Go program.
func (d Doubt) fixInGo() string {
	names := strings.Trim(d.Names, "[]")
	switch d.Kind {
	case Connection:
		return fmt.Sprintf("write Was: connector.Names{%s} in the connector.Connection %s if it is the same, New: true if it is another one", names, d.Fresh)
	case Tool:
		conn, tool, _ := strings.Cut(d.Fresh, ".")
		return fmt.Sprintf("write Was: connector.Names{%s} in the connector.Spec of tool %s of connection %s if it is the same, New: true if it is another one", names, tool, conn)
	case Ruled:
		return fmt.Sprintf("write %s there in place of %s, or besides it", d.Gone, d.Fresh)
	case Both:
		return "remove Was, or run it on another database"
	case Topic:
		return fmt.Sprintf("write TopicWas: map[keep.TopicName]keep.TopicName{%q: %q} in its handler.Workflow if it is the same, name it in NewTopics if it is another one", d.Fresh, d.Gone)
	case Job, Producer:
		return fmt.Sprintf("write Was: %q in the %s %s if it is the same, New: true if it is another one", d.Gone, d.Kind, d.Fresh)
	}
	return fmt.Sprintf("write Was: %q in the handler.Workflow %s if it is the same, New: true if it is another one; if the program has both, deploy %s first", d.Gone, d.Fresh, d.Gone)
}

// A ToolOf is a tool of a configuration.
type ToolOf struct {
	Name      keep.ToolName
	Connector string          // kind of service
	Was       []keep.ToolName // names that it had before
	New       bool            // the tool has no others within its connection
	NewConn   bool            // its connection has no others
	Called    bool            // a script seems to call it, and it changes something
}

// IsNot reports whether the configuration says that t is not the tool that a record names: by its connection, or by
// its name there. What says that it has no other names says nothing about the other one.
func (t ToolOf) IsNot(record keep.ToolName) bool {
	conn, tool, _ := strings.Cut(string(record), ".")
	return t.NewConn && !slices.Contains(connsOf(t), conn) || t.New && !slices.Contains(toolsOf(t), tool)
}

// A Used is a tool that records name which are not of failed calls.
type Used struct {
	Tool      keep.ToolName
	Connector string          // empty: not known
	Was       []keep.ToolName // names that its tool had before, when it was applied last; nil: not known
}

// A Stored is a workflow as a database has it.
type Stored struct {
	Name     keep.WorkflowName
	Entry    string // file of its current version
	Topics   []keep.TopicName
	Handlers []keep.Handler     // of it
	Worked   bool               // it has calls or items
	Goes     bool               // nobody paused it: it continues, whatever scripts there are
	Did      []keep.ToolName    // tools of its calls that may have happened
	Jobs     []keep.HandlerName // that ever ran, by the names of their items; none if there are no items
	Ran      []keep.HandlerName // handlers that ever ran

	Events      []keep.TopicName   // topics that ever had an event
	Checkpoints []keep.HandlerName // that are not empty, by the names under which they are kept
}

// A Written is a workflow as a script has it.
type Written struct {
	keep.Definition
	Entry string

	// Calls are the tools that it may call and that change something, by all their names. A
	// tool that no configuration has any more may be any tool of its kind.
	Calls []keep.ToolName
}

// Tools returns what may have been renamed in a configuration, of which records use some.
func Tools(used []Used, configured []ToolOf) []Doubt {
	c := config{owners: make(map[keep.ToolName]keep.ToolName), conns: make(map[string]string), worked: make(map[string]bool)}
	for _, t := range configured {
		c.owners[t.Name], c.conns[connOf(t.Name)] = t.Name, connOf(t.Name)
	}
	for _, t := range configured {
		for _, was := range t.Was {
			c.owners[was] = t.Name
			if _, taken := c.conns[connOf(was)]; !taken {
				c.conns[connOf(was)] = connOf(t.Name)
			}
		}
	}
	for _, u := range used {
		c.note(u)
	}
	var out []Doubt
	for _, t := range configured {
		if !t.Called {
			continue
		}
		for _, u := range used {
			if d, doubted := c.doubt(t, u, used); doubted {
				out = append(out, d)
			}
		}
	}
	return complete(sorted(out), configured)
}

// A config is a configuration, and what records say of it.
type config struct {
	owners map[keep.ToolName]keep.ToolName // tools of today, by every name
	conns  map[string]string               // connections of today, by every name
	worked map[string]bool                 // tools and connections of today that have records, which say what they were before
}

// note takes what a record says. One that names something as it was before, and does not say what
// it was before that, is not enough: there may be a name that nobody has said.
func (c *config) note(u Used) {
	if t, known := c.owners[u.Tool]; known && (t == u.Tool || u.Was != nil) {
		c.worked[string(t)] = true
	}
	if conn, known := c.conns[connOf(u.Tool)]; known && (conn == connOf(u.Tool) || u.Was != nil) {
		c.worked[conn] = true
	}
}

// doubt returns the doubt whether a tool is what a record names.
func (c *config) doubt(t ToolOf, u Used, used []Used) (Doubt, bool) {
	_, there := c.owners[u.Tool]
	conn, known := c.conns[connOf(u.Tool)]
	ofConn := Doubt{Kind: Connection, Gone: connOf(u.Tool), Fresh: connOf(t.Name)}
	ofTool := Doubt{Kind: Tool, Gone: string(u.Tool), Fresh: string(t.Name)}
	switch {
	case c.owners[u.Tool] == t.Name:
	case !t.IsNot(u.Tool) && says(t, u, used, there):
		ofConn.Said, ofTool.Said = true, true
		if slices.Contains(connsOf(t), ofConn.Gone) {
			return ofTool, true
		}
		return ofConn, true
	case there || c.worked[string(t.Name)] || t.Connector != "" && u.Connector != "" && t.Connector != u.Connector:
	case !known && !c.worked[ofConn.Fresh] && !t.NewConn:
		return ofConn, true
	case known && ofConn.Fresh == conn && !t.IsNot(u.Tool):
		return ofTool, true
	}
	return Doubt{}, false
}

// says reports whether records say that a tool is what u names: those of a name of the tool, or u
// itself, unless another tool has its name now.
func says(t ToolOf, u Used, used []Used, there bool) bool {
	has := func(name keep.ToolName) bool { return name == t.Name || slices.Contains(t.Was, name) }
	return !there && slices.ContainsFunc(u.Was, has) || slices.ContainsFunc(used, func(r Used) bool {
		return has(r.Tool) && slices.Contains(r.Was, u.Tool)
	})
}

// complete says in each doubt all names that was is to say then: those that it says, that of the doubt, and those that
// records say.
func complete(ds []Doubt, configured []ToolOf) []Doubt {
	for i, d := range ds {
		var names []string
		for _, t := range configured {
			switch {
			case d.Kind == Connection && connOf(t.Name) == d.Fresh:
				names = append(names, connsOf(t)[1:]...)
			case d.Kind == Tool && string(t.Name) == d.Fresh:
				names = append(names, toolsOf(t)[1:]...)
			}
		}
		for _, o := range ds {
			if o == d || o.Said && d.Said && o.Kind == d.Kind && o.Fresh == d.Fresh {
				names = append(names, o.Gone[strings.Index(o.Gone, ".")+1:])
			}
		}
		ds[i].Names = List(names, d.Fresh[strings.Index(d.Fresh, ".")+1:])
	}
	return ds
}

// List returns names, each of them once and without that of today, as keep.toml has them in was.
func List(names []string, today string) string {
	var list []string
	for _, n := range names {
		if text := fmt.Sprintf("%q", n); n != today && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// connsOf returns the names of the connection of a tool, that of today first.
func connsOf(t ToolOf) []string {
	return partsOf(t, func(conn, _ string) string { return conn })
}

// toolsOf returns the names of a tool within its connection, that of today first.
func toolsOf(t ToolOf) []string {
	return partsOf(t, func(_, tool string) string { return tool })
}

func partsOf(t ToolOf, of func(conn, tool string) string) (out []string) {
	for _, name := range slices.Concat([]keep.ToolName{t.Name}, t.Was) {
		conn, tool, _ := strings.Cut(string(name), ".")
		if p := of(conn, tool); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// connOf returns the connection of a tool.
func connOf(t keep.ToolName) string {
	conn, _, _ := strings.Cut(string(t), ".")
	return conn
}

// Workflows returns what may have been renamed in scripts. Exists reports whether there
// still is a file of that name.
func Workflows(stored []Stored, written []Written, exists func(entry string) bool) []Doubt {
	byName := make(map[keep.WorkflowName]Stored)
	for _, s := range stored {
		byName[s.Name] = s
	}
	claimed := make(map[keep.WorkflowName]bool)
	for _, w := range written {
		claimed[w.Name], claimed[w.Was] = true, true
	}
	var out []Doubt
	for _, w := range written {
		if s, known := byName[w.Name]; known {
			out = append(out, parts(s, w)...)
			continue
		}
		if _, known := byName[w.Was]; known || w.New {
			if known {
				out = append(out, parts(byName[w.Was], w)...)
			}
			continue
		}
		for _, s := range stored {
			idle := s.Goes && s.Entry == w.Entry // of a file that is gone nobody knows whose it was
			if (s.Worked || idle) && !claimed[s.Name] && Alike(s, w, exists) {
				out = append(out, Doubt{Kind: Workflow, Gone: string(s.Name), Fresh: string(w.Name), Idle: !s.Worked})
			}
		}
	}
	return sorted(out)
}

// Alike reports whether a workflow looks like one that is stored: it has its file, and one
// of its handlers, or calls a tool that it called, so that it may do the same again; or that
// file is gone, and it declares the same.
func Alike(s Stored, w Written, exists func(entry string) bool) bool {
	same := func(old keep.Handler) bool {
		return slices.ContainsFunc(w.Handlers, func(h keep.Handler) bool {
			return h.Kind == old.Kind && (h.Name == old.Name || h.ItemsOf() == old.ItemsOf())
		})
	}
	if s.Entry == w.Entry {
		return slices.ContainsFunc(s.Handlers, same) || slices.ContainsFunc(s.Did, func(t keep.ToolName) bool { return slices.Contains(w.Calls, t) })
	}
	return !exists(s.Entry) && len(s.Handlers) == len(w.Handlers) && slices.Equal(s.Topics, w.Topics) &&
		!slices.ContainsFunc(s.Handlers, func(h keep.Handler) bool { return !same(h) })
}

// parts returns what of a workflow may have been renamed.
func parts(s Stored, w Written) []Doubt {
	return slices.Concat(jobs(s, w), topics(s, w), producers(s, w))
}

// topics returns which topics of a workflow may have been renamed. One that the version in force
// declares is not new, and neither is one that has events, by its first name: `was` with any other
// name, such as one in between, says nothing.
func topics(s Stored, w Written) (out []Doubt) {
	for _, gone := range s.Events {
		if w.HasTopic(gone) {
			continue
		}
		for _, t := range w.Topics {
			if !slices.Contains(w.NewTopics, t) && !slices.Contains(s.Topics, t) && !slices.Contains(s.Events, t) {
				out = append(out, Doubt{Kind: Topic, Workflow: w.Name, Gone: string(gone), Fresh: string(w.CalledIn(t))})
			}
		}
	}
	return out
}

// has reports whether a handler of a kind keeps what it did under a name.
func has(all []keep.Handler, kind keep.Kind, name keep.HandlerName) bool {
	return slices.ContainsFunc(all, func(h keep.Handler) bool { return h.Kind == kind && h.ItemsOf() == string(name) })
}

// producers returns which producers of a workflow may have been renamed. One that the version in
// force has is not new, and neither is one that has a checkpoint, by its first name.
func producers(s Stored, w Written) (out []Doubt) {
	for _, gone := range s.Checkpoints {
		if has(w.Handlers, keep.Producer, gone) {
			continue
		}
		for _, h := range w.Handlers {
			first := keep.HandlerName(h.ItemsOf())
			if h.Kind == keep.Producer && !h.New && !has(s.Handlers, keep.Producer, first) && !slices.Contains(s.Checkpoints, first) {
				out = append(out, Doubt{Kind: Producer, Workflow: w.Name, Gone: string(gone), Fresh: string(h.Name)})
			}
		}
	}
	return out
}

// jobs returns which jobs of a workflow may have been renamed. One that ran is not new, and neither is one whose
// first name items have, or the version in force.
func jobs(s Stored, w Written) (out []Doubt) {
	for _, gone := range s.Jobs {
		if has(w.Handlers, keep.Job, gone) {
			continue
		}
		for _, h := range w.Handlers {
			first := keep.HandlerName(h.ItemsOf())
			ran := slices.Contains(s.Ran, h.Name)
			if first != h.Name { // it ran under another name, or is no job that there was
				ran = has(s.Handlers, keep.Job, first)
			}
			if h.Kind == keep.Job && !h.New && !ran && !slices.Contains(s.Jobs, first) {
				out = append(out, Doubt{Kind: Job, Workflow: w.Name, Gone: string(gone), Fresh: string(h.Name)})
			}
		}
	}
	return out
}

// sorted returns each doubt once, in an order.
func sorted(ds []Doubt) []Doubt {
	slices.SortFunc(ds, func(a, b Doubt) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.Gone, b.Gone), cmp.Compare(a.Fresh, b.Fresh))
	})
	return slices.Compact(ds)
}
