package sandbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/keep-run/keep/internal/regular"
)

// Bundle is a script with all its files in one piece of JavaScript: everything
// that is needed to run it again, and to show its author where it failed.
type Bundle struct {
	Entry string // the script's file as shown in errors, relative to the project
	Code  []byte // one IIFE, not minified, so that positions stay exact
	Map   []byte // source map, with the sources' text; empty if there is nothing to map

	// At is where the clock stands while the top level of the script is evaluated, and Seed
	// what chance comes from there: with both, each load leaves the same state. If zero, the
	// time of the load, and chance of the system.
	At   time.Time
	Seed []byte

	// Files is the text of every file that was read, by its name: BuildFiles makes
	// the same bundle of them. Nil if the bundle was stored.
	Files map[string][]byte
}

// Hash is the hex SHA-256 of the code. The same files give the same hash on
// every machine.
func (b *Bundle) Hash() string {
	sum := sha256.Sum256(b.Code)
	return hex.EncodeToString(sum[:])
}

const (
	// maxFile, maxSource and maxCode bound one source file, all that a script
	// imports, and the whole bundle, in bytes.
	maxFile   = 2 << 20
	maxSource = 4 << 20
	maxCode   = 4 << 20

	// moduleName is the variable in which a bundle leaves its exports, for the
	// prelude to find. Stored bundles depend on it.
	moduleName = "__keep_module"
)

// Build bundles the script in a file with what it imports. entry is a path
// inside of the directory root, absolute or relative to it.
//
// Imports must be relative, with names that are written out, and stay inside of root, symbolic links included.
// There are no packages, no built-in modules and no URLs. Everything that is
// wrong with the source is in a *BuildError.
func Build(root, entry string) (*Bundle, error) {
	if filepath.IsAbs(entry) {
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, fmt.Errorf("sandbox: build: %w", err)
		}
		if entry, err = filepath.Rel(abs, entry); err != nil {
			return nil, fmt.Errorf("sandbox: build: %w", err)
		}
	}
	return build(bundleRequest{Root: cmp.Or(root, "."), Entry: path.Clean(filepath.ToSlash(entry))})
}

// BuildSource bundles a script that is one file in memory. name says what it
// is called and, by its extension, whether it is TypeScript.
func BuildSource(name string, code []byte) (*Bundle, error) {
	name = path.Clean(filepath.ToSlash(name))
	return build(bundleRequest{Entry: name, One: true, Files: map[string][]byte{name: code}})
}

// BuildFiles bundles a script whose files are in memory, by their names in the
// project; those of a Bundle make the same one again.
func BuildFiles(entry string, files map[string][]byte) (*Bundle, error) {
	return build(bundleRequest{Entry: path.Clean(filepath.ToSlash(entry)), Files: files})
}

// files is where a bundle's sources come from.
type files interface {
	// read returns a file's text, or an error that wraps fs.ErrNotExist.
	read(name string) ([]byte, error)
}

// bundle runs esbuild over the files. It touches no file itself: every import
// is resolved, and every file read, by the plugin.
func bundle(entry string, src files) (*Bundle, error) {
	b := &bundler{entry: entry, src: src, files: make(map[string][]byte)}
	if !fs.ValidPath(entry) {
		return nil, &BuildError{[]Problem{{File: entry, Text: "leaves the project directory"}}}
	}
	if _, err := loader(entry); err != nil {
		return nil, &BuildError{[]Problem{{File: entry, Text: err.Error()}}}
	}
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{entry},
		Outfile:     "out.js",
		Bundle:      true,
		Format:      api.FormatIIFE,
		GlobalName:  moduleName,
		Platform:    api.PlatformNeutral,
		Target:      api.ES2023,
		Charset:     api.CharsetUTF8,
		Sourcemap:   api.SourceMapExternal,
		LogLevel:    api.LogLevelSilent,
		// No tsconfig.json of the machine has a say.
		TsconfigRaw: tsconfig,
		Plugins:     []api.Plugin{{Name: "keep", Setup: b.setup}},
	})
	if len(result.Errors) > 0 {
		return nil, b.buildError(result.Errors)
	}
	out := &Bundle{Entry: entry, Files: b.files}
	for _, f := range result.OutputFiles {
		if strings.HasSuffix(f.Path, ".map") {
			out.Map = f.Contents
		} else {
			out.Code = f.Contents
		}
	}
	if len(out.Code) > maxCode {
		return nil, &BuildError{[]Problem{{File: entry, Text: fmt.Sprintf("the script is %d bytes with its imports, more than %s", len(out.Code), size(maxCode))}}}
	}
	var err error
	if out.Map, err = b.cleanMap(out.Map); err != nil {
		return nil, fmt.Errorf("sandbox: source map of %s: %w", entry, err)
	}
	return out, nil
}

// tsconfig is what holds for each script.
const tsconfig = `{"compilerOptions":{"target":"ES2022","useDefineForClassFields":true}}`

// namespace marks the plugin's files, so that esbuild leaves them to it.
const namespace = "keep"

// noMap ends each script, as esbuild gets it. A comment says where the source map of a script is: esbuild would read it from any file, with
// the files that it names, and say of its files and places what it says. Of several comments the last counts, and this one says that there is
// none. So what people are shown of a script is what was bundled.
const noMap = "\n//# sourceMappingURL=none:"

// cleanMap takes the namespace off the names of the sources, and what was added to their texts. A map of nothing,
// as of an empty script, is nil.
func (b *bundler) cleanMap(text []byte) ([]byte, error) {
	var m struct {
		Version        int      `json:"version"`
		Sources        []string `json:"sources"`
		SourcesContent []string `json:"sourcesContent"`
		Mappings       string   `json:"mappings"`
		Names          []string `json:"names"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if strings.Trim(m.Mappings, ";,") == "" {
		return nil, nil
	}
	for i, s := range m.Sources {
		name := strings.TrimPrefix(s, namespace+":")
		if _, bundled := b.files[name]; !bundled || i >= len(m.SourcesContent) {
			return nil, fmt.Errorf("it is of %s, which was not bundled", name)
		}
		m.Sources[i] = name
		if path.Ext(name) != ".json" {
			m.SourcesContent[i] = strings.TrimSuffix(m.SourcesContent[i], noMap)
		}
	}
	return json.Marshal(m)
}

// buildError keeps esbuild's messages with their places. Those at the end of a script are in its last line.
func (b *bundler) buildError(messages []api.Message) *BuildError {
	e := &BuildError{}
	for _, m := range messages {
		p := Problem{File: b.entry, Text: m.Text}
		if l := m.Location; l != nil {
			p.File = strings.TrimPrefix(l.File, namespace+":")
			p.Line, p.Column, p.Source = l.Line, l.Column+1, l.LineText
			if lines, last := lastLine(string(b.files[p.File])); lines > 0 && (p.Line > lines || p.Line == lines && l.Column > len(last)) {
				p.Line, p.Column, p.Source = lines, len(last)+1, last
			}
		}
		e.Problems = append(e.Problems, p)
	}
	return e
}

// lastLine returns how many lines a text has as esbuild counts them, and the last one. No text has none.
func lastLine(text string) (lines int, last string) {
	if text == "" {
		return 0, ""
	}
	lines, begins := 1, 0
	for i, c := range text {
		switch {
		case c == '\n' && i > 0 && text[i-1] == '\r':
			begins++
		case c == '\n', c == '\r', c == '\u2028', c == '\u2029':
			lines, begins = lines+1, i+utf8.RuneLen(c)
		}
	}
	return lines, text[begins:]
}

// bundler is the plugin through which esbuild sees the project.
type bundler struct {
	entry string
	src   files

	mu    sync.Mutex        // protects the fields below
	files map[string][]byte // that were read
	total int               // bytes in them
}

func (b *bundler) setup(build api.PluginBuild) {
	build.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
		if a.Kind == api.ResolveEntryPoint {
			return api.OnResolveResult{Path: b.entry, Namespace: namespace}, nil
		}
		name, err := b.resolve(a.Importer, a.Path)
		if err != nil {
			return api.OnResolveResult{}, err
		}
		return api.OnResolveResult{Path: name, Namespace: namespace}, nil
	})
	build.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: namespace}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		text, err := b.src.read(a.Path)
		if err != nil {
			return api.OnLoadResult{}, readError(a.Path, err)
		}
		kind, err := loader(a.Path)
		if err != nil {
			return api.OnLoadResult{}, err
		}
		b.mu.Lock()
		b.files[a.Path] = text
		b.total += len(text)
		over := b.total > maxSource
		b.mu.Unlock()
		if over {
			return api.OnLoadResult{}, fmt.Errorf("the script and its imports are more than %s", size(maxSource))
		}
		s := string(text)
		if off, why := tooDeep(s, kind != api.LoaderJSON); why != "" {
			return api.OnLoadResult{Errors: []api.Message{{Text: why, Location: locate(a.Path, s, off)}}}, nil
		}
		if kind != api.LoaderJSON {
			if errs := computedImports(a.Path, s, kind); len(errs) > 0 {
				return api.OnLoadResult{Errors: errs}, nil
			}
			s += noMap
		}
		return api.OnLoadResult{Contents: &s, Loader: kind}, nil
	})
}

// computedImports finds the imports of names that the script computes. Of a name that begins with a directory esbuild takes every
// file that it could mean, and it looks for them beside the process, past the plugin and out of the project. So none comes to be
// bundled but one of a variable, of which esbuild knows nothing; nor would any of them find a file when it runs. A script is parsed
// for it once more only if it may have one.
func computedImports(name, text string, kind api.Loader) (errs []api.Message) {
	if !mayComputeImports(text) {
		return nil
	}
	parsed := api.Transform(text, api.TransformOptions{
		Loader: kind, Format: api.FormatIIFE, Platform: api.PlatformNeutral, Target: api.ES2023, TsconfigRaw: tsconfig,
		LogLevel:    api.LogLevelSilent,
		LogOverride: map[string]api.LogLevel{computedImport: api.LogLevelError, computedRequire: api.LogLevelError},
	})
	for _, m := range parsed.Errors {
		if m.ID != computedImport && m.ID != computedRequire {
			continue // the bundler finds it, too
		}
		if at := m.Location; at != nil {
			if at.Column <= len(at.LineText) && ofVariable.MatchString(at.LineText[at.Column:]) {
				continue
			}
			at.File = namespace + ":" + name
		}
		errs = append(errs, api.Message{Text: "the import of a name that the script computes: write the name of the file as it is", Location: m.Location})
	}
	return errs
}

// computedImport and computedRequire are what esbuild calls import and require of anything but a text.
const computedImport, computedRequire = "unsupported-dynamic-import", "unsupported-require-call"

// ofVariable matches an import of nothing but a variable.
var ofVariable = regexp.MustCompile(`^(import|require)\s*\(\s*[A-Za-z_$][\w$]*\s*\)`)

// mayComputeImports reports whether a script could have a computed import: whether there is an import that does not begin a statement, or a
// require, which may be written with escapes.
func mayComputeImports(text string) bool {
	if strings.Contains(text, "require") || strings.Contains(text, `\u`) {
		return true
	}
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "import")
		if !found {
			return false
		}
		rest = after
		next := strings.TrimLeft(after, " \t\r\n")
		if next != "" && !strings.ContainsRune(`{*"'_$`, rune(next[0])) && !isLetter(next[0]) {
			return true
		}
	}
}

func isLetter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }

// resolve finds the file that an import means.
func (b *bundler) resolve(importer, spec string) (string, error) {
	switch {
	case strings.Contains(spec, "://") || strings.HasPrefix(spec, "data:"):
		return "", fmt.Errorf("import %q: scripts cannot load code from a URL", spec)
	case strings.HasPrefix(spec, "node:") || builtins[strings.SplitN(spec, "/", 2)[0]]:
		return "", fmt.Errorf("import %q: scripts have no built-in modules of Node", spec)
	case strings.HasPrefix(spec, "/") || filepath.IsAbs(spec):
		return "", fmt.Errorf(`import %q: imports must be relative ("./…")`, spec)
	case spec != "." && spec != ".." && !strings.HasPrefix(spec, "./") && !strings.HasPrefix(spec, "../"):
		return "", fmt.Errorf("import %q: scripts cannot use packages; copy the code into the project and import it as %q", spec, "./"+path.Base(spec))
	}
	name := path.Join(path.Dir(importer), spec)
	if !fs.ValidPath(name) {
		return "", fmt.Errorf("import %q: leaves the project directory", spec)
	}
	if strings.HasPrefix(name, ".") && name != "." || strings.Contains(name, "/.") {
		return "", fmt.Errorf("import %q: scripts cannot read hidden files and directories", spec)
	}
	for _, candidate := range candidates(name) {
		if _, err := loader(candidate); err != nil {
			continue
		}
		_, err := b.src.read(candidate)
		if err == nil {
			return candidate, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, regular.ErrDirectory) {
			return "", fmt.Errorf("import %q: %w", spec, readError(candidate, err))
		}
	}
	if _, err := loader(name); err != nil && path.Ext(name) != "" {
		if _, readErr := b.src.read(name); readErr == nil {
			return "", fmt.Errorf("import %q: %w", spec, err)
		}
	}
	return "", fmt.Errorf("import %q: no such file in the project", spec)
}

// candidates are the files that an import may mean, in order.
func candidates(name string) []string {
	list := []string{name}
	if base, ok := strings.CutSuffix(name, ".js"); ok {
		list = append(list, base+".ts") // TypeScript's way to import a .ts
	}
	for _, ext := range []string{".ts", ".js", ".mts", ".mjs", ".json", "/index.ts", "/index.js"} {
		list = append(list, name+ext)
	}
	return list
}

// loader says how a file is read, by its name.
func loader(name string) (api.Loader, error) {
	switch ext := path.Ext(name); ext {
	case ".js", ".mjs":
		return api.LoaderJS, nil
	case ".ts", ".mts":
		return api.LoaderTS, nil
	case ".json":
		return api.LoaderJSON, nil
	default:
		return 0, fmt.Errorf("%s: a script is a .js or .ts file, not %q", name, ext)
	}
}

// readError says in a few words why a file cannot be read.
func readError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", name)
	case errors.Is(err, errImports), errors.Is(err, errLarge):
		return fmt.Errorf("%s %w", name, err)
	case errors.As(err, new(*regular.Error)):
		return err
	case strings.Contains(err.Error(), "escapes"):
		return fmt.Errorf("%s leaves the project directory through a symbolic link", name)
	}
	return fmt.Errorf("%s cannot be read: %w", name, err)
}

var (
	errImports = errors.New("is not there: this script is a single file without imports")
	errLarge   = fmt.Errorf("is larger than %s", size(maxFile))
)

// rootFiles reads from a directory and never from outside of it.
type rootFiles struct{ root *os.Root }

func (r rootFiles) read(name string) ([]byte, error) {
	f, err := regular.OpenIn(r.root, filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errLarge
	}
	return text, err
}

// oneFile is a project with a single file.
type oneFile struct {
	name string
	code []byte
}

func (o oneFile) read(name string) ([]byte, error) {
	if name != o.name {
		return nil, errImports
	}
	if len(o.code) > maxFile {
		return nil, errLarge
	}
	return o.code, nil
}

// memoryFiles is a project that is in memory.
type memoryFiles map[string][]byte

func (m memoryFiles) read(name string) ([]byte, error) {
	text, ok := m[name]
	switch {
	case !ok:
		return nil, fs.ErrNotExist
	case len(text) > maxFile:
		return nil, errLarge
	}
	return text, nil
}

// builtins are the modules of Node that have no prefix.
var builtins = map[string]bool{
	"assert": true, "async_hooks": true, "buffer": true, "child_process": true, "cluster": true,
	"console": true, "crypto": true, "dgram": true, "dns": true, "events": true, "fs": true,
	"http": true, "http2": true, "https": true, "module": true, "net": true, "os": true,
	"path": true, "perf_hooks": true, "process": true, "querystring": true, "readline": true,
	"stream": true, "string_decoder": true, "timers": true, "tls": true, "tty": true, "url": true,
	"util": true, "v8": true, "vm": true, "worker_threads": true, "zlib": true,
}
