//go:build unix

package trust

import (
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep/internal/regular"
)

// names are the users and groups that a machine knows, as /etc/passwd and /etc/group have them.
type names struct{ passwd, group string }

// maxNames bounds each of the two, in bytes. What is longer says nothing.
const maxNames = 16 << 20

// localNames returns those of this machine. A directory service knows others: a user that is none of these
// has a private group by its name alone.
func localNames() names {
	passwd, _ := regular.Read("/etc/passwd", maxNames)
	group, _ := regular.Read("/etc/group", maxNames)
	return names{string(passwd), string(group)}
}

// isPrivate reports whether nobody but a user and root is in a group, so that it may write what the user may: it is
// common to give each user such a group, and files the mode 0664. Own is the group of the user's processes.
//
// A user who is not listed may be one of many that are not, so nothing is known of the members of a group then, but of
// root's. In a container, which often has no name for its user, a user's own group has his number.
func (n names) isPrivate(gid, uid, own int) bool {
	var me []string      // a user may have several names
	var members []string // of the group, with names
	for line := range strings.Lines(n.passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 {
			continue
		}
		if f[2] == strconv.Itoa(uid) {
			me = append(me, f[0])
		}
		if f[3] == strconv.Itoa(gid) {
			members = append(members, f[0])
		}
	}
	listed := false
	for line := range strings.Lines(n.group) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 || f[2] != strconv.Itoa(gid) {
			continue
		}
		listed = true
		members = append(members, strings.FieldsFunc(f[3], func(c rune) bool { return c == ',' || c == ' ' })...)
	}
	others := slices.ContainsFunc(members, func(name string) bool { return name != "root" && !slices.Contains(me, name) })
	switch {
	case others:
		return false
	case len(me) == 0 && len(members) == 0 && !listed:
		return gid == uid && gid == own
	case gid == 0:
		return listed
	}
	return slices.ContainsFunc(members, func(name string) bool { return slices.Contains(me, name) })
}
