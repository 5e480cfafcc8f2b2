//go:build unix

package sqlite

import (
	"fmt"
	"os"
	"syscall"
)

// oneName refuses a file with several hard links, of which each could have a host.
func oneName(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return fmt.Errorf("it has %d names (hard links), and a host by each would do everything twice; remove all but one", stat.Nlink)
	}
	return nil
}
