package web

import (
	"html/template"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/web/graph"
)

// mostOfChain bounds the events, the runs and the calls that the picture of an input has.
const mostOfChain = 12

// drawChain makes the picture of an input: its events, the runs that worked on them, and what
// those did outside. Attempts of one chain are one box, with their last state.
//
// Nodes are addressed by their index: 0 is the input, then come its events, then the chains of runs
// from firstRun on, then the calls. What has no box has no edge, so a picture that is cut off lacks
// lines, but has no wrong ones.
func drawChain(d inputData) drawing {
	g := graph.Graph{Title: "What became of the input: events, runs and calls"}
	g.Nodes = append(g.Nodes, graph.Node{Label: cut(22, d.Title), Sub: "input · " + d.State, Kind: "input", State: d.Tone, Round: true})
	chains, order, isMore := make(map[keep.RunID]int), []keep.Run{}, 0 // isMore: more than mostOfChain, if there is a run without a box
	for _, r := range slices.Backward(d.Attempts) {                    // oldest first: the last attempt stands for all
		if i, known := chains[r.Chain]; known {
			order[i] = r
			continue
		}
		if len(order) < mostOfChain {
			chains[r.Chain] = len(order)
			order = append(order, r)
		} else {
			isMore = mostOfChain + 1
		}
	}
	of := func(id keep.RunID) int { // the box of a run of any attempt
		for _, r := range d.Attempts {
			if r.ID == id || r.Chain == id {
				if i, known := chains[r.Chain]; known {
					return i
				}
			}
		}
		return -1
	}
	firstRun := 1 + min(len(d.Events), mostOfChain)
	for i, e := range slices.Backward(d.Events) {
		if len(d.Events)-i > mostOfChain {
			break
		}
		n := len(g.Nodes)
		g.Nodes = append(g.Nodes, eventNode(e))
		// An event that a run published hangs below that run, one from outside below the input.
		if by := of(e.CreatedBy.Run()); by >= 0 {
			g.Edges = append(g.Edges, graph.Edge{From: firstRun + by, To: n})
		} else {
			g.Edges = append(g.Edges, graph.Edge{From: 0, To: n})
		}
		if by := of(e.ReservedBy); by >= 0 {
			g.Edges = append(g.Edges, graph.Edge{From: n, To: firstRun + by})
		}
	}
	for _, r := range order {
		g.Nodes = append(g.Nodes, graph.Node{Label: cut(22, string(r.Handler)), Sub: word(runState(r)), Kind: string(r.Kind), State: tone(runState(r)), Link: runPath(r.ID)})
	}
	for _, m := range d.Outputs[:min(len(d.Outputs), mostOfChain)] {
		if by := of(m.Run); by >= 0 {
			g.Edges = append(g.Edges, graph.Edge{From: firstRun + by, To: len(g.Nodes)})
		}
		g.Nodes = append(g.Nodes, graph.Node{Label: cut(22, string(m.Tool)), Sub: word(m.State), Kind: "call", State: tone(m.State), Link: mutationPath(m.Key), Round: true})
	}
	// The labels are escaped by package graph.
	out := drawing{Wide: template.HTML(graph.SVG(g, graph.Right, "wide")), Tall: template.HTML(graph.SVG(g, graph.Down, "tall"))}
	if max(len(d.Events), len(d.Outputs), isMore) > mostOfChain {
		out.Cut = "The picture has at most " + number(mostOfChain) + " events, runs and calls of each; more are below."
	}
	return out
}

// eventNode is the box of an event. One that is reserved is pending in the store, but no longer free.
func eventNode(e keep.Event) graph.Node {
	state := string(e.Listed())
	return graph.Node{Label: cut(22, string(e.Topic)), Sub: cut(16, string(e.MessageID)) + " · " + state, Kind: "topic", State: tone(state),
		Link: "/event" + query("workflow", string(e.Workflow), "topic", string(e.Topic), "id", string(e.MessageID))}
}
