package trust

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// acl returns an access list: of the owner, of those that are named, of the group with the mask, and of all others.
func acl(group, mask uint16, named ...[3]int) []byte {
	list := binary.LittleEndian.AppendUint32(nil, 2)
	add := func(tag, may uint16, id uint32) {
		list = binary.LittleEndian.AppendUint16(list, tag)
		list = binary.LittleEndian.AppendUint16(list, may)
		list = binary.LittleEndian.AppendUint32(list, id)
	}
	const nobody = 1<<32 - 1
	all := func(tag int) {
		for _, n := range named {
			if n[0] == tag {
				add(uint16(tag), uint16(n[1]), uint32(n[2])) //nolint:gosec // small
			}
		}
	}
	add(0x01, 6, nobody)
	all(aclUser)
	add(0x04, group, nobody)
	all(aclGroup)
	add(0x10, mask, nobody)
	add(0x20, 0, nobody)
	return list
}

// Who an access list names may write a file although its mode says that the user's own group may, whose bits are the mask
// of the list. Law: permitted.
func TestAccessList(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	me := os.Geteuid()
	for name, c := range map[string]struct {
		list  []byte
		ofDir bool
		want  string // empty: it is trusted
	}{
		"a user writes the file":          {acl(6, 6, [3]int{aclUser, 6, 54321}), false, "lets the user 54321 write"},
		"a group writes the file":         {acl(4, 6, [3]int{aclGroup, 6, 54321}), false, "lets the group 54321 write"},
		"a user writes the directory":     {acl(7, 7, [3]int{aclUser, 7, 54321}), true, "lets the user 54321 write"},
		"a user reads":                    {acl(6, 6, [3]int{aclUser, 4, 54321}), false, ""},
		"a user would write but the mask": {acl(4, 4, [3]int{aclUser, 6, 54321}), false, ""},
		"the user and root write":         {acl(6, 6, [3]int{aclUser, 6, me}, [3]int{aclUser, 6, 0}), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "keep.toml")
			for _, err := range []error{os.Chmod(dir, 0o700), os.WriteFile(file, nil, 0o600)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			with := file
			if c.ofDir {
				with = dir
			}
			if err := unix.Setxattr(with, aclAttribute, c.list, 0); err != nil {
				t.Skipf("the file system of %s takes no access list: %v", dir, err)
			}
			err := Check(file)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "setfacl -b "+with)):
				t.Errorf("it is trusted, or refused for another reason: %v", err)
			}
		})
	}
	anyone := func(int) bool { return true }
	for _, broken := range [][]byte{nil, {2, 0}, {3, 0, 0, 0}} {
		if writers(broken, me, anyone) == "" {
			t.Errorf("an access list that cannot be read, %v, lets nobody write", broken)
		}
	}
}
