//go:build unix

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Who may put files into the directory of secrets may put a link to another file of the user there, or exchange two. Law: permitted.
func TestSecretsInADirectoryOfAGroup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".secrets")
	file := filepath.Join(dir, "crm")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte("hunter2"), 0o600), os.Chmod(dir, 0o770)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, -1, 54321); err != nil {
		t.Skipf("a directory cannot be given to another group: %v", err)
	}
	if _, _, err := readSecret(file, true); err == nil || !strings.Contains(err.Error(), "the group 54321 may write") || !strings.Contains(err.Error(), "chmod 700") {
		t.Errorf("readSecret: %v", err)
	}
}
