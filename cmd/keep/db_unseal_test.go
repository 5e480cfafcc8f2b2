package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/store/sqlite"
)

// What unseal opened is said as JSON, too.
func TestUnsealSaysJSON(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	db := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	noError(t, db.Open(t.Context()))
	noError(t, db.Close())
	for _, args := range [][]string{{"keep.db", "to.db"}, {"keep.db", "--lost"}} {
		var out, talk bytes.Buffer
		if status := run(t.Context(), []string{"db", "copy", "keep.db", "to.db"}, &out, &talk); status != exit.Done {
			t.Fatalf("copy: status %d\n%s", status, talk.String())
		}
		out.Reset()
		if status := run(t.Context(), append([]string{"db", "unseal", "--json"}, args...), &out, &talk); status != exit.Done {
			t.Fatalf("unseal %v: status %d\n%s", args, status, talk.String())
		}
		var said struct{ DB string }
		if err := json.Unmarshal(out.Bytes(), &said); err != nil || filepath.Base(said.DB) != "keep.db" {
			t.Errorf("unseal %v says %q, %v; want its database", args, out.String(), err)
		}
	}
}
