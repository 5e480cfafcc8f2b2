//go:build !unix

package main

import (
	"context"
	"fmt"
	"io"
)

// hosts needs a Postgres that this program can start.
func hosts(context.Context, string, size, string, io.Writer) error {
	return fmt.Errorf("%w on this system", errNoPostgres)
}
