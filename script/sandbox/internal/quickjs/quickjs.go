// Package quickjs holds QuickJS-NG compiled to WebAssembly, exactly as the npm
// package quickjs-wasi publishes it.
//
// Nothing here is built or changed by Keep: quickjs.wasm is the package's file,
// byte for byte, pinned by [SHA256], which a test compares. The counter that
// makes it stoppable is added in memory when a sandbox opens (package fuel).
//
// The files come from internal/generate.
package quickjs

import _ "embed"

// Version is the npm package that the module comes from, and SHA256 the
// checksum of the module in it, in hex.
const (
	Version = "quickjs-wasi@3.6.2"
	SHA256  = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"
)

// Module is the WebAssembly binary. It must not be changed.
//
//go:embed quickjs.wasm
var Module []byte
