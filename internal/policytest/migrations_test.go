package policytest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMigrationsHaveNumbers holds the migrations of the two SQL stores to one row of numbers, so
// that of two that were written at once, one is renamed before a file can no longer be opened.
func TestMigrationsHaveNumbers(t *testing.T) {
	var stores [2][]string
	for i, store := range []string{"sqlite", "postgres"} {
		entries, err := os.ReadDir(filepath.Join("..", "..", "store", store, "migrations"))
		if err != nil || len(entries) == 0 {
			t.Fatalf("%d migrations of %s, %v", len(entries), store, err)
		}
		for n, e := range entries { // sorted
			stores[i] = append(stores[i], e.Name())
			if want := fmt.Sprintf("%04d_", n+1); !strings.HasPrefix(e.Name(), want) {
				t.Errorf("store/%s/migrations/%s: want the number %s", store, e.Name(), want)
			}
		}
	}
	if !slices.Equal(stores[0], stores[1]) {
		t.Errorf("the stores have other migrations:\n%s\n%s", stores[0], stores[1])
	}
}
