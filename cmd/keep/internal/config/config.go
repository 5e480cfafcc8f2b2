package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/keep-run/keep/api/hook"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/internal/regular"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/llm"
	"github.com/keep-run/keep/script/sandbox"
)

// Name is what the file is called.
const Name = "keep.toml"

// MaxFile bounds keep.toml, in bytes (law: bounded).
const MaxFile = 1 << 20

// A Config is what keep.toml and the environment mean.
type Config struct {
	Anew bool // --new, which no file says: a database that is gone is begun anew

	File        string                // keep.toml as it was named; empty: there is none
	Files       []string              // keep.toml, or where it would be, and where the project's own packs and pairings are that it names
	Hash        string                // of keep.toml and of all packs and pairings that it names, as they were read; empty: there are none
	Dir         string                // directory that paths are relative to, absolute
	DB          string                // file of the database, absolute, or a URL; empty: it could not be read
	Workflows   []string              // patterns of the project's scripts, relative to Dir
	Policy      policy.Policy         // valid
	Sandbox     sandbox.Limits        // zero fields are the sandbox's defaults
	Connections []Connection          // sorted by name
	declared    []string              // names of connections, those with mistakes too
	Notify      Notify                // valid; zero: questions are not announced
	Retention   policy.Retention      // valid
	Hooks       []hook.Config         // valid; sorted by name
	Grants      []Grant               // conditions valid; of workflows that have one
	Budgets     []Budget              // valid; sorted by name
	LLMs        map[string]llm.Config // services of language models, by name; valid
	Write       Write                 // who writes workflows; valid
	Gateway     Gateway               // valid; without servers there is none
	Repair      *Repair               // valid; nil: scripts that fail are not repaired
	Proxy       proxy.Config          // as written; proxy.New checks it
	Server      Server                // as written; its files are absolute
	Ring        seal.Ring             // where the key of accounts is
	Stored      string                // mark of the secrets of the database that it was read with; empty: it needed none
	Clients     map[string]PackClient // the user's own OAuth clients, by pack
	Warnings    []Problem             // odd, but not wrong
	Secrets     []string              // files that secrets were looked for in, sorted
	Named       []Named               // secrets that it refers to, sorted by name
	Missing     []Problem             // secrets that are not there; Connect refuses to continue without them

	found map[string]string // what its references stand for
}

// Same reports whether c and o are of the same text, with the same secrets.
func (c *Config) Same(o *Config) bool { return c.Hash == o.Hash && maps.Equal(c.found, o.found) }

// Options say what to read. The zero value reads the working directory.
type Options struct {
	// File is the keep.toml to read. If empty, the one in Dir, which need not
	// exist.
	File string

	// Dir is the project's directory when File is empty. If empty, the working
	// directory.
	Dir string

	// Sealed holds the secrets of the database, by name. They count where no other place
	// has one.
	Sealed map[string]Sealed

	// Environ holds the variables as os.Environ has them. If nil, os.Environ().
	Environ []string
}

// Ceiling is the variable with the directories above which, and in which, no keep.toml
// is looked for from below, as GIT_CEILING_DIRECTORIES.
const Ceiling = Prefix + "CEILING"

// Find returns the keep.toml of the project that dir belongs to: the one in dir
// or in the nearest directory above it. It returns "" if there is none. Above dir it
// stops at the directories of Ceiling.
func Find(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	ceilings := filepath.SplitList(os.Getenv(Ceiling))
	for _, c := range ceilings {
		if real, err := filepath.EvalSymlinks(c); err == nil {
			ceilings = append(ceilings, real)
		}
	}
	for {
		file := filepath.Join(abs, Name)
		if _, err := os.Lstat(file); err == nil { // whatever it is: what can't be read is said
			return shortest(file)
		}
		up := filepath.Dir(abs)
		if up == abs || slices.Contains(ceilings, up) {
			return ""
		}
		abs = up
	}
}

// shortest returns a path relative to the working directory if that is shorter.
func shortest(file string) string {
	wd, err := os.Getwd()
	if err != nil {
		return file
	}
	if rel, err := filepath.Rel(wd, file); err == nil && len(rel) < len(file) {
		return rel
	}
	return file
}

// Load reads the configuration. The error is an *Error with everything that is
// wrong, or one of the file system. The Config that comes with an *Error is what
// could be understood, so that a command which needs only the database works
// beside a broken connection.
//
// Load opens nothing and makes no call. A secret that is missing is no error
// yet: see Config.Missing.
func Load(o Options) (*Config, error) {
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	cfg, text, err := read(o)
	if err != nil {
		return nil, err
	}
	b := &binder{file: cmp.Or(cfg.File, Name), libraries: make(map[string]string), budgetNames: make(map[string]bool)}
	root, syntax := parse(text)
	if syntax != nil {
		syntax.File = cfg.File
		return cfg, &Error{Problems: []Problem{*syntax}}
	}
	env := newEnvironment(o.Environ)
	v := &vault{env: env, dir: cfg.Dir, found: make(map[string]string), of: make(map[string]string), marks: make(map[string]string), named: make(map[string]*Named), sealed: o.Sealed}
	overlayAll(env, root)
	for name := range root.table()["budgets"].table() {
		b.budgetNames[name] = true
	}
	b.expand(v, root, "")
	v.rememberPlain(root)
	t := defaults()
	b.bind(reflect.ValueOf(&t).Elem(), root, "")
	if len(b.problems) == 0 {
		b.check(&t, root)
		cfg.Notify = b.notify(t.Notify, t.Server.URL, root, cfg.Dir)
		cfg.Hooks = b.hooks(t.Hooks, root)
		cfg.Grants = b.grants(t.Grants, root)
		cfg.Budgets = b.budgets(t.Budgets, root)
		cfg.LLMs = b.llms(t.LLMs, root)
		cfg.Write = b.write(t.Write, t.Repair, root, cfg.LLMs)
		cfg.Gateway = b.gateway(t.Gateway, root, v, cfg.Budgets)
		cfg.Repair = b.repair(t.Repair, root, cfg.LLMs)
	}
	cfg.Connections, cfg.declared = b.connections(t.Connections, v), slices.Collect(maps.Keys(t.Connections))
	for _, c := range cfg.Connections {
		for _, tool := range slices.Sorted(maps.Keys(c.budgets)) {
			full, at := c.Name+"."+tool, dotted(dotted("connections", c.Name)+".tools", tool)
			b.spends(cfg.Budgets, c.budgets[tool], full, c.at.table()["tools"].table()[tool], at)
		}
	}
	cfg.Proxy, cfg.Server = t.Proxy, t.Server
	cfg.Ring, cfg.Clients = t.Accounts.ring(cfg, env), b.clients(t.Packs, root)
	for _, file := range []*string{&cfg.Server.TLSCert, &cfg.Server.TLSKey, &cfg.Server.Socket,
		&cfg.Proxy.TLSCert, &cfg.Proxy.TLSKey, &cfg.Proxy.AdminSocket} {
		if *file != "" {
			*file = cfg.abs(*file)
		}
	}
	cfg.Workflows, cfg.Sandbox, cfg.Policy = t.Workflows, t.Sandbox.limits(), t.Policy.policy()
	cfg.Retention = t.Retention.retention()
	cfg.Retention.Traces, cfg.Policy.Limits.Trace = t.Trace.times()
	if t.DB != "" && !strings.Contains(t.DB, "${") {
		cfg.DB = cfg.abs(t.DB)
	}
	slices.Sort(v.files)
	cfg.Secrets, cfg.Named, cfg.found = slices.Compact(v.files), v.names(), v.found
	cfg.readFrom(text, b.libraries)
	cfg.Missing = b.clean(v, b.missing)
	cfg.Warnings = sorted(append(b.clean(v, b.warnings), env.unused()...))
	return cfg, asError(b.clean(v, b.problems))
}

// read finds the file and returns its text.
//
// A file that nobody named need not exist; one that was named must.
func read(o Options) (*Config, []byte, error) {
	file := o.File
	file = cmp.Or(file, filepath.Join(o.Dir, Name))
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, nil, err
	}
	cfg := &Config{File: file, Files: []string{file}, Dir: filepath.Dir(abs)}
	text, err := regular.Read(file, MaxFile)
	if errors.Is(err, fs.ErrNotExist) && o.File == "" {
		cfg.File = ""
		return cfg, nil, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("the configuration %s does not exist (it is named by --config or KEEP_CONFIG): %w", file, fs.ErrNotExist)
	}
	if err != nil {
		return nil, nil, err
	}
	if regular.IsUTF16(text) {
		return nil, nil, fmt.Errorf("%s is in UTF-16: save it as UTF-8", file)
	}
	return cfg, bytes.TrimPrefix(text, []byte("\ufeff")), nil
}

// readFrom notes the text of keep.toml, and the hashes of the packs and pairings that were read with it, by file.
func (c *Config) readFrom(text []byte, libraries map[string]string) {
	if c.File == "" && len(libraries) == 0 {
		return
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%x\n", sha256.Sum256(text))
	for _, file := range slices.Sorted(maps.Keys(libraries)) {
		c.Files = append(c.Files, c.abs(file))
		fmt.Fprintln(sum, file, libraries[file])
	}
	c.Hash = "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// overlayAll puts the environment over the whole tree. The tables of connections
// have the type of their connector, which the environment may set too.
func overlayAll(env *environment, root *node) {
	env.overlay(tablesType, root, "")
	connections := root.table()["connections"].table()
	for name, n := range connections {
		if n.table() == nil {
			continue
		}
		path := dotted("connections", name)
		env.child(reflect.TypeFor[string](), n, path, "connector")
		kind, _ := n.table()["connector"].string()
		if k, ok := kinds[kind]; ok {
			connections[name] = env.overlay(k.settings, n, path)
		} else if kind != "" { // a pack, or a mistake that the binder finds
			connections[name] = env.overlay(reflect.TypeFor[packConnection](), n, path)
		}
	}
}

// string returns the text in n, if it is one.
func (n *node) string() (string, bool) {
	if n == nil {
		return "", false
	}
	s, ok := n.value.(string)
	return s, ok
}

// abs returns a path of the configuration as the process can use it. URLs and
// absolute paths stay.
func (c *Config) abs(p string) string {
	if p == "" || filepath.IsAbs(p) || strings.Contains(p, "://") {
		return p
	}
	return filepath.Join(c.Dir, p)
}

// clean takes the values of secrets out of problems.
func (b *binder) clean(v *vault, ps []Problem) []Problem {
	out := make([]Problem, 0, len(ps))
	for _, p := range ps {
		p.Message, p.Fix = v.hide(p.Message), v.hide(p.Fix)
		out = append(out, p)
	}
	return sorted(out)
}
