// Command generate copies htmx into the pages' static files, and axe-core into
// the test data, as npm has them. Run it with go generate in the package web; it
// needs the npm client. Its output is committed.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/keep-run/keep/internal/npm"
)

var (
	htmx = npm.Package{Name: "htmx.org", Version: "4.0.1", Sum: "5fba65616ca148a86d377e9771bcada7f35faee3558651feb929eea425e13b3c"}
	axe  = npm.Package{Name: "axe-core", Version: "4.14.1", Sum: "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"}
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run expects the directory of the package web to be the current one.
func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "keep-generate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pages, err := htmx.Fetch(ctx, dir)
	if err != nil {
		return err
	}
	checker, err := axe.Fetch(ctx, dir)
	if err != nil {
		return err
	}
	return npm.Write(map[string][]byte{
		"static/htmx.min.js":       pages["dist/htmx.min.js"],
		"static/hx-sse.min.js":     pages["dist/ext/hx-sse.min.js"],
		"static/LICENSE.htmx":      pages["LICENSE"],
		"testdata/axe.min.js":      checker["axe.min.js"],
		"testdata/LICENSE.axe":     checker["LICENSE"],
		"testdata/LICENSE.axe.3rd": checker["LICENSE-3RD-PARTY.txt"],
	})
}
