package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// How files begin that reports may take the place of.
const (
	beginsPage  = "<!doctype html>"
	beginsJUnit = "<?xml"
)

// openReport opens the file of a report, over one of before. A new one gets the mode.
func openReport(name, begins string, mode fs.FileMode) (*os.File, error) {
	if err := mayReplace(name, begins); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Clean(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
}

// mayReplace refuses a file that is no report of before: in keep plan --html SCRIPT, who forgot the name of the page gave that of a
// script. What is no file, as /dev/stdout, is written to.
func mayReplace(name, begins string) error {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil // what cannot be written to says so when it is
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, len(begins))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // one that was broken off is shorter
		return err
	}
	if !strings.HasPrefix(begins, string(head[:n])) {
		return exit.Misusef("%s is there, is no report of before, and is not overwritten: name another file", terminal.Short(name))
	}
	return nil
}
