//go:build unix

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/store/sqlite"
)

// A sealedDir is a project with secrets in its database.
type sealedDir struct {
	*testing.T
	dir string
}

// sh runs a line of the shell in which keep is the command, and returns what it says and
// its status.
func (s sealedDir) sh(line string) (string, int) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "PATH="+filepath.Dir(buildKeep(s.T))+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+cacheHome(s.T))
	out, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		s.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// must runs a line of the shell that ends well.
func (s sealedDir) must(line string) string {
	s.Helper()
	out, status := s.sh(line)
	if status != exit.Done {
		s.Fatalf("%s: status %d: %s", line, status, out)
	}
	return out
}

// Whatever the umask, the key is for its owner alone. A key that is too open, a link or
// something else is refused with the command that mends it, and that command mends it.
func TestKeyModes(t *testing.T) {
	t.Parallel()
	s := sealedDir{t, t.TempDir()}
	key := filepath.Join(s.dir, "keep.key")
	for _, umask := range []string{"000", "022", "777"} {
		s.must("rm -f keep.key keep.db*; umask 022; keep db migrate >/dev/null; umask " + umask + "; echo value | keep secrets set one")
		if info, err := os.Lstat(key); err != nil || info.Mode() != 0o600 {
			t.Errorf("umask %s: the key is %v, %v", umask, info.Mode(), err)
		}
	}
	for _, c := range []struct{ open, says, mend string }{
		{"chmod 644 keep.key", "can be read by others (mode 0644); run: chmod 600", "chmod 600 keep.key"},
		{"chmod 640 keep.key", "can be read by others (mode 0640); run: chmod 600", "chmod 600 keep.key"},
		{"mv keep.key real; ln -s real keep.key", "is a symbolic link", ""}, // by what is said
		{"mv keep.key real; mkdir keep.key", "is not a file; put the file", "rmdir keep.key; mv real keep.key"},
		{"mv keep.key real; mkfifo -m 600 keep.key", "is not a file; put the file", "mv real keep.key"},
	} {
		s.must(c.open)
		said := ""
		for _, command := range []string{"echo value | keep secrets set two", "keep accounts rekey"} {
			if out, status := s.sh(command); status != exit.Misused || !strings.Contains(out, c.says) || !strings.Contains(out, key) {
				t.Errorf("%s: %s: status %d: %s", c.open, command, status, out)
			} else if _, run, ok := strings.Cut(out, "; run: "); ok {
				said = strings.TrimSpace(run)
			}
		}
		if out, status := s.sh("keep secrets"); status != exit.Done || strings.Contains(out, "two") { // nothing else breaks
			t.Errorf("%s: keep secrets: status %d: %s", c.open, status, out)
		}
		s.must(cmp.Or(c.mend, said))
	}
	s.must("keep accounts rekey")
}

// Files of .secrets that others can read, and a directory into which everybody can put
// files, are refused with the command that mends it. Of a link what it leads to counts.
func TestSecretModes(t *testing.T) {
	t.Parallel()
	s := sealedDir{t, t.TempDir()}
	toml := "[connections.crm]\nconnector = \"http\"\nbase_url = \"http://127.0.0.1:1\"\nheaders = { Authorization = \"Bearer ${secret:crm}\" }\n" +
		"[connections.crm.tools.take]\neffect = \"list\"\npath = \"/\"\n"
	script := `export default Keep.workflow({ name: "w", topics: { t: {} }, jobs: { j: { schedule: { cron: "0 0 1 1 *" }, async handler(ctx) {} } } });`
	for name, text := range map[string]string{"keep.toml": toml, "w.js": script} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.must("umask 077; mkdir .secrets; echo hidden-value > .secrets/crm; keep check .")
	for _, c := range []struct{ open, says, mend string }{
		{"chmod 640 .secrets/crm", "can be read by others (mode 0640); run: chmod 600", "chmod 600 .secrets/crm"},
		{"chmod 777 .secrets", "everybody may put files into", "chmod 700 .secrets"},
		{"mv .secrets/crm real; chmod 644 real; ln -s ../real .secrets/crm", "can be read by others (mode 0644); run: chmod 600", "chmod 600 .secrets/crm"},
		{"rm real", "is a link to a file that does not exist", "rm .secrets/crm; umask 077; echo hidden-value > .secrets/crm"},
		{"rm .secrets/crm; mkdir .secrets/crm", "is a directory", "rmdir .secrets/crm; umask 077; echo hidden-value > .secrets/crm"},
		{"rm .secrets/crm; mkfifo -m 600 .secrets/crm", "is a named pipe", "rm .secrets/crm; umask 077; echo hidden-value > .secrets/crm"},
	} {
		s.must(c.open)
		out, status := s.sh("keep check .")
		if status == exit.Done || !strings.Contains(out, c.says) || strings.Contains(out, "hidden-value") {
			t.Errorf("%s: status %d: %s", c.open, status, out)
		}
		s.must(c.mend)
		if out, status := s.sh("keep check ."); status != exit.Done {
			t.Errorf("%s does not mend it: status %d: %s", c.mend, status, out)
		}
	}
}

// keep accounts rekey is killed with kill -9 at random points: the keys that are there open
// everything each time, nothing else lies around after one that ends, and the old key opens
// nothing any more.
func TestRekeyKilled(t *testing.T) {
	t.Parallel()
	s := sealedDir{t, t.TempDir()}
	for n := range 3 {
		s.must(fmt.Sprintf("echo value-%d | keep secrets set s%d", n, n))
	}
	ring := seal.Ring{Path: filepath.Join(s.dir, "keep.key")}
	opens := func(when string, ring seal.Ring) (opened int) {
		t.Helper()
		db := sqlite.New(filepath.Join(s.dir, "keep.db"), sqlite.Config{ReadOnly: true})
		if err := db.Open(t.Context()); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer db.Close()
		m := account.New(account.Config{Store: db, Ring: ring})
		for n := range 3 {
			if got, err := m.Secret(t.Context(), fmt.Sprintf("s%d", n)); err == nil && got == fmt.Sprintf("value-%d", n) {
				opened++
			}
		}
		return opened
	}
	first, err := os.ReadFile(ring.Path)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s.must("keep accounts rekey")
	whole := time.Since(begun)
	rng := rand.New(rand.NewPCG(15, 15))
	begunAnew, killed := 0, 0
	for n := range 12 {
		cmd := exec.Command(buildKeep(t), "accounts", "rekey")
		cmd.Dir = s.dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if wait := time.Duration(rng.Int64N(int64(whole / 4))); n%3 > 0 {
			killed += killIn(cmd, ended, ring.Path+".new", wait/4)
		} else {
			killed += killIn(cmd, ended, "", wait*4)
		}
		if _, err := os.Stat(ring.Path + ".new"); err == nil {
			begunAnew++
		}
		if opened := opens("killed", ring); opened != 3 {
			t.Fatalf("after kill %d the keys that are there open %d secrets of 3", n, opened)
		}
	}
	old := time.Now().Add(-time.Hour)
	left, err := filepath.Glob(filepath.Join(s.dir, ".keep.key-*"))
	if err != nil {
		t.Fatal(err)
	}
	stray := filepath.Join(s.dir, ".keep.key-stray") // of a process that died as it wrote
	if err := os.WriteFile(stray, first, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(left, stray) {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	s.must("keep accounts rekey")
	t.Logf("killed %d of 12, %d with both keys there, %d unfinished files", killed, begunAnew, len(left))
	if opened := opens("finished", ring); opened != 3 {
		t.Errorf("the new key opens %d secrets of 3", opened)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "first.key"), first, 0o600); err != nil {
		t.Fatal(err)
	}
	if opened := opens("old", seal.Ring{Path: filepath.Join(s.dir, "first.key")}); opened != 0 {
		t.Errorf("the key that was replaced opens %d secrets", opened)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "*keep.key?*")); len(left) > 0 {
		t.Errorf("beside the key there are %v", left)
	}
}

// killIn kills a process a while after a file is there, or after now if there is no file.
// It returns 1 if the process ended by that.
func killIn(cmd *exec.Cmd, ended chan error, file string, wait time.Duration) int {
	look := time.NewTicker(500 * time.Microsecond)
	defer look.Stop()
	for file != "" {
		select {
		case <-ended:
			return 0
		case <-look.C:
		}
		if _, err := os.Stat(file); err == nil {
			break
		}
	}
	select {
	case <-ended:
		return 0
	case <-time.After(wait):
	}
	cmd.Process.Kill()
	if err := <-ended; err == nil {
		return 0
	}
	return 1
}
