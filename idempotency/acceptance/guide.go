package acceptance

import _ "embed"

// Guide is a text for the documentation of an API behind the guard: what clients do,
// in Markdown.
//
//go:embed guide.md
var Guide string
