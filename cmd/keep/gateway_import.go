package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/pair"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/internal/regular"
)

// gatewayImportCmd prints what a client's file means for keep.toml. It writes no file: keep.toml may
// have comments and tables that only its owner can place.
func (a *app) gatewayImportCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Print a client's list of MCP servers as keep.toml has it",
		Long: `Import reads the file in which a client lists its MCP servers ({"mcpServers": {…}}, or
{"servers": {…}}), and prints [gateway.servers.…] for keep.toml. It changes nothing. Values of
env and headers are never printed: they become ${env:NAME}. So do args and parts of an address
that look like secrets; look at the others.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := regular.Read(args[0], config.MaxFile)
			if err != nil {
				return exit.Misusef("read the list of servers: %v", err)
			}
			if !a.JSON {
				return importServers(a.Out, args[0], text)
			}
			var settings strings.Builder
			if err := importServers(&settings, args[0], text); err != nil {
				return err
			}
			return a.PrintJSON(map[string]string{"settings": settings.String()})
		},
	}
}

// A listedServer is a server as clients list it.
type listedServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Cwd     string            `json:"cwd"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// importServers prints the servers of a file, sorted by their names there: the same file always
// gives the same text. Fields that are not known are left out, since clients have many of
// their own.
func importServers(w io.Writer, name string, text []byte) error {
	var file struct {
		MCPServers map[string]listedServer `json:"mcpServers"`
		Servers    map[string]listedServer `json:"servers"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return exit.Misusef("%s is not the JSON of a list of servers: %v", name, err)
	}
	// Most clients write the first name, and some editors the other.
	all := file.MCPServers
	if len(all) == 0 {
		all = file.Servers
	}
	if len(all) == 0 {
		return exit.Misusef(`%s lists no servers: want {"mcpServers": {"NAME": {"command": …}}}`, name)
	}
	used := make(map[string]bool)
	for _, was := range slices.Sorted(maps.Keys(all)) {
		s, to, vars := all[was], serverName(was, used), make(map[string]int)
		// So that the owner finds his server again.
		if to != was {
			fmt.Fprintf(w, "# %s in %s\n", pair.Quote(was), filepath.Base(name))
		}
		fmt.Fprintf(w, "[gateway.servers.%s]\n", to)
		switch {
		case s.URL != "":
			fmt.Fprintf(w, "url = %s\n", pair.Quote(distinct(vars, s.URL, withoutSecrets(to, s.URL))))
		default:
			fmt.Fprintf(w, "command = %s\n", pair.Quote(strings.Join(arguments(to, vars, strings.Split(s.Command, " ")), " "))) // it may be a whole line
		}
		if len(s.Args) > 0 {
			quoted := arguments(to, vars, s.Args)
			for i, arg := range quoted {
				quoted[i] = pair.Quote(arg)
			}
			fmt.Fprintf(w, "args = [%s]\n", strings.Join(quoted, ", "))
		}
		if s.Cwd != "" {
			fmt.Fprintf(w, "cwd = %s\n", pair.Quote(s.Cwd))
		}
		printReferences(w, "env", s.Env, func(k string) string { return variable(k) })
		// Two servers may both have a header Authorization, with different values.
		printReferences(w, "headers", s.Headers, func(k string) string { return variable(to + "_" + k) })
		fmt.Fprintln(w)
	}
	return nil
}

// Names and values that secrets have.
var (
	secretName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)key|token|secret|passw|passphrase|auth|credential|bearer|cookie|(^|[^a-z])(pass|pwd|pat)([^a-z]|$)`)
	})
	secretValue = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(sk-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ|Bearer )|^[A-Za-z0-9_-]{32,}$`)
	})

	// A user with his password, in a flag of that name, and flags of one letter that have a secret, with it in them or behind
	// them. The same letters have ports, paths, packages and projects.
	userName   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^u$|user(name)?$|login$`) })
	userIDs    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d+:\d+$`) })
	shortName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[pPkK]$`) })
	shortValue = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^((\d{1,3}\.){3}\d{1,3}:)?\d{1,5}([:-]\d{1,5})*(/tcp|/udp)?$|^(\.{0,2}|~|[A-Za-z]:)[/\\]|^@?[a-z][a-z-]*(/[a-z0-9-]+)?(@[0-9a-z.^~-]+)?$|\.(json|toml|ya?ml|pem)$`)
	})

	// Addresses of databases that have no scheme: by the name of what has one, by their user and password, and by their words.
	dsnName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)dsn|conn(ection)?[_-]?str`) })
	dsnUser  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^@\s=]*:[^\\@\s][^@\s]*@`) })
	dsnWords = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(^|[;\s])[^=;]*(pwd|passw|key|token|secret)[^=;]*=`)
	})
)

// arguments returns those of a server with references in the place of secrets; vars counts these.
func arguments(server string, vars map[string]int, args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		before := ""
		if i > 0 {
			before = args[i-1]
		}
		out[i] = distinct(vars, arg, argument(server, before, arg))
	}
	return out
}

var reference = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{env:([A-Z0-9_]+)\}`) })

// distinct returns a text with a variable of its own for each secret: two that are known by one name may differ. References that
// the text had before stay.
func distinct(vars map[string]int, before, text string) string {
	return reference().ReplaceAllStringFunc(text, func(ref string) string {
		if vars[ref]++; vars[ref] == 1 || strings.Contains(before, ref) {
			return ref
		}
		return fmt.Sprintf("%s_%d}", strings.TrimSuffix(ref, "}"), vars[ref])
	})
}

// argument returns an argument of a server with references in the place of secrets, which are known by the name before
// them, in the argument or as the flag before it, or by their form.
func argument(server, before, arg string) string {
	flag := strings.TrimLeft(before, "-")
	isValue := flag != before && !strings.Contains(before, "=") && !strings.HasPrefix(arg, "-")
	isHeader := isValue && (flag == "H" || strings.Contains(strings.ToLower(flag), "header"))
	separator := "="
	if at := strings.Index(arg, ":"); isHeader && at >= 0 && !strings.HasPrefix(arg[at:], "://") {
		separator = ":" // values of headers are never printed
	}
	name, value, named := strings.Cut(arg, separator)
	named = named && !strings.Contains(name, "://")
	switch {
	case isValue && isUser(flag, arg):
		user, _, _ := strings.Cut(arg, ":")
		return user + ":" + variableOf(server, "password")
	case isValue && shortName().MatchString(flag) && !shortValue().MatchString(arg):
		return variableOf(server, flag)
	case separator == "=" && isDSN(arg):
		if !isValue {
			flag = "dsn" // what is before it may be another one
		}
		return variableOf(server, flag)
	case named && (separator == ":" || secretName().MatchString(name) || secretValue().MatchString(value) || hasDSN(name, value)):
		return name + separator + variableOf(server, strings.TrimLeft(name, "-"))
	case isValue && (secretName().MatchString(flag) || hasDSN(flag, arg)):
		return variableOf(server, flag)
	case secretValue().MatchString(arg):
		return variableOf(server, "secret")
	case named:
		return name + separator + argument(server, "-"+strings.TrimLeft(name, "-"), value)
	case strings.Contains(arg, "://"):
		return withoutSecrets(server, arg)
	case len(arg) > 2 && arg[0] == '-' && (isUser(arg[1:2], arg[2:]) || shortName().MatchString(arg[1:2]) && !shortValue().MatchString(arg[2:])):
		return arg[:2] + argument(server, arg[:2], arg[2:])
	}
	return arg
}

// isUser reports whether a flag has a user and his password. A process has the numbers of a user and a group.
func isUser(flag, value string) bool {
	user, password, ok := strings.Cut(value, ":")
	return ok && user != "" && password != "" && userName().MatchString(flag) && !strings.HasPrefix(password, "//") && !userIDs().MatchString(value)
}

// isDSN reports whether an argument is the address of a database with a password in it, and without a scheme. The digest of
// an image looks like one.
func isDSN(arg string) bool {
	return !strings.Contains(arg, "://") && (dsnUser().MatchString(arg) && !strings.Contains(arg, "@sha256:") || strings.ContainsAny(arg, "; ") && dsnWords().MatchString(arg))
}

// hasDSN reports whether what has a name is the address of a database without a scheme, by that name.
func hasDSN(name, value string) bool {
	return dsnName().MatchString(name) && !strings.Contains(value, "://")
}

// withoutSecrets returns an address with references in the place of its password, of what its query has, and of what
// has the form of a secret. One that is none, such as with a password that is not escaped, is a secret as a whole.
func withoutSecrets(server, address string) string {
	_, rest, _ := strings.Cut(address, "://")
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	// What reads as a port may be the beginning of a password.
	isCut := strings.Contains(authority, ":") && !strings.Contains(authority, "@") && strings.Contains(rest, "@")
	if _, err := url.Parse(address); err != nil || isCut {
		return variableOf(server, "url")
	}
	address, fragment, hasFragment := strings.Cut(address, "#")
	address, query, hasQuery := strings.Cut(address, "?")
	parts := strings.Split(address, "://") // of a list of addresses, too
	for i, part := range parts {
		if i > 0 || len(parts) == 1 {
			parts[i] = withoutUser(server, part)
		}
	}
	address = strings.Join(parts, "://")
	if hasQuery {
		parts := strings.Split(query, "&")
		for i, part := range parts {
			if name, value, ok := strings.Cut(part, "="); !ok || secretValue().MatchString(name) {
				parts[i] = variableOf(server, "query")
			} else if value != "" {
				parts[i] = name + "=" + variableOf(server, name)
			}
		}
		address += "?" + strings.Join(parts, "&")
	}
	if hasFragment && (strings.Contains(fragment, "=") || secretValue().MatchString(fragment)) {
		fragment = variableOf(server, "fragment")
	}
	if hasFragment {
		address += "#" + fragment
	}
	return address
}

// withoutUser returns what follows the scheme of an address, up to its query.
//
// It is cut as it is written: an address that is parsed and written anew has other escapes.
func withoutUser(server, rest string) string {
	host, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndex(host, "@"); at >= 0 {
		user, password, _ := strings.Cut(host[:at], ":")
		if secretValue().MatchString(user) {
			user = variableOf(server, "user")
		}
		if password != "" {
			user += ":" + variableOf(server, "password")
		}
		host = user + host[at:]
	}
	if !hasPath {
		return host
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if secretValue().MatchString(segment) {
			segments[i] = variableOf(server, "secret")
		}
	}
	return host + "/" + strings.Join(segments, "/")
}

// variableOf returns a reference to the variable of the environment that has something of a server.
func variableOf(server, name string) string { return "${env:" + variable(server+"_"+name) + "}" }

// printReferences prints a table whose values are variables of the environment. The values of the
// file are not looked at: each may be a secret, and the output is redirected to a file.
func printReferences(w io.Writer, key string, values map[string]string, name func(string) string) {
	if len(values) == 0 {
		return
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		list = append(list, pair.Quote(k)+" = "+pair.Quote("${env:"+name(k)+"}"))
	}
	fmt.Fprintf(w, "%s = { %s }\n", key, strings.Join(list, ", "))
}

// serverName returns a name that a server may have, and that no other has.
func serverName(was string, used map[string]bool) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(was)), "-")
	name = cmp.Or(name, "server")
	// keep.toml takes 32 characters; four are left for the number behind the name.
	name = name[:min(len(name), 28)]
	to := name
	for n := 2; used[to]; n++ {
		to = fmt.Sprintf("%s-%d", name, n)
	}
	used[to] = true
	return to
}

// variable returns a name of a variable of the environment.
func variable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, text)
}

// gatewayInstallCmd prints what clients need.
func (a *app) gatewayInstallCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "Print what to put into clients",
		Long:  `Install prints how common clients start the gateway of this project. It changes nothing.`,
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.LoadConfig(".")
			if err != nil {
				return err
			}
			if len(cfg.Gateway.Servers) == 0 {
				return exit.Misusef("no MCP server is configured: add [gateway.servers.NAME] to keep.toml, or see keep gateway import")
			}
			file, err := filepath.Abs(cfg.File)
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				// A client then finds it on its own PATH.
				self = "keep"
			}
			return a.printInstall(self, file)
		},
	}
}

// printInstall prints the entries of clients, with whole paths: a client starts the gateway in a
// directory of its own choice. The list as JSON is the same for all that have a file of servers.
func (a *app) printInstall(self, file string) error {
	entry := map[string]any{"mcpServers": map[string]any{"keep": map[string]any{"command": self, "args": []string{"gateway", "--config", file}}}}
	if a.JSON {
		return a.PrintJSON(entry)
	}
	text, err := json.MarshalIndent(entry, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, `Take the servers that are in keep.toml out of the client, and put this in their place.

Claude Code:  claude mcp add keep -- %s
Codex:        codex mcp add keep -- %[1]s

Claude Desktop, Cursor, Windsurf and others that have a file with mcpServers:

%[2]s
`, shell.Word(self)+" gateway --config "+shell.Word(file), text)
	return nil
}
