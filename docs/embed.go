// Package docs holds the documents of this folder, for keep docs. Designs are not among them.
package docs

import "embed"

// Files are the documents and the pictures in them.
//
//go:embed *.md screens/*.svg screens/*.webp
var Files embed.FS
