package host_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
)

// The build of a program is the hash of what runs, also where another file has its name since, or none has.
func TestBuildOfAReplacedProgram(t *testing.T) {
	if os.Getenv("KEEP_TEST_REPLACED") != "" {
		replacedProgram(t)
		return
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Skip("there is no /proc")
	}
	defer self.Close()
	path := filepath.Join(t.TempDir(), "program")
	copied, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(copied, h), self); err != nil {
		t.Fatal(err)
	}
	if err := copied.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "-test.run=^TestBuildOfAReplacedProgram$", "-test.v")
	cmd.Env = append(os.Environ(), "KEEP_TEST_REPLACED=1")
	out, err := cmd.CombinedOutput()
	if want := "build " + hex.EncodeToString(h.Sum(nil)); err != nil || !bytes.Contains(out, []byte(want)) {
		t.Errorf("%v, want %q:\n%s", err, want, out)
	}
}

// replacedProgram is a program whose file is gone when it says which build it is.
func replacedProgram(t *testing.T) {
	path, err := os.Executable()
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := host.LoadGo(&handler.Workflow{Name: "w", Handlers: []handler.Handler{handler.Producer{Name: "p", Run: func(context.Context, *handler.Ingress) error { return nil }}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", bytes.ReplaceAll(w.Bundle.Code, []byte(`"build": "`), []byte("build ")))
}
