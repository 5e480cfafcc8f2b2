// Package childenv says which variables of Keep's environment the programs get that Keep starts:
// what they need to find other programs, their user's files and the language to speak. Secrets
// of Keep and of services are in the rest.
package childenv

import (
	"maps"
	"os"
	"slices"
)

// inherited are the variables that every program gets; the last two lines are for Windows. The
// SDKs of MCP give their servers as much.
var inherited = []string{
	"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR",
	"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE",
	"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
}

// Of returns the environment of a program, as exec.Cmd takes it: what is inherited, and then its
// own variables. It is never nil, which would be everything.
func Of(own map[string]string) []string {
	env := []string{}
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		env = append(env, name+"="+own[name])
	}
	return env
}
