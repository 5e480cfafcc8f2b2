package fuel_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/keep-run/keep/script/sandbox/internal/fuel"
	"github.com/keep-run/keep/script/sandbox/internal/quickjs"
)

// section is one section of a hand-made module.
func section(id byte, body ...byte) []byte { return append([]byte{id, byte(len(body))}, body...) }

func module(sections ...[]byte) []byte {
	return append([]byte("\x00asm\x01\x00\x00\x00"), bytes.Join(sections, nil)...)
}

// counting is a module whose function "run"(n) loops n times and returns how
// often; "spin" never ends. The table, the global and the export all name
// functions, whose numbers move.
//
//	(module
//	  (import "env" "seen" (func (param i32)))          ;; only with imports
//	  (func $run (param i32) (result i32) (local i32) …)
//	  (func $spin (loop br 0))
//	  (table 1 funcref) (elem (i32.const 0) $run)
//	  (global funcref (ref.func $spin))
//	  (export "run" (func $run)) (export "spin" (func $spin)) (export "viaTable" …))
func counting(imports bool) []byte {
	first := byte(0)
	var s [][]byte
	s = append(s, section(1, 3, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 0, 0, 0x60, 1, 0x7f, 0))
	if imports {
		first = 1
		s = append(s, section(2, 1, 3, 'e', 'n', 'v', 4, 's', 'e', 'e', 'n', 0, 2))
	}
	s = append(s,
		section(3, 3, 0, 1, 0),
		section(4, 1, 0x70, 0, 1),
		section(6, 1, 0x70, 0, 0xd2, first+1, 0x0b),
		section(7, 3, 3, 'r', 'u', 'n', 0, first, 4, 's', 'p', 'i', 'n', 0, first+1, 8, 'v', 'i', 'a', 'T', 'a', 'b', 'l', 'e', 0, first+2),
		section(9, 1, 0, 0x41, 0, 0x0b, 1, first),
	)
	run := []byte{1, 1, 0x7f} // one local
	run = append(run, 0x03, 0x40,
		0x20, 1, 0x41, 1, 0x6a, 0x21, 1, // n++
		0x20, 1, 0x20, 0, 0x48, 0x0d, 0, // br_if n < arg
		0x0b, 0x20, 1, 0x0b)
	spin := []byte{0, 0x03, 0x40, 0x0c, 0, 0x0b, 0x0b}
	via := []byte{0, 0x20, 0, 0x10, first, 0x0b} // a direct call
	code := []byte{3}
	for _, f := range [][]byte{run, spin, via} {
		code = append(append(code, byte(len(f))), f...)
	}
	s = append(s, section(10, code...))
	return module(s...)
}

// instantiate compiles a rewritten module whose ticks are counted, and refused
// from the one with number stop on.
func instantiate(t *testing.T, wasm []byte, ticks *int, stop int) api.Module {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	t.Cleanup(func() { rt.Close(ctx) })
	tick := func(context.Context) uint32 {
		*ticks++
		if stop > 0 && *ticks >= stop {
			return 1
		}
		return 0
	}
	if _, err := rt.NewHostModuleBuilder(fuel.Module).NewFunctionBuilder().WithFunc(tick).Export(fuel.Function).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(func(context.Context, uint32) {}).Export("seen").Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	m, err := rt.Instantiate(ctx, wasm)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRewriteKeepsWhatAModuleComputes(t *testing.T) {
	for _, imports := range []bool{false, true} {
		out, stats, err := fuel.Rewrite(counting(imports), 10)
		if err != nil {
			t.Fatal(err)
		}
		if stats.Functions != 3 || stats.Loops != 2 {
			t.Errorf("stats = %+v, want 3 functions and 2 loops", stats)
		}
		var ticks int
		m := instantiate(t, out, &ticks, 0)
		for _, name := range []string{"run", "viaTable"} {
			ticks = 0
			r, err := m.ExportedFunction(name).Call(context.Background(), 1000)
			if err != nil || r[0] != 1000 {
				t.Errorf("%s(1000) = %v, %v, want 1000", name, r, err)
			}
			if ticks != 100 {
				t.Errorf("%s(1000) ticked %d times, want 100", name, ticks)
			}
		}
	}
}

func TestRewrittenModuleCanBeStopped(t *testing.T) {
	out, _, err := fuel.Rewrite(counting(true), 1000)
	if err != nil {
		t.Fatal(err)
	}
	var ticks int
	m := instantiate(t, out, &ticks, 5)
	if _, err := m.ExportedFunction("spin").Call(context.Background()); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("spin: %v, want a trap", err)
	}
	if ticks != 5 {
		t.Errorf("ticked %d times, want 5", ticks)
	}
}

func TestRewriteOfTheEngine(t *testing.T) {
	out, stats, err := fuel.Rewrite(quickjs.Module, 20_000)
	if err != nil {
		t.Fatal(err)
	}
	if stats.Loops < 1000 || stats.Functions < 1000 {
		t.Errorf("stats = %+v, want at least a thousand of each", stats)
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	if _, err := rt.CompileModule(ctx, out); err != nil { // validates
		t.Errorf("rewritten engine: %v", err)
	}
	again, _, err := fuel.Rewrite(quickjs.Module, 20_000)
	if err != nil || !bytes.Equal(out, again) {
		t.Errorf("a second rewrite differs: %v", err)
	}
}

func TestRewriteRefuses(t *testing.T) {
	types := section(1, 1, 0x60, 0, 0)
	for _, tt := range []struct {
		name   string
		module []byte
		want   string
	}{
		{"nothing", nil, "no wasm 1 header"},
		{"another version", []byte("\x00asm\x02\x00\x00\x00"), "no wasm 1 header"},
		{"no types", module(section(3, 0)), "no type section"},
		{"sections out of order", module(types, section(3, 0), types), "section 1 out of place"},
		{"an unknown section", module(types, section(13, 0)), "section 13 out of place"},
		{"a section cut short", append(module(types), 3, 9, 1), "ends too early"},
		{"bytes after a section's end", module(section(1, 1, 0x60, 0, 0, 0)), "1 bytes too many"},
		{"a type that is no function", module(section(1, 1, 0x50, 0, 0)), "type form 0x50"},
		{"an unknown import", module(types, section(2, 1, 1, 'a', 1, 'b', 4, 0)), "import of kind 4"},
		{"an opcode of SIMD", module(types, section(3, 1, 0), section(10, 1, 5, 0, 0xfd, 0, 0x1a, 0x0b)), "opcode 0xfd"},
		{"an unknown 0xfc", module(types, section(3, 1, 0), section(10, 1, 4, 0, 0xfc, 99, 0x0b)), "opcode 0xfc 99"},
		{"a function without end", module(types, section(3, 1, 0), section(10, 1, 2, 0, 0x01)), "no end"},
		{"a number over 32 bits", module(types, section(3, 1, 0), section(10, 0xff, 0xff, 0xff, 0xff, 0x7f)), "over 32 bits"},
		{"a list longer than its section", module(section(1, 0xff, 0x7f)), "ends too early"},
		{"an element segment of another kind", module(types, section(9, 1, 8)), "flags 8"},
	} {
		_, _, err := fuel.Rewrite(tt.module, 1)
		if !errors.Is(err, fuel.ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want ErrMalformed with %q", tt.name, err, tt.want)
		}
	}
	if _, _, err := fuel.Rewrite(counting(false), 0); err == nil {
		t.Error("no loops between ticks: no error")
	}
}

// FuzzRewrite wants that no input makes Rewrite panic, and that what it accepts
// of a valid module is valid again.
func FuzzRewrite(f *testing.F) {
	f.Add(counting(false))
	f.Add(counting(true))
	f.Add(module(section(1, 0)))
	f.Add(quickjs.Module[:4096])
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	f.Cleanup(func() { rt.Close(ctx) })
	f.Fuzz(func(t *testing.T, b []byte) {
		out, _, err := fuel.Rewrite(b, 100)
		if err != nil || len(b) > 1<<16 {
			return
		}
		before, err := rt.CompileModule(ctx, b)
		if err != nil {
			return
		}
		before.Close(ctx)
		after, err := rt.CompileModule(ctx, out)
		if err != nil {
			t.Fatalf("valid before, not after: %v\n%x", err, b)
		}
		after.Close(ctx)
	})
}

func BenchmarkRewrite(b *testing.B) {
	b.SetBytes(int64(len(quickjs.Module)))
	for b.Loop() {
		if _, _, err := fuel.Rewrite(quickjs.Module, 20_000); err != nil {
			b.Fatal(err)
		}
	}
}
