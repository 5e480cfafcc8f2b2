package trust

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The access list of a file as Linux has it in an attribute: a version, then entries of a tag, permissions and an id.
const (
	aclAttribute = "system.posix_acl_access"
	aclVersion   = 2
	aclHeader    = 4 // bytes
	aclEntry     = 8
	aclUser      = 0x02 // tags of who is named; all others are bits of the mode
	aclGroup     = 0x08
	aclWrite     = 0x2
	maxACL       = 64 << 10 // bytes that an attribute can have
)

// byAccessList says why the access list of a file or a directory that its group may write lets somebody else write it, too; empty:
// it does not. The bits of the group are the most that the list gives to anyone it names, so without them it gives nothing.
func byAccessList(name string, me int, isPrivate func(gid int) bool) string {
	list := make([]byte, maxACL)
	n, err := unix.Getxattr(name, aclAttribute, list)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS):
		return "" // the mode says all
	case err != nil:
		return fmt.Sprintf("the access list of %s cannot be read (%v)", name, err)
	}
	who := writers(list[:n], me, isPrivate)
	if who == "" {
		return ""
	}
	return fmt.Sprintf("an access list (POSIX ACL) lets %s write %s (setfacl -b %s takes it away)", who, name, name)
}

// writers returns whom of others an access list lets write; empty: nobody. One that cannot be read lets anybody.
func writers(list []byte, me int, isPrivate func(gid int) bool) string {
	if len(list) < aclHeader || binary.LittleEndian.Uint32(list) != aclVersion {
		return "somebody who is not known"
	}
	for list = list[aclHeader:]; len(list) >= aclEntry; list = list[aclEntry:] {
		tag, may, id := binary.LittleEndian.Uint16(list), binary.LittleEndian.Uint16(list[2:]), int(binary.LittleEndian.Uint32(list[4:]))
		switch {
		case may&aclWrite == 0:
		case tag == aclUser && id != me && id != 0:
			return fmt.Sprintf("the user %d", id)
		case tag == aclGroup && !isPrivate(id):
			return fmt.Sprintf("the group %d", id)
		}
	}
	return ""
}
