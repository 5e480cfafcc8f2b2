//go:build !linux

package main

// coreLimit is for systems on which only files are written.
const coreLimit = 0
