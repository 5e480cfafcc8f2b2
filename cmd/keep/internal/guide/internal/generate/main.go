// Command generate writes what the guide has of the code: the reference of keep.toml and
// of scripts, the JSON Schemas, docs/guide.md and llms.txt; and what keep docs has of it. Run it with go generate in the
// package guide. Its output is committed; a test fails where it is stale.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := filepath.Join("..", "..", "..", "..")
	made, err := map[string][]byte{}, error(nil)
	if len(os.Args) > 1 && os.Args[1] == "documents" {
		made = documents()
	} else {
		made, err = references(root)
	}
	if err == nil {
		err = write(root, made)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// write writes files below the root of the repository.
func write(root string, made map[string][]byte) error {
	for name, text := range made {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
