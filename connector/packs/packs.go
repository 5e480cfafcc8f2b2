// Package packs holds what Keep knows of well-known services, as data: for each one a file
// of tools for the http connector, with how an outcome is found again.
//
// A pack is the [connections.x.tools.y] of keep.toml with a name, an address and a way to
// authenticate; docs/PACKS.md says what may be in it. No Go code knows a service by name.
package packs

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names returns the names of all packs, sorted.
func Names() []string {
	entries, _ := fs.ReadDir(files, ".") // embedded, so that it is there
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".toml")
	}
	return names
}

// Read returns the text of a pack, or fs.ErrNotExist.
func Read(name string) ([]byte, error) { return files.ReadFile(name + ".toml") }
