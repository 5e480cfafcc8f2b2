package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sealFile holds a checksum of everything else in a cache. wazero checks only
// the code of an entry, and a wrong table beside it would crash the process.
const sealFile = "SEAL"

// checkCache makes sure that a cache is as sealCache left it, or empty. It
// throws away what is not, and returns the number of entries.
func checkCache(dir string) (int, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	sum, err := cacheSum(dir)
	if err != nil {
		return 0, err
	}
	seal, err := os.ReadFile(filepath.Join(dir, sealFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if string(seal) != sum {
		return 0, clearCache(dir)
	}
	files, err := cacheFiles(dir)
	return len(files), err
}

// sealCache writes down what is in a cache, unless it still has as many entries
// as before. The checksum is in place at once or not at all; without it the
// next Open compiles again.
func sealCache(dir string, before int) error {
	files, err := cacheFiles(dir)
	if err != nil || len(files) == before {
		return err
	}
	sum, err := cacheSum(dir)
	if err != nil {
		return fmt.Errorf("sandbox: compilation cache: %w", err)
	}
	f, err := os.CreateTemp(dir, sealFile+"-")
	if err != nil {
		return fmt.Errorf("sandbox: compilation cache: %w", err)
	}
	_, err = f.WriteString(sum)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, sealFile))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use, and the first error counts
		return fmt.Errorf("sandbox: compilation cache: %w", err)
	}
	return nil
}

// cacheSum is a checksum of the names and contents of a cache's entries.
func cacheSum(dir string) (string, error) {
	files, err := cacheFiles(dir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\n", filepath.Base(path))
		n, err := io.Copy(h, f)
		fmt.Fprintf(h, "%d\n", n)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// cacheFiles are the entries of all the directories that wazero has made in
// dir, in order.
func cacheFiles(dir string) ([]string, error) {
	dirs, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, d := range dirs {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), "wazero-") {
			continue
		}
		list, err := os.ReadDir(filepath.Join(dir, d.Name()))
		if err != nil {
			return nil, err
		}
		for _, f := range list {
			files = append(files, filepath.Join(dir, d.Name(), f.Name()))
		}
	}
	return files, nil
}

// clearCache removes a cache's entries.
func clearCache(dir string) error {
	files, err := cacheFiles(dir)
	if err != nil {
		return err
	}
	for _, path := range files {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
