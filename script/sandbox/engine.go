package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/keep-run/keep/script/sandbox/internal/fuel"
	"github.com/keep-run/keep/script/sandbox/internal/quickjs"
)

// engine is the compiled engine. Runtimes that are open at the same time share it: it takes most
// of the time of Open, and some megabytes. What scripts could change is in instances.
type engine struct {
	key   engineKey
	users int // protected by engines.mu

	mu     sync.Mutex // protects the next 3 fields until they are set
	wasm   wazero.Runtime
	module wazero.CompiledModule   // nil: not compiled yet
	cache  wazero.CompilationCache // nil without a cache
}

// engineKey is what an engine is compiled for.
type engineKey struct {
	cacheDir string
	memory   int // limit of an instance
}

// engines are those in use.
var engines = struct {
	mu   sync.Mutex // protects open and the users of each
	open map[engineKey]*engine
}{open: make(map[engineKey]*engine)}

// acquireEngine returns an engine that is compiled. Its user must release it.
func acquireEngine(ctx context.Context, key engineKey, workers int) (*engine, error) {
	engines.mu.Lock()
	e := engines.open[key]
	if e == nil {
		e = &engine{key: key}
		engines.open[key] = e
	}
	e.users++
	engines.mu.Unlock()
	if err := e.compile(ctx, workers); err != nil {
		return nil, errors.Join(err, e.release())
	}
	return e, nil
}

// release frees the engine if this was its last user.
func (e *engine) release() error {
	engines.mu.Lock()
	e.users--
	last := e.users == 0
	if last {
		delete(engines.open, e.key)
	}
	engines.mu.Unlock()
	if !last {
		return nil
	}
	return e.discard(context.Background()) // frees memory, which needs no deadline
}

// compile makes the engine's module stoppable and turns it into native code, unless another user has. A
// cache that cannot be used is done without: it only saves time.
func (e *engine) compile(ctx context.Context, workers int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.module != nil {
		return nil
	}
	module, _, err := fuel.Rewrite(quickjs.Module, loopsPerTick)
	if err != nil {
		return err
	}
	if dir := e.key.cacheDir; dir != "" {
		if entries, err := checkCache(dir); err == nil {
			if e.compileWith(ctx, module, dir, workers) == nil {
				_ = sealCache(dir, entries) // or else the next Open compiles again
				return nil
			}
		}
	}
	return e.compileWith(ctx, module, "", workers)
}

// compileWith fills in what compile makes, all or nothing.
func (e *engine) compileWith(ctx context.Context, module []byte, cacheDir string, workers int) (err error) {
	defer func() {
		if err != nil {
			_ = e.discard(ctx) // it held nothing that could be lost
		}
	}()
	cfg := wazero.NewRuntimeConfig().
		WithMemoryLimitPages(uint32(e.key.memory / wasmPage)).
		WithDebugInfoEnabled(false)
	if cacheDir != "" {
		if e.cache, err = wazero.NewCompilationCacheWithDir(cacheDir); err != nil {
			return err
		}
		cfg = cfg.WithCompilationCache(e.cache)
	}
	e.wasm = wazero.NewRuntimeWithConfig(ctx, cfg)
	if err := addImports(ctx, e.wasm); err != nil {
		return fmt.Errorf("sandbox: imports: %w", err)
	}
	e.module, err = e.wasm.CompileModule(experimental.WithCompilationWorkers(ctx, workers), module)
	if err != nil {
		return fmt.Errorf("sandbox: compile engine: %w", err)
	}
	return nil
}

// discard closes what compiling has left.
func (e *engine) discard(ctx context.Context) error {
	var errs []error
	if e.wasm != nil {
		errs = append(errs, e.wasm.Close(ctx))
	}
	if e.cache != nil {
		errs = append(errs, e.cache.Close(ctx))
	}
	e.wasm, e.module, e.cache = nil, nil, nil
	return errors.Join(errs...)
}
