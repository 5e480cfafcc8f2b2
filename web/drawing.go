package web

import (
	"html/template"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/web/graph"
)

// A drawing is the picture of a workflow, for wide screens and for narrow ones.
type drawing struct {
	Wide, Tall template.HTML
	Cut        string // what is left out; empty: nothing
}

// draw makes the picture of a workflow: what flows where, how much waits, and where
// it is blocked.
func draw(d workflowData) drawing {
	g := graphOf(d)
	// The labels are escaped by package graph.
	out := drawing{Wide: template.HTML(graph.SVG(g, graph.Right, "wide")), Tall: template.HTML(graph.SVG(g, graph.Down, "tall"))}
	if n := len(g.Edges); n > graph.MaxEdges {
		out.Cut = "The picture has the first " + number(graph.MaxEdges) + " of " + number(n) + " arrows."
	}
	return out
}

// graphOf returns handlers and topics as nodes, in the order of the script.
func graphOf(d workflowData) graph.Graph {
	def := d.Deployed.Definition
	g := graph.Graph{Title: "What flows in workflow " + string(d.Name)}
	topics := make(map[keep.TopicName]int)
	for _, t := range def.Topics {
		topics[t] = len(g.Nodes)
		g.Nodes = append(g.Nodes, topicNode(d, t))
	}
	for _, h := range d.Handlers {
		n := len(g.Nodes)
		g.Nodes = append(g.Nodes, handlerNode(d, h))
		for _, t := range h.Subscribe {
			if i, ok := topics[t]; ok {
				g.Edges = append(g.Edges, graph.Edge{From: i, To: n})
			}
		}
		for _, t := range mayPublish(def, h.Handler.Handler) {
			if i, ok := topics[t]; ok {
				g.Edges = append(g.Edges, graph.Edge{From: n, To: i})
			}
		}
	}
	return g
}

// mayPublish returns the topics that a handler feeds. One that does not say may
// feed all that no other handler says it feeds, but for those that it reads.
func mayPublish(def keep.Definition, h keep.Handler) []keep.TopicName {
	if h.Publishes != nil || h.Kind == keep.Job || h.Kind == keep.Consumer && !h.HasNext {
		return h.Publishes
	}
	var out []keep.TopicName
	for _, t := range def.Topics {
		claimed := slices.ContainsFunc(def.Handlers, func(o keep.Handler) bool { return slices.Contains(o.Publishes, t) })
		if !claimed && !slices.Contains(h.Subscribe, t) {
			out = append(out, t)
		}
	}
	return out
}

// topicNode is the box of a topic. What waits in it matters more than what went through.
func topicNode(d workflowData, t keep.TopicName) graph.Node {
	n := graph.Node{Label: string(t), Sub: "empty", Kind: "topic", Round: true,
		Link: "/events" + query("workflow", string(d.Name), "topic", string(t))}
	for _, c := range d.Topics {
		if c.Topic != t {
			continue
		}
		if c.Pending+c.Reserved > 0 {
			n.Sub, n.State = number(c.Pending)+" pending", "run"
			if c.Reserved > 0 {
				n.Sub += ", " + number(c.Reserved) + " reserved"
			}
			n.Link += "&status=pending"
		} else if c.Consumed+c.Skipped > 0 {
			n.Sub = number(c.Consumed+c.Skipped) + " finished"
		}
	}
	return n
}

// handlerNode is the box of a handler: the run that it has under way, or else whether it ever ran.
func handlerNode(d workflowData, h handlerRow) graph.Node {
	n := graph.Node{Label: string(h.Name), Sub: string(h.Kind), Kind: string(h.Kind),
		Link: "/runs" + query("workflow", string(d.Name), "handler", string(h.Name))}
	if h.Startable() {
		n.Sub += " · " + h.Schedule
	}
	switch r := d.Standing; {
	case r != nil && r.Run.Handler == h.Name:
		n.Sub, n.State, n.Link = word(r.Run.Status), tone(r.Run.Status), runPath(r.Run.ID)
	case d.Paused:
		n.Sub = string(h.Kind) + " · paused"
	case h.State.LastRun != "":
		n.State = "ok"
	}
	return n
}
