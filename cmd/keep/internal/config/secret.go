package config

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/keep-run/keep/cmd/keep/internal/trust"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/regular"
)

// maxSecret bounds a secret's file, in bytes.
const maxSecret = 64 << 10

var (
	reference = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$?\$\{[^}]*\}?`) })
	envName   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })
)

// A vault finds secrets and remembers them, so that messages can be cleaned.
type vault struct {
	env   *environment
	dir   string            // of keep.toml
	found map[string]string // value by reference, such as ${secret:crm}
	of    map[string]string // name of the secret that a variable was taken for
	plain []string          // what stands under names of secrets itself
	files []string          // that were looked at

	sealed   map[string]Sealed  // secrets of the database, by name
	marks    map[string]string  // of the secrets that were found, by reference
	named    map[string]*Named  // secrets that the file refers to, by name
	accounts connector.Accounts // nil: the database is not open
}

// A Sealed is a secret of the database.
type Sealed struct {
	Value string
	Mark  string // another one when the secret is replaced
	Err   error  // why it cannot be opened, which says which secret; nil: it can
}

// String says nothing: a secret that is printed by mistake shows nothing.
func (Sealed) String() string { return "[sealed]" }

// GoString says nothing.
func (Sealed) GoString() string { return "[sealed]" }

// A Named is a secret that keep.toml refers to, without its value.
type Named struct {
	Name   string
	Tables []string // that name it, such as connections.crm; sorted

	// Place is the variable or file that has it, which counts before the database; empty:
	// none has.
	Place string

	Problem string // why what is there cannot be used; empty: it can
}

// name remembers that a table of the file refers to a secret, if it does.
func (v *vault) name(ref, path string) {
	name, ok := strings.CutPrefix(strings.TrimSuffix(ref, "}"), "${secret:")
	if !ok || !AccountName(name) {
		return
	}
	n := v.named[name]
	if n == nil {
		n = &Named{Name: name}
		v.named[name] = n
	}
	n.Tables = append(n.Tables, tableOf(path))
}

// namedAt are the tables of keep.toml whose own tables have names that people gave, with how deep
// these are.
var namedAt = map[string]int{"connections": 2, "packs": 2, "hooks": 2, "llm": 2, "gateway": 3}

// tableOf returns the table of keep.toml that a key at a path is of, as people speak of it.
func tableOf(path string) string {
	parts := strings.Split(path, ".")
	return strings.Join(parts[:min(max(1, namedAt[parts[0]]), len(parts))], ".")
}

// names returns the secrets that the file refers to, sorted.
func (v *vault) names() []Named {
	var out []Named
	for _, name := range slices.Sorted(maps.Keys(v.named)) {
		n := *v.named[name]
		slices.Sort(n.Tables)
		n.Tables = slices.Compact(n.Tables)
		out = append(out, n)
	}
	return out
}

// NamedNow is Named of the file as it is now, as far as that can be read.
func (c *Config) NamedNow() []Named {
	now, err := Load(Options{File: c.File, Dir: c.Dir})
	if now == nil || err != nil && now.Named == nil {
		return c.Named
	}
	return now.Named
}

// expand replaces the references in all strings of n. What is missing becomes a
// problem, and the reference stays.
func (b *binder) expand(v *vault, n *node, path string) {
	switch value := n.value.(type) {
	case map[string]*node:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			b.expand(v, value[key], dotted(path, key))
		}
	case []*node:
		for i, child := range value {
			b.expand(v, child, path+element(i))
		}
	case string:
		if !strings.Contains(value, "${") {
			return
		}
		n.raw = value
		n.value = reference().ReplaceAllStringFunc(value, func(ref string) string {
			if strings.HasPrefix(ref, "$$") {
				return ref[1:]
			}
			if strings.HasPrefix(ref, "${account:") && inHeader(path) {
				if m := accountReference().FindStringSubmatch(ref); m == nil || !AccountName(m[1]) {
					b.addf(n, path, "%s names no account; want ${account:NAME}", cut(ref, 60))
				}
				return ref // its credential is put in when a request is sent
			}
			v.name(ref, path)
			s, err := v.resolve(ref)
			if err != nil {
				b.unresolved(n, path, err)
				return ref
			}
			return s
		})
	}
}

// unresolved reports a reference that stands for nothing.
func (b *binder) unresolved(n *node, path string, err error) {
	p := b.problem(n, path, "%v", err)
	if _, bad := errors.AsType[*referenceError](err); bad {
		b.problems = append(b.problems, p)
		return
	}
	if e, ok := errors.AsType[*MissingError](err); ok {
		if path == "db" { // what the database has cannot say where it is
			e.Places = slices.DeleteFunc(e.Places, func(place string) bool { return strings.HasPrefix(place, "the database:") })
		}
		p.Fix = e.fix()
	} else {
		p.Unusable = true
	}
	b.missing = append(b.missing, p)
}

// A referenceError says that a reference is not written as one.
type referenceError struct{ why string }

// Error says what is wrong with the reference.
func (e *referenceError) Error() string { return e.why + "; a plain ${ is written $${" }

// A MissingError says that a secret or a variable is not there, and every place
// where it can be put.
type MissingError struct {
	Reference string // such as ${secret:crm}
	Places    []string
	Sealed    error // why the one of the database cannot be opened; nil: it has none
}

// Error names the reference and never its value.
func (e *MissingError) Error() string {
	if e.Sealed != nil {
		return e.Reference + ": " + e.Sealed.Error()
	}
	return e.Reference + " is not set"
}

// fix says where the value can be put.
func (e *MissingError) fix() string { return "put it into " + strings.Join(e.Places, ", or ") }

// resolve returns what a reference stands for.
//
// What was found is remembered by its reference: a secret has one value in all of a configuration, also if
// its file changes while that is read.
func (v *vault) resolve(ref string) (string, error) {
	if s, ok := v.found[ref]; ok {
		return s, nil
	}
	inner, closed := strings.CutSuffix(strings.TrimPrefix(ref, "${"), "}")
	kind, name, _ := strings.Cut(inner, ":")
	var s string
	var err error
	switch {
	case !closed:
		return "", &referenceError{cut(ref, 40) + " has no closing brace"}
	case kind == "env" && envName().MatchString(name):
		var ok bool
		if s, ok = v.env.vars[name]; !ok {
			err = &MissingError{Reference: ref, Places: []string{"the environment variable " + name}}
		}
	case kind == "secret" && AccountName(name):
		var place string
		s, v.marks[ref], place, err = v.secret(ref, name)
		if n := v.named[name]; n != nil {
			n.Place = place
			if _, missing := errors.AsType[*MissingError](err); err != nil && !missing {
				n.Problem = err.Error()
			}
		}
	case kind == "account":
		return "", &referenceError{cut(ref, 60) + " can stand in a header of a connection only; elsewhere write account = \"NAME\""}
	default:
		return "", &referenceError{cut(ref, 60) + " is neither ${env:NAME} nor ${secret:name}"}
	}
	if err == nil {
		v.found[ref] = s
	}
	return s, err
}

// secret looks in the places of the package comment. It returns the mark of what it found,
// too, which says where it is and of when, and nothing about it, and the place, which is
// empty if that is the database.
func (v *vault) secret(ref, name string) (value, mark, place string, err error) {
	variable := Prefix + "SECRET_" + strings.TrimPrefix(Variable(name), Prefix)
	if s := v.env.vars[variable]; s != "" {
		if other := cmp.Or(v.of[variable], name); other != name {
			return "", "", variable, fmt.Errorf("the variable %s would be the secret %s, and the secret %s, too; rename one of them, or put them where their names differ", variable, other, name)
		}
		v.of[variable] = name
		return s, variable, variable, nil
	}
	credentials := "$CREDENTIALS_DIRECTORY/" + name
	if dir := v.env.vars["CREDENTIALS_DIRECTORY"]; dir != "" {
		v.files = append(v.files, filepath.Join(dir, name))
		s, mark, err := readSecret(filepath.Join(dir, name), false)
		if !errors.Is(err, fs.ErrNotExist) {
			return s, mark, filepath.Join(dir, name), err
		}
	}
	file := filepath.Join(v.dir, ".secrets", name)
	v.files = append(v.files, file)
	value, mark, err = readSecret(file, true)
	sealed, ok := v.sealed[name]
	if ok && sealed.Err == nil && errors.Is(err, fs.ErrNotExist) {
		return sealed.Value, sealed.Mark, "", nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", "", &MissingError{ref, []string{
			"the environment variable " + variable, "the file " + credentials, "the file " + file + " (mode 0600)", "the database: keep secrets set " + name}, sealed.Err}
	}
	return value, mark, file, err
}

// markOf returns the mark of all secrets that a table of the file names, for
// connector.Connection.
func (v *vault) markOf(n *node) string {
	var refs []string
	n.each(func(c *node) { refs = append(refs, reference().FindAllString(c.raw, -1)...) })
	slices.Sort(refs)
	h := fnv.New64a()
	known := false
	for _, ref := range slices.Compact(refs) {
		if mark := v.marks[ref]; mark != "" {
			known = true
			fmt.Fprintf(h, "%s %s\n", ref, mark)
		}
	}
	if !known {
		return ""
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// each calls f for n and all below it.
func (n *node) each(f func(*node)) {
	if n == nil {
		return
	}
	f(n)
	switch value := n.value.(type) {
	case map[string]*node:
		for _, c := range value {
			c.each(f)
		}
	case []*node:
		for _, c := range value {
			c.each(f)
		}
	}
}

// rememberPlain remembers what stands under names of secrets itself, in the file or in a variable that takes the place of a
// key: it is as little to be shown as what a reference stands for. A tool has no plain secrets of its own.
func (v *vault) rememberPlain(root *node) {
	root.walk("", "", func(path, key string, c *node) {
		if s, ok := c.string(); ok && s != "" && c.raw == "" && guarded().MatchString(key) && !strings.Contains(path, ".tools.") {
			v.plain = append(v.plain, s)
		}
	})
}

// secrets returns the values of all secrets that the file names, sorted by reference, and those that stand in it. A
// variable is one if its name says so.
func (v *vault) secrets() []string {
	values := slices.Clone(v.plain)
	for _, ref := range slices.Sorted(maps.Keys(v.found)) {
		name, isEnv := strings.CutPrefix(strings.Trim(ref, "${}"), "env:")
		if !isEnv || guarded().MatchString(name) {
			values = append(values, v.found[ref])
		}
	}
	return values
}

// readSecret reads a secret's file. If private is set, others must not be able
// to read it, nor to put another one in its place; a credentials directory is guarded by
// who made it. Of a link the file that it leads to is judged. It returns the mark of the
// file, too.
func readSecret(file string, private bool) (value, mark string, err error) {
	f, err := regular.Open(file)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", "", err
	case private && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", "", fmt.Errorf("%s can be read by others (mode %04o); run: chmod 600 %s", file, info.Mode().Perm(), strconv.Quote(file))
	case info.Size() > maxSecret:
		return "", "", fmt.Errorf("%s has %d bytes; a secret has at most %d", file, info.Size(), maxSecret)
	}
	if dir := filepath.Dir(file); private && runtime.GOOS != "windows" {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o002 != 0 {
			return "", "", fmt.Errorf("everybody may put files into %s (mode %04o); run: chmod 700 %s", dir, info.Mode().Perm(), strconv.Quote(dir))
		}
		if why := trust.MayPut(dir); why != "" {
			return "", "", fmt.Errorf("others may put files into %s: %s; run: chmod 700 %s", dir, why, strconv.Quote(dir))
		}
	}
	// It may have grown since Stat.
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return "", "", err
	case len(data) > maxSecret:
		return "", "", fmt.Errorf("%s has more than %d bytes, which is no secret", file, maxSecret)
	case !utf8.Valid(data):
		return "", "", fmt.Errorf("%s is not text in UTF-8", file)
	}
	s := strings.TrimSuffix(string(data), "\n")
	s = strings.TrimSuffix(s, "\r")
	if s == "" {
		return "", "", fmt.Errorf("%s is empty", file)
	}
	return s, fmt.Sprintf("%s %d %d", file, info.Size(), info.ModTime().UnixNano()), nil
}

// hide replaces the values of secrets in a message by their references.
func (v *vault) hide(message string) string {
	var pairs []string
	refs := slices.SortedFunc(maps.Keys(v.found), func(a, b string) int {
		return cmp.Or(len(v.found[b])-len(v.found[a]), strings.Compare(a, b)) // the longest is found first
	})
	for _, ref := range refs {
		value := v.found[ref]
		if value == "" {
			continue
		}
		pairs = append(pairs, value, ref)
		if q := strings.Trim(strconv.Quote(value), `"`); q != value {
			pairs = append(pairs, q, ref) // as %q would show it
		}
	}
	return strings.NewReplacer(pairs...).Replace(message)
}

// guarded names headers that hold secrets. A literal value there belongs into a
// secret, since keep.toml is made to be shared.
var guarded = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(proxy-)?authorization$|^cookie$|(api|auth|access|secret|private)[-_]?(key|token)|token$|secret$|password`)
})

// plainSecrets warns of literal values in headers that hold secrets.
func (b *binder) plainSecrets(n *node, path string) {
	headers := n.table()["headers"].table()
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		h := headers[name]
		s, ok := h.value.(string)
		if !ok || s == "" || h.source != "" || h.raw != "" || !guarded().MatchString(name) {
			continue
		}
		p := b.problem(h, dotted(dotted(path, "headers"), name), "looks like a secret in plain text")
		p.Fix = `write "${secret:name}" and put the value into .secrets/name`
		b.warnings = append(b.warnings, p)
	}
}

// readable checks what goes to an address at a key that is plain HTTP to another machine. The credential of an account is refused there, as it
// is with a pack; a header with a secret may go to a service of a closed network, and there is a warning.
func (b *binder) readable(n *node, at, key, address string) {
	if !insecure(address) {
		return
	}
	headers := n.table()["headers"].table()
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch value, _ := headers[name].string(); {
		case accountReference().MatchString(value):
			b.addf(n.table()[key], dotted(at, key), "a credential is sent over https only, but for this machine itself")
		case headers[name].raw != "" || guarded().MatchString(name):
			p := b.problem(n.table()[key], dotted(at, key), "the header %s can be read on the way", name)
			p.Fix = "use https://"
			b.warnings = append(b.warnings, p)
		}
	}
}

// Harmless returns the variables that a program may get which is not ours and only shows
// something: none of Keep, where keys and secrets are, and none that is called a secret.
func Harmless(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.HasPrefix(name, Prefix) || name == "CREDENTIALS_DIRECTORY" || guarded().MatchString(name)
	})
}
