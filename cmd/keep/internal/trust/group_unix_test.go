//go:build unix

package trust

import "testing"

func TestIsPrivate(t *testing.T) {
	t.Parallel()
	n := names{
		passwd: "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbob:x:1001:100::/home/bob:/bin/sh\neve:x:1002:100::/home/eve:/bin/sh\nzoe:x:1003:1003::/:/bin/sh\nbroken\n",
		group:  "root:x:0:\nada:x:1000:\nusers:x:100:\nstaff:x:50:ada,bob\nalone:x:60:ada\nempty:x:70:\nzoe:x:1003:eve\nbroken\n",
	}
	for _, test := range []struct {
		why           string
		gid, uid, own int
		want          bool
	}{
		{"a user's own group", 1000, 1000, 1000, true},
		{"one of which he is the only member", 60, 1000, 1000, true},
		{"one without members, which a program may have", 70, 1000, 1000, false},
		{"root's, of root", 0, 0, 0, true},
		{"root's, of a user", 0, 1000, 1000, true},
		{"root's, of a user without a name", 0, 12345, 0, true},
		{"one with another member", 50, 1000, 1000, false},
		{"the first group of all users", 100, 1001, 100, false},
		{"another user's", 1000, 1001, 100, false},
		{"his own, to which another was added", 1003, 1003, 1003, false},
		{"one without a name", 12345, 1000, 1000, false},
		{"that of a container's user", 12345, 12345, 12345, true},
		{"another of a container's user", 12346, 12345, 12346, false},
		{"one of a user of a directory service", 70, 12345, 70, false},
	} {
		if got := n.isPrivate(test.gid, test.uid, test.own); got != test.want {
			t.Errorf("%s: isPrivate(%d, %d, %d) = %t", test.why, test.gid, test.uid, test.own, got)
		}
	}
	if (names{}).isPrivate(0, 1000, 1000) {
		t.Error("the group of root is private where nothing is known")
	}
}
