// Package pair drafts pairings of MCP servers from the schemas of their tools, and proves them.
//
// A draft is guessed from names: which tools read, which param takes a mark, by which tool it could be
// found again. None of it counts. Until calls were made that show it, a tool is of level D, and
// a person is asked after each lost answer. A guess that is wrong costs a proof, and nothing else: Prove grants
// what it saw, by the trials of package prove.
package pair
