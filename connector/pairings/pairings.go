// Package pairings holds what Keep knows of well-known servers of the Model Context Protocol, as
// data: for each one a file that says of its tools what they change, and how the outcome of a
// call is found again.
//
// A pairing is the [connections.x.tools.y] of keep.toml with a name and a version;
// docs/gateway.md says what may be in it. Each file says what it follows: a document or the source
// of the server. No Go code knows a server by name.
package pairings

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names returns the names of all pairings, sorted.
func Names() []string {
	entries, _ := fs.ReadDir(files, ".") // embedded, so that it is there
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".toml")
	}
	return names
}

// Read returns the text of a pairing, or fs.ErrNotExist.
func Read(name string) ([]byte, error) { return files.ReadFile(name + ".toml") }
