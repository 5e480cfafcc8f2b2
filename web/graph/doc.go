// Package graph draws a workflow: its producers, topics, consumers and jobs, and
// what flows between them. It lays a directed graph out in layers and writes it as
// SVG, without a browser: the same picture serves pages, terminals and mails.
//
// # What the layout promises
//
//   - The same graph gives the same picture.
//   - No two nodes overlap.
//   - Each edge goes forward, but for those that close a cycle.
//
// It breaks cycles (layers.go), gives each node the layer after the farthest of
// those before it, orders each layer so that few edges cross (order.go), and pulls
// nodes towards their neighbours without changing that order (place.go). This is
// the method of Sugiyama, Tagawa and Toda (1981), with isotonic regression for the
// last step.
package graph
