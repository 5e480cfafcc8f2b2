//go:build unix

package trust

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// foreign says why somebody else decides what is in a file or a directory; empty:
// nobody does. Root may own the directory, since it decides everything anyway.
func foreign(name string, info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	me, mode := os.Geteuid(), info.Mode().Perm()
	if int(st.Uid) != me && (st.Uid != 0 || !info.IsDir()) {
		return fmt.Sprintf("%s belongs to another user (uid %d)", name, st.Uid)
	}
	if mode&0o002 != 0 {
		return fmt.Sprintf("everybody may write %s (mode %#o)", name, mode)
	}
	if mode&0o020 == 0 {
		return ""
	}
	isPrivate := func(gid int) bool { return localNames().isPrivate(gid, me, os.Getegid()) }
	if why := byAccessList(name, me, isPrivate); why != "" {
		return why
	}
	if gid := int(st.Gid); !isPrivate(gid) {
		return fmt.Sprintf("the group %d may write %s (mode %#o; chmod g-w takes that away)", gid, name, mode)
	}
	return ""
}
