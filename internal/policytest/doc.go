// Package policytest holds the tests that are about the repository itself: which
// package may import which, who may read the clock, and a few habits that a
// compiler does not check. A diagram cannot fail; these tests do.
package policytest
